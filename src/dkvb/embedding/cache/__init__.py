"""Embeddings computed once and kept on disk."""

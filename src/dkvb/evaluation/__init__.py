"""Streams, metrics, experiments and reports."""

"""Models on disk and their export."""

"""Frozen encoders of images and texts."""

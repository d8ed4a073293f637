"""Measurements of keys, codes, values and classifiers, as pure functions."""

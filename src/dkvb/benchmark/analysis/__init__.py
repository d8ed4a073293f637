"""Measurements on keys, codes, values and classifiers: pure functions, nothing here learns."""

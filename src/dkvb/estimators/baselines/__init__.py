"""Baselines: scikit-learn classifiers that learn from the same streams."""

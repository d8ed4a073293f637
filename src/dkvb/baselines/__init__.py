"""Baselines: scikit-learn classifiers that are trained on the same streams."""

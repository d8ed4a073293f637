"""scikit-learn estimators over frozen embeddings."""

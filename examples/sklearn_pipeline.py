"""The bottleneck in a scikit-learn pipeline: scaling, cross-validation, a search over settings.

    python examples/sklearn_pipeline.py

Keys are fitted once, without labels, and shared: cloning a pipeline never fits them again.
"""

from __future__ import annotations

from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dkvb import BottleneckClassifier, fit_keys
from dkvb.embedding.datasets.bundled import load


def main() -> tuple[float, float]:
    """Accuracy by cross-validation, and on the test set after a search over settings."""
    unlabelled, _ = load("cifar100", "train")
    keys = fit_keys(
        # What comes before the classifier in the pipeline comes before its keys too.
        Normalizer().transform(unlabelled),
        n_codebooks=64,
        n_pairs=128,
        key_dim=8,
        epochs=3,
        conditioning="whitened",
        n_components=64,
    )
    X, y = load("cifar10", "train")
    pipeline = make_pipeline(Normalizer(), BottleneckClassifier(keys, epochs=10))
    folds = cross_val_score(pipeline, X, y, cv=3)
    print(f"cross-validation: {folds.mean():.1%} ± {folds.std():.1%}")

    settings = {"bottleneckclassifier__learning_rate": [0.1, 1.0, 10.0]}
    search = GridSearchCV(pipeline, settings, cv=3).fit(X, y)
    tested = search.score(*load("cifar10", "test"))
    print(f"best: {search.best_params_}, test set: {tested:.1%}")
    return float(folds.mean()), float(tested)


if __name__ == "__main__":
    main()

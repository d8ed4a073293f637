"""Which rows to label next, also for classifiers that have no such method."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkvb._support.validation import as_float32
from dkvb.estimators.answers import Answers
from dkvb.estimators.suggest import suggest


def suggest_rows(classifier: Any, X: Any, answers: Answers, n: int) -> list[int]:
    """Return the positions of the n rows in X (k, m) to label next, the most useful first.

    `answers` are the classifier's for X. See `KernelClassifier.suggest`; for other classifiers,
    rows differ by their embeddings.
    """
    n = min(n, len(X))
    if hasattr(classifier, "suggest"):
        return [int(row) for row in classifier.suggest(X, n)]
    if answers.probabilities is None:
        raise ValueError(
            f"suggestions: expected a classifier with probabilities; {type(classifier).__name__} "
            "has none"
        )
    novelty = np.zeros(len(X)) if answers.novelty is None else answers.novelty
    z = as_float32(X)
    return [int(row) for row in suggest(answers.probabilities, novelty, z, n)]

"""Stratified cross-validation, and the accuracy of a fitted classifier on labelled data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold

from dkvb._support import validation
from dkvb.evaluation.metrics import mean_per_class_accuracy, per_class_accuracy
from dkvb.evaluation.records import mean_and_std

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scores:
    """Predictions for labelled samples, and the accuracies that follow from them.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        The labels that were evaluated, sorted.
    y_true, y_pred : ndarray of shape (n_samples,)
        True and predicted labels.
    fold : ndarray of shape (n_samples,)
        Fold in which each sample was predicted; all 0 without cross-validation.
    left_out : dict from label to int
        Labels that could not be evaluated, with their numbers of samples.
    """

    classes: Array
    y_true: Array
    y_pred: Array
    fold: Array
    left_out: dict[Any, int]

    @property
    def n_folds(self) -> int:
        """Number of folds, 1 without cross-validation."""
        return int(self.fold.max()) + 1

    def summarise(self) -> dict[str, Any]:
        """Return accuracies in percent, mean ± standard deviation over folds."""
        correct = self.y_true == self.y_pred
        folds = [self.fold == number for number in range(self.n_folds)]
        balanced = [
            mean_per_class_accuracy(
                per_class_accuracy(self.y_true[fold], self.y_pred[fold], self.classes)
            )
            for fold in folds
        ]
        return {
            "accuracy": mean_and_std([float(correct[fold].mean()) for fold in folds], 100),
            "balanced accuracy": mean_and_std(balanced, 100),
            "samples": len(self.y_true),
            "classes": len(self.classes),
        }

    def per_class(self) -> dict[str, dict[str, Any]]:
        """Return accuracy in percent and number of samples of each class, lowest accuracy first."""
        accuracy = per_class_accuracy(self.y_true, self.y_pred, self.classes)
        order = np.argsort(accuracy, kind="stable")
        return {
            str(self.classes[i]): {
                "accuracy": round(100 * float(accuracy[i]), 2),
                "samples": int((self.y_true == self.classes[i]).sum()),
            }
            for i in order
        }


def cross_validate(
    make_classifier: Callable[[], Any], X: Array, y: Array, n_folds: int = 5, seed: int = 0
) -> Scores:
    """Train on all folds but one, predict that one, for each fold.

    Classes with one sample cannot be cross-validated: they are left out and reported. There are at
    most as many folds as the smallest other class has samples.

    Parameters
    ----------
    make_classifier : callable
        Returns a new classifier with `fit` and `predict`.
    X : ndarray of shape (n_samples, n_features)
        Embeddings.
    y : ndarray of shape (n_samples,)
        Labels.
    n_folds : int, default=5
        Number of folds.
    seed : int, default=0
        Random seed of the folds.
    """
    if validation.positive_int("n_folds", n_folds) < 2:
        raise ValueError(f"n_folds: expected at least 2; got {n_folds}")
    labels, class_counts = np.unique(y, return_counts=True)
    is_single = class_counts < 2
    left_out = dict.fromkeys(labels[is_single].tolist(), 1)
    keep = ~np.isin(y, labels[is_single])
    if not keep.any():
        raise ValueError(
            "y: expected at least two samples of a class for cross-validation; got one of each"
        )
    indices = np.flatnonzero(keep)
    y_true = y[indices]
    splits = min(n_folds, int(class_counts[~is_single].min()))
    y_pred, fold = np.empty_like(y_true), np.zeros(len(indices), np.int64)
    folds = StratifiedKFold(splits, shuffle=True, random_state=seed)
    for number, (train, test) in enumerate(folds.split(indices, y_true)):
        classifier = make_classifier()
        classifier.fit(X[indices[train]], y_true[train])
        y_pred[test] = classifier.predict(X[indices[test]])
        fold[test] = number
    return Scores(labels[~is_single], y_true, y_pred, fold, left_out)


def score_classifier(classifier: Any, X: Array, y: Array) -> Scores:
    """Score a fitted classifier on labelled data; labels that it does not know are left out."""
    known = np.isin(y, classifier.classes_)
    labels, class_counts = np.unique(y[~known], return_counts=True)
    left_out = dict(zip(labels.tolist(), class_counts.tolist(), strict=True))
    if not known.any():
        raise ValueError(
            "y: expected labels that the classifier knows; got none of them: "
            f"{', '.join(map(str, labels[:5].tolist()))}"
        )
    indices = np.flatnonzero(known)
    y_true = y[indices]
    y_pred = np.asarray(classifier.predict(X[indices]))
    return Scores(np.unique(y_true), y_true, y_pred, np.zeros(len(indices), np.int64), left_out)

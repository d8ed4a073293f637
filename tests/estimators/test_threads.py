"""Predicting while another thread learns: every answer is that of one moment."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import pytest

from dkvb import fit_keys

from .settings import blobs, bottleneck

N_CLASSES = 12


@cache
def keys():
    return fit_keys(
        blobs(N_CLASSES, seed=7)[0], preset="paper", n_codebooks=8, n_pairs=16, key_dim=3
    )


@pytest.mark.parametrize("rule", ["sgd", "counts", "least_squares"])
def test_answers_are_those_of_one_moment(rule):
    X, y = blobs(N_CLASSES)
    names = np.array([f"class {'x' * k}" for k in range(N_CLASSES)])[y]  # widths grow too
    queries = blobs(N_CLASSES, seed=1)[0][:20]

    def steps():
        """The classifier after each stage of its life."""
        clf = bottleneck(
            keys(), rule, **({"learning_rate": 20.0, "epochs": 5} if rule == "sgd" else {})
        )
        for label in np.unique(names):
            yield clf.partial_fit(X[names == label], names[names == label])
        if rule == "counts":
            for label in np.unique(names)[: N_CLASSES // 2]:
                yield clf.forget(label)
            yield clf.grow_keys(queries + 30)

    def answer(clf):
        return clf.predict(queries).tolist(), clf.predict_proba(queries).tobytes()

    expected_labels, expected_shares = set(), set()
    for clf in steps():
        labels, shares = answer(clf)
        expected_labels.add(tuple(labels))
        expected_shares.add(shares)

    life = steps()
    clf = next(life)
    done = threading.Event()
    problems, seen, answered = [], set(), []

    def hammer():
        try:
            while not done.is_set():
                labels, shares = answer(clf)
                seen.add(tuple(labels))
                answered.append(1)
                if tuple(labels) not in expected_labels or shares not in expected_shares:
                    problems.append(labels)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in life:
            # More answers than there are threads: one at least began after this stage.
            enough = len(answered) + 4
            while len(answered) < enough and not problems:
                done.wait(0.001)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert len(seen) > 1  # they did predict while it learned

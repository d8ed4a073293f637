"""A few inputs are answered from rows that were laid out once, also after more was learned."""

import numpy as np

from dkvb import KernelClassifier
from dkvb.memory import points, state


def test_a_few_inputs_have_the_answers_of_many(monkeypatch):
    monkeypatch.setattr(points, "EXACT_NUMBERS", 0)  # rows in float32
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = (2 * np.eye(3, 20)[y] + rng.normal(size=(200, 20))).astype(np.float32)
    clf = KernelClassifier().fit(X[:150], y[:150])
    for learned in (0, 5, 5):  # rows beside those that were laid out, then rows known already
        if learned:
            clf.partial_fit(X[150 : 150 + learned], y[150 : 150 + learned])
        many, few = clf.ask(X), [clf.ask(X[i : i + 10]) for i in range(0, 200, 10)]
        solution = clf._state.solution
        assert vars(solution)["panels"].n_rows in (150, len(solution))
        for name in ("probabilities", "novelty"):
            found = np.concatenate([getattr(one, name) for one in few])
            np.testing.assert_allclose(found, getattr(many, name), rtol=2e-4, atol=2e-5)


def test_what_answers_need_is_kept_while_rows_are_learned(monkeypatch):
    monkeypatch.setattr(points, "EXACT_NUMBERS", 0)
    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)  # rows are folded in
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = (2 * np.eye(3, 20)[y] + rng.normal(size=(200, 20))).astype(np.float32)
    clf = KernelClassifier().fit(X[:150], y[:150])
    clf.ask(X[:1])
    before = clf._state
    for place, label in ((150, y[150]), (151, 3)):  # of a class that is known, and of a new one
        clf.partial_fit(X[place][None], [label]).ask(X[:1])
        now = clf._state
        assert now.solution.panels is before.solution.panels
        assert now.reference_distances is before.reference_distances
        assert now.calibration is before.calibration
    clf.forget_samples(X[150][None], y[150][None])
    assert clf._state.reference_distances is not before.reference_distances

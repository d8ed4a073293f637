"""A few inputs are answered from rows that were laid out once, also after more was learned."""

import numpy as np

from dkvb import KernelClassifier
from dkvb.memory import points


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
        state = clf._state.solution
        assert vars(state)["panels"].n_rows in (150, len(state))
        for name in ("probabilities", "novelty"):
            found = np.concatenate([getattr(one, name) for one in few])
            np.testing.assert_allclose(found, getattr(many, name), rtol=2e-4, atol=2e-5)

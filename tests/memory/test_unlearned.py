"""What was unlearned is nowhere: not among the points, not in a pickle, not in a solution found
beside."""

import pickle
from copy import copy, deepcopy

import numpy as np
import pytest

from dkvb import KernelClassifier, load
from dkvb.memory import state, update
from dkvb.memory.blocks import Growing
from dkvb.memory.cells import quantised

RNG = np.random.default_rng(0)
Y = RNG.choice(["a", "m", "z"], p=[0.1, 0.8, 0.1], size=400)
X = (3 * np.eye(3, 8)[np.searchsorted(["a", "m", "z"], Y)] + RNG.normal(size=(400, 8))).astype("f4")


@pytest.fixture(autouse=True)
def corrected(monkeypatch):
    """Changes correct the solution, as with many examples."""
    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)


@pytest.mark.parametrize("keep", ["examples", "sums"])
@pytest.mark.parametrize("label", ["a", "m", "z"])
def test_no_point_is_left_of_a_class_that_was_forgotten(keep, label, tmp_path):
    model = KernelClassifier(keep).fit(X, Y).forget(label)
    s = model._state.solution
    assert (s.counts > 0).all()
    assert s.counts.sum() == (label != Y).sum()
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.novelty(X), model.novelty(X), atol=1e-6)
    for other in (pickle.loads(pickle.dumps(model)), deepcopy(model).prepare()):
        other.partial_fit(X[:3], Y[:3])
        assert np.isfinite(other.predict_proba(X)).all()


def test_a_solution_found_beside_does_not_bring_an_unlearned_row_back():
    model = KernelClassifier("sums").fit(X, Y)
    tuned = copy(model).tune()
    cells = model._state.memory
    place = int(np.argmax(cells.counts))
    codes = cells.coder.codes(X, quantised(X, cells.coder.power))
    mine = np.nonzero((codes == cells.hashes[place]) & (_label(model, place) == Y))[0]
    model.forget_samples(X[mine[:1]], Y[mine[:1]])
    model.partial_fit(X[mine[1:2]], Y[mine[1:2]])  # as many rows as before in the same cell
    assert not model.adopt(tuned)


def _label(model, place):
    return model.classes_[model._state.memory.targets[place]]


def test_an_unlearned_row_does_not_stay_among_the_few_that_correct_others(monkeypatch, tmp_path):
    monkeypatch.setattr(update, "SUPPORT_POINTS", 40)
    KernelClassifier().fit(X, Y).save(tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors").partial_fit(X[:1] + 0.01, Y[:1])
    s = model._state.solution
    few = s.z.array[s.targets < 0]
    assert len(few)
    z = s.by(X)
    place = int(np.argmin([np.abs(few - one).max(axis=1).min() for one in z]))
    model.forget_samples(X[place : place + 1], Y[place : place + 1])
    s = model._state.solution
    assert np.abs(s.z.array - s.by(X[place : place + 1])).max(axis=1).min() > 1e-3


def test_what_a_successor_learned_is_in_no_pickle():
    first = Growing(np.zeros((2, 3))).appended(np.ones((1, 3)))
    second = first.appended(np.full((1, 3), 7.0))
    assert (second.array[-1] == 7).all()
    again = pickle.loads(pickle.dumps(first))
    assert len(again._buffer) == len(again) == 3

"""Predictions go on while the service solves for what was learned."""

from __future__ import annotations

import time
from copy import copy
from threading import Event

import numpy as np
import pytest

from dkvb import KernelClassifier
from dkvb.memory import state
from dkvb.serve.solver import Solver

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=400)
X = (2 * np.eye(3, 8)[Y] + 0.3 * RNG.normal(size=(400, 8))).astype(np.float32)


@pytest.fixture
def slow(monkeypatch):
    """Tuning that waits until it is let go."""
    go, tuned = Event(), state.KernelState.tuned

    def wait(self, *given):
        go.wait(10)
        return tuned(self, *given)

    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)
    first = KernelClassifier().fit(X[:100], Y[:100])
    monkeypatch.setattr(state.KernelState, "tuned", wait)
    return first, go


def until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_many_rows_are_solved_for_beside(slow):
    first, go = slow
    solver = Solver()
    assert solver.settled(first) is first
    many = copy(first).partial_fit(X[100:300], Y[100:300])
    assert not many.is_settled
    assert solver.settled(many) is first  # and nobody has waited
    more = copy(many).partial_fit(X[300:310], Y[300:310])  # learned while that is solved for
    assert solver.settled(more) is first
    go.set()
    assert until(lambda: solver.settled(more) is more)
    assert more._state.solution.chosen_for == 300
    assert not more._state.solution.pending
    assert more.score(X, Y) > 0.95


def test_a_row_is_answered_for_at_once_and_doubled_examples_are_tuned_beside(slow):
    first, go = slow
    solver, latest = Solver(), first
    solver.settled(latest)
    for start in range(100, 220, 20):
        latest = copy(latest).partial_fit(X[start : start + 20], Y[start : start + 20])
        assert solver.settled(latest) is latest
    assert latest.is_tuning_due
    assert latest._state.solution.chosen_for == 100
    go.set()
    assert until(lambda: solver.settled(latest) is latest and not latest.is_tuning_due)
    assert latest._state.solution.chosen_for == 200  # when that became due


def test_a_solution_of_rows_that_were_unlearned_since_is_not_taken(slow):
    first, go = slow
    go.set()
    tuned = copy(first).tune()
    less = copy(first).forget_samples(X[:1], Y[:1])
    assert not copy(less).adopt(tuned)
    renamed = copy(first).rename(0, 7)
    assert not copy(renamed).adopt(tuned)
    assert copy(first).adopt(tuned)

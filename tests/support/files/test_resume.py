"""Resumed equals uninterrupted, wherever a run was interrupted: between stages or inside one."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dkvb.estimators.registry import load_classifier
from dkvb.evaluation.runner import get_epochs, set_epochs

from ...estimators.settings import NAMES
from .models import answers, make, rows

INTERRUPTIONS = 20
STAGES = [["yak", "ant"], ["bee"], ["cow", "ant"]]


def steps(name):
    """A run as the loop of `evaluate` cuts it: stages, and inside them pieces of some epochs."""
    X, y = rows()
    epochs = get_epochs(make(name)) if getattr(make(name), "learns_in_epochs", True) else None
    for classes in STAGES:
        stage = np.isin(y, classes)
        pieces = [None] if epochs is None else np.diff(np.linspace(0, epochs, 4).astype(int))
        for piece in pieces:
            if piece is None or piece > 0:
                yield piece, X[stage], y[stage]


def run(model, some_steps):
    for epochs, X, y in some_steps:
        if epochs is not None:
            set_epochs(model, int(epochs))
        model.partial_fit(X, y, classes=np.unique(np.concatenate(STAGES)))
    return model


@cache
def uninterrupted(name):
    return [array.tobytes() for array in answers(run(make(name), steps(name)), rows(1)[0])]


@pytest.mark.parametrize("name", [*NAMES, "float32", "bfloat16"])
def test_resumed_equals_uninterrupted(name, tmp_path):
    every = list(steps(name))
    rng = np.random.default_rng(len(name))
    # Several interruptions of one run, until there were twenty.
    left = INTERRUPTIONS
    while left > 0:
        count = min(left, int(rng.integers(1, len(every) + 1)))
        cuts = np.sort(rng.choice(len(every) + 1, size=count, replace=False))
        left -= count
        model = make(name)
        for part in np.split(np.arange(len(every)), cuts):
            run(model, [every[step] for step in part])
            model.save(tmp_path / "run")
            model = load_classifier(tmp_path / "run")
        found = [array.tobytes() for array in answers(model, rows(1)[0])]
        assert found == uninterrupted(name)


def test_a_run_without_its_position_is_another_run(tmp_path):
    """What the test above would miss if epochs were not counted."""
    every = list(steps("float32"))
    model = run(make("float32"), every[:4])
    state = model._state
    model._state = replace(state, values=replace(state.values, epoch=0))
    model.set_params(batch_size=4)
    other = run(make("float32"), every[:4])
    other.set_params(batch_size=4)
    X, _ = rows(1)
    assert not np.array_equal(
        run(model, every[4:]).decision_function(X), run(other, every[4:]).decision_function(X)
    )

"""Whatever was learned, unlearned, renamed, merged, saved and loaded in between: what is left is
what learning the rest from the start gives, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkvb import KernelClassifier, fit_keys, load

from .problems import same_state

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(24, 5)).astype(np.float32)
ROWS[12:15] = ROWS[0]  # copies
LABELS = ["ant", "bee", "cat", "dog"]
KEYS = fit_keys(RNG.normal(size=(200, 5)), n_codebooks=2, n_pairs=4, key_dim=3)
MEMORIES = [{"keep": "examples"}, {"keep": "sums"}, {"keep": "sums", "keys": KEYS}]


class Stream:
    """A classifier and, beside it, the list of what it should know."""

    def __init__(self, data, memory):
        self.data, self.memory = data, memory
        self.known: list[tuple[int, str]] = []
        self.model = KernelClassifier(**memory)
        self.learn()

    def draw_rows(self, most=6):
        return self.data.draw(st.lists(st.integers(0, len(ROWS) - 1), min_size=1, max_size=most))

    def draw_known(self):
        places = st.sets(st.integers(0, len(self.known) - 1), min_size=1, max_size=4)
        return sorted(self.data.draw(places))

    def draw_label(self):
        return self.data.draw(st.sampled_from(sorted({label for _, label in self.known})))

    def arrays(self, pairs):
        return ROWS[[row for row, _ in pairs]], np.array([label for _, label in pairs])

    def draw_pairs(self):
        names = st.sampled_from(LABELS)
        return [(row, self.data.draw(names)) for row in self.draw_rows()]

    def learn(self):
        pairs = self.draw_pairs()
        self.model.partial_fit(*self.arrays(pairs))
        self.known += pairs

    def forget_samples(self):
        gone = self.draw_known()
        self.model.forget_samples(*self.arrays([self.known[i] for i in gone]))
        self.known = [pair for i, pair in enumerate(self.known) if i not in gone]

    def forget(self):
        label = self.draw_label()
        self.model.forget(label)
        self.known = [pair for pair in self.known if pair[1] != label]

    def relabel(self):
        places = self.draw_known()
        new = [self.data.draw(st.sampled_from(LABELS)) for _ in places]
        X, old = self.arrays([self.known[i] for i in places])
        self.model.relabel(X, old, np.array(new))
        for place, label in zip(places, new, strict=True):
            self.known[place] = self.known[place][0], label

    def rename(self):
        label, other = self.draw_label(), self.data.draw(st.sampled_from([*LABELS, "emu", "zebu"]))
        if other in {name for _, name in self.known}:
            return
        self.model.rename(label, other)
        self.known = [(row, other if name == label else name) for row, name in self.known]

    def merge_classes(self):
        label, into = self.draw_label(), self.draw_label()
        self.model.merge_classes([label, into], into)
        self.known = [(row, into if name == label else name) for row, name in self.known]

    def merge(self):
        pairs = self.draw_pairs()
        self.model.merge(KernelClassifier(**self.memory).partial_fit(*self.arrays(pairs)))
        self.known += pairs

    def save(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self.model.save(path)
            self.model = load(path)

    def predict(self):
        self.model.predict(ROWS)


OPERATIONS = ["learn", "forget_samples", "forget", "relabel", "rename", "merge_classes", "merge",
              "save", "predict"]  # fmt: skip


@pytest.mark.parametrize("memory", MEMORIES, ids=["examples", "signs", "codebooks"])
@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_stream_leaves_what_learning_the_rest_from_the_start_gives(memory, data):
    stream = Stream(data, memory)
    for _ in range(data.draw(st.integers(1, 6))):
        if not stream.known:
            stream.learn()
        getattr(stream, data.draw(st.sampled_from(OPERATIONS)))()
    if not stream.known:
        return
    X, y = stream.arrays(sorted(stream.known))
    whole = KernelClassifier(**memory).fit(X, y)
    assert same_state(stream.model, whole)
    tuned = stream.model.tune().decision_function(ROWS)
    np.testing.assert_allclose(tuned, whole.decision_function(ROWS), atol=1e-6)


@pytest.mark.parametrize("memory", MEMORIES, ids=["examples", "signs", "codebooks"])
def test_one_learned_row_changes_only_its_cell(memory):
    y = np.arange(len(ROWS)) % 3
    model = KernelClassifier(**memory).fit(ROWS, y)
    before = model._state.memory
    model.partial_fit(ROWS[5:6] + 0.001, y[5:6])
    after = model._state.memory
    n = len(before)
    assert len(after) <= n + 1
    if memory["keep"] == "examples":
        assert after.halves.joined()[:n].tobytes() == before.halves.joined().tobytes()
        return
    changed = (after.sums.joined()[:n] != before.sums.joined()).any(axis=1)
    changed |= after.counts[:n] != before.counts
    assert changed.sum() + len(after) - n == 1


@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_corrections_are_what_solving_anew_gives(keep, monkeypatch):
    """With all points at hand, after a file was opened, and with a few that stand for all."""
    from dkvb.memory import solve as solving
    from dkvb.memory import state, update

    rng = np.random.default_rng(0)
    y = rng.integers(4, size=400)
    X = (rng.normal(size=(4, 8))[y] + 0.7 * rng.normal(size=(400, 8))).astype(np.float32)
    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)
    model = KernelClassifier(keep).fit(X[:300], y[:300])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        opened, few = (load(Path(folder) / "model.safetensors") for _ in range(2))
    monkeypatch.setattr(update, "SUPPORT_POINTS", 60)
    few.partial_fit(X[300:301], y[300:301])
    monkeypatch.undo()
    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)
    few.partial_fit(X[301:320], y[301:320]).forget_samples(X[:10], y[:10])
    for one in (model, opened):
        one.partial_fit(X[300:320], y[300:320]).forget_samples(X[:10], y[:10])
        s, kept = one._state.solution, one._state
        again = solving.solve(kept.memory, kept.outputs, s.setting, s.chosen_for, s.by, s.gamma)
        np.testing.assert_allclose(s.predict(X), again.predict(X), atol=1e-5)
    assert np.mean(few.predict(X) == model.predict(X)) > 0.97


@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_a_prepared_model_answers_and_learns_as_before(keep, monkeypatch):
    from dkvb.memory import state, update

    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300)
    X = (rng.normal(size=(4, 8))[y] + 0.7 * rng.normal(size=(300, 8))).astype(np.float32)
    monkeypatch.setattr(state, "CHOSEN_AT_ONCE", 0)
    monkeypatch.setattr(update, "SUPPORT_POINTS", 60)
    with tempfile.TemporaryDirectory() as folder:
        KernelClassifier(keep).fit(X[:290], y[:290]).save(Path(folder) / "model.safetensors")
        plain, prepared = (load(Path(folder) / "model.safetensors") for _ in range(2))
    prepared.prepare()
    assert prepared._state.solution.inverse is not None
    np.testing.assert_allclose(prepared.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    for one in (plain, prepared):
        one.partial_fit(X[290:], y[290:])
    np.testing.assert_allclose(prepared.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    assert same_state(plain, prepared)

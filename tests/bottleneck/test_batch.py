"""Embeddings with codes that are searched for once."""

import numpy as np
import pytest
import torch

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck import Batch
from dkvb.bottleneck import batch as batch_module


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(120, 6)).astype(np.float32)
    return fit_keys(X, n_codebooks=4, n_pairs=8, key_dim=2), X, np.arange(120) % 3


def test_codes_and_distances_are_those_of_the_keys(problem):
    keys, X, _ = problem
    batch = Batch(keys, X)
    assert batch.known_codes is None
    assert torch.equal(batch.codes, keys.codes(X))
    assert torch.equal(batch.distances, keys.distances(X, keys.codes(X)))
    together = Batch(keys, X)
    assert torch.equal(together.distances, batch.distances)
    assert torch.equal(together.known_codes, batch.codes)  # found on the way


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize(
    "rows", [slice(3, 9), np.array([5, 1, 5]), torch.tensor([7]), np.arange(120) % 2 == 0]
)
def test_some_rows(problem, searched, rows):
    keys, X, _ = problem
    batch = Batch(keys, X)
    if searched:
        assert len(batch.codes) == 120
    some = batch[rows]
    assert (some.known_codes is not None) == searched
    expected = keys.codes(X)[rows if not isinstance(rows, np.ndarray) else torch.from_numpy(rows)]
    assert torch.equal(some.codes, expected)
    assert some.shape == (len(expected), 6)


def test_every_method_searches_once(problem, monkeypatch):
    keys, X, y = problem
    searched = []
    real = batch_module.nearest_keys
    monkeypatch.setattr(
        batch_module,
        "nearest_keys",
        lambda *how, **more: searched.append(len(how[1])) or real(*how, **more),
    )
    clf = BottleneckClassifier(keys)
    batch = clf.batch(X)
    clf.partial_fit(batch, y)
    clf.set_params(novelty_threshold=0.9)
    for method in (clf.predict, clf.predict_proba, clf.decision_function, clf.novelty):
        assert len(method(batch)) == len(X)
    assert searched == [120]


def test_memory_maps_are_checked_when_they_are_read(problem, tmp_path):
    keys, X, y = problem
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    clf = BottleneckClassifier(keys).fit(mapped, y)
    assert np.array_equal(clf.predict(mapped), BottleneckClassifier(keys).fit(X, y).predict(X))
    X[77, 2] = np.nan
    np.save(tmp_path / "bad.npy", X)
    before = dict(vars(clf))
    with pytest.raises(ValueError, match="first is row 77"):
        clf.partial_fit(np.load(tmp_path / "bad.npy", mmap_mode="r"), y)
    assert vars(clf) == before

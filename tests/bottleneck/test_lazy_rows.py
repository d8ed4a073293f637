"""Codes of some rows leave the embeddings of these where they are."""

import numpy as np
import pytest
import torch

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck import Batch
from dkvb.bottleneck.lazy_rows import picked


class Unread(np.ndarray):
    """An array that counts how many of its rows were read."""

    read = 0

    def __getitem__(self, rows):
        found = np.asarray(self)[rows]
        Unread.read += len(found)
        return found


@pytest.fixture
def array(rng):
    return rng.normal(size=(60, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "rows",
    [
        slice(5, 20, 3),
        np.array([7, 3, 3, 59]),
        torch.tensor([7, 3, 3, 59]),
        np.arange(60) % 7 == 0,
        torch.arange(60) % 7 == 0,
        [4, 2],
    ],
    ids=["slice", "places", "tensor", "mask", "mask of torch", "list"],
)
def test_the_rows_are_those_of_the_array(array, rows):
    expected = array[rows.numpy() if isinstance(rows, torch.Tensor) else rows]
    for found in (picked(array, rows), picked(torch.from_numpy(array), rows)):
        assert len(found) == len(expected)
        assert tuple(found.shape) == expected.shape
        assert np.array_equal(np.asarray(found), expected)
        assert np.array_equal(np.asarray(found[1:]), expected[1:])
    again = picked(picked(array, rows), np.array([1, 0]))
    assert np.array_equal(np.asarray(again), expected[[1, 0]])


def test_learning_from_codes_reads_no_embedding(array):
    keys = fit_keys(array, preset="paper", n_codebooks=2, n_pairs=8, key_dim=2)
    y, order = np.arange(60) % 3, np.random.default_rng(1).permutation(60)
    model = BottleneckClassifier(keys, candidate_keys="all")
    batch = Batch(keys, array.view(Unread))
    batch.codes  # noqa: B018
    Unread.read = 0
    model.fit(batch[order], y[order])
    found = model.predict(batch[order])
    assert Unread.read == 0
    assert np.array_equal(found, model.predict(array[order]))
    assert model.n_features_in_ == 6

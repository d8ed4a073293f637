"""Soft reads against the obvious formula, and their independence of batches."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.bottleneck import fit_keys
from dkvb.bottleneck.assignment import BLOCK, LEVELS, SoftAssignment, in_blocks


def data(n=400, width=24, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def keys_of(X, **settings):
    sizes = {
        "preset": "paper",
        "n_codebooks": 5,
        "n_pairs": 12,
        "key_dim": 6,
        "method": "lloyd",
        "epochs": 3,
    }
    return fit_keys(X, **{**sizes, **settings})


def by_hand(keys, x, temperature):
    """Weights (n, C, K) as the formula says."""
    heads = keys.heads(x)  # (n, C, d)
    squared = (heads[:, :, None] - keys.keys.double()).square().sum(dim=3)  # (n, C, K)
    squared = squared.masked_fill(~keys.first_of_equals, torch.inf)
    nearest = squared.amin(dim=2, keepdim=True)
    return (
        -(squared - nearest) / (temperature * keys.quantization_error.double()[:, None])
    ).softmax(dim=2)


@pytest.mark.parametrize("conditioning", ["centre", "half-whitened"])
@pytest.mark.parametrize(
    "projection",
    [
        {"projection": "gaussian"},
        {"projection": "partition", "n_codebooks": 4, "key_dim": None},
        {"projection": "identity", "key_dim": None},
    ],
    ids=lambda settings: settings["projection"],
)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_weights_follow_the_formula(conditioning, projection, scale):
    X = data(scale=scale)
    keys = keys_of(X, conditioning=conditioning, **projection)
    weights = SoftAssignment(keys, 0.7)(torch.from_numpy(X))
    expected = by_hand(keys, X, 0.7).flatten(1)
    # A row in float16 is off by 2⁻¹², its distances by little more; weights are rounded after.
    assert torch.allclose(weights / LEVELS, expected, atol=0.01)
    assert (weights / LEVELS - expected).abs().mean() < 5e-4
    assert torch.equal(weights, weights.round())
    assert torch.allclose(
        weights.view(len(X), keys.n_codebooks, -1).sum(dim=2) / LEVELS,
        torch.ones(1).double(),
        atol=1e-3,
    )


def test_temperature_makes_reads_soft_or_hard():
    X = data()
    keys = keys_of(X)
    x = torch.from_numpy(X)
    hard = SoftAssignment(keys, 1e-6)(x).view(len(X), 5, -1)
    # A row in float16 may lie on the other side of the border between two keys.
    assert (hard.argmax(dim=2) == keys.codes(X).long()).double().mean() > 0.995
    assert (hard.amax(dim=2) == LEVELS).double().mean() > 0.99
    soft = SoftAssignment(keys, 1e6)(x).view(len(X), 5, -1)
    distinct = keys.first_of_equals  # (C, K)
    even = distinct / distinct.sum(dim=1, keepdim=True)
    assert (soft - LEVELS * even).abs().max() < 1


@settings(max_examples=25)
@given(rows=st.lists(st.integers(0, 299), min_size=1, max_size=2 * BLOCK + 3))
def test_weights_of_a_row_are_the_same_in_any_batch(rows):
    reads, x, whole = learned_reads()
    chosen = x[torch.tensor(rows)]
    found = in_blocks(reads.weights, in_blocks(reads.rows, chosen))
    assert torch.equal(found, whole[torch.tensor(rows)])


def learned_reads(made={}):  # noqa: B006, a cache
    if not made:
        X = data(300, 70)
        reads = SoftAssignment(keys_of(X, conditioning="half-whitened", n_codebooks=9, n_pairs=30))
        x = torch.from_numpy(X)
        made["all"] = reads, x, in_blocks(reads.weights, in_blocks(reads.rows, x))
    return made["all"]


def test_float16_rows_are_all_that_weights_depend_on():
    reads, x, whole = learned_reads()
    kept = in_blocks(reads.rows, x)
    assert kept.dtype == torch.float16
    assert torch.equal(in_blocks(reads.weights, kept.clone()), whole)
    assert torch.equal(reads(x), reads.weights(reads.rows(x)))


def test_far_away_rows_are_read_all_the_same():
    X = data()
    weights = SoftAssignment(keys_of(X))(torch.from_numpy(1e30 * X))
    assert torch.isfinite(weights).all()
    assert (weights.view(len(X), 5, -1).sum(dim=2) > 0.9 * LEVELS).all()


def test_of_equal_keys_the_first_stands_for_all():
    X = data()
    keys = keys_of(X)
    kept = torch.ones(5, 12, dtype=torch.bool)
    kept[0, 6:] = False  # the first codebook is filled up with copies of its first key
    weights = SoftAssignment(keys.subset(kept)[0])(torch.from_numpy(X)).view(len(X), 5, 12)
    assert (weights[:, 0, 6:] == 0).all()
    assert (weights[:, 0, :6].sum(dim=1) > 0.99 * LEVELS).all()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows_leave_reads_finite(n):
    X = data(n)
    with pytest.warns(UserWarning, match="n_pairs"):
        keys = keys_of(X)
    weights = SoftAssignment(keys)(torch.from_numpy(data()))
    assert torch.isfinite(weights).all()
    constant = keys_of(np.ones((30, 4), dtype=np.float32), key_dim=2)
    assert torch.isfinite(SoftAssignment(constant)(torch.ones(2, 4))).all()


def test_pickled_without_what_follows():
    reads, x, _ = learned_reads()
    bare = pickle.dumps(SoftAssignment(reads.keys, 0.3))
    assert len(pickle.dumps(reads)) <= len(pickle.dumps(reads.keys)) + 1000
    assert pickle.loads(bare).temperature == 0.3
    assert torch.equal(pickle.loads(pickle.dumps(reads))(x), reads(x))

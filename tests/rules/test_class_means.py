"""Class means in whole numbers: by hand, in any order and batch, and without rows again."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.bottleneck import Batch, fit_keys
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.class_means import (
    PLAIN_WEIGHT,
    SHRINKAGE,
    WEIGHT,
    ClassMeans,
    sums_of,
)

Y, WIDTH = 4, 12
KINDS = ["centre", "half-whitened", "whitened"]


def problem(n=80, seed=0, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(Y, size=n)
    centres = np.random.default_rng(9).normal(size=(Y, WIDTH))
    X = centres[y] + rng.normal(size=(n, WIDTH))
    return torch.from_numpy((scale * X + offset).astype(np.float32)), torch.from_numpy(y)


def keys_of(X, conditioning="whitened"):
    sizes = {"n_codebooks": 2, "key_dim": 3, "epochs": 1}
    return fit_keys(X, **sizes, conditioning=conditioning, n_components=6)


def learned(keys, X, y, size=None):
    parts = torch.arange(len(y)).split(size or len(y))
    every = [sums_of(Batch(keys, X[part]), y[part], Y) for part in parts]
    return reduce(counts._sums, every)


def means_of(keys, X, y, balanced=True):
    rows = torch.bincount(y, minlength=Y)
    return ClassMeans.fit(keys.fixed_point, learned(keys, X, y), rows, balanced)


def by_hand(keys, X, y, queries, balanced):
    """The scores of the module's first lines, up to a constant of each row."""
    c = keys.conditioning

    def centred(x):
        x = x.double()
        if c.normalise:
            x = x.sign() * x.abs() ** c.power
            x = x / x.norm(dim=1, keepdim=True)
        return x - c.centre

    metric = torch.eye(WIDTH, dtype=torch.float64)
    if c.components is not None:
        A = c.components.double()
        U, v = A / A.norm(dim=0), 1 / A.norm(dim=0) ** 2
        w = 1 / (v + SHRINKAGE / (len(y) / Y) * v.mean())
        metric = U @ torch.diag(w) @ U.T + w.max() * (metric - U @ U.T)

    def length(z):
        return torch.einsum("...i,ij,...j->...", z, metric, z)

    Z, Q = centred(X), centred(queries)
    mean = torch.stack([Z[y == k].mean(dim=0) for k in range(Y)])
    N = torch.bincount(y)
    n = len(y)
    total = length(Z - Z.mean(dim=0)).sum() / (n - 1)
    W = (length(Z - mean[y]).sum() + total) / (n - Y + 1)
    weight = (PLAIN_WEIGHT if c.components is None else WEIGHT) * (1 + 2 / (n / Y))
    scores = -length(Q[:, None] - mean)
    if balanced:
        scores = scores + W / N
    return weight * scores / W


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-3, 1.0), (1e8, 0.0), (1e-8, 0.0)])
def test_scores_by_hand(kind, balanced, scale, offset):
    X, y = problem(scale=scale, offset=offset)
    keys = keys_of(X, kind)
    queries = problem(11, seed=1, scale=scale, offset=offset)[0]
    found = means_of(keys, X, y, balanced).scores(Batch(keys, queries))
    expected = by_hand(keys, X, y, queries, balanced)
    found, expected = (s - s.mean(dim=1, keepdim=True) for s in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=5e-4, atol=5e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
@given(st.randoms(use_true_random=False), st.integers(1, 30))
@settings(max_examples=15)
def test_no_bit_depends_on_order_or_batches(kind, random, size):
    X, y = problem()
    keys = keys_of(X, kind)
    order = list(range(len(y)))
    random.shuffle(order)
    turned = torch.tensor(random.sample(range(Y), Y))  # classes appear in another order
    one, other = means_of(keys, X, y), means_of(keys, X[order], turned[y[order]])
    assert torch.equal(learned(keys, X[order], y[order], size).low, learned(keys, X, y).low)
    queries = problem(9, seed=1)[0]
    scores = one.scores(Batch(keys, queries))
    assert torch.equal(other.scores(Batch(keys, queries))[:, turned], scores)
    assert torch.equal(torch.cat([one.scores(Batch(keys, row[None])) for row in queries]), scores)


def test_rows_can_be_taken_away_and_classes_joined():
    X, y = problem()
    keys = keys_of(X)

    def update(state, rows, target=y, sign=1):
        batch, target = Batch(keys, X[rows]), target[rows]
        sums = sums_of(batch, target, Y)
        return counts.update(state, batch.codes, target, sums, sign)

    C, K, _ = keys.keys.shape
    empty = counts.grow(counts.start(C, K, sums_width=WIDTH + 6 + 1), Y)
    both = update(update(empty, slice(50)), slice(50, None))
    assert torch.equal(both.class_sums.low, learned(keys, X, y).low)
    first = update(both, slice(50, None), sign=-1)
    assert torch.equal(first.class_sums.low, learned(keys, X[:50], y[:50]).low)
    target = torch.tensor([1, -1, 0, 1])
    joined = counts.map_classes(both, target).class_sums
    assert torch.equal(joined.low, learned(keys, X[y != 1], target[y[y != 1]]).low[:2])
    # Codes alone do not tell rows of one class apart that lie at the same keys.
    alike = Batch(keys, X[:1] + 1e-4)
    assert torch.equal(alike.codes, Batch(keys, X[:1]).codes)
    one = update(empty, slice(1))
    with pytest.raises(ValueError, match="expected rows that were learned"):
        counts.update(one, alike.codes, y[:1], sums_of(alike, y[:1], Y), sign=-1)


def test_many_rows_are_carried_on_the_way(monkeypatch):
    X, y = problem()
    keys, big = keys_of(X, "centre"), X * 1e6  # squares at their limit, 2⁴⁵
    expected = learned(keys, big, y)
    monkeypatch.setattr("dkvb.rules.counts.class_means._CHUNK_ROWS", 8)
    assert torch.equal(learned(keys, big, y).low, expected.low)
    assert int(expected.low.max()) > 2**45


@pytest.mark.parametrize("kind", KINDS)
def test_classes_of_few_rows_are_not_at_a_disadvantage(kind):
    """A mean of two rows lies far from every row, also from those of its own class."""
    X, y = problem(400)
    few = torch.cumsum(y == 0, 0) <= 2
    kept = (y != 0) | few
    keys = keys_of(X, kind)
    queries, labels = problem(600, seed=1)
    hits = {}
    for balanced in (False, True):
        means = means_of(keys, X[kept], y[kept], balanced)
        found = means.scores(Batch(keys, queries)).argmax(dim=1)[labels == 0]
        hits[balanced] = (found == 0).double().mean()
    assert hits[True] > hits[False] + 0.2


def test_degenerate_sums_give_finite_scores():
    X, y = problem()
    keys = keys_of(X)
    three = Batch(keys, X[:3])
    assert not means_of(keys, X[:0], y[:0]).scores(three).any()
    one = means_of(keys, X[:1], y[:1])
    assert not one.scores(three).any()  # nothing is known of the variance
    alike = means_of(keys, X[:1].expand(5, -1), torch.arange(5) % Y)
    assert bool(alike.scores(three).isfinite().all())
    huge = means_of(keys, 1e30 * X, y)
    assert bool(huge.scores(Batch(keys, 1e30 * X[:3])).isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_linear_in_conditioned_rows(kind):
    X, y = problem()
    keys = keys_of(X, kind)
    means = means_of(keys, X, y)
    matrix, offset = means.linear()
    rows = replace(keys.conditioning, components=None)(X)
    found = means.scores(Batch(keys, X))  # of rows in fixed point
    np.testing.assert_allclose(found, rows @ matrix + offset, rtol=1e-6, atol=1e-5)

"""The paper's rule: the same steps as autograd's, in any number of calls."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck, fit_keys
from dkvb.bottleneck import sgd
from dkvb.bottleneck.sgd import logits
from dkvb.kernels.hashing import epoch_order

C, K, Y = 7, 12, 5
HOW = {"batch_size": 16, "learning_rate": 0.3, "label_smoothing": 0.1, "seed": 3}


def problem(n=50, columns=Y):
    torch.manual_seed(n)
    return torch.randint(K, (n, C), dtype=torch.int32), torch.randint(columns, (n,))


def same(a, b):
    return torch.equal(a.values, b.values) and torch.equal(a.usage, b.usage) and a.epoch == b.epoch


@pytest.mark.parametrize("unseen", [False, True])
def test_a_new_column_starts_as_one_never_seen_and_the_others_stay(unseen):
    codes, y = problem()
    start = sgd.add_classes(sgd.start(C, K, unseen=unseen), Y)
    assert not start.values.any()
    state = sgd.update(start, codes, y, epochs=2, **HOW)
    grown = sgd.add_classes(state, Y + 3)
    assert torch.equal(grown.values[..., :Y], state.values)
    fresh = state.columns[..., -1] if unseen else state.values.amin(dim=2)
    assert torch.equal(grown.values[..., Y:], fresh[..., None].expand(-1, -1, 3))
    assert grown.n_classes == grown.columns.shape[2] - unseen == Y + 3
    if unseen:
        assert torch.equal(grown.columns[..., -1], fresh)
    assert torch.equal(grown.usage, state.usage)
    assert grown.epoch == 2


def test_the_hidden_column_is_a_class_that_never_comes():
    codes, y = problem()
    kept = sgd.update(sgd.add_classes(sgd.start(C, K, unseen=True), Y), codes, y, epochs=3, **HOW)
    declared = sgd.update(sgd.add_classes(sgd.start(C, K), Y + 1), codes, y, epochs=3, **HOW)
    assert torch.equal(kept.columns, declared.columns)
    assert torch.equal(logits(kept, codes), logits(declared, codes)[:, :Y])


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint16])
def test_many_calls_of_one_epoch_are_one_call_of_many(dtype, monkeypatch):
    codes, y = problem()
    codes = codes.to(dtype)
    start = sgd.add_classes(sgd.start(C, K), Y)
    together = sgd.update(start, codes, y, epochs=5, **HOW)
    apart = start
    for _ in range(5):
        apart = sgd.update(apart, codes, y, epochs=1, **HOW)
    assert same(together, apart)
    monkeypatch.setattr(sgd, "ORDERS_AT_ONCE", 2 * len(codes))  # orders are drawn in pieces
    assert same(together, sgd.update(start, codes, y, epochs=5, **HOW))
    assert together.epoch == 5


def test_the_state_before_is_unchanged():
    codes, y = problem()
    start = sgd.add_classes(sgd.start(C, K), Y)
    first = sgd.update(start, codes, y, epochs=1, **HOW)
    assert not start.values.any()
    assert not start.usage.any()
    assert first.values.any()


def test_usage_counts_selections():
    codes, y = problem()
    state = sgd.update(sgd.add_classes(sgd.start(C, K), Y), codes, y, epochs=3, **HOW)
    expected = torch.stack([torch.bincount(codes[:, c], minlength=K) for c in range(C)])
    assert torch.equal(state.usage, 3 * expected)
    assert torch.equal(state.active, expected > 0)


def test_the_seed_decides():
    codes, y = problem()
    start = sgd.add_classes(sgd.start(C, K), Y)
    one, again, other = (
        sgd.update(start, codes, y, epochs=2, **HOW | {"seed": seed}) for seed in (1, 1, 2)
    )
    assert same(one, again)
    assert not torch.equal(one.values, other.values)


def test_one_row_of_one_class():
    codes, y = problem(1, columns=1)
    state = sgd.update(sgd.add_classes(sgd.start(C, K), 2), codes, y, epochs=1, **HOW)
    assert (state.values.abs().sum(dim=2) > 0).sum() == C
    assert logits(state, codes).argmax(dim=1).item() == y.item()


def test_scores_are_means_of_values():
    codes, y = problem()
    state = sgd.update(sgd.add_classes(sgd.start(C, K), Y), codes, y, epochs=2, **HOW)
    expected = state.values[torch.arange(C), codes.long()].mean(dim=1)
    torch.testing.assert_close(logits(state, codes), expected)
    torch.testing.assert_close(logits(state, codes.to(torch.uint16)), expected)


@pytest.mark.parametrize(("learning_rate", "n"), [(0.3, 500), (30.0, 333)])
def test_an_epoch_is_autograds_on_the_module(learning_rate, n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20)).astype(np.float32)
    y = torch.from_numpy(rng.integers(10, size=n))
    keys = fit_keys(X, preset="paper", n_codebooks=16, n_pairs=30, key_dim=4, epochs=2)
    model = KeyValueBottleneck(keys, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for epoch in range(2):
        for rows in epoch_order(n, 7, epoch).split(64):  # the last batch is partial
            optimiser.zero_grad()
            logits = model(torch.from_numpy(X)[rows])
            cross_entropy(logits, y[rows], label_smoothing=0.1).backward()
            optimiser.step()
    state = sgd.update(
        sgd.add_classes(sgd.start(16, 30), 10),
        keys.codes(X),
        y,
        epochs=2,
        batch_size=64,
        learning_rate=learning_rate,
        label_smoothing=0.1,
        seed=7,
    )
    assert state.values.abs().max() > 1e-3
    torch.testing.assert_close(state.values, model.values.detach(), rtol=0, atol=1e-5)
    assert torch.equal(state.usage, model.usage)

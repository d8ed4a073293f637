"""The learned examples: canonical order, float16 without loss of range, copies."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.estimators.kernel.choice import lowest_hashes
from dkvb.estimators.kernel.examples import Examples, content_hashes, distinct


def examples(X, targets, ids=None):
    array = None
    if ids is not None:
        array = np.empty(len(ids), dtype=object)
        array[:] = ids
    return Examples.of(torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(targets), array)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_order_and_split_give_the_same_examples(data):
    n = data.draw(st.integers(1, 12))
    cells = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([None, 1, 2, "a"]))
    drawn = data.draw(st.lists(cells, min_size=n, max_size=n))
    X = np.array([[value, 1.0] for value, _, _ in drawn])
    targets, ids = [target for _, target, _ in drawn], [one for _, _, one in drawn]
    whole = examples(X, targets, ids)
    order = np.array(data.draw(st.permutations(range(n))))
    cut = data.draw(st.integers(0, n))
    parts = [
        examples(X[part], np.array(targets)[part], [ids[i] for i in part])
        for part in (order[:cut], order[cut:])
        if len(part)
    ]
    joined = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    for name in ("halves", "exponents", "targets", "hashes"):
        assert torch.equal(getattr(whole, name), getattr(joined, name))
    assert (whole.ids is None) == (joined.ids is None)
    assert whole.ids is None or whole.ids.tolist() == joined.ids.tolist()


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-6, 1.0, 1e6, 3.4028234e38])
def test_embeddings_of_any_range_are_kept_to_eleven_bits(scale):
    X = (np.random.default_rng(0).uniform(0.5, 1, size=(5, 4)) * scale).astype(np.float32)
    kept = examples(X, torch.zeros(5, dtype=torch.int64)).embeddings().numpy()
    order = np.argsort(content_hashes(torch.from_numpy(X)).numpy())
    np.testing.assert_allclose(kept, X[order], rtol=2**-11)


def test_what_is_kept_is_kept_the_same_when_learned_again():
    X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    once = examples(X, torch.zeros(20, dtype=torch.int64))
    again = Examples.of(once.embeddings(), once.targets)
    assert torch.equal(once.halves, again.halves)
    assert torch.equal(once.hashes, again.hashes)


def test_zeros_are_an_embedding():
    kept = examples(np.zeros((2, 3)), [0, 1])
    assert torch.equal(kept.embeddings(), torch.zeros(2, 3))
    assert len(distinct(kept, 2).hashes) == 1


def test_copies_are_one_row_with_a_weight():
    rows = distinct(examples([[1.0], [2.0], [1.0], [1.0]], [0, 1, 0, 1]), 2)
    assert sorted(rows.weights.tolist()) == [1, 3]
    heavy = int(rows.weights.argmax())
    torch.testing.assert_close(rows.targets[heavy], torch.tensor([2 / 3, 1 / 3]).double())
    assert len(rows.row) == 4


def test_positions_of_copies_differ_and_strangers_have_none():
    known = examples([[1.0], [1.0], [2.0]], [0, 0, 1])
    asked = examples([[1.0], [1.0], [1.0], [2.0], [2.0]], [0, 0, 0, 0, 1])
    places = known.positions(asked).tolist()
    right = [place for place in places if place >= 0]
    assert sorted(right) == [0, 1, 2]
    assert places.count(-1) == 2


def test_a_sample_by_lowest_hash_has_every_class():
    rng = np.random.default_rng(0)
    targets = np.r_[np.zeros(500, int), np.ones(40, int), [2]]
    rows = distinct(examples(rng.normal(size=(541, 3)), targets), 3)
    which = lowest_hashes(rows, 54)
    counts = rows.targets[which].sum(dim=0)
    assert len(which) == 54
    assert counts[2] == 1
    assert abs(float(counts[0]) - 49) <= 1


@pytest.mark.parametrize("largest", [0.99999, 1.9999, 3.99999, 65535.9, 1e-30, 2.0**-140 * 0.99999])
def test_what_rounds_up_to_a_power_of_two_is_quantised_to_the_same_bits_again(largest):
    """A file with such an embedding was refused as damaged."""
    X = torch.tensor([[largest, largest / 3, -largest / 7]], dtype=torch.float32)
    examples = Examples.of(X, torch.zeros(1, dtype=torch.int64))
    again = Examples.of(examples.embeddings(), examples.targets)
    assert torch.equal(again.halves, examples.halves)
    assert torch.equal(again.exponents, examples.exponents)
    assert torch.equal(again.hashes, examples.hashes)


def test_the_largest_numbers_stay_finite_and_are_kept_the_same_again():
    X = torch.full((1, 2), torch.finfo(torch.float32).max)
    once = examples(X, [0])
    assert bool(once.embeddings().isfinite().all())
    assert torch.equal(Examples.of(once.embeddings(), once.targets).halves, once.halves)

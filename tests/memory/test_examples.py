"""The learned examples: canonical order, float16 without loss of range, copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.memory.choose import lowest_hashes
from dkvb.memory.examples import Examples, kept
from dkvb.memory.solve import distinct


def examples(X, targets, ids=None):
    array = None
    if ids is not None:
        array = np.empty(len(ids), dtype=object)
        array[:] = ids
    return Examples.of(np.asarray(X, np.float32), np.asarray(targets, np.int64), array)


def rows_of(one):
    return one.embeddings(np.arange(len(one)))


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
    joined = parts[0] if len(parts) == 1 else parts[0].appended(parts[1])
    whole, joined = whole.canonical(), joined.canonical()
    assert whole.halves.joined().tobytes() == joined.halves.joined().tobytes()
    for name in ("exponents", "targets", "hashes"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(joined, name))
    assert (whole.ids is None) == (joined.ids is None)
    assert whole.ids is None or whole.ids.tolist() == joined.ids.tolist()


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-6, 1.0, 1e6, 3.4028234e38])
def test_embeddings_of_any_range_are_kept_to_eleven_bits(scale):
    X = (np.random.default_rng(0).uniform(0.5, 1, size=(5, 4)) * scale).astype(np.float32)
    np.testing.assert_allclose(rows_of(examples(X, np.zeros(5))), X, rtol=2**-11)


def test_what_is_kept_is_kept_the_same_when_learned_again():
    X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    halves, _, hashes = kept(X)
    again = kept(rows_of(examples(X, np.zeros(20))))
    np.testing.assert_array_equal(again[0], halves)
    np.testing.assert_array_equal(again[2], hashes)


def test_zeros_are_an_embedding():
    zeros = examples(np.zeros((2, 3)), [0, 1])
    assert (rows_of(zeros) == 0).all()
    assert zeros.hashes[0] == zeros.hashes[1]


def test_copies_of_one_target_are_one_point():
    copies = examples([[1.0], [2.0], [1.0], [1.0]], [0, 1, 0, 1])
    group = distinct(copies, copies.order)
    assert sorted(np.bincount(group).tolist()) == [1, 1, 2]


def test_positions_of_copies_differ_and_strangers_have_none():
    known = examples([[1.0], [1.0], [2.0]], [0, 0, 1])
    asked = examples([[1.0], [1.0], [1.0], [2.0], [2.0]], [0, 0, 0, 0, 1])
    places = known.positions(asked.hashes, asked.targets).tolist()
    right = [place for place in places if place >= 0]
    assert sorted(right) == [0, 1, 2]
    assert places.count(-1) == 2


def test_a_sample_by_lowest_hash_has_every_class():
    targets = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [500, 40, 1]))
    which = lowest_hashes(targets, 54)
    counts = np.bincount(targets[which])
    assert len(which) == 54
    assert counts[2] == 1
    assert abs(counts[0] - 49) <= 1
    assert (np.diff(which) > 0).all()


@pytest.mark.parametrize("largest", [0.99999, 1.9999, 3.99999, 65535.9, 1e-30, 2.0**-140 * 0.99999])
def test_what_rounds_up_to_a_power_of_two_is_quantised_to_the_same_bits_again(largest):
    """A file with such an embedding was refused as damaged."""
    once = examples([[largest, largest / 3, -largest / 7]], [0])
    halves, exponents, hashes = kept(rows_of(once))
    assert halves.tobytes() == once.halves.joined().tobytes()
    assert (exponents, hashes) == (once.exponents, once.hashes)


def test_the_largest_numbers_stay_finite_and_are_kept_the_same_again():
    once = examples(np.full((1, 2), np.finfo(np.float32).max), [0])
    assert np.isfinite(rows_of(once)).all()
    assert kept(rows_of(once))[0].tobytes() == once.halves.joined().tobytes()

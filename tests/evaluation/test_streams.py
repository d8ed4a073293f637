import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb.evaluation.streams import blurry, class_incremental, from_tasks, iid, long_tailed

PAPER_ORDERS = {
    1: [[6, 8], [9, 7], [5, 3], [0, 4], [1, 2]],
    2: [[5, 9], [3, 4], [6, 7], [2, 8], [1, 0]],
    3: [[1, 5], [6, 0], [9, 4], [7, 2], [8, 3]],
    4: [[8, 2], [0, 7], [6, 9], [5, 1], [4, 3]],
    5: [[2, 3], [1, 0], [8, 7], [6, 5], [4, 9]],
}


@pytest.mark.parametrize("seed", PAPER_ORDERS)
def test_class_order_is_the_papers(seed, rng):
    y = np.concatenate([np.arange(10), rng.integers(0, 10, 200)])
    stream = class_incremental(y, classes_per_task=2, seed=seed)
    assert [task.classes.tolist() for task in stream] == PAPER_ORDERS[seed]
    assert stream.name == "B0-Inc2"


def test_order_is_over_sorted_classes_whatever_their_names():
    names = np.array(sorted("abcdefghij"))
    stream = class_incremental(names[::-1], seed=1)
    assert [task.classes.tolist() for task in stream] == [
        [names[c] for c in group] for group in PAPER_ORDERS[1]
    ]


@given(
    y=st.lists(st.integers(-3, 12), min_size=1, max_size=60),
    size=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_class_incremental_deals_every_row_once(y, size, seed):
    labels = np.array(y)
    stream = class_incremental(labels, size, seed)
    rows = np.concatenate([task.indices for task in stream])
    assert sorted(rows.tolist()) == list(range(len(labels)))
    for task in stream:
        assert set(labels[task.indices]) == set(task.classes)
    sizes = [len(task.classes) for task in stream]
    assert all(s == size for s in sizes[:-1])
    assert 1 <= sizes[-1] <= size
    assert sum(sizes) == len(set(y))


def test_iid_is_one_shuffled_task(rng):
    y = np.sort(rng.integers(0, 5, 300))
    first, again, other = iid(y, 1), iid(y, 1), iid(y, 2)
    assert len(first) == 1
    assert sorted(first[0].indices.tolist()) == list(range(300))
    assert np.array_equal(first[0].indices, again[0].indices)
    assert not np.array_equal(first[0].indices, other[0].indices)
    assert first[0].classes.tolist() == [0, 1, 2, 3, 4]


def test_tasks_of_rows_keep_their_order_and_may_repeat_classes():
    stream = from_tasks(["a", "b", "a", "c"], indices=[[2, 0], np.array([3, 1, 0])])
    assert [task.indices.tolist() for task in stream] == [[2, 0], [3, 1, 0]]
    assert [task.classes.tolist() for task in stream] == [["a"], ["a", "b", "c"]]


@given(
    y=st.lists(st.integers(0, 6), min_size=1, max_size=80),
    size=st.integers(1, 4),
    percent=st.integers(0, 100),
    seed=st.integers(0, 99),
)
def test_a_blurry_stream_has_every_sample_once(y, size, percent, seed):
    labels = np.array(y)
    stream = blurry(labels, size, percent, seed)
    assert sorted(np.concatenate([task.indices for task in stream]).tolist()) == list(range(len(y)))
    for task in stream:
        assert set(labels[task.indices]) == set(task.classes)
    if percent == 0:
        plain = class_incremental(labels, size, seed)
        assert [t.indices.tolist() for t in stream] == [t.indices.tolist() for t in plain]


def test_blurry_m_moves_m_percent_of_each_class_to_all_other_tasks():
    y = np.repeat(np.arange(6), 100)
    stream = blurry(y, classes_per_task=2, percent=10, seed=1)
    assert stream.name == "blurry-10 B0-Inc2"
    plain = class_incremental(y, 2, seed=1)
    for task, major in zip(stream, plain, strict=True):
        counts = np.bincount(y[task.indices], minlength=6)
        assert task.classes[:2].tolist() == major.classes.tolist()
        assert counts[major.classes].tolist() == [90, 90]
        minor = np.setdiff1d(np.arange(6), major.classes)
        assert counts[minor].tolist() == [5, 5, 5, 5]


@given(st.integers(2, 8), st.floats(1, 200), st.integers(0, 50))
def test_a_long_tail_decays_exponentially_to_the_imbalance_factor(n_classes, factor, seed):
    y = np.repeat(np.arange(n_classes), 300)
    counts = np.bincount(y[long_tailed(y, factor, seed)], minlength=n_classes)
    order = np.concatenate([task.classes for task in class_incremental(y, 1, seed)])
    expected = 300 * factor ** (-np.arange(n_classes) / (n_classes - 1))
    assert np.abs(counts[order] - np.maximum(1, expected)).max() <= 1
    assert counts.max() == 300


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: class_incremental([], 2), "y: expected"),
        (lambda: class_incremental([[0, 1]], 2), "y: expected"),
        (lambda: class_incremental([0, 1], 0), "classes_per_task: expected"),
        (lambda: class_incremental([0, 1], 1.5), "classes_per_task: expected"),
        (lambda: iid([]), "y: expected"),
        (lambda: blurry([0, 1], percent=101), "percent: expected a whole number from 0 to 100"),
        (lambda: blurry([0, 1], percent=0.5), "percent: expected a whole number from 0 to 100"),
        (lambda: long_tailed([0, 1], 0.5), "imbalance_factor: expected"),
        (lambda: from_tasks([0, 1]), "exactly one"),
        (lambda: from_tasks([0, 1], indices=[[0]], classes=[[0]]), "exactly one"),
        (lambda: from_tasks([0, 1], indices=[]), "at least one task"),
        (lambda: from_tasks([0, 1], classes=[]), "at least one task"),
        (lambda: from_tasks([0, 1], indices=[[0], []]), r"indices\[1\]: expected"),
        (lambda: from_tasks([0, 1], indices=[[0.5]]), r"indices\[0\]: expected"),
        (lambda: from_tasks([0, 1], indices=[[-1]]), "from 0 to 1"),
        (lambda: from_tasks([0, 1], indices=[[2]]), "from 0 to 1"),
        (lambda: from_tasks([0, 1], classes=[[0], []]), r"classes\[1\]: expected"),
        (lambda: from_tasks([0, 1], classes=[[0, 7]]), "occur in y"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

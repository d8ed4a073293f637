"""Labels and their columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb.estimators.labels import LabelIndex

KINDS = {
    "number": [7, -2, 7, 30],
    "string": ["bee", "ant", "bee", "centipede"],
    "boolean": [True, False, True, True],
}


def index_of(*calls):
    index = LabelIndex()
    for labels in calls:
        index.add(labels)
    return index


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_given", [list, np.array, lambda y: np.array(y, dtype=object)])
def test_each_kind_in_each_container(kind, as_given):
    labels = KINDS[kind]
    index = index_of(as_given(labels))
    assert index.kind == kind
    assert index.classes_.tolist() == sorted(set(labels))
    assert index.classes_.dtype.kind == {"number": "i", "string": "U", "boolean": "b"}[kind]
    assert index.classes_[np.argsort(index.order)][index.indices(labels)].tolist() == labels


def test_indices_follow_appearance_and_never_move():
    index = index_of(["m", "z"])
    before = index.indices(["m", "z"])
    index.add(["a", "z", "longer than before"])
    assert index.indices(["m", "z"]).tolist() == before.tolist() == [0, 1]
    assert index.indices(["a", "longer than before"]).tolist() == [2, 3]
    assert index.classes_.tolist() == ["a", "longer than before", "m", "z"]


def test_classes_keep_the_labels_dtype():
    assert index_of(np.array([3, 1], dtype=np.int16)).classes_.dtype == np.int16
    assert index_of([1.0, 2.0]).classes_.dtype == np.float64
    assert index_of([1, 2], [3.0]).classes_.tolist() == [1.0, 2.0, 3.0]
    assert index_of(np.array([1], np.uint64), np.array([-1])).classes_.dtype == np.int64


def test_whole_floats_are_the_integers_they_equal():
    index = index_of([1, 2], [2.0])
    assert len(index) == 2
    assert index.indices([2.0, 1.0]).tolist() == index.indices([2, 1]).tolist()


@pytest.mark.parametrize(
    ("labels", "error", "says"),
    [
        ([1, "a"], TypeError, "mixture of number and string"),
        ([True, 2], TypeError, "mixture of boolean and number"),
        (np.array(["a", None], dtype=object), ValueError, "None"),
        ([1.0, float("nan")], ValueError, "NaN"),
        ([0.5, 1.0], ValueError, "continuous"),
        ([b"a"], TypeError, "bytes"),
        ([(1, 2), "a"], (TypeError, ValueError), "y"),
        ([[1], [2]], ValueError, r"1-d.*\(2, 1\)"),
        ([2**70], ValueError, "64 bits"),
        (np.array([2**63], dtype=np.uint64), ValueError, r"2\*\*63"),
    ],
)
def test_what_is_no_label_changes_nothing(labels, error, says):
    index = index_of([5, 6])
    for attempt in (index.add, index.indices):
        with pytest.raises(error, match=says):
            attempt(labels)
    assert index.to_list() == [5, 6]


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_one_kind_a_model(first, second):
    index = index_of(KINDS[first])
    if first == second:
        index.add(KINDS[second])
        return
    before = index.to_list()
    with pytest.raises(TypeError, match=f"expected {first} labels.*got {second} labels"):
        index.add(KINDS[second])
    assert index.to_list() == before


def test_unknown_labels_are_named():
    with pytest.raises(ValueError, match="'cat', 'dog'"):
        index_of(["ant"]).indices(["dog", "ant", "cat"])


def test_empty_lists_are_no_labels():
    index = index_of(["a"], [])
    assert len(index) == 1
    assert index.indices([]).tolist() == []


def test_remove_closes_the_gap():
    index = index_of(["c", "a", "b"])
    assert index.remove("a") == 1
    assert index.indices(["c", "b"]).tolist() == [0, 1]
    assert "a" not in index
    assert "b" in index
    with pytest.raises(ValueError, match="'a'"):
        index.remove("a")
    index.remove("b")
    index.remove("c")
    index.add([1])  # an empty index takes any kind
    assert index.kind == "number"


def test_a_copy_grows_alone():
    index = index_of([1])
    index.copy().add([2])
    assert index.to_list() == [1]


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
        st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1),
        st.lists(st.booleans(), min_size=1),
    )
)
def test_list_round_trip(labels):
    index = index_of(labels)
    again = LabelIndex.from_list(index.to_list())
    assert index.to_list() == list(dict.fromkeys(labels))
    assert again.to_list() == index.to_list()
    assert again.kind == index.kind
    assert again.classes_.tolist() == sorted(set(labels))
    assert again.indices(labels).tolist() == index.indices(labels).tolist()


def test_integers_that_no_float_holds_do_not_meet_floats():
    index = LabelIndex()
    index.add(np.array([2**53, 2**53 + 1]))
    before = index.to_list()
    with pytest.raises(ValueError, match=r"below 2\*\*53 beside labels that are floats"):
        index.add(np.array([1.0]))
    assert index.to_list() == before == [2**53, 2**53 + 1]
    assert len(index.classes_) == 2
    other = LabelIndex()
    other.add(np.array([0.5 * 2**60, 3.0]))
    with pytest.raises(ValueError, match=r"got 9007199254740993, which no float holds"):
        other.add(np.array([2**53 + 1]))
    other.add(np.array([2**53]))  # which a float holds
    assert other.classes_.tolist() == [3.0, float(2**53), 2.0**59]


@pytest.mark.parametrize("other", ["a\0", "a\n", "a\x1b[2J", "b" * 1001, "\ud800"])
def test_labels_that_a_file_or_a_terminal_would_change_are_refused(other):
    for labels in (["a", other], np.array(["a", other], dtype=object)):
        with pytest.raises(ValueError, match="y: expected labels"):
            LabelIndex().after_call(None, labels)


def test_a_small_file_with_one_long_label_does_not_take_much_memory(monkeypatch):
    from dkvb._support.files import FileError, State
    from dkvb.estimators import serialisation

    monkeypatch.setattr(serialisation, "_LABEL_CHARACTERS", 100_000)
    listed = [str(number) for number in range(1000)]
    good = State(facts={"kind": "string", "dtype": None, "labels": listed})
    assert len(serialisation.labels_from(good)) == 1000
    bad = State(facts={"kind": "string", "dtype": None, "labels": [*listed, "a" * 1000]})
    with pytest.raises(FileError, match="labels: expected at most 100,000 characters"):
        serialisation.labels_from(bad)

"""Relabelling, renaming, merging classes, and taking them back, in a model folder."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.estimators.registry import make_classifier
from dkvb.store import Learnable, create, open_folder, read_folder, read_history

from ..support.files.models import rows
from .shared import assert_same_state, learned

NAMES = ["kernel"]


def reference(name, *batches):
    if name != "kernel":
        return learned(name, *batches)
    model = make_classifier("kernel")
    for X, y in batches:
        model.partial_fit(X, y)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_each_operation_is_taken_back_exactly_also_after_a_restart(path, name):
    X, y = rows()
    old, new = sorted(set(y))[:2]
    label = np.array([one for one in y if one == old])
    own = X[y == old]
    operations = [
        lambda model: model.learn(X[:4], ["elk"] * 4),
        lambda model: model.relabel(own[:2], label[:2], ["elk", new]),
        lambda model: model.rename(old, "zebra"),
    ]
    operations.append(lambda model: model.merge_classes([new, "zebra"], "zebra"))
    states = []
    with create(path, reference(name, (X, y))) as model:
        for operation in operations:
            states.append(model.classifier)
            assert operation(model) == model.model.undoable.count
    for number, before in enumerate(reversed(states)):
        with open_folder(path) as model:
            last = model.model.undoable
            assert model.undo(operation_id=f"undo {number}") == last.count
            assert model.undo(operation_id=f"undo {number}") == last.count  # once
            assert_same_state(model.classifier, before)
            assert model.classifier.classes_.tolist() == before.classes_.tolist()
            assert_same_state(read_folder(path).classifier, before)
    with open_folder(path) as model, pytest.raises(ValueError, match="part of the snapshot"):
        model.undo()
    history = read_history(path)
    assert history == read_folder(path).history
    assert [one.sequence for one in history] == list(range(1, len(history) + 1))


def test_what_was_undone_is_in_no_file_and_its_id_is_still_known(path):
    X, y = rows()
    with create(path, reference("kernel", (X, y))) as model:
        model.learn(X[:3], ["secret-word"] * 3, operation_id="a")
        model.undo()
        assert all(b"secret-word" not in file.read_bytes() for file in path.iterdir())
        assert model.learn(X[:3], ["secret-word"] * 3, operation_id="a") == 3  # done before
        assert_same_state(model.classifier, reference("kernel", (X, y)))


def test_a_forget_is_final_and_so_is_what_was_before_it(path):
    X, y = rows()
    with create(path, reference("kernel", (X, y))) as model:
        model.learn(X[:3], ["elk"] * 3)
        model.forget(y[0])
        with pytest.raises(ValueError, match="the last operation was a forget, which is final"):
            model.undo()
        assert model.model.undoable is None


def test_ids_are_journaled_and_found_again(path):
    X, y = rows()
    with create(path, reference("kernel", (X, y))) as model:
        model.learn(X[:3], ["elk"] * 3, ids=["a", "b", 3])
        model.relabel(ids=["b"], y_new=["fox"])
    with open_folder(path) as model:
        assert set(model.model.ids()) == {"a", "b", 3}
        assert model.classifier.class_count_["fox"] == 1
        model.compact()
        assert model.forget_samples(ids=["b", 3]) == 2
    assert read_folder(path).ids() == ["a"]
    with create(path.parent / "other", learned("bottleneck", (X, y))) as model:
        with pytest.raises(ValueError, match="ids: expected"):
            model.learn(X[:1], y[:1], ids=["a"])
        assert len(model.model.history) == 1


@settings(max_examples=10)
@given(steps=st.lists(st.sampled_from("lrmu"), min_size=3, max_size=8))
def test_any_sequence_is_read_back_as_it_was(steps, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "model"
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        undoable: list = []
        for i, step in enumerate(steps):
            before = model.classifier
            if step == "l":
                model.learn(X[i : i + 2], [f"new {i}"] * 2)
            elif step == "r":
                model.rename(before.classes_[0].item(), f"name {i}")
            elif step == "m" and len(before.classes_) > 1:
                first, second = before.classes_[:2].tolist()
                model.merge_classes([first], second)
            elif step == "u" and undoable:
                model.undo()
                assert_same_state(model.classifier, undoable.pop())
                continue
            else:
                continue
            undoable.append(before)
        found = read_folder(path)
        assert_same_state(found.classifier, model.classifier)
        assert found.history == model.model.history
        assert found.undoable == model.model.undoable


def test_batches_that_are_learned_together_are_those_learned_one_by_one(path):
    X, y = rows()
    batches = [
        Learnable(X[i : i + 2], y[i : i + 2].tolist(), None, f"batch {i}") for i in range(0, 10, 2)
    ]
    wrong = Learnable(X[:1], [3], None, "wrong")
    with create(path, reference("kernel", (X, y))) as model:
        found = model.learn_many([*batches[:2], wrong, *batches[2:4]])
        assert [one for one in found if isinstance(one, int)] == [2] * 4
        assert isinstance(found[2], TypeError)
        assert model.learn_many(batches) == [2] * 5  # four of them were learned before
        expected = reference("kernel", (X, y), *(one[:2] for one in batches))
        assert_same_state(model.classifier, expected)
        later = [Learnable(one.X + 1, one.y, None, f"again {i}") for i, one in enumerate(batches)]
        assert model.learn_many(later) == [2] * 5
        found = read_folder(path)
        assert_same_state(found.classifier, model.classifier)
        assert found.history == model.model.history
        assert [one.sequence for one in found.history] == list(range(1, 12))
        model.undo()
        undone = reference("kernel", (X, y), *(one[:2] for one in (*batches, *later[:-1])))
        assert_same_state(model.classifier, undone)

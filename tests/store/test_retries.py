"""Errors say what is on disk; a repeated operation counts once; memory follows the disk."""

import os
import shutil

import numpy as np
import pytest

from dkvb._support.files import FileError, atomic
from dkvb.store import AppliedError, create, folder, journal, open_folder, read_folder

from ..support.files.models import rows
from .commands import dkvb, good
from .faults import NAMES, attack
from .shared import assert_same_state, learned


def no_space(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", NAMES)
def test_faults_at_system_calls(name):
    """One in ten; `make torture` tries them all."""
    seed = int(np.random.default_rng().integers(2**32))
    tried = attack((name,), share=0.1, seed=seed)
    assert sum(tried.values()) > 10


def test_an_error_after_the_rename_says_that_the_change_is_on_disk(path, monkeypatch):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        with monkeypatch.context() as context:
            context.setattr(atomic, "sync_folder", no_space)
            with pytest.raises(
                AppliedError,
                match="3 rows is on disk; do not repeat it",
            ):
                model.learn(X[:3], y[:3], operation_id="monday")
            with pytest.raises(AppliedError, match="forget of 15 rows is on disk"):
                model.forget("bee")
        assert "bee" not in model.classifier.classes_
        assert model.learn(X[:3], y[:3], operation_id="monday") == 3
        expected = learned("kernel", (X, y), (X[:3], y[:3])).forget("bee")
        assert_same_state(model.classifier, expected)
    assert_same_state(read_folder(path).classifier, expected)


def test_an_error_before_the_rename_leaves_the_model_as_it_was(path, monkeypatch):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        with monkeypatch.context() as context:
            context.setattr(atomic, "rename", no_space)
            for change in (lambda: model.learn(X[:3], y[:3]), lambda: model.forget("bee")):
                with pytest.raises(OSError, match="No space left") as caught:
                    change()
                assert not isinstance(caught.value, AppliedError)
        assert_same_state(model.classifier, learned("kernel", (X, y)))


def test_a_repeated_operation_counts_once(path):
    (X, y), (X2, y2) = rows(0), rows(1)
    expected = learned("kernel", (X, y), (X2, y2))
    with create(path, learned("kernel", (X, y))) as model:
        for _ in range(2):
            assert model.learn(X2, y2, operation_id="a") == len(y2)
        assert_same_state(model.classifier, expected)
    with open_folder(path) as model:
        model.learn(X2, y2, operation_id="a")
        model.compact()
        model.learn(X2, y2, operation_id="a")
        assert_same_state(model.classifier, expected)
        other = learned("kernel", (X[:9], y[:9]))
        for _ in range(2):
            assert model.merge(other, operation_id="b") == 9
            assert model.forget("bee", operation_id="c") == model.model.history[-1].count
        expected.merge(other).forget("bee")
        assert_same_state(model.classifier, expected)
        for wrong in (
            lambda: model.learn(X, y, operation_id="a" * 201),
            lambda: model.learn(X, y, operation_id="b"),
            lambda: model.forget("ant", operation_id="a"),
            lambda: model.learn(X, y, operation_id=""),
            lambda: model.learn(X, y, operation_id="\n"),
        ):
            with pytest.raises(ValueError, match="operation_id: expected"):
                wrong()
        model.learn(X[:2], y[:2], operation_id="d")
        with pytest.raises(ValueError, match="which a learn of 2 rows had"):
            model.learn(X[:3], y[:3], operation_id="d")


def test_operation_ids_on_the_command_line(path):
    (X, y), place = rows(), path.parent
    np.savez(place / "rows.npz", x=X, y=y)
    create(path, learned("kernel", (X, y))).close()
    for learn, forgot in (
        ("learned 60 rows", "forgot 30 rows"),
        ("operation 'monday' was done already", "operation 'tuesday' was done already"),
    ):
        said = good("learn", path, "--data", place / "rows.npz", "--operation-id", "monday")
        assert said.startswith(learn)
        said = good("forget", path, "--label", "bee", "--operation-id", "tuesday")
        assert said.startswith(forgot)
    expected = learned("kernel", (X, y), (X, y)).forget("bee")
    assert_same_state(read_folder(path).classifier, expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_learning_after_an_interrupted_compaction_is_not_lost(path, monkeypatch, error):
    X, y = rows()

    def interrupt(*_):
        raise error

    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:3], y[:3])
        with monkeypatch.context() as context:
            context.setattr(folder, "MOST_SECONDS", 0.0)
            context.setattr(folder.ModelFolder, "_clean", interrupt)
            if error is OSError:  # which compaction may meet: it is tried again
                model.learn(X[3:5], y[3:5], operation_id="b")
            else:
                with pytest.raises(error):
                    model.learn(X[3:5], y[3:5], operation_id="b")
        model.learn(X[3:5], y[3:5], operation_id="b")
        expected = learned("kernel", (X, y), (X[:5], y[:5]))
        assert_same_state(model.classifier, expected)
        assert_same_state(read_folder(path).classifier, expected)
        model.forget("bee")
    assert_same_state(read_folder(path).classifier, expected.forget("bee"))


def test_memory_is_read_again_when_reading_after_an_error_failed_too(path, monkeypatch):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        with monkeypatch.context() as context:
            context.setattr(atomic, "sync_folder", no_space)
            context.setattr(folder, "read_folder", no_space)
            with pytest.raises(OSError, match="No space left") as caught:
                model.learn(X[:3], y[:3])
            assert "whether the change is on disk is not known" in caught.value.__notes__[0]
        assert_same_state(model.classifier, learned("kernel", (X, y), (X[:3], y[:3])))


def test_a_flipped_bit_in_the_last_record_is_damage(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:4], y[:4])
        first = (path / "journal").stat().st_size
        model.learn(X[4:8], y[4:8])
    whole = (path / "journal").read_bytes()
    rng = np.random.default_rng(0)
    for place in [*range(first, first + 12), *range(first + 12, len(whole), 7), len(whole) - 1]:
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(rng.integers(8))
        (path / "journal").write_bytes(spoilt)
        for reading in (read_folder, open_folder):
            with pytest.raises(FileError, match="the journal is damaged"):
                reading(path)
        assert (path / "journal").read_bytes() == spoilt
    # A system that lost power may have made the file longer before it wrote the record.
    for length in (4, 12, len(whole) - first - 12, len(whole) - first):
        (path / "journal").write_bytes(whole[:-length] + bytes(length))
        with pytest.warns(journal.JournalWarning):
            read_folder(path)


def test_forgetting_two_labels_is_one_operation(path, monkeypatch):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        calls = []
        real = atomic.rename
        monkeypatch.setattr(atomic, "rename", lambda old, new: calls.append(new) or real(old, new))
        assert model.forget("bee", "ant", "bee") == 30
        assert len(calls) == 1
        with pytest.raises(ValueError, match="label"):
            model.forget("cow", "nobody")
        assert model.classifier.classes_.tolist() == ["cow", "yak"]
    done = dkvb("forget", path, "--label", "cow", "--label", "yak")
    assert done.stdout.startswith("forgot 30 rows")
    assert [(e.operation, e.count) for e in read_folder(path).history] == [
        ("fit", 60), ("forget", 30), ("forget", 30),
    ]  # fmt: skip


def test_merging_a_model_twice_is_refused(path):
    (X, y), other = rows(), path.parent / "other"
    for place in (path, other):
        create(place, learned("kernel", (X, y))).close()
    for others in (
        [other, other],
        [other, other / "model.safetensors"],
        [path / "model.safetensors"],
    ):
        done = dkvb("merge", path, *others)
        assert done.exit_code == 2
        assert "count every row twice" in done.stderr
    copy, later = path.parent / "copy", path.parent / "later"
    for place in (copy, later):
        shutil.copytree(path, place)
    with open_folder(later) as model:
        model.learn(X[:2], y[:2])
    done = dkvb("merge", path, copy)
    assert done.exit_code == 2
    assert "a copy of one that is there already" in done.stderr
    clf = learned("kernel", (X, y))
    with open_folder(path) as model, pytest.raises(ValueError, match="would count twice"):
        model.merge(clf, clf)
    assert_same_state(read_folder(path).classifier, learned("kernel", (X, y)))
    done = dkvb("merge", path, later)
    assert done.exit_code == 0
    assert "what was learned before that counts twice" in done.stderr


def test_a_digest_tells_what_was_learned_before_until_something_is_forgotten(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:5], y[:5])
        assert model.learned_before(X[:5], y[:5]).operation == "learn"
        assert model.learned_before(X[:4], y[:4]) is None
        digest = model.model.history[-1].digest
        model.forget("bee")
        assert model.learned_before(X[:5], y[:5]) is None
    assert all(digest.encode() not in p.read_bytes() for p in path.iterdir())

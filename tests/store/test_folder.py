"""Models that live in a folder: what is acknowledged is there, what is forgotten is gone."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dkvb import KernelClassifier
from dkvb._support.files import FileError
from dkvb.estimators.registry import load_classifier, make_classifier
from dkvb.store import Entry, create, folder, open_folder, read_folder
from dkvb.store.history import shortened

from ..support.files.models import assert_same, bottleneck, rows
from .faults import reference
from .shared import assert_same_state, learned


def names(path):
    return sorted(p.name.partition("-")[0] for p in path.iterdir())


def test_snapshot_and_journal_are_the_model(path):
    X, y = rows()
    batches = [(X[:20], y[:20]), (X[20:25], y[20:25]), (X[25:], y[25:])]
    with create(path, learned("kernel", batches[0])) as model:
        before = (path / "model.safetensors").read_bytes()
        for part in batches[1:]:
            assert model.learn(*part) == len(part[1])
        assert (path / "model.safetensors").read_bytes() == before
        assert_same(model.classifier, learned("kernel", *batches), X)
    found = read_folder(path)
    assert_same(found.classifier, learned("kernel", *batches), X)
    assert found.pending == 2
    assert [(e.operation, e.count) for e in found.history] == [
        ("fit", 20), ("learn", 5), ("learn", len(X) - 25),
    ]  # fmt: skip
    with open_folder(path) as model:
        model.compact()
    assert names(path) == ["lock", "model.safetensors"]
    again = read_folder(path)
    assert_same(again.classifier, found.classifier, X)
    assert again.history == found.history
    assert again.pending == 0


def test_a_model_can_be_read_while_it_is_open_and_its_snapshot_is_never_stale(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y)), encoder="eyes") as model:
        model.learn(X[:3], y[:3])
        assert read_folder(path).encoder == "eyes"
        assert_same(read_folder(path).classifier, model.classifier, X)
        for reading in (KernelClassifier.load, load_classifier):
            with pytest.raises(FileError, match="which lacks what the journal beside it holds"):
                reading(path / "model.safetensors")
        model.compact()
        plain = KernelClassifier.load(path / "model.safetensors")
        assert_same(plain, model.classifier, X)


@pytest.mark.parametrize("name", ["kernel"])
def test_a_label_that_was_corrected_is_gone_from_every_file_after_compaction(path, name):
    X, y = rows()
    with create(path, reference(name, (X, y))) as model:
        model.learn(X[:5] + 1, ["secret-word"] * 5)
        assert model.relabel(X[:5] + 1, ["secret-word"] * 5, ["elk"] * 5, operation_id="a") == 5
        assert model.relabel(X[:5] + 1, ["secret-word"] * 5, ["elk"] * 5, operation_id="a") == 5
        model.compact()  # until then it can be undone
        assert all(b"secret-word" not in p.read_bytes() for p in path.iterdir())
        assert_same_state(model.classifier, reference(name, (X, y), (X[:5] + 1, ["elk"] * 5)))
    history = read_folder(path).history
    assert [(e.operation, e.count) for e in history] == [("fit", 60), ("learn", 5), ("relabel", 5)]


@pytest.mark.parametrize("name", ["kernel"])
def test_what_is_forgotten_is_gone_from_every_file(path, name):
    X, y = rows()
    with create(path, learned(name, (X, y))) as model:
        model.learn(X[:5], ["secret-word"] * 5)
        assert b"secret-word" in (path / "journal").read_bytes()
        (path / ".journal.0123abcd.unfinished").write_bytes(
            b"secret-word of a process that was killed"
        )
        assert model.forget("secret-word") == 5
        assert names(path) == ["lock", "model.safetensors"]
        assert all(b"secret-word" not in p.read_bytes() for p in path.iterdir())
        assert_same_state(model.classifier, learned(name, (X, y)))
        model.learn(X[:9], y[:9])
        assert model.forget_samples(X[:9], y[:9]) == 9
        assert_same_state(read_folder(path).classifier, learned(name, (X, y)))
    operations = [(e.operation, e.count) for e in read_folder(path).history]
    assert operations == [
        ("fit", 60), ("learn", 5), ("forget", 5), ("learn", 9), ("forget_samples", 9),
    ]  # fmt: skip


def test_merge(path):
    (X, y), (X2, y2), (X3, y3) = rows(0), rows(1), rows(2)
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X2, y2)
        others = [learned("kernel", (X3, y3)), learned("kernel", (X, y))]
        assert model.merge(*others) == 120
        stranger = bottleneck().fit(X, y)
        with pytest.raises(TypeError, match="other: expected a KernelClassifier"):
            model.merge(others[0], stranger)
        expected = learned("kernel", (X, y), (X2, y2), (X3, y3), (X, y))
        assert_same_state(model.classifier, expected)
    assert_same_state(read_folder(path).classifier, expected)


@pytest.mark.parametrize("name", ["linear", "prototypes"])
def test_baselines_live_in_folders_too(path, name):
    X, y = rows()
    with create(path, make_classifier(name).fit(X[:30], y[:30]), rows=30) as model:
        assert model.learn(X[30:], y[30:]) == 30
        expected = make_classifier(name).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
        with pytest.raises(ValueError, match="forget: expected a KernelClassifier"):
            model.forget("yak")
        with pytest.raises(ValueError, match="NaN"):
            model.learn(np.full((2, 6), np.nan), ["yak"] * 2)
        assert_same(model.classifier, expected, X)
    assert names(path) == ["lock", "model.safetensors"]
    assert_same(read_folder(path).classifier, expected, X)


def test_wrong_operations_change_nothing(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:3], y[:3])
        before = {p.name: p.read_bytes() for p in path.iterdir()}
        for wrong in (
            lambda: model.learn(X[:, :2], y),
            lambda: model.learn(X, np.arange(len(X))),
            lambda: model.learn(np.full_like(X, np.nan), y),
            lambda: model.learn(X, y[:-1]),
            lambda: model.forget("nobody"),
            lambda: model.forget_samples(X + 1, y),
            lambda: model.merge(bottleneck().fit(X, y)),
        ):
            with pytest.raises((ValueError, TypeError)):
                wrong()
            assert {p.name: p.read_bytes() for p in path.iterdir()} == before
            assert_same(model.classifier, read_folder(path).classifier, X)
        sgd = bottleneck().fit(X, y)
    with create(path, sgd, overwrite=True) as model, pytest.raises(ValueError, match="forget"):
        model.forget("yak")


def test_creating_and_opening(path, tmp_path):
    X, y = rows()
    with pytest.raises(FileError, match="make one with fit"):
        open_folder(path)
    with pytest.raises(FileError, match="expected the folder of a model"):
        read_folder(tmp_path)
    with pytest.raises(ValueError, match="expected one that has learned"):
        create(path, learned("kernel"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="got the file"):
        create(tmp_path / "file", learned("kernel", (X, y)))
    create(path, learned("kernel", (X, y))).close()
    with pytest.raises(ValueError, match="there is a model"):
        create(path, learned("kernel", (X, y)))
    other = make_classifier("bottleneck", {"n_codebooks": 3, "key_dim": 2})
    with create(path, other.fit(X, y), overwrite=True) as model:
        assert_same(model.classifier, read_folder(path).classifier, X)
    create(path, learned("kernel", (X, y)), overwrite=True).close()
    assert names(path) == ["lock", "model.safetensors"]  # the old keys are gone


def test_one_writer_at_a_time(path):
    X, y = rows()
    model = create(path, learned("kernel", (X, y)))
    with pytest.raises(BlockingIOError, match=f"process {os.getpid()} is changing this model"):
        open_folder(path)
    model.close()
    open_folder(path).close()
    # A longer number than any process has: nothing of it may stay behind the next holder's.
    (path / "lock").write_text(" " + "9" * 30)
    program = (
        "import sys, time; from dkvb.store import open_folder;"
        "model = open_folder(sys.argv[1]); print('locked', flush=True); time.sleep(900)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match=f"process {other.pid} is changing"):
            open_folder(path)
        read_folder(path)  # readers are never kept waiting
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    open_folder(path).close()  # a dead writer blocks nobody


def test_compaction_when_a_journal_grows(path, monkeypatch):
    X, y = rows()
    monkeypatch.setattr(folder, "MOST_BYTES", 2500)
    monkeypatch.setattr(folder.ModelFolder, "_size", lambda self: 0)
    with create(path, learned("kernel", (X, y))) as model:
        sizes = []
        for _ in range(8):
            model.learn(X[:2], y[:2])
            sizes.append(model.model.pending)
            assert_same(read_folder(path).classifier, model.classifier, X)
    assert sizes[0] == 1
    assert 1 in sizes[1:]  # the journal of earlier operations became a snapshot
    assert max(sizes) < 5
    monkeypatch.setattr(folder, "MOST_SECONDS", 0.0)
    with open_folder(path) as model:
        for _ in range(2):  # the last operation stays in the journal, and can be undone
            model.learn(X[:2], y[:2])
            assert model.model.pending == 1


def test_history_is_shortened_but_adds_up():
    many = tuple(Entry("learn" if i % 50 else "forget", i, str(i), str(i)) for i in range(1000))
    short = shortened(many, most=999)
    assert len(short) < 600
    assert sum(e.count for e in short) == sum(e.count for e in many)
    assert short[-500:] == many[-500:]
    assert json.dumps([vars(e) for e in short])

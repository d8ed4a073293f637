"""Nothing foreign is touched: links, files of others, leftovers, modes."""

import os
import stat

import numpy as np
import pytest

from dkvb import BottleneckClassifier
from dkvb._support.files import FileError
from dkvb.estimators.registry import make_classifier
from dkvb.store import create, open_folder, read_folder

from ..support.files.models import assert_same, keys, rows
from .commands import dkvb
from .shared import assert_same_state, learned

OWN = ("lock", "journal", "model.safetensors", "keys-*.safetensors")


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.is_dir()}


@pytest.fixture
def model(path):
    """The folder of a model with a journal."""
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as folder:
        folder.learn(X[:3], y[:3])
    return path


@pytest.fixture
def keyed(path):
    """The folder of a model with a file of keys."""
    create(path, learned("bottleneck", rows())).close()
    return path


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_link_in_a_model_folder_is_refused_and_never_followed(request, tmp_path, name, kind):
    X, y = rows()
    model = request.getfixturevalue("keyed" if name.startswith("keys") else "model")
    own = next(model.glob(name))
    mine = tmp_path / "mine"
    mine.write_bytes(own.read_bytes() if kind == "link" else b"")
    before = mine.read_bytes()
    own.unlink()
    if kind == "folder":
        own.mkdir()
    elif kind == "pipe":
        os.mkfifo(own)
    else:
        own.symlink_to(mine if kind == "link" else tmp_path / "nothing")
    for wrong in (
        lambda: open_folder(model),
        lambda: create(model, learned("kernel", (X, y)), overwrite=True),
    ):
        with pytest.raises(FileError, match="expected a regular file"):
            wrong()
    if name != "lock":
        with pytest.raises(FileError, match="expected a regular file"):
            read_folder(model)
    assert mine.read_bytes() == before
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", OWN)
def test_a_link_that_comes_while_a_model_is_open_is_not_written_through(request, tmp_path, name):
    X, y = rows()
    model = request.getfixturevalue("keyed" if name.startswith("keys") else "model")
    mine = tmp_path / "mine"
    mine.write_bytes(b"precious")
    with open_folder(model) as folder:
        own = next(model.glob(name))
        own.unlink()
        own.symlink_to(mine)
        for change in (lambda: folder.learn(X[:2], y[:2]), folder.compact):
            with pytest.raises(FileError, match="expected a regular file"):
                change()
    assert mine.read_bytes() == b"precious"


def test_a_hard_linked_copy_does_not_change_with_the_model(model, tmp_path):
    X, y = rows()
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        os.link(file, copy / file.name)
    before = content(copy)
    with open_folder(model) as folder:
        folder.learn(X[3:5], y[3:5])
        assert_same(
            folder.classifier, learned("kernel", (X, y), (X[:3], y[:3]), (X[3:5], y[3:5])), X
        )
    assert content(copy) == before
    assert_same_state(read_folder(copy).classifier, learned("kernel", (X, y), (X[:3], y[:3])))


FOREIGN = [
    "journal", "lock", "keys-shared.safetensors", "keys-0123456789abcdef.safetensors",
    ".notes.unfinished", ".hidden", "photo.png", ".model.safetensors.unfinished",
]  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_not_empty_and_holds_no_model_is_refused(path, name, overwrite):
    X, y = rows()
    path.mkdir()
    (path / name).write_bytes(b"precious")
    with pytest.raises(ValueError, match="expected a new or an empty folder"):
        create(path, learned("kernel", (X, y)), overwrite=overwrite)
    assert content(path) == {name: b"precious"}
    np.savez(path.parent / "rows.npz", x=X, y=y)
    done = dkvb("fit", path, "--data", path.parent / "rows.npz", *["--overwrite"][: int(overwrite)])
    assert done.exit_code == 2
    assert name in done.stderr
    assert content(path) == {name: b"precious"}


def test_overwriting_removes_only_what_the_replaced_snapshot_names(keyed):
    model = keyed
    X, y = rows()
    foreign = {name: b"precious" for name in FOREIGN if name not in ("journal", "lock")}
    for name, text in foreign.items():
        (model / name).write_bytes(text)
    old = next(p.name for p in model.glob("keys-*") if p.name not in foreign)
    head = learned("bottleneck", (X, y))
    head.save(model / "head", keys=model / "keys-mine.safetensors")
    other = make_classifier("bottleneck", {"n_codebooks": 3, "key_dim": 2})
    create(model, other.fit(X, y), overwrite=True).close()
    with open_folder(model) as folder:
        folder.learn(X[:2], y[:2])
    left = content(model)
    assert {name: left[name] for name in foreign} == foreign
    assert old not in left
    assert_same(BottleneckClassifier.load(model / "head"), head, X)


def test_a_journal_of_somebody_else_stops_overwriting(model):
    X, y = rows()
    (model / "journal").write_text("Dear diary, today I learned about classifiers.")
    before = content(model)
    with pytest.raises(FileError, match="journal: expected the journal of a model"):
        create(model, learned("kernel", (X, y)), overwrite=True)
    del before["lock"]
    assert content(model).items() >= before.items()


def test_a_damaged_journal_or_snapshot_does_not_stop_overwriting(model):
    X, y = rows()
    for name in ("journal", "model.safetensors"):
        spoilt = bytearray((model / name).read_bytes())
        spoilt[-20] ^= 1
        (model / name).write_bytes(spoilt)
    create(model, learned("kernel", (X, y)), overwrite=True).close()
    assert_same(read_folder(model).classifier, learned("kernel", (X, y)), X)


def test_what_a_killed_fit_left_does_not_stop_the_next_one(path):
    X, y = rows()
    path.mkdir()
    name = "keys-0123456789abcdef.safetensors"
    for left in (
        "lock",
        name,
        f".{name}.01234567.unfinished",
        ".model.safetensors.89abcdef.unfinished",
    ):
        (path / left).write_bytes(b"")
    create(path, learned("bottleneck", (X, y))).close()
    assert sorted(content(path)) == [
        f"keys-{keys().fingerprint[:16]}.safetensors", "lock", "model.safetensors",
    ]  # fmt: skip


def test_leftovers_of_killed_processes_go_when_a_model_is_opened_for_writing(model):
    before = content(model)
    orphan = "keys-0123456789abcdef.safetensors"
    for name in (
        orphan, f".{orphan}.01234567.unfinished", ".journal.01234567.unfinished",
        ".model.safetensors.01234567.unfinished",
    ):  # fmt: skip
        (model / name).write_bytes(b"secret")
    read_folder(model)
    assert len(content(model)) == len(before) + 4  # whoever reads removes nothing
    open_folder(model).close()
    assert sorted(content(model)) == sorted(before)


def test_a_killed_overwrite_leaves_no_keys_behind(keyed, monkeypatch):
    """Between the rename of the snapshot and the removal of the old keys."""
    model = keyed
    X, y = rows()
    other = make_classifier("bottleneck", {"n_codebooks": 3, "key_dim": 2})
    other.fit(X, y)
    with monkeypatch.context() as context:
        context.setattr("dkvb.store.folder.ModelFolder._clean", lambda self: None)
        create(model, other, overwrite=True).close()
    assert len(list(model.glob("keys-*"))) == 2
    assert_same(read_folder(model).classifier, other, X)
    open_folder(model).close()
    assert [p.name for p in model.glob("keys-*")] == [
        f"keys-{other.keys_.fingerprint[:16]}.safetensors"
    ]
    assert_same(read_folder(model).classifier, other, X)


def test_a_forget_killed_before_the_journal_was_removed_is_completed_by_opening(model, monkeypatch):
    X, _ = rows()
    with open_folder(model) as folder:
        folder.learn(X[:5], ["secret-word"] * 5)
        with monkeypatch.context() as context:
            context.setattr("dkvb.store.folder.ModelFolder._clean", lambda self: None)
            folder.forget("secret-word", operation_id="gdpr-17")
    assert b"secret-word" in (model / "journal").read_bytes()
    done = dkvb("forget", model, "--label", "secret-word", "--operation-id", "gdpr-17")
    assert (done.exit_code, done.stdout.split(";")[0]) == (
        0,
        "operation 'gdpr-17' was done already",
    )
    assert all(b"secret-word" not in text for text in content(model).values())


# ------------------------------------------------------------------------------------------ modes
def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_models_are_private_and_modes_are_kept(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as folder:
        folder.learn(X[:3], y[:3])
        assert {mode(p) for p in path.iterdir()} == {0o600}
        for p in path.iterdir():
            p.chmod(0o640)
        folder.learn(X[3:5], y[3:5])
        assert {mode(p) for p in path.iterdir()} == {0o640}
        folder.forget("bee")
        folder.learn(X[:3], ["elk"] * 3)
        assert {mode(p) for p in path.iterdir()} == {0o640}
        folder.compact()
        assert {mode(p) for p in path.iterdir()} == {0o640}
    other = make_classifier("bottleneck", {"n_codebooks": 3, "key_dim": 2})
    create(path, other.fit(X, y), overwrite=True).close()
    assert {mode(p) for p in path.iterdir()} == {0o640}
    file = path.parent / "model.safetensors"
    learned("kernel", (X, y)).save(file)
    assert mode(file) == 0o600
    file.chmod(0o664)
    learned("kernel", (X, y)).save(file)
    assert mode(file) == 0o664

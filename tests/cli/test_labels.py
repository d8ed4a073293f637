"""`dkvb rename`, `merge-classes`, `relabel` and `undo`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dkvb.cli import app
from dkvb.store import read_folder


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    result = dkvb(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(params=["text", "numbers"])
def taught(request, tmp_path, rng):
    """A model folder, three of its labels, and a new label of the same kind."""
    y = np.repeat(np.arange(3), 8)
    x = (5 * np.eye(3, 6)[y] + rng.normal(size=(24, 6))).astype(np.float32)
    labels = np.array(["ant", "bee", "cat"]) if request.param == "text" else np.array([3, 5, 8])
    np.savez(tmp_path / "rows.npz", x=x, y=labels[y])
    np.savez(tmp_path / "few.npz", x=x[:2], y=labels[y[:2]])
    good("fit", tmp_path / "m", "--data", tmp_path / "rows.npz")
    return tmp_path, labels.tolist(), "wasp" if request.param == "text" else 11


def counts(path):
    return read_folder(path / "m").classifier.class_count_


def test_labels_change_and_change_back(taught):
    path, (a, b, c), new = taught
    before = counts(path)
    assert good("rename", path / "m", a, new)["rows"] == 8
    assert counts(path) == {new: 8, b: 8, c: 8}
    merged = good("merge-classes", path / "m", "--label", new, "--label", b, "--into", c)
    assert merged["rows"] == 16
    assert counts(path) == {c: 24}
    assert good("undo", path / "m")["rows"] == 16
    assert good("undo", path / "m", "--operation-id", "once")["rows"] == 8
    assert good("undo", path / "m", "--operation-id", "once")["rows"] == 8
    assert counts(path) == before
    assert good("relabel", path / "m", "--data", path / "few.npz", "--to", new)["rows"] == 2
    assert counts(path) == {a: 6, b: 8, c: 8, new: 2}
    result = dkvb("undo", path / "m")
    assert result.exit_code == 0
    assert "undid the relabel of 2 rows; " in result.stdout
    assert counts(path) == before


def test_what_was_done_is_said_in_words(taught):
    path, (a, b, c), new = taught
    model = path / "m"
    for arguments, said in (
        (("rename", model, a, new), f"8 rows of {a!r} are now {new!r}; {model} knows 3 classes\n"),
        (("undo", model), "undid the rename of a class with 8 rows; "),
        (("merge-classes", model, "--label", b, "--label", c, "--into", c),
         f"8 rows of {b!r} are now {c!r}; {model} knows 2 classes\n"),
        (("undo", model), "undid the merge of classes with 8 rows; "),
        (("relabel", model, "--data", path / "few.npz", "--to", b), f"2 rows are now {b!r}; "),
    ):  # fmt: skip
        assert said in dkvb(*arguments).stdout


def test_bad_labels_change_nothing(taught):
    path, (a, b, _), _ = taught
    before = counts(path)
    for arguments, text in (
        (("rename", path / "m", "yak", "emu"), "LABEL: expected one of"),
        (("rename", path / "m", a, b), "expected"),
        (("merge-classes", path / "m", "--label", "yak", "--into", a), "--label: expected one of"),
        (("undo", path / "m"), "nothing can be undone: the last operation, a fit of "),
        (("relabel", path / "m", "--data", path / "no.npz", "--to", a), "no.npz"),
    ):
        result = dkvb(*arguments)
        assert result.exit_code != 0
        assert text in result.output
        assert "Traceback" not in result.output
    if isinstance(a, int):
        assert "NEW: expected a whole number" in dkvb("rename", path / "m", a, "emu").output
    assert counts(path) == before

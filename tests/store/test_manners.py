"""Manners of the command line: help, versions, hints that exist, what learning did."""

import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import dkvb as library
from dkvb.cli import _change, app
from dkvb.store import Entry, create, open_folder, read_folder

from ..support.files.models import keys, rows
from .commands import dkvb, good
from .shared import assert_same_state, learned

SOURCES = Path(library.__file__).parent


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    X, y = rows()
    np.savez("rows.npz", x=X, y=y)
    np.savez("one.npz", x=X[:1], y=y[:1])
    create("model", learned("kernel", (X, y))).close()
    return tmp_path


def commands(group=None, prefix=""):
    group = group or get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def options_of(command):
    return {name for parameter in command.params for name in parameter.opts}


# ------------------------------------------------------------------------------------------- hints
def texts_of(tree):
    """All text in a module, parts of one f-string joined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "…" for part in node.values
            )


def test_every_option_that_a_message_names_exists():
    """`dkvb COMMAND … --option` in that command; `--option` alone in some command."""
    known = dict(commands())
    every = {"--version", "--help", *(o for command in known.values() for o in options_of(command))}
    every.add("--extra-index-url")  # pip's
    wrong = set()
    for path in sorted(SOURCES.rglob("*.py")):
        for text in texts_of(ast.parse(path.read_text(encoding="utf-8"))):
            named = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)
            wrong |= {(path.name, option) for option in named if option not in every}
            for match in re.finditer(r"dkvb ((?:cache )?[a-z]+)((?: [^;,.()\n]*)?)", text):
                command = known.get(match[1])
                for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", match[2]):
                    if command is not None and option not in options_of(command):
                        wrong.add((path.name, match[0]))
    assert wrong == set()


def test_every_command_that_a_message_names_exists():
    known = {name.split()[0] for name in dict(commands())}
    said = set()
    for path in SOURCES.rglob("*.py"):
        for text in texts_of(ast.parse(path.read_text(encoding="utf-8"))):
            said |= set(re.findall(r"with dkvb ([a-z]+)|`dkvb ([a-z]+)", text))
    named = {one or other for one, other in said} - {""}
    assert named - known == set()
    assert named


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_a_letter_away_for_every_command(flag):
    for name, _ in commands():
        assert "Usage" in good(*name.split(), flag)
    assert "Usage" in good(flag)


def test_version_and_completion():
    assert good("--version") == f"dkvb {library.__version__}\n"
    assert "--install-completion" in good("--help")


def test_plural_forms(place):
    assert good("learn", "model", "--data", "one.npz").startswith("learned 1 row; ")
    assert "forgot 1 row;" in good("forget", "model", "--data", "one.npz")
    good("forget", "model", "--label", "ant", "--label", "bee")
    assert "knows 1 class\n" in good("forget", "model", "--label", "yak")


@pytest.mark.parametrize("arguments", [["inspect", "model"], ["history", "model"]])
def test_tables_fit_eighty_columns(place, arguments):
    good("learn", "model", "--data", "rows.npz", "--quiet")
    assert max(map(len, good(*arguments).splitlines())) <= 80


# ----------------------------------------------------------------------------------------- learning
class Measured:
    """In the place of a classifier that measures itself."""

    def __init__(self, **accuracy):
        self.accuracy, self.classes_ = accuracy, list(accuracy)

    def class_accuracy(self):
        return self.accuracy


def test_what_learning_does_to_the_old_classes():
    change = _change.change_of(Measured(ant=0.9, bee=0.8), Measured(ant=0.88, bee=0.7, cow=1.0))
    assert change.line() == (
        "accuracy on the old classes, leave-one-out: 85.0 % before, 79.0 % after"
    )
    assert list(change.losses()) == ["bee"]
    assert "more than 3 points: bee 80.0 % to 70.0 %" in change.warning()
    assert _change.change_of(Measured(ant=0.9), Measured(ant=0.87)).warning() is None
    assert _change.change_of(object(), Measured(ant=1.0)) is None


def test_old_classes_are_measured_on_held_out_rows_where_they_are_given(place):
    X, y = rows(1)
    np.savez("test.npz", x=np.concatenate([X, X[:5]]), y=np.concatenate([y, ["fox"] * 5]))
    np.savez("new.npz", x=X[:4] + 9, y=["elk"] * 4)
    done = dkvb("learn", "model", "--data", "new.npz", "--test", "test.npz", "--dry-run")
    assert "accuracy on the old classes, held-out: 100.0 % before, 100.0 % after" in done.stdout
    # The same rows under another name: the old class is gone.
    wrong = np.flatnonzero(y == "bee")
    np.savez("wrong.npz", x=np.repeat(X[wrong], 40, axis=0), y=["wasp"] * 40 * len(wrong))
    done = dkvb("learn", "model", "--data", "wrong.npz", "--test", "test.npz", "--json")
    assert "bee" in json.loads(done.stdout)["old_classes"]["lost"]


def test_learn_prints_a_line_and_warns_of_losses(place, monkeypatch):
    def accuracy(self):
        n = len(self.classes_)
        return dict.fromkeys(self.classes_.tolist(), 0.9 if n == 4 else 0.8)

    monkeypatch.setattr(library.KernelClassifier, "class_accuracy", accuracy)
    X, _ = rows()
    np.savez("new.npz", x=X[:4] + 9, y=["elk"] * 4)
    before = read_folder("model").classifier
    done = dkvb("learn", "model", "--data", "new.npz", "--dry-run")
    assert done.stdout.startswith("would have learned 4 rows; model would know 5 classes\n")
    assert "90.0 % before, 80.0 % after" in done.stdout
    assert "lost more than 3 points" in done.stderr
    assert_same_state(read_folder("model").classifier, before)
    told = json.loads(good("learn", "model", "--data", "new.npz", "--json"))
    assert told["old_classes"]["lost"] == pytest.approx(dict.fromkeys(before.classes_, 0.1))
    assert "elk" in read_folder("model").classifier.classes_


def test_the_same_file_twice_is_warned_about(place):
    first = dkvb("learn", "model", "--data", "rows.npz")
    assert "warning" not in first.stderr
    again = dkvb("learn", "model", "--data", "rows.npz")
    assert "the same rows were learned at" in again.stderr
    assert "count twice" in again.stderr
    repeated = dkvb("learn", "model", "--data", "rows.npz", "--operation-id", "a")
    assert "the same rows" in repeated.stderr
    assert (
        "the same rows"
        not in dkvb("learn", "model", "--data", "rows.npz", "--operation-id", "a").stderr
    )


def test_what_was_undone_may_be_learned_again(place):
    good("learn", "model", "--data", "one.npz")
    assert good("undo", "model") == "undid the learn of 1 row; model knows 4 classes\n"
    assert "the same rows" not in dkvb("learn", "model", "--data", "one.npz").stderr
    again = dkvb("learn", "model", "--data", "one.npz").stderr
    assert "they count twice now; dkvb undo model undoes it" in again
    dry = dkvb("learn", "model", "--data", "one.npz", "--dry-run").stderr
    assert "they would count twice\n" in dry


def test_a_repeated_operation_says_that_nothing_changed(place):
    again = ("--operation-id", "monday")
    said = "operation 'monday' was done already; nothing changed\n"
    for arguments in (
        ["learn", "model", "--data", "one.npz"],
        ["rename", "model", "ant", "emu"],
        ["merge-classes", "model", "--label", "bee", "--into", "cow"],
        ["undo", "model"],
        ["forget", "model", "--label", "yak"],
        ["forget", "model", "--data", "two.npz"],
        ["learn", "shard", "--data", "one.npz", "--like", "model"],
        ["merge", "model", "shard"],
    ):
        again = ("--operation-id", " ".join(arguments[:3]))
        X, _ = rows()
        np.savez("two.npz", x=X[:1], y=["emu"])
        first = good(*arguments, *again)
        assert "done already" not in first
        before = read_folder("model")
        assert good(*arguments, *again) == said.replace("monday", again[1])
        assert json.loads(good(*arguments, *again, "--json"))["repeated"] is True
        assert read_folder("model").history == before.history
    assert "done already" in good("learn", "shard", "--data", "one.npz", "--like", "model",
                                  "--operation-id", "learn shard --data")  # fmt: skip


def test_data_that_is_not_there_is_said_so_before_an_encoder_is_asked_for(place):
    for option in ("--data", "--keys"):
        given = {"--data": "rows.npz", option: "nowhere"}
        done = dkvb("fit", "new", *(text for pair in given.items() for text in pair))
        assert done.exit_code == 2
        assert f"{option}: found nothing at nowhere" in done.stderr


def test_waiting_for_a_busy_model(place):
    with open_folder("model"):
        done = dkvb("learn", "model", "--data", "rows.npz", "--wait", "0.1")
    assert done.exit_code == 2
    assert "is changing this model after 0.1 seconds" in done.stderr


@pytest.mark.parametrize("source", ["keys", "keys.safetensors", "model", "model/model.safetensors"])
def test_keys_come_from_a_file_of_keys_or_from_a_model(place, source):
    create("model", learned("bottleneck", rows()), overwrite=True).close()
    if source.startswith("keys"):
        keys().save(source)
    good(
        "fit", "new", "--data", "rows.npz", "--keys", source,
        "--classifier", "bottleneck",
    )  # fmt: skip
    found = read_folder("new").classifier
    assert found.keys_.fingerprint == keys().fingerprint


def test_the_default_classifier_keeps_embeddings_says_so_and_measures_itself(place):
    done = dkvb("fit", "new", "--data", "rows.npz")
    assert "keeps the embeddings that it learns" in done.stderr
    assert isinstance(read_folder("new").classifier, library.KernelClassifier)
    X, y = rows(1)
    np.savez("new.npz", x=X[:8] + 9, y=["elk"] * 8)
    done = dkvb("learn", "new", "--data", "new.npz")
    assert "accuracy on the old classes, leave-one-out: 100.0 % before, 100.0 %" in done.stdout
    np.savez("wrong.npz", x=X[y == "bee"], y=["ant"] * 15)
    done = dkvb("learn", "new", "--data", "wrong.npz")
    assert "old classes lost more than 3 points: " in done.stderr
    facts = json.loads(good("inspect", "new", "--json"))
    assert facts["examples"] == {"ant": 30, "bee": 15, "cow": 15, "elk": 8, "yak": 15}
    assert facts["accuracy"]["per_class"]["cow"] == 1.0
    assert facts["suspects"]
    text = good("inspect", "new")
    assert "leave-one-out accuracy" in text
    assert max(map(len, text.splitlines())) <= 80
    quiet = dkvb("fit", "plain", "--data", "rows.npz", "--classifier", "prototypes")
    assert "keeps" not in quiet.stderr


@pytest.mark.parametrize("options", [["--keep", "sums"], ["--classifier", "kernel:keep=sums"]])
def test_sums_are_kept_where_they_are_asked_for_and_the_share_of_single_rows_is_told(
    place, options
):
    X, y = rows()
    np.savez("three.npz", x=np.concatenate([X, X[:9], X[:9]]), y=np.concatenate([y, y[:9], y[:9]]))
    done = dkvb("fit", "new", "--data", "three.npz", *options)
    assert done.exit_code == 0, done.output
    classifier = read_folder("new").classifier
    assert classifier.keep == "sums"
    share = classifier.single_row_share_
    assert 0 < share < 1
    told = f"a count and a sum per key and class; {100 * share:.1f} % of these hold one row"
    assert f"the model keeps {told}" in done.stderr
    facts = json.loads(good("inspect", "new", "--json"))
    assert facts["keep"] == "sums"
    assert facts["single_row_share"] == pytest.approx(share, abs=1e-4)
    assert facts["suspects"] == []  # no row is told from others
    assert told in good("inspect", "new")
    good("learn", "new", "--data", "rows.npz")  # every cell has two rows now
    assert json.loads(good("inspect", "new", "--json"))["single_row_share"] == 0.0
    good("forget", "new", "--data", "rows.npz")
    again = read_folder("new").classifier
    assert again.single_row_share_ == share
    assert_same_state(again, classifier)


def test_inspect_says_what_is_kept_where_that_was_chosen(place):
    facts = json.loads(good("inspect", "model", "--json"))
    assert (facts["keep"], facts["single_row_share"]) == ("examples", 1.0)
    assert "keeps               the embeddings that it learns" in good("inspect", "model")
    good("fit", "plain", "--data", "rows.npz", "--classifier", "prototypes")
    facts = json.loads(good("inspect", "plain", "--json"))
    assert not facts.keys() & {"keep", "single_row_share"}
    assert "keeps" not in good("inspect", "plain")


def test_keys_for_sums_are_fitted_to_unlabelled_rows(place):
    rng = np.random.default_rng(1)
    np.savez("unlabelled.npz", x=rng.normal(size=(600, 6)))
    good("fit", "new", "--data", "rows.npz", "--keep", "sums", "--keys", "unlabelled.npz")
    keys = read_folder("new").classifier.keys
    assert keys.n_codebooks == 1
    assert (
        keys.n_pairs > 50
    )  # enough to tell rows apart, which the few that hold a conditioning do not
    good("fit", "other", "--data", "one.npz", "--keep", "sums", "--keys", "new")
    assert read_folder("other").classifier.keys.fingerprint == keys.fingerprint
    good("merge", "other", "new")  # which takes the same keys
    good("fit", "few", "--data", "rows.npz", "--keys", "unlabelled.npz")
    assert read_folder("few").classifier.keys.n_pairs == 16


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep", "sums", "--classifier", "slda"], "expected --classifier kernel beside it"),
        (["--keep", "sums", "--classifier", "kernel:keep=examples"], "what --classifier says"),
        (["--keep", "everything"], "everything"),
        (["--classifier", "kernel:keep=means"], "keep: expected one of 'examples', 'sums'"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_any_work(place, options, says):
    done = dkvb("fit", "new", "--data", "rows.npz", *options)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
    assert not Path("new").exists()


def test_keys_of_another_width_or_of_none_are_refused(place):
    create("model", learned("bottleneck", rows()), overwrite=True).close()
    np.savez("wide.npz", x=np.zeros((4, 9)), y=["ant"] * 4)
    good("fit", "plain", "--data", "rows.npz", "--classifier", "prototypes")
    for arguments, says in (
        (("--data", "wide.npz", "--keys", "model"), "expected keys for embeddings of width 9"),
        (
            ("--data", "rows.npz", "--keys", "plain"),
            "plain is a PrototypesClassifier, which has no keys",
        ),
    ):
        done = dkvb("fit", "new", *arguments, "--classifier", "bottleneck")
        assert done.exit_code == 2
        assert says in done.stderr
    assert not (place / "new").exists()


@pytest.mark.parametrize("name", ["kernel"])
def test_compacting_at_once_leaves_no_journal(place, name):
    X, y = rows()
    create("other", learned(name, (X, y))).close()
    good("learn", "other", "--data", "one.npz")
    assert (place / "other" / "journal").exists()
    good("learn", "other", "--data", "one.npz", "--compact", "--quiet")
    assert not (place / "other" / "journal").exists()
    expected = learned(name, (X, y), (X[:1], y[:1]), (X[:1], y[:1]))
    assert_same_state(read_folder("other").classifier, expected)


def test_history_is_read_without_torch(place):
    good("learn", "model", "--data", "one.npz")
    program = (
        "import sys; from dkvb.cli import app\n"
        "try: app(['history', 'model', '--json'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told, _, torch_there = done.stdout.rpartition("]")
    assert torch_there.strip() == "False", done.stderr
    found = [Entry(**one) for one in json.loads(told + "]")]
    expected = [dataclasses.replace(one, digest=None) for one in read_folder("model").history]
    assert found == expected


def test_history_of_what_is_no_model_folder(place):
    (place / "plain").mkdir()
    learned("kernel", rows()).save("plain/model.safetensors")
    for name in ("plain", "nothing", "rows.npz"):
        done = dkvb("history", name)
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1

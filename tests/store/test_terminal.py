"""Nothing that a model, a file or a label says reaches the terminal raw."""

import json

import numpy as np
import pytest

from dkvb.cli._shared import printable, to_json
from dkvb.estimators import labels
from dkvb.store import create

from ..support.files.models import rows
from .commands import dkvb
from .shared import learned

NASTY = ["\x1b[2J\x1b]0;owned\x07", "a\nb", "\x9b31m", "\u202egnp.exe", "\x7f", "tab\there", "\r"]


def is_raw(text):
    return any(not c.isprintable() and c != "\n" for c in text)


@pytest.fixture
def model(path, monkeypatch):
    """As an older version, or somebody else, may have written it."""
    X, y = rows()
    bad = np.array(NASTY)[np.arange(len(y)) % len(NASTY)]
    monkeypatch.setattr(labels, "check_texts", lambda *_: None)
    create(path, learned("kernel", (X, bad)), encoder="eyes\x1b[31m").close()
    np.savez(path.parent / "rows.npz", x=X)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "MODEL", "--data", "ROWS"],
        ["predict", "MODEL", "--data", "ROWS", "--json"],
        ["inspect", "MODEL"],
        ["inspect", "MODEL", "--json"],
        ["history", "MODEL"],
        ["forget", "MODEL", "--label", "\x1b[2J"],
        ["forget", "MODEL", "--label", "a\nb"],
        ["learn", "MODEL", "--data", "no\x1b[2J.npz"],
        ["merge", "MODEL", "no\x1b[2J"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[3:]).encode("unicode_escape").decode(),
)
def test_escape_codes_and_newlines_of_labels_never_reach_the_terminal(model, arguments):
    names = {"MODEL": str(model), "ROWS": str(model.parent / "rows.npz")}
    done = dkvb(*(names.get(argument, argument) for argument in arguments))
    assert not is_raw(done.stdout + done.stderr)
    if arguments[0] == "predict" and "--json" not in arguments:
        assert "a\\nb" in done.stdout
    if "--json" in arguments and arguments[0] == "predict":
        found = {answer["label"] for answer in json.loads(done.stdout)}
        assert found <= set(NASTY)
        assert len(found) > 1


@pytest.mark.parametrize("text", NASTY)
def test_printable(text):
    assert printable(text).isprintable()
    assert json.loads(to_json({text: [text]})) == {text: [text]}
    assert to_json(text).isprintable()

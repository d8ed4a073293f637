"""What one way to learn refuses, every way refuses, with the same message."""

import os
import shutil
from copy import deepcopy

import numpy as np
import pytest

from dkvb.estimators.registry import make_classifier
from dkvb.store import create, open_folder, read_folder

from ..support.files.models import assert_same, bottleneck, rows
from .commands import dkvb

X, Y = rows()
N = len(X)
CLASSIFIERS = {
    "bottleneck": lambda: bottleneck(novelty_threshold=0.99),
    "kernel": lambda: make_classifier("kernel", {"novelty_threshold": 0.99}),
    "prototypes": lambda: make_classifier("prototypes"),
}


def spoilt(value):
    bad = X.astype(np.float64)
    bad[3, 2] = value
    return bad


# Embeddings and labels; the last says whether an npz file can hold them.
BAD = {
    "NaN": (spoilt(np.nan), Y, True),
    "infinity": (spoilt(np.inf), Y, True),
    "beyond float32": (spoilt(1e39), Y, True),
    "another width": (X[:, :3], Y, True),
    "no rows": (X[:0], Y[:0], True),
    "one row as a vector": (X[0], Y[:1], True),
    "three dimensions": (X[:, :, None], Y, True),
    "texts for numbers": (X.astype(str), Y, True),
    "fewer labels": (X, Y[:-1], True),
    "two columns of labels": (X, np.stack([Y, Y], axis=1), True),
    "numbers among texts": (X, np.arange(N), True),
    "booleans among texts": (X, np.arange(N) > 3, True),
    "fractions": (X, np.linspace(0, 1, N), True),
    "a missing label": (X, np.array([None, *Y[1:]], dtype=object), False),
    "mixed labels": (X, [1, *Y[1:].tolist()], False),
    "objects": (X, np.array([[], *Y[1:]], dtype=object), False),
    "control characters": (X, np.array(["a\nb", *Y[1:]]), True),
    "escape codes": (X, np.array(["\x1b[2J", *Y[1:]]), True),
    "a NUL at the end": (X, ["ant\0", *Y[1:].tolist()], False),
    "a very long label": (X, np.array(["a" * 2000, *Y[1:]]), True),
    "the label of what is unknown": (X, np.array(["unknown", *Y[1:]]), True),
}


def refusal(action):
    """The message, or None where it is accepted."""
    try:
        action()
    except (ValueError, TypeError) as error:
        return " ".join(str(error).split())
    return None


@pytest.fixture(scope="module", params=CLASSIFIERS)
def trained(request, tmp_path_factory):
    """The name of a classifier, one that is fitted, and a model folder of it; none is changed."""
    classifier = CLASSIFIERS[request.param]().fit(X, Y)
    folder = tmp_path_factory.mktemp("trained") / "model"
    create(folder, classifier).close()
    return request.param, classifier, folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return tmp_path


@pytest.mark.parametrize("kind", BAD)
def test_no_way_to_learn_accepts_what_another_refuses(place, trained, kind):
    name, clf, folder = trained
    bad_X, bad_y, in_npz = BAD[kind]
    said = refusal(lambda: deepcopy(clf).partial_fit(bad_X, bad_y))
    if name == "prototypes" and kind == "the label of what is unknown":
        assert said is None  # it has no threshold
        return
    assert said is not None
    shutil.copytree(folder, "model")
    before = {p.name: p.read_bytes() for p in (place / "model").iterdir()}
    with open_folder("model") as model:
        assert refusal(lambda: model.learn(bad_X, bad_y)) == said
        assert refusal(lambda: model.preview(bad_X, bad_y)) == said
        assert_same(model.classifier, clf, X)
    if in_npz:
        np.savez("bad.npz", x=bad_X, y=bad_y)
        done = dkvb("learn", "model", "--data", "bad.npz")
        assert done.exit_code == 2, done.output
        assert len(done.stderr.splitlines()) == 1
    left = {p.name: p.read_bytes() for p in (place / "model").iterdir()}
    assert {**left, "lock": b""} == {**before, "lock": b""}
    assert_same(read_folder("model").classifier, clf, X)


LABELS = {
    "the label of what is unknown": ["unknown"] * N,
    "numbers among texts": np.arange(N) % 4,
    "booleans among texts": np.arange(N) > 3,
}


@pytest.mark.parametrize("kind", LABELS)
def test_merge_refuses_the_labels_that_learning_refuses(place, kind):
    name = "kernel"
    other = make_classifier("kernel").fit(X, LABELS[kind])  # where they are fine
    clf = CLASSIFIERS[name]().fit(X, Y)
    said = refusal(lambda: clf.partial_fit(X, LABELS[kind]))
    merged = refusal(lambda: clf.merge(other))
    assert said is not None
    assert merged is not None
    assert merged.partition(":")[2] == said.partition(":")[2]  # which names another argument
    create("model", CLASSIFIERS[name]().fit(X, Y)).close()
    create("other", other).close()
    with open_folder("model") as model:
        assert refusal(lambda: model.merge(other)) == merged
    done = dkvb("merge", "model", "other")
    assert done.exit_code == 2
    assert merged in " ".join(done.stderr.split())
    assert_same(read_folder("model").classifier, clf, X)


def test_learning_the_label_of_what_is_unknown_from_the_command_line(place):
    create("model", CLASSIFIERS["kernel"]().fit(X, Y)).close()
    np.savez("rows.npz", x=X, y=["unknown"] * N)
    done = dkvb("learn", "model", "--data", "rows.npz")
    assert done.exit_code == 2
    assert not (place / "model" / "journal").exists()
    assert dkvb("predict", "model", "--data", "rows.npz").exit_code == 0

"""Models of shards, merged as a tree: each shard counts once."""

import shutil

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import dkvb
from dkvb.cli import app
from dkvb.store import open_folder, read_folder
from dkvb.store.shards import RepeatedShardError, manifest, merge_tree, new_like

N, M, SHARDS = 96, 4, 12
EACH = N // SHARDS
SIZES = {"n_codebooks": 4, "n_pairs": 4, "key_dim": 2}
COUNTS = "kernel"


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def good(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.split())


def same(one, other):
    ours, theirs = one.state_arrays(), other.state_arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k]) for k in ours)


def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, N)
    return rng.normal(size=(N, M)).astype(np.float32) + y[:, None], y


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Rows in shards, and a model of all."""
    folder, (X, y) = tmp_path_factory.mktemp("shards"), rows()
    np.savez(folder / "all.npz", x=X, y=y)
    for i in range(SHARDS):
        np.savez(folder / f"{i}.npz", x=X[i::SHARDS], y=y[i::SHARDS])
    good("fit", folder / "base", "--data", folder / "all.npz", "--classifier", COUNTS, "-q")
    return folder


@pytest.fixture
def place(prepared, tmp_path):
    """The same in a folder of the test."""
    return shutil.copytree(prepared, tmp_path / "place")


def learn(place, i, **more):
    options = [text for name, value in more.items() for text in (f"--{name}", value)]
    return good("learn", place / f"part-{i}", "--like", place / "base", "--data",
                place / f"{i}.npz", *options)  # fmt: skip


def test_a_tree_of_shards_with_retries_equals_one_pass(place):
    for i in range(SHARDS):
        learn(place, i)
    for i in (1, 2, 3, 5, 7):  # retried by a scheduler that did not hear that they were done
        assert learn(place, i) == f"operation 'part-{i}' was done already; nothing changed\n"
    level, names = 0, [f"part-{i}" for i in range(SHARDS)]
    while len(names) > 1:
        above = [f"node-{level}-{i}" for i in range(0, len(names), 4)]
        for i, name in enumerate(above):
            step = [place / one for one in names[4 * i : 4 * i + 4]]
            for _ in range(2 if i == 1 else 1):  # a step of the tree that is retried, too
                good("merge", place / name, *step, "--operation-id", name, "-q")
        level, names = level + 1, above
    model = read_folder(place / names[0])
    assert same(model.classifier, dkvb.load(place / "base"))
    assert {one.id for one in manifest(model)} == {f"part-{i}" for i in range(SHARDS)}
    assert len(manifest(model)) == SHARDS


def test_a_shard_is_added_once(place):
    for i in range(4):
        learn(place, i)
    good("merge", place / "union", *(place / f"part-{i}" for i in range(3)))
    before = dkvb.load(place / "union")
    text = refused("merge", place / "union", place / "part-3", place / "part-1")
    assert "part-1: expected shards that are not there yet; got 'part-1'" in text
    good("merge", place / "pair", place / "part-1", place / "part-3")
    text = refused("merge", place / "union", place / "pair")
    assert "pair: expected shards that are not there yet; got 'part-1'" in text
    text = refused("merge", place / "new", place / "part-0", place / "union")
    assert "got 'part-0'" in text
    # The same rows under another name.
    learn(place, 2, **{"operation-id": "second attempt"})
    good("learn", place / "attempt", "--like", place / "base", "--data", place / "2.npz")
    text = refused("merge", place / "union", place / "attempt")
    assert "got 'attempt', the same rows as 'part-2'" in text
    assert same(dkvb.load(place / "union"), before)
    done = good("merge", place / "union", *(place / f"part-{i}" for i in (3, 1)), "--skip-merged")
    assert f"added {EACH} rows" in done
    assert "part-1 was merged before" in " ".join(done.split())
    assert len(manifest(read_folder(place / "union"))) == 4


def test_a_shard_keeps_to_its_rows(place):
    learn(place, 0)
    text = refused("learn", place / "part-0", "--like", place / "base", "--data", place / "1.npz")
    assert "expected the rows that it learned as 'part-0'" in text
    assert sum(dkvb.load(place / "part-0").class_count_.values()) == EACH


def test_the_library_refuses_a_shard_too(place):
    for i in range(2):
        learn(place, i)
    part = read_folder(place / "part-1")
    with open_folder(place / "part-0") as folder:
        folder.merge(part.classifier, shards=manifest(part))
        with pytest.raises(RepeatedShardError, match="'part-1'"):
            folder.merge(read_folder(place / "part-1").classifier, shards=manifest(part))
        folder.learn(*_rows(place, 2))  # a journal and a snapshot keep the manifest
        folder.compact()
        assert [one.id for one in read_folder(place / "part-0").shards] == ["part-1"]
        folder.forget(folder.classifier.classes_[0].item())
        assert all(one.digest is None for one in manifest(read_folder(place / "part-0")))


def _rows(place, i):
    with np.load(place / f"{i}.npz") as saved:
        return saved["x"], saved["y"]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("name", ["kernel"])
def test_a_tree_merges_all(name, n):
    X, y = rows()
    keys = dkvb.fit_keys(X, **SIZES)
    empty = dkvb.KernelClassifier() if name == "kernel" else dkvb.BottleneckClassifier(keys, name)
    parts = [clone(empty).partial_fit(X[i:80:n], y[i:80:n]) for i in range(n)]
    expected = clone(empty).partial_fit(X[:80], y[:80])
    merged = merge_tree(iter(parts))
    assert same(merged, expected)
    again = new_like(merged).partial_fit(X[:80], y[:80])
    assert same(again, expected)


def test_a_tree_needs_a_classifier():
    with pytest.raises(ValueError, match="at least one"):
        merge_tree([])

"""Embeddings in Arrow columns: the same rows give the same model, whatever holds them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import dkvb
from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
from dkvb._support.arrow import table as table_module
from dkvb.baselines.prototypes import PrototypesClassifier
from dkvb.cli import app
from dkvb.embedding import read_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pads = pytest.importorskip("pyarrow.dataset")

N, M = 300, 12
SETTINGS = {"n_codebooks": 4, "n_pairs": 8, "key_dim": 3, "epochs": 2}
CLASSIFIER = "kernel"


def rows():
    rng = np.random.default_rng(0)
    y = np.array(["ant", "bee", "cat"])[rng.integers(0, 3, N)]
    return rng.normal(size=(N, M)).astype(np.float32) + (y == "bee")[:, None], y


def arrow_table(X, y):
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), M), "label": y})


def numbers(X, y):
    return pa.table({**{f"f{i}": X[:, i] for i in range(M)}, "label": y})


def same(one, other):
    ours, theirs = one.state_arrays(), other.state_arrays()
    assert ours.keys() == theirs.keys()
    assert one.classes_.tolist() == other.classes_.tolist()
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


def frame_of(library, X, y):
    module = pytest.importorskip(library)
    columns = {"x": list(X) if library == "pandas" else X, "label": y}
    return module.DataFrame(columns)


def relation(X, y):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", arrow_table(X, y))
    return connection.sql("SELECT * FROM rows")


def hugging_face(X, y):
    return pytest.importorskip("datasets").Dataset.from_dict({"x": X, "label": y})


OBJECTS = {
    "table": arrow_table,
    "reader": lambda X, y: arrow_table(X, y).to_reader(max_chunksize=7),
    "lists": lambda X, y: pa.table({"embedding": list(X.astype(np.float64)), "y": y}),
    "float16": lambda X, y: pa.table({"x": list(X.astype(np.float16)), "y": y}),
    "categories": lambda X, y: arrow_table(X, pa.array(y).dictionary_encode()),
    "pandas": lambda X, y: frame_of("pandas", X, y),
    "polars": lambda X, y: frame_of("polars", X, y),
    "duckdb": relation,
    "datasets": hugging_face,
    "in memory": lambda X, y: pads.dataset(arrow_table(X, y)),
    "numbers": numbers,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_table_is_learned_as_its_arrays(name):
    X, y = rows()
    X = X.astype(np.float16).astype(np.float32)  # which every format above holds exactly
    found = OBJECTS[name](X, y)
    expected = BottleneckClassifier(SETTINGS).fit(X, y)
    assert same(BottleneckClassifier(SETTINGS).fit(found), expected)
    if name in ("reader", "numbers"):
        return  # read once; labels belong to no embedding
    keys = fit_keys(X, **SETTINGS)
    assert fit_keys(found, **SETTINGS).fingerprint == keys.fingerprint
    assert (expected.predict(found) == expected.predict(X)).all()
    assert (expected.predict_proba(found) == expected.predict_proba(X)).all()
    assert (expected.novelty(found) == expected.novelty(X)).all()
    learner = BottleneckClassifier(keys).fit(X[:100], y[:100])
    again = BottleneckClassifier(keys).fit(X[:100], y[:100])
    assert same(learner.partial_fit(found), again.partial_fit(X, y))


@pytest.mark.parametrize("estimator", [KernelClassifier(), PrototypesClassifier()])
def test_other_classifiers_take_tables(estimator):
    X, y = rows()
    table = arrow_table(X, y)
    expected = type(estimator)().fit(X, y)
    assert (estimator.fit(table).predict(table) == expected.predict(X)).all()
    assert (estimator.fit(table, "label").predict(table) == expected.predict(X)).all()
    assert (estimator.fit(table["x"], table["label"]).predict(X) == expected.predict(X)).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_is_learned_as_its_array(library):
    X, y = rows()
    frame = frame_of(library, X, y)
    learned = BottleneckClassifier(SETTINGS).fit(frame["x"], frame["label"])
    assert same(learned, BottleneckClassifier(SETTINGS).fit(X, y))


def test_columns_of_numbers_keep_their_names():
    X, y = rows()
    names = [f"f{i}" for i in range(M)]
    pandas = pytest.importorskip("pandas")
    for table in (numbers(X, y), pandas.DataFrame(X, columns=names).assign(label=y)):
        learned = BottleneckClassifier(SETTINGS).fit(table)
        assert learned.feature_names_in_.tolist() == names
        frame = pandas.DataFrame(X, columns=names)
        assert (learned.predict(frame) == learned.predict(table.drop(columns=["label"])
                if hasattr(table, "iloc") else table.drop_columns(["label"]))).all()  # fmt: skip
        with pytest.raises(ValueError, match="feature names should match"):
            learned.predict(frame.rename(columns={"f0": "g0"}))


# ------------------------------------------------------------------------------ files and commands
def _parquet_folder(X, y, path):
    path.mkdir()
    for i in range(3):
        part = slice(100 * i, 100 * (i + 1))
        pq.write_table(arrow_table(X[part], y[part]), path / f"part-{i}.parquet")
    return path


def _partitions(X, y, path):
    """One folder per class, whose name has the label."""
    pads.write_dataset(
        arrow_table(X, y), path, format="parquet", partitioning_flavor="hive",
        partitioning=["label"],
    )  # fmt: skip
    return path


def _npy_pair(X, y, path):
    path.mkdir()
    np.save(path / "x.npy", X)
    np.save(path / "y.npy", y)
    return path


def _ipc(X, y, path, opened):
    path = path.with_suffix(".arrow")
    table = arrow_table(X, y)
    with opened(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return path


def _hugging_face_on_disk(X, y, path):
    hugging_face(X, y).save_to_disk(path, num_shards=2)
    return path


def _lance(X, y, path):
    path = path.with_suffix(".lance")
    pytest.importorskip("lance").write_dataset(arrow_table(X, y), path)
    return path


def _saved(X, y, path):
    np.savez(path.with_suffix(".npz"), x=X, y=y)
    return path.with_suffix(".npz")


def _parquet(X, y, path):
    pq.write_table(arrow_table(X, y), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


FILES = {
    "npz": _saved,
    "npy": _npy_pair,
    "parquet": _parquet,
    "parquet folder": _parquet_folder,
    "partitions": _partitions,
    "arrow file": lambda X, y, path: _ipc(X, y, path, pa.ipc.new_file),
    "arrow stream": lambda X, y, path: _ipc(X, y, path, pa.ipc.new_stream),
    "hugging face": _hugging_face_on_disk,
    "lance": _lance,
}


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def good(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """A model of the rows in an npz file."""
    folder = tmp_path_factory.mktemp("expected")
    X, y = rows()
    good("fit", folder / "model", "--data", _saved(X, y, folder / "rows"), "--classifier",
         CLASSIFIER, "-q")  # fmt: skip
    return dkvb.load(folder / "model"), folder / "model"


@pytest.mark.parametrize("name", FILES)
def test_commands_learn_the_same_from_every_file(name, expected, tmp_path):
    X, y = rows()
    data = FILES[name](X, y, tmp_path / "data")
    good("fit", tmp_path / "model", "--data", data, "--classifier", CLASSIFIER, "-q")
    assert same(dkvb.load(tmp_path / "model"), expected[0])
    good("learn", tmp_path / "model", "--data", data, "-q")
    assert sum(dkvb.load(tmp_path / "model").class_count_.values()) == 2 * N
    answers = json.loads(good("predict", expected[1], "--data", data, "--json", "-q"))
    if name != "partitions":
        assert [one["label"] for one in answers] == expected[0].predict(X).tolist()


def test_predictions_as_parquet(expected, tmp_path):
    X, y = rows()
    for suffix in ("parquet", "csv", "jsonl"):
        out = tmp_path / f"predictions.{suffix}"
        good("predict", expected[1], "--data", _parquet(X, y, tmp_path / "rows"), "--out", out)
    found = pq.read_table(tmp_path / "predictions.parquet")["label"].to_pylist()
    assert found == expected[0].predict(X).tolist()


# --------------------------------------------------------------------------------------- columns
def test_columns_are_guessed_where_there_is_one(tmp_path):
    X, y = rows()
    species = arrow_table(X, y).rename_columns(["vector", "species"])
    assert read_table(species, labelled=True).columns.y == "species"
    assert read_table(species).columns.y is None
    two = species.append_column("other", species["vector"])
    assert read_table(two).columns.x == ("vector",)
    with pytest.raises(ValueError, match="x_column: expected the name of one column of lists"):
        read_table(two.rename_columns(["a", "species", "b"]))
    with pytest.raises(ValueError, match=r"y_column: .*several: 'label', 'class'"):
        read_table(arrow_table(X, y).append_column("class", [y]), labelled=True)
    pq.write_table(two.rename_columns(["a", "species", "b"]), tmp_path / "two.parquet")
    done = run("fit", tmp_path / "model", "--data", tmp_path / "two.parquet")
    assert done.exit_code == 2
    assert "x_column" in done.output
    good("fit", tmp_path / "model", "--data", tmp_path / "two.parquet", "--x-column", "b",
         "--y-column", "species", "--classifier", CLASSIFIER)  # fmt: skip


def test_class_labels_have_their_names():
    datasets = pytest.importorskip("datasets")
    X, _ = rows()
    features = datasets.Features(
        {
            "x": datasets.Sequence(datasets.Value("float32")),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    found = datasets.Dataset.from_dict({"x": X[:4], "label": [0, 1, 1, 0]}, features=features)
    assert read_table(found).arrays()[1].tolist() == ["no", "yes", "yes", "no"]
    assert read_table(found.select([3, 1])).arrays()[1].tolist() == ["no", "yes"]


BAD = {
    "a missing embedding": (lambda: pa.array([[1.0, 2.0], None]), "row 1 has none"),
    "a missing number": (lambda: pa.array([[1.0, 2.0], [1.0, None]]), "row 1 has none in a place"),
    "another width": (lambda: pa.array([[1.0, 2.0], [1.0]]), "lists of one length, 2"),
    "no number": (lambda: pa.array([[1.0, 2.0], [np.nan, 1.0]]), "the first is row 1"),
    "infinity": (lambda: pa.array([[1.0, 2.0], [1e300, 1.0]]), "the first is row 1"),
    "empty lists": (lambda: pa.array([[], []], pa.list_(pa.float32())), "empty lists"),
    "texts": (lambda: pa.array(["a", "b"]), "expected a column of lists of numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_embeddings_are_refused_by_their_row(name):
    make, message = BAD[name]
    table = pa.table({"x": make(), "label": ["ant", "bee"]})
    with pytest.raises(ValueError, match=message):
        read_table(table, labelled=True).arrays()


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (pa.array([0.5, 1.5]), TypeError, "got double"),
        (pa.array(["ant", None]), ValueError, "row 1 has none"),
        (pa.array([1, 2**63], pa.uint64()), ValueError, r"below 2\*\*63"),
    ],
)
def test_bad_labels_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        read_table(pa.table({"x": [[1.0], [2.0]], "label": labels}), labelled=True).arrays()


def test_refusals_change_nothing():
    X, y = rows()
    learned = BottleneckClassifier(SETTINGS).fit(X, y)
    before = learned.state_arrays()
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(ValueError, match=f"the first is row {N - 1}"):
        learned.partial_fit(arrow_table(bad, y))
    after = learned.state_arrays()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    with pytest.raises(ValueError, match="requires y"):
        BottleneckClassifier(SETTINGS).fit(pa.table({f"f{i}": X[:, i] for i in range(M)}))
    with pytest.raises(ValueError, match="at least one row"):
        read_table(arrow_table(X, y)[:0]).arrays()


# ---------------------------------------------------------------------------------------- memory
def test_large_tables_are_mapped_and_learned_in_parts(monkeypatch):
    X, y = rows()
    expected = BottleneckClassifier(SETTINGS).fit(X, y)
    monkeypatch.setattr(table_module, "MAPPED_FROM", 1000)
    monkeypatch.setattr(table_module, "BATCH_BYTES", 1000)
    found, _ = read_table(arrow_table(X, y)).arrays()
    assert isinstance(found, np.memmap)
    assert (found == X).all()
    assert same(BottleneckClassifier(SETTINGS).fit(arrow_table(X, y)), expected)


def test_large_files_are_learned_as_small_ones(expected, tmp_path, monkeypatch):
    X, y = rows()
    data = _parquet(X, y, tmp_path / "rows")
    monkeypatch.setattr(table_module, "MAPPED_FROM", 1000)
    good("fit", tmp_path / "model", "--data", data, "--classifier", CLASSIFIER, "-q")
    assert same(dkvb.load(tmp_path / "model"), expected[0])
    good("learn", tmp_path / "model", "--data", data, "--operation-id", "once", "-q")
    good("learn", tmp_path / "model", "--data", data, "--operation-id", "once", "-q")
    assert sum(dkvb.load(tmp_path / "model").class_count_.values()) == 2 * N
    good("forget", tmp_path / "model", "--data", data, "-q")
    assert same(dkvb.load(tmp_path / "model"), expected[0])


def test_keys_are_fitted_to_a_sample_that_no_order_changes():
    from dkvb.bottleneck.key_data import subsample

    X, _ = rows()
    chosen = {row.tobytes() for row in subsample(X, 50)}
    assert len(chosen) == 50
    assert chosen == {row.tobytes() for row in subsample(X[::-1], 50)}
    assert chosen == {row.numpy().tobytes() for row in subsample(torch.from_numpy(X), 50)}


MEMORY = """
import sys, threading, time
def anonymous():
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("RssAnon")).split()[1]) >> 10
import pyarrow.parquet
from dkvb import BottleneckClassifier
from dkvb.embedding import read_table
warm = anonymous()
peak, end = [0], []
def watch():
    while not end:
        peak[0] = max(peak[0], anonymous()); time.sleep(0.01)
thread = threading.Thread(target=watch); thread.start()
n = sum(len(X) for X, y in read_table(sys.argv[1]))
end.append(1); thread.join()
print(n, peak[0] - warm)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_a_row_group(tmp_path):
    n, m = 150_000, 256  # 150 MB in one row group
    block = np.random.default_rng(0).normal(size=(10_000, m)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.tile(block.ravel(), n // 10_000)), m)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": lists, "y": np.arange(n)}), path, row_group_size=n)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    count, megabytes = map(int, done.stdout.split())
    assert count == n
    assert megabytes < 100


def test_experiments_read_tables(tmp_path):
    X, y = rows()
    accuracies = []
    for write in (_saved, _parquet):
        train = write(X[:200], y[:200], tmp_path / "train")
        test = write(X[200:], y[200:], tmp_path / "test")
        told = good("evaluate", "--train", train, "--test", test, "--keys", train, "--classifier",
                    "prototypes", "--json", "--out", tmp_path / write.__name__)  # fmt: skip
        summary = json.loads(told[told.index("{") :])
        accuracies.append([one["final_accuracy"] for one in summary.values()])
    assert accuracies[0] == accuracies[1]

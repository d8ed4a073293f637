"""The bundled embeddings, and the demo that learns them."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from dkvb.embedding.datasets.bundled import load
from dkvb.evaluation import demo
from dkvb.evaluation.grid import Data
from dkvb.evaluation.records import read_records

SIZES = {
    ("cifar10", "train"): (500, 10),
    ("cifar10", "test"): (200, 10),
    ("cifar100", "train"): (50, 100),
    ("cifar100", "test"): (10, 100),
    ("banking77", "train"): (60, 20),
    ("banking77", "test"): (38, 20),
}


@pytest.mark.parametrize(("name", "split"), SIZES)
def test_bundled_rows_are_finite_balanced_and_all_different(name: str, split: str) -> None:
    x, y = load(name, split)
    names, counts = np.unique(y, return_counts=True)
    assert (counts[0], len(names)) == SIZES[name, split]
    assert np.ptp(counts) == 0
    assert x.shape == (len(y), 384 if name == "banking77" else 256)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    assert len(np.unique(x, axis=0)) == len(x)


def test_bundle_is_small() -> None:
    sizes = [
        path.stat().st_size
        for path in Path(str(files("dkvb.embedding.datasets.bundled"))).glob("*.npz")
    ]
    assert len(sizes) == 6
    assert sum(sizes) <= 4_000_000


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "banking77"])
def test_no_test_row_is_among_the_train_rows(name: str) -> None:
    train, test = (load(name, split)[0] for split in ("train", "test"))
    assert {row.tobytes() for row in train}.isdisjoint(row.tobytes() for row in test)


def test_components_are_those_of_the_cifar100_train_rows() -> None:
    x, _ = load("cifar100", "train")
    spread = x.std(axis=0)  # (256,)
    assert np.abs(x.mean(axis=0)).max() < 0.02 * spread.max()
    correlation = np.corrcoef(x[:, :32], rowvar=False)  # (32, 32)
    assert np.abs(correlation - np.eye(32)).max() < 0.02
    assert (np.diff(spread) < 0.01 * spread[0]).all()


def test_class_means_tell_as_much_as_those_of_the_full_data() -> None:
    (x, y), (x_test, y_test) = load("cifar10", "train"), load("cifar10", "test")
    names = np.unique(y)
    means = np.stack([x[y == name].mean(axis=0) for name in names])  # (10, 256)
    distances = ((x_test[:, None] - means) ** 2).sum(axis=2)  # (n, 10)
    assert 0.80 <= (names[distances.argmin(axis=1)] == y_test).mean() <= 0.84  # full data: 0.82


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("cifar", "train"),
            "name: expected one of 'cifar10', 'cifar100', 'banking77'; got 'cifar'",
        ),
        (("cifar10", "validation"), "split: expected one of 'train', 'test'; got 'validation'"),
    ],
)
def test_unknown_names_are_explained(arguments: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(*arguments)


def test_demo_shows_who_forgets(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text("of an earlier demo\n")
    shown = demo.run(tmp_path, grid=replace(demo.GRID, seeds=demo.GRID.seeds[:1]), kernel_grid=None)

    accuracy = {
        name: (row["class-incremental"]["mean"], row["iid"]["mean"])
        for name, row in shown["table"].items()
    }
    incremental, iid = accuracy["bottleneck (the paper's)"]
    assert incremental >= 70
    assert abs(incremental - iid) <= 1.5
    for name in ("linear probe", "MLP"):
        assert accuracy[name][0] < 35
        assert accuracy[name][1] > 80
    means = accuracy["nearest class mean"]
    assert means[0] == pytest.approx(means[1], abs=0.1)
    assert accuracy["logistic regression, all at once"][0] is None
    assert accuracy["logistic regression, all at once"][1] > 80
    best = max(value for value, _ in accuracy.values() if value is not None)
    assert accuracy[next(iter(accuracy))][0] == best  # the table begins with it

    assert shown["picture"].read_bytes().startswith(b"\x89PNG")
    found = read_records(shown["records"])
    assert (len(found.records), found.damaged) == (9, [])
    assert len(json.loads(shown["summary"].read_text())) == 9


def test_the_kernel_classifier_leads_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(demo.GRID, classifiers=demo.GRID.classifiers[:1], seeds=(1,))
    (x, y), (x_test, y_test), keys, _ = demo._load_data()
    small = Data((x[::25], y[::25]), (x_test[::10], y_test[::10]), keys[:500])
    monkeypatch.setattr(demo, "_load_data", lambda: small)
    monkeypatch.setattr(demo, "ProcessPoolExecutor", ThreadPool)
    shown = demo.run(tmp_path, grid=few)
    name, other, _ = shown["table"]
    assert (name, other) == ("kernel", "nearest class mean")
    assert shown["table"][name]["class-incremental"]["mean"] > 60
    assert shown["table"][name]["iid"]["mean"] is None


class ThreadPool(ThreadPoolExecutor):
    """Where another process would not see the smaller data."""

    def __init__(self, workers: int, mp_context: object) -> None:
        super().__init__(workers)

"""The demo: CIFAR-10, two classes at a time, on bundled ResNet50 embeddings.

    dkvb demo --out DIR

Every classifier is trained twice: class-incremental, where a class is never seen again after its
task, and on i.i.d. data, where all ten classes come shuffled. Keys are fitted to CIFAR-100 without
labels. The kernel classifier, the slowest to train, runs once, class-incrementally, in a second
process, and the linear probe after it. Logistic regression is trained once on all data, as a
reference. Expected accuracies: kernel 91 %; the paper's bottleneck 80 % in either order; the linear
probe 86 % on i.i.d. data and 25 % class-incrementally, the MLP 88 % and 20 %.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from dkvb.embedding.datasets.bundled import load
from dkvb.evaluation.grid import ORDERS, ClassifierSpec, Data, Grid, one_thread
from dkvb.evaluation.plots import plot_accuracy
from dkvb.evaluation.records import RunRecord, append_record, summarise, write_summary

# The paper trains the linear probe and the MLP with learning rate 0.001 for 80,000 steps per task.
# Here a task has 200 steps and the rate is 400 times larger: rate × steps is the paper's. With a
# much smaller product they would not learn enough to forget.
_GRADIENT = {"learning_rate": "0.4"}
_KEYS = {"n_codebooks": "128", "n_pairs": "512", "key_dim": "8"}
_KERNEL = ClassifierSpec("kernel", "kernel", {})
_LINEAR = ClassifierSpec("linear probe", "linear", _GRADIENT)
_CLASSIFIERS = (
    ClassifierSpec("nearest class mean", "prototypes", {}),
    ClassifierSpec("bottleneck (the paper's)", "bottleneck", _KEYS),
    _LINEAR,
    ClassifierSpec("MLP", "mlp", _GRADIENT),
)
_REFERENCE = ClassifierSpec(
    "logistic regression, all at once",
    "sklearn.linear_model:LogisticRegression",
    {"max_iter": 1000},
)

GRID = Grid(
    classifiers=_CLASSIFIERS,
    seeds=(1, 2),
    orders=ORDERS,
    classes_per_task=2,
    epochs=50,
    evaluate_every=25,
)


KERNEL_GRID = Grid(classifiers=(_KERNEL,))


def run(
    out: Path,
    progress: bool = False,
    grid: Grid = GRID,
    kernel_grid: Grid | None = KERNEL_GRID,
) -> dict[str, Any]:
    """Run the demo, write records, summary and figure to `out`, and return what to show.

    `kernel_grid` is run in a second process, and the linear probe of `grid` after it; with None
    there is no kernel and no second process.

    Returns
    -------
    dict
        `table` has one row per classifier, `title` says what was measured, and `picture`, `records`
        and `summary` are paths.
    """
    files = {
        "picture": out / "accuracy.png",
        "records": out / "records.jsonl",
        "summary": out / "summary.json",
    }
    files["records"].unlink(missing_ok=True)  # of an earlier demo
    reference = replace(grid, classifiers=(_REFERENCE,), orders=("iid",), seeds=grid.seeds[:1])
    here, aside = _divide(grid, kernel_grid)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, one_thread():
        waiting = [pool.submit(_run_grid, part) for part in aside]
        data = _load_data()
        grid.smoke_test(data)  # compiles most kernels, so that times are of training
        records = [
            record for part in (*here, reference) for record in part.run(data, progress=progress)
        ]
        records += [record for one in waiting for record in one.result()]
    order = [spec.text for spec in (_KERNEL, *grid.classifiers, _REFERENCE)]
    records.sort(key=lambda record: order.index(record.classifier))
    for record in records:
        append_record(files["records"], record)
    write_summary(files["summary"], summarise(records))
    plot_accuracy(records, files["picture"], title="CIFAR-10, two classes at a time")
    title = (
        f"CIFAR-10 (ResNet50 embeddings), {len(data.train[1]):,} training and "
        f"{len(data.test[1]):,} test images: final accuracy on all ten classes (%) and training "
        f"time, mean ± std over {len(grid.seeds)} seeds"
    )
    return {"title": title, "table": _make_table(records), **files}


def _divide(grid: Grid, kernel_grid: Grid | None) -> tuple[list[Grid], list[Grid]]:
    """Return the grids that run here, and those that run in a second process for about as long."""
    if kernel_grid is None:
        return [grid], []
    parts = [[c for c in grid.classifiers if (c == _LINEAR) == aside] for aside in (False, True)]
    here, aside = ([replace(grid, classifiers=tuple(part))] if part else [] for part in parts)
    return here, [kernel_grid, *aside]


def _load_data() -> Data:
    return Data(load("cifar10", "train"), load("cifar10", "test"), load("cifar100", "train")[0])


def _run_grid(grid: Grid) -> list[RunRecord]:
    with one_thread():
        return list(grid.run(_load_data()))


def _make_table(records: list[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per classifier, in the order of the records."""
    incremental, iid = (
        summarise(record for record in records if record.config["order"] == order)
        for order in ORDERS
    )
    missing = {"mean": None, "std": None}
    return {
        name: {
            "class-incremental": incremental.get(name, {}).get("final_accuracy", missing),
            "iid": iid.get(name, {}).get("final_accuracy", missing),
            "forgetting": incremental.get(name, {}).get("forgetting", missing),
            "training (s)": (incremental.get(name) or iid[name])["learn_seconds"],
        }
        for name in dict.fromkeys([*incremental, *iid])
    }

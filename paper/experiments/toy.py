"""Figure 2 of the paper: eight classes in the plane, learned two at a time.

    python -m paper run toy --seeds 1,2,3,4,5 --out DIR

After its task, a class is never seen again. Linear probe and MLP change weights that all points
share; the bottleneck changes only the values of the keys that its points select. The paper shows
the figure without numbers. Expected accuracies on new points of the four tasks: linear probe and
MLP 0, 0, 0 and 1; both bottlenecks 0.99 or more on every task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck, fit_keys
from dkvb.evaluation.grid import one_thread
from dkvb.evaluation.jobs import Job, RunSpec
from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.runner import collect_versions
from paper.experiment import Setup
from paper.experiments import _toy_figure
from paper.experiments._toy_figure import pack
from paper.tables import group_by

TITLE = "Eight classes in the plane, two at a time (Figure 2)"
N_CLASSES = 8
SPREAD = 0.035  # standard deviation of a class
TASKS: tuple[dict[int, tuple[float, float]], ...] = (  # class → its mean
    {0: (0.25, 0.25), 4: (0.75, 0.50)},
    {1: (0.75, 0.25), 5: (0.50, 0.75)},
    {2: (0.75, 0.75), 6: (0.25, 0.50)},
    {3: (0.25, 0.75), 7: (0.50, 0.25)},
)


@dataclass(frozen=True)
class Toy:
    """Settings of the paper and its code."""

    points: int = 100  # per task, drawn once
    test_points: int = 1000
    steps: int = 1000  # of Adam per task, on all of its points
    # Random points ("sample"), as in the paper's text, give the same accuracy.
    key_method: str = "ema"
    key_batches: int = 1000  # of uniform points; one in ten is held out
    key_batch_size: int = 100
    grid: int = 100  # decision regions have grid × grid cells


PAPER = Toy()
QUICK = Toy(steps=500, key_batches=200)


class Points(NamedTuple):
    """Points in the plane and their classes."""

    x: Tensor  # (n, 2) float32
    y: Tensor  # (n,) int64


class Kind(NamedTuple):
    """One row of the figure."""

    make: Callable[..., nn.Module]  # (seed, toy, **settings): points (n, 2) → logits (n, 8)
    settings: dict[str, Any]
    learning_rate: float
    fresh_optimiser: bool  # in every task


def make_jobs(setup: Setup) -> list[Job]:
    """Return the four models, each with all seeds trained together."""
    config = asdict(setup.config)
    return [
        Job(
            [
                RunSpec(
                    name, {"toy": config, "model": name, "seed": s, "drawn": s == setup.seeds[0]}
                )
                for s in setup.seeds
            ],
            partial(_learn, name, kind, setup.config),
        )
        for name, kind in KINDS.items()
    ]


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the final accuracy on each task, after and before pruning, mean over seeds."""
    return {
        name: {
            "accuracy": _mean([record.extra["pruned_accuracy"] for record in group]),
            "before pruning": _mean(
                [[value or 0.0 for value in record.accuracy_matrix[-1]] for record in group]
            ),
        }
        for name, group in group_by(records, lambda record: record.classifier).items()
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot decision regions after each task."""
    return _toy_figure.plot(records, path)


def draw_points(task: int, n: int, rng: np.random.Generator) -> Points:
    """Draw n points of a task, each of a random class of it."""
    classes, means = np.array(list(TASKS[task])), np.array(list(TASKS[task].values()))
    coin = rng.integers(len(classes), size=n)
    x = means[coin] + SPREAD * rng.standard_normal((n, 2))
    return Points(torch.from_numpy(x).float(), torch.from_numpy(classes[coin]))


def _linear(seed: int, toy: Toy) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(2, N_CLASSES)


def _mlp(seed: int, toy: Toy, *, hidden: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, N_CLASSES))


def _bottleneck(
    seed: int, toy: Toy, *, n_codebooks: int, n_pairs: int, projection: str
) -> KeyValueBottleneck:
    # Keys are fitted to the domain, not to the classes.
    domain = np.random.default_rng([seed, 2]).random((toy.key_batches * toy.key_batch_size, 2))
    keys = fit_keys(
        domain.astype(np.float32),
        preset="paper",
        n_codebooks=n_codebooks,
        n_pairs=n_pairs,
        key_dim=2,
        method=toy.key_method,
        projection=projection,
        epochs=1,
        batch_size=toy.key_batch_size,
        random_state=seed,
    )
    return KeyValueBottleneck(keys, N_CLASSES, value_start="normal", seed=seed)


_ONE_BOOK = {"n_codebooks": 1, "n_pairs": 400, "projection": "identity"}
_MANY_BOOKS = {"n_codebooks": 20, "n_pairs": 20, "projection": "gaussian"}
KINDS = {
    "linear": Kind(_linear, {}, learning_rate=0.01, fresh_optimiser=True),
    "mlp": Kind(_mlp, {"hidden": 32}, learning_rate=0.001, fresh_optimiser=True),
    "bottleneck-1x400": Kind(_bottleneck, _ONE_BOOK, learning_rate=0.001, fresh_optimiser=False),
    "bottleneck-20x20": Kind(_bottleneck, _MANY_BOOKS, learning_rate=0.001, fresh_optimiser=False),
}


def _learn(
    name: str, kind: Kind, toy: Toy, specs: Sequence[RunSpec], progress: bool
) -> Iterator[tuple[RunSpec, RunRecord]]:
    """Train one kind of model with all seeds together, and yield one record per seed."""
    start = perf_counter()
    seeds = [spec.parameters["seed"] for spec in specs]
    train = [_tasks(seed, toy.points, purpose=0) for seed in seeds]
    test = [_tasks(seed, toy.test_points, purpose=1) for seed in seeds]
    models = [kind.make(seed, toy, **kind.settings) for seed in seeds]
    matrices: list[list[list[float]]] = [[] for _ in seeds]
    drawn = [i for i, spec in enumerate(specs) if spec.parameters["drawn"]]
    regions: dict[int, list[str]] = {i: [] for i in drawn}

    def new_optimiser() -> torch.optim.Adam:
        # One for all seeds: Adam treats every parameter alone, so that seeds are independent.
        parameters = [p for model in models for p in model.parameters()]
        return torch.optim.Adam(parameters, lr=kind.learning_rate, fused=True)

    with one_thread():
        for task in range(len(TASKS)):
            if task == 0 or kind.fresh_optimiser:
                optimiser = new_optimiser()
            _descend(models, [group[task] for group in train], optimiser, toy.steps)
            for model, group, matrix in zip(models, test, matrices, strict=True):
                matrix.append(_accuracies(model, group))
            for i in drawn:
                regions[i].append(pack(_regions(models[i], toy.grid)))
        pruned = [m.prune() if isinstance(m, KeyValueBottleneck) else m for m in models]

    for i, spec in enumerate(specs):
        extra: dict[str, Any] = {"pruned_accuracy": _accuracies(pruned[i], test[i])}
        if i in drawn:
            extra["drawing"] = {
                "regions": regions[i],
                "pruned_regions": pack(_regions(pruned[i], toy.grid)),
                "points": [_rounded(torch.cat([x, y[:, None]], dim=1)) for x, y in train[i]],
                "keys": _places(models[i]),
                "pruned_keys": _places(pruned[i]),
            }
        record = RunRecord(
            classifier=name,
            stream="four tasks",
            seed=spec.parameters["seed"],
            classes=list(range(N_CLASSES)),
            tasks=[list(task) for task in TASKS],
            config={
                **asdict(toy),
                **kind.settings,
                "learning_rate": kind.learning_rate,
                "fresh_optimiser": kind.fresh_optimiser,
            },
            versions=collect_versions("cpu"),
            curve=[],
            accuracy_matrix=[list(row) for row in matrices[i]],
            metrics={"final_accuracy": round(float(np.mean(extra["pruned_accuracy"])), 6)},
            times={"learn": round((perf_counter() - start) / len(specs), 3), "predict": 0.0},
            extra=extra,
        )
        yield spec, record


def _tasks(seed: int, n: int, purpose: int) -> list[Points]:
    rng = np.random.default_rng([seed, purpose])
    return [draw_points(task, n, rng) for task in range(len(TASKS))]


def _descend(
    models: list[nn.Module], points: list[Points], optimiser: torch.optim.Adam, steps: int
) -> None:
    """Take full-batch steps on the cross entropy of each model on its own n points."""
    n = len(points[0].y)
    forwards = [_forward(model.train(), x) for model, (x, _) in zip(models, points, strict=True)]
    y = torch.cat([y for _, y in points])  # (seeds · n,)
    for _ in range(steps):
        optimiser.zero_grad()
        logits = torch.cat([forward() for forward in forwards])  # (seeds · n, Y)
        (cross_entropy(logits, y, reduction="sum") / n).backward()
        optimiser.step()


def _forward(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """Return a function that computes logits (n, 8); codes are searched once."""
    if isinstance(model, KeyValueBottleneck):
        codes = model.frozen_keys().codes(x).long()  # (n, C)
        return partial(model.forward_codes, codes)
    return partial(model, x)


@torch.no_grad()
def _predict(model: nn.Module, x: Tensor) -> Tensor:
    """Return the class of each point (n,), in evaluation mode, which counts no usage."""
    return torch.as_tensor(model.eval()(x)).argmax(dim=1)


def _accuracies(model: nn.Module, tasks: list[Points]) -> list[float]:
    shares = [(_predict(model, x) == y).double().mean() for x, y in tasks]
    return [round(float(share), 6) for share in shares]


def _regions(model: nn.Module, grid: int) -> Tensor:
    """Return the class at the centre of each cell of [0, 1]² (grid, grid), row 0 at the bottom.

    Plus 8 where none of the pairs was trained.
    """
    centres = (torch.arange(grid) + 0.5) / grid
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    cells = torch.stack([x, y], dim=-1).view(-1, 2)  # (grid², 2)
    classes = _predict(model, cells)
    if isinstance(model, KeyValueBottleneck):
        codes = model.frozen_keys().codes(cells).long()  # (grid², C)
        trained = model.get_buffer("usage")[torch.arange(codes.shape[1]), codes] > 0
        classes = classes + N_CLASSES * ~trained.any(dim=1)
    return classes.view(grid, grid)


def _places(model: nn.Module) -> list[list[float]]:
    """Return the keys in the plane [[x, y], …]; empty where they are in projected spaces."""
    if not isinstance(model, KeyValueBottleneck):
        return []
    keys = model.frozen_keys()
    if keys.projection.kind != "identity":
        return []
    return _rounded(keys.keys[0] + keys.conditioning.centre)


def _rounded(table: Tensor) -> list[list[float]]:
    """Return numbers rounded for drawing."""
    return [[round(number, 4) for number in row] for row in table.tolist()]


def _mean(over_seeds: list[list[float]]) -> list[float]:
    return [round(float(mean), 6) for mean in np.mean(over_seeds, axis=0)]

"""The choice of kernel and noise by exact leave-one-out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.conditionings import PLAIN
from dkvb.estimators.kernel.examples import Distinct, Examples
from dkvb.estimators.kernel.functions import ARC_COSINE, RBF, KernelFunction, median_distance
from dkvb.estimators.kernel.ridge import LeaveOneOut, Solved, select_best, try_lambdas

log = logging.getLogger(__name__)

WIDTHS = (0.5, 1.0, 2.0)  # gamma, in units of 1 / median squared distance
KERNEL_ROWS = {"cpu": 2000, "cuda": 20_000}  # that kernels are compared on
LAMBDA_ROWS = {"cpu": 6000, "cuda": 60_000}  # that λ is chosen again on


@dataclass(frozen=True)
class Setting:
    """A kernel and its noise."""

    conditioning: str = PLAIN  # by name
    kind: str = RBF
    width: float = 1.0
    noise: float = 0.1  # λ, in units of the mean diagonal of K
    score: float = 0.0  # leave-one-out balanced accuracy


def lowest_hashes(rows: Distinct, most: int) -> Tensor:
    """Positions (k,) of at most `most` rows, lowest hashes first within every class.

    All classes give the same share of their rows, and at least one.
    """
    label = rows.targets.argmax(dim=1)
    order = torch.argsort(label, stable=True)  # rows are ordered by hash
    counts = torch.bincount(label, minlength=rows.targets.shape[1])
    start = counts.cumsum(0) - counts
    rank = torch.arange(len(label)) - start[label[order]]
    share = torch.empty(len(label), dtype=torch.float64)
    share[order] = rank / counts[label[order]].double()
    most = max(most, int((counts > 0).sum()))
    return torch.argsort(share, stable=True)[:most].sort().values


def select_setting(
    examples: Examples,
    rows: Distinct,
    conditionings: dict[str, Conditioning],
    device: torch.device | str,
) -> tuple[Setting, KernelFunction, Solved | None]:
    """The setting that leave-one-out finds best (see `select_best`), its kernel, and its solution
    for all rows where that was found on the way.

    First the conditioning, then the width of the RBF kernel, then the arc-cosine kernel, all with
    their best λ; then λ again on more rows.
    """
    place = torch.device(device).type
    which, x, targets, weights = _sample(examples, rows, KERNEL_ROWS[place], device)
    z = {name: conditioning(x) for name, conditioning in conditionings.items()}
    units = {name: median_distance(each) for name, each in z.items()}
    n = float(weights.sum())
    tried: dict[Setting, LeaveOneOut] = {}
    functions: dict[Setting, KernelFunction] = {}
    solutions: dict[Setting, Solved | None] = {}
    best = Setting()
    steps: tuple[Callable[[], list[Setting]], ...] = (
        lambda: [Setting(name) for name in conditionings],
        lambda: [replace(best, width=w) for w in WIDTHS if w != best.width],
        lambda: [replace(best, kind=ARC_COSINE, width=1.0)],
    )
    for candidates in steps:
        for one in candidates():
            function = KernelFunction.of(one.kind, one.width, units[one.conditioning])
            kernel = function.matrix(z[one.conditioning])
            found, solution = try_lambdas(kernel, targets, weights, one.noise)
            for noise, quality in found.items():
                setting = replace(one, noise=noise, score=quality.accuracy)
                tried[setting], functions[setting] = quality, function
            noise = select_best(found, n)
            solutions[replace(one, noise=noise, score=found[noise].accuracy)] = solution
        best = select_best(tried, n)
        solutions = {best: solutions.get(best)}
    function, solved = functions[best], solutions[best]
    if len(which) < len(rows.hashes):
        which, x, targets, weights = _sample(examples, rows, LAMBDA_ROWS[place], device)
        kernel = function.matrix(conditionings[best.conditioning](x))
        found, solved = try_lambdas(kernel, targets, weights, best.noise)
        noise = select_best(found, float(weights.sum()))
        best = replace(best, noise=noise, score=found[noise].accuracy)
    log.info(
        "chosen by leave-one-out, accuracy %.4f: %s kernel, width %g, conditioning %s, lambda %g",
        best.score,
        best.kind,
        best.width,
        best.conditioning,
        best.noise,
    )
    return best, function, solved if len(which) == len(rows.hashes) else None


def _sample(
    examples: Examples, rows: Distinct, most: int, device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions, embeddings, targets and weights of at most `most` rows."""
    which = torch.arange(len(rows.hashes))
    if len(which) > most:
        which = lowest_hashes(rows, most)
    x = examples.embeddings(rows.first[which]).to(device)
    return which, x, rows.targets[which].to(device), rows.weights[which].to(device)

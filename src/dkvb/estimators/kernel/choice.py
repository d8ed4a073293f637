"""The choice of kernel and noise by exact leave-one-out accuracy."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.conditionings import PLAIN
from dkvb.estimators.kernel.examples import Distinct, Examples
from dkvb.estimators.kernel.functions import (
    ARC_COSINE,
    RBF,
    KernelFunction,
    median_squared_distance,
)
from dkvb.estimators.kernel.ridge import NotPositiveDefinite, inverse_factor, leave_one_out

log = logging.getLogger(__name__)

WIDTHS = (0.5, 1.0, 2.0)  # gamma, in units of 1 / median squared distance
LAMBDAS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the mean diagonal of K
KERNEL_ROWS = {"cpu": 3000, "cuda": 20_000}  # that kernels are compared on
LAMBDA_ROWS = {"cpu": 6000, "cuda": 60_000}  # that λ is chosen again on
GRID_ROWS = 1000  # up to which all λ are tried, instead of those around the best so far
MEDIAN_ROWS = 1000


@dataclass(frozen=True)
class Setting:
    """A kernel and its noise."""

    conditioning: str = PLAIN  # by name
    kind: str = RBF
    width: float = 1.0
    noise: float = 0.1  # λ, in units of the mean diagonal of K
    score: float = 0.0  # leave-one-out balanced accuracy


def class_factors(counts: Tensor) -> Tensor:
    """What scores of each class (Y,) are multiplied by: 1 / √count, 1 on average.

    A class without examples has the factor 0.
    """
    present = counts > 0
    factors = torch.where(present, counts.double().clamp(min=1) ** -0.5, 0.0)
    return factors / factors.sum().clamp(min=1e-300) * present.sum()


def balanced_accuracy(scores: Tensor, targets: Tensor, weights: Tensor) -> float:
    """The mean over classes of the share of their examples with the highest score.

    scores (N, Y), targets (N, Y) the share of the copies that have each class, weights (N,).
    """
    mass = targets * weights[:, None]
    right = torch.nn.functional.one_hot(scores.argmax(dim=1), scores.shape[1]) * mass
    total = mass.sum(dim=0)
    return float((right.sum(dim=0) / total.clamp(min=1e-300))[total > 0].mean())


def lowest_hashes(rows: Distinct, most: int) -> Tensor:
    """Positions (k,) of at most `most` rows, lowest hashes first within every class.

    All classes give the same share of their rows, and at least one.
    """
    if len(rows.hashes) <= most:
        return torch.arange(len(rows.hashes))
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
) -> Setting:
    """The setting with the highest leave-one-out accuracy, equal ones to the larger λ.

    First the conditioning, then the width of the RBF kernel, then the arc-cosine kernel, all with
    their best λ; then λ again on more rows.
    """
    place = torch.device(device).type
    search = _Search(examples, rows, conditionings, KERNEL_ROWS[place], device)
    best = max((search.best(Setting(name)) for name in conditionings), key=_rank)
    others = [search.best(replace(best, width=w)) for w in WIDTHS if w != best.width]
    others.append(search.best(replace(best, kind=ARC_COSINE, width=1.0)))
    best = max([best, *others], key=_rank)
    if len(rows.hashes) > KERNEL_ROWS[place]:
        best = _Search(examples, rows, conditionings, LAMBDA_ROWS[place], device).best(best)
    log.info(
        "chosen by leave-one-out accuracy %.4f: %s kernel, width %g, conditioning %s, lambda %g",
        best.score,
        best.kind,
        best.width,
        best.conditioning,
        best.noise,
    )
    return best


def _rank(setting: Setting) -> tuple[float, float]:
    return setting.score, setting.noise


class _Search:
    """Leave-one-out scores of settings on some of the rows."""

    def __init__(
        self,
        examples: Examples,
        rows: Distinct,
        conditionings: dict[str, Conditioning],
        most: int,
        device: torch.device | str,
    ) -> None:
        which = lowest_hashes(rows, most)
        self.x = examples.embeddings(rows.first[which]).to(device)
        self.targets = rows.targets[which].to(device)
        self.weights = rows.weights[which].to(device)
        self.factors = class_factors((self.targets * self.weights[:, None]).sum(dim=0))
        self.conditionings = conditionings

    def best(self, start: Setting) -> Setting:
        """`start` with its best λ, by climbing from the one that it has; ties to the larger."""
        z = self.conditionings[start.conditioning](self.x)
        kernel = kernel_function(start, z).matrix(z)
        unit = float(kernel.diagonal().mean())
        scores: dict[int, float] = {}

        def score(place: int) -> tuple[float, int]:
            if not 0 <= place < len(LAMBDAS):
                return -1.0, place
            if place not in scores:
                scores[place] = self._score(kernel, LAMBDAS[place] * unit)
            return scores[place], place

        if len(z) <= GRID_ROWS:
            # Few examples: a mean with the neighbours is less at the mercy of single ones.
            whole = [score(place)[0] for place in range(len(LAMBDAS))]
            padded = [whole[0], *whole, whole[-1]]
            smooth = [a + 2 * b + c for a, b, c in zip(padded, whole, padded[2:], strict=False)]
            place = max(range(len(LAMBDAS)), key=lambda i: (round(smooth[i], 12), i))
            return replace(start, noise=LAMBDAS[place], score=smooth[place] / 4)
        place = LAMBDAS.index(start.noise)
        while True:
            _, near = max(score(place + step) for step in (-1, 0, 1))
            if near == place:
                return replace(start, noise=LAMBDAS[place], score=scores[place])
            place = near

    def _score(self, kernel: Tensor, noise: float) -> float:
        try:
            factor = inverse_factor(kernel, noise / self.weights)
        except NotPositiveDefinite:
            return 0.0
        alpha = factor.T @ (factor @ self.targets)
        diagonal = torch.einsum("ij,ij->j", factor, factor)
        predicted = leave_one_out(alpha, diagonal, self.targets) * self.factors
        return balanced_accuracy(predicted, self.targets, self.weights)


def kernel_function(setting: Setting, z: Tensor) -> KernelFunction:
    """The kernel of a setting; widths are in units of the median distance among rows z (n, p)."""
    if setting.kind == ARC_COSINE:
        return KernelFunction(ARC_COSINE)
    return KernelFunction(RBF, setting.width / median_squared_distance(z[:MEDIAN_ROWS]))

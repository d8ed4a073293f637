"""A solved kernel ridge problem: what predictions are made from."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dkvb._support.hashing import bits
from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.choice import Setting, lowest_hashes
from dkvb.estimators.kernel.conjugate_gradients import (
    KernelOperator,
    conjugate_gradients,
    landmark_values,
    preconditioner,
)
from dkvb.estimators.kernel.examples import CHUNK, Distinct, Examples
from dkvb.estimators.kernel.functions import RBF, KernelFunction, squared_distances
from dkvb.estimators.kernel.ridge import Inverse, Solved
from dkvb.estimators.kernel.ways import select_way

if TYPE_CHECKING:
    from dkvb.kernels.distances import Panels

log = logging.getLogger(__name__)

LEAVE_ONE_OUT, ESTIMATED, HELD_OUT = "leave-one-out", "leave-one-out, estimated", "held-out"
PROBES = 24  # random vectors that estimate the diagonal of an inverse
HELD_OUT_SHARE = 0.1
EXACT_NUMBERS = 1 << 22  # of conditioned rows that are kept in float64; float32 beyond
MOST_ADDED = 512  # rows of an inverse's factor beside its base
MOST_REWEIGHTED = 64
FEW_INPUTS = 64
MOST_LAID_OUT = 1 << 24  # numbers of conditioned rows that are laid out for a few inputs: 64 MB
NOVELTY_ROWS = 1000
_CELLS = 1 << 25  # of the kernel matrix at a time


@dataclass(frozen=True, eq=False)
class Solution:
    """N distinct rows with a value for each class, in the order in which they were solved for.

    With landmarks, M of the rows have values: z is (M, p), squares (M,) and alpha (M, Y).
    """

    setting: Setting
    chosen_for: int  # examples that the setting was chosen for
    conditioning: Conditioning
    function: KernelFunction
    noise: float  # λ times the mean diagonal of K
    z: Tensor  # (N, p) conditioned rows
    squares: Tensor  # (N,) their squared norms
    hashes: Tensor  # (N,) int64
    weights: Tensor  # (N,) float64, copies
    targets: Tensor  # (N, Y) float64
    alpha: Tensor  # (N, Y) float64
    diagonal: Tensor | None  # (N,) of the inverse; None with landmarks
    judged_by: str  # LEAVE_ONE_OUT, ESTIMATED or HELD_OUT
    held_out: Tensor | None = None  # (N, Y) predictions without the row itself, NaN: not held out
    inverse: Inverse | None = None
    landmarks: Tensor | None = None  # (M,) rows that z and alpha stand for; None: all N

    def __getstate__(self) -> dict[str, Any]:
        # As in a file: what speeds up the next change is N² numbers, and is computed again.
        return {k: v for k, v in vars(self).items() if k != "panels"} | {"inverse": None}

    @property
    def n_classes(self) -> int:
        return self.alpha.shape[1]

    @cached_property
    def panels(self) -> Panels:
        """The conditioned rows, or the first of them, laid out for a few inputs."""
        from dkvb.kernels.distances import Panels  # numba takes time and memory to import

        return Panels.of(self.z.numpy())

    def scores(self, x: Tensor, factors: Tensor) -> Tensor:
        """Scores (n, Y) float64 of embeddings x (n, m), weighted by class."""
        step = max(1, _CELLS // max(1, len(self.z)))
        parts = [
            self.function(self.conditioned(part), self.z, self.squares).double() @ self.alpha
            for part in x.split(step)
        ]
        return torch.cat(parts) * factors

    def scores_and_nearest(self, x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """`scores` and `nearest_distances` of embeddings x (n, m) at once."""
        fits = self.z.dtype == torch.float32 and self.z.numel() <= MOST_LAID_OUT
        if len(x) <= FEW_INPUTS and fits and self.z.device.type == "cpu":
            return self._of_a_few(x, factors)
        scores, nearest = [], []
        for part in x.split(max(1, _CELLS // max(1, len(self.z)))):
            z = self.conditioned(part)
            kernel, near = self.function.with_nearest(z, self.z, self.squares)
            scores.append(kernel.double() @ self.alpha)
            nearest.append(near)
        return torch.cat(scores) * factors, torch.cat(nearest).double().cpu()

    def _of_a_few(self, x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """`scores_and_nearest` of a few embeddings, of which operations of torch take longer to
        begin than to end."""
        z = self.conditioning.with_error(self.conditioning.centred(x.cpu()))[0].float()
        n, alpha, squares = self.panels.n_rows, self.alpha, z.square().sum(dim=1)
        if self.function.kind == RBF:
            sums = self.panels.rbf_sums(z.numpy(), self.function.gamma, alpha.numpy())
            scores, nearest = map(torch.from_numpy, sums)
        else:
            squared, nearest = map(torch.from_numpy, self.panels.squared_distances(z.numpy()))
            kernel = self.function.of_distances(squared, squares, self.squares[:n])
            scores = kernel.double() @ alpha[:n]
        if n < len(self.z):  # rows that have come since the others were laid out
            squared = squared_distances(z, self.z[n:], self.squares[n:])
            nearest = torch.minimum(nearest, squared.amin(dim=1))
            kernel = self.function.of_distances(squared, squares, self.squares[n:])
            scores = scores + kernel.double() @ alpha[n:]
        return scores * factors, nearest.double()

    def conditioned(self, x: Tensor) -> Tensor:
        """Conditioned rows (n, p) of embeddings x (n, m)."""
        return self.conditioning(x.to(self.z.device)).to(self.z.dtype)

    def nearest_distances(self, x: Tensor) -> Tensor:
        """The squared distance (n,) from embeddings x (n, m) to the nearest row, on the CPU."""
        parts = [
            squared_distances(self.conditioned(part), self.z, self.squares).amin(dim=1)
            for part in x.split(max(1, _CELLS // len(self.z)))
        ]
        return torch.cat(parts).double().cpu()

    def reference_distances(self) -> Tensor:
        """Squared distances of rows, lowest hashes first, to the nearest other row, sorted."""
        hashes = self.hashes if self.landmarks is None else self.hashes[self.landmarks]
        which = torch.argsort(hashes)[:NOVELTY_ROWS].to(self.z.device)
        distances = squared_distances(self.z[which], self.z, self.squares)
        distances[torch.arange(len(which), device=self.z.device), which] = torch.inf
        nearest = distances.amin(dim=1).double().cpu()
        return nearest[nearest.isfinite()].sort().values

    def without_itself(self) -> Tensor:
        """What the other rows predict for each row (N, Y); NaN where that is not known."""
        if self.held_out is not None:
            return self.held_out
        assert self.diagonal is not None
        # yᵢ − αᵢ / [A⁻¹]ᵢᵢ
        return self.targets - self.alpha / self.diagonal[:, None]


def solve(
    setting: Setting,
    chosen_for: int,
    conditioning: Conditioning,
    function: KernelFunction,
    examples: Examples,
    rows: Distinct,
    device: torch.device | str,
    solved: Solved | None = None,
) -> Solution:
    """Solve with a setting that was chosen; `solved` is what the choice found for all rows."""
    n, m = len(rows.hashes), examples.halves.shape[1]
    way = select_way(n, m, rows.targets.shape[1], device)
    log.info("%d distinct rows: solved by %s, %d bytes", n, way.name, way.n_bytes)
    dtype = torch.float64 if n * m <= EXACT_NUMBERS else torch.float32
    parts = [
        conditioning(examples.embeddings(which).to(device)).to(dtype)
        for which in rows.first.split(CHUNK)
    ]
    z = torch.cat(parts)
    targets, weights = rows.targets.to(device), rows.weights.to(device)
    noise = setting.noise * float(function.diagonal(z.double()).mean())
    solution = Solution(
        setting,
        chosen_for,
        conditioning,
        function,
        noise,
        z,
        z.square().sum(dim=1),
        rows.hashes,
        weights,
        targets,
        alpha=targets,
        diagonal=None,
        judged_by=LEAVE_ONE_OUT,
    )
    if way.name == "cholesky":
        if solved is None or dtype == torch.float32:  # of rows in float64
            solved = Solved(*Inverse.solve(function.matrix(z.double()), noise / weights, targets))
        return replace(solution, **solved._asdict())
    if way.name == "landmarks":
        return _by_landmarks(solution, lowest_hashes(rows, way.landmarks))
    landmarks = lowest_hashes(rows, way.landmarks).to(device)
    return _by_conjugate_gradients(solution, landmarks, way.name == "stored")


def _by_conjugate_gradients(solution: Solution, landmarks: Tensor, stored: bool) -> Solution:
    s = solution
    kernel = KernelOperator.of(s.function, s.z, stored)
    signs = bits(0, 0, s.hashes[:, None], torch.arange(PROBES)) & 1
    probes = (2 * signs - 1).to(s.z.device, s.z.dtype)  # (N, PROBES) of ±1
    sides = torch.cat([s.targets.to(s.z.dtype), probes], dim=1)
    noise = (s.noise / s.weights).to(s.z.dtype)
    solved, steps, residual = conjugate_gradients(
        kernel, noise, sides, preconditioner(kernel, s.noise, landmarks)
    )
    log.info("conjugate gradients: %d steps, relative residual %.1e", steps, residual)
    alpha, answers = solved.split([s.n_classes, PROBES], dim=1)
    # Hutchinson's estimate: the mean over random signs v of v ⊙ A⁻¹v.
    diagonal = (probes * answers).double().mean(dim=1)
    diagonal = diagonal.clamp(min=float(diagonal.median()) / 4)
    return replace(s, alpha=alpha.double(), diagonal=diagonal, judged_by=ESTIMATED)


def _by_landmarks(solution: Solution, landmarks: Tensor) -> Solution:
    s = solution
    out = torch.zeros(len(s.hashes), dtype=torch.bool)
    others = torch.ones(len(out), dtype=torch.bool)
    others[landmarks] = False
    places = others.nonzero()[:, 0]
    out[places[: int(HELD_OUT_SHARE * len(out))]] = True  # rows are ordered by hash
    landmarks, keep = landmarks.to(s.z.device), (~out).to(s.z.device)
    index = torch.full((len(out),), -1, device=s.z.device)
    index[keep] = torch.arange(int(keep.sum()), device=s.z.device)
    without = landmark_values(s.function, s.z[keep], s.targets[keep], s.noise, index[landmarks])
    held_out = torch.full_like(s.targets, torch.nan)
    near = s.z[landmarks]
    for which in (~keep).nonzero()[:, 0].split(CHUNK):
        held_out[which] = s.function(s.z[which], near).double() @ without
    alpha = landmark_values(s.function, s.z, s.targets, s.noise, landmarks)
    return replace(
        s,
        z=near,
        squares=s.squares[landmarks],
        alpha=alpha,
        judged_by=HELD_OUT,
        held_out=held_out,
        landmarks=landmarks.cpu(),
    )


def extend(solution: Solution, rows: Distinct, examples: Examples) -> Solution | None:
    """The solution for more examples by updates of the inverse; None where that is no gain.

    Classes of `rows` are those of the solution, and further ones whose columns are zero.
    """
    if solution.inverse is None:
        return None
    by_hash = torch.argsort(solution.hashes)
    place = torch.searchsorted(solution.hashes[by_hash], rows.hashes)
    place = by_hash[place.clamp(max=len(by_hash) - 1)]
    known = solution.hashes[place] == rows.hashes
    new = (~known).nonzero()[:, 0]
    n, t = len(by_hash), len(new)
    differs = solution.weights.cpu()[place] != rows.weights
    differs |= (solution.targets.cpu()[place] != rows.targets).any(dim=1)
    changed = (known & differs).nonzero()[:, 0]
    if int(known.sum()) < n or 4 * t > n or len(changed) > MOST_REWEIGHTED:
        return None
    if t:
        solution = _appended(solution, rows, examples, new)
    for row in changed.tolist():
        solution = _reweighted(solution, int(place[row]), rows, row)
    assert solution.inverse is not None
    return _changed(solution, inverse=solution.inverse.folded(MOST_ADDED))


def _appended(s: Solution, rows: Distinct, examples: Examples, new: Tensor) -> Solution:
    assert s.inverse is not None
    assert s.diagonal is not None
    z = s.conditioned(examples.embeddings(rows.first[new]))
    weights, targets = rows.weights[new].to(z.device), rows.targets[new].to(z.device)
    cross = s.function(z, s.z, s.squares).double().T
    wide = z.double()
    corner = s.function(wide, wide)
    corner.diagonal().add_(s.noise / weights)
    inverse, added = s.inverse.appended(cross, corner)
    targets = torch.cat([s.targets, targets])
    alpha = torch.nn.functional.pad(s.alpha, (0, 0, 0, len(new))) + added.T @ (added @ targets)
    diagonal = torch.nn.functional.pad(s.diagonal, (0, len(new))) + added.square().sum(dim=0)
    return _changed(
        s,
        z=torch.cat([s.z, z]),
        squares=torch.cat([s.squares, z.square().sum(dim=1)]),
        hashes=torch.cat([s.hashes, rows.hashes[new]]),
        weights=torch.cat([s.weights, weights]),
        targets=targets,
        alpha=alpha,
        diagonal=diagonal,
        inverse=inverse,
    )


def _changed(s: Solution, **changes: Any) -> Solution:
    """The solution with changes, of which other conditioned rows only begin with those before."""
    new, panels = replace(s, **changes), vars(s).get("panels")
    if panels is not None and len(new.z) - panels.n_rows <= MOST_ADDED:
        vars(new)["panels"] = panels
    return new


def _reweighted(s: Solution, place: int, rows: Distinct, row: int) -> Solution:
    assert s.inverse is not None
    assert s.diagonal is not None
    weights, targets = s.weights.clone(), s.targets.clone()
    weights[place], targets[place] = rows.weights[row], rows.targets[row].to(targets.device)
    change = s.noise * (1 / float(weights[place]) - 1 / float(s.weights[place]))
    inverse, column, added = s.inverse.reweighted(place, change)
    moved = s.alpha + column[:, None] * (targets[place] - s.targets[place])
    return _changed(
        s,
        weights=weights,
        targets=targets,
        alpha=moved + added.T @ (added @ targets),
        diagonal=s.diagonal + added[0].square(),
        inverse=inverse,
    )


def with_classes(solution: Solution, table: Tensor, n_classes: int) -> Solution:
    """The same where class i has the index table[i] of n_classes."""
    if torch.equal(table, torch.arange(n_classes)):
        return solution

    def moved(old: Tensor) -> Tensor:
        new = old.new_zeros((len(old), n_classes))
        new[:, table.to(old.device)] = old
        return new

    s = solution
    held_out = None if s.held_out is None else moved(s.held_out)
    return _changed(s, targets=moved(s.targets), alpha=moved(s.alpha), held_out=held_out)

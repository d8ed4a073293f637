"""Solving for the points of a memory: exactly for as many as a machine can, else for cells."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from dkvb._support.hashing import bits
from dkvb.memory.blocks import Growing
from dkvb.memory.choose import (
    WIDTHS,
    Choice,
    HeldOut,
    Setting,
    Solved,
    choose,
    choose_for_cells,
    lowest_hashes,
    per_column,
    predicted,
    solved,
    system,
    values_of,
)
from dkvb.memory.compress import coarse, fit_groups
from dkvb.memory.conditioning import CENTRED, PLAIN, Conditioning
from dkvb.memory.conjugate_gradients import (
    LANDMARKS,
    KernelOperator,
    conjugate_gradients,
    preconditioner,
)
from dkvb.memory.inverse import Inverse, NotPositiveDefinite, cholesky
from dkvb.memory.kernel import MEDIAN_ROWS, median_distance, squared_norms
from dkvb.memory.outputs import Outputs
from dkvb.memory.points import Memory, Points, points_of
from dkvb.memory.solution import CELL_OUT, ESTIMATED, HELD_OUT, LEAVE_ONE_OUT, Judged, Solution

log = logging.getLogger(__name__)

F64 = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_POINTS = 12_000  # that are solved for exactly: more take minutes on a CPU
ALL_LEFT_OUT = 6_000  # up to which every point is left out; beyond, some rows
JUDGED_ROWS = 2_000
MOST_JUDGED = 1 << 24  # predictions for own rows that are kept: 64 MB
REFINED = 1e-5  # relative residual of what was solved for with a factor in float32
PROBES = 24  # random vectors that estimate the diagonal of an inverse
CHOICE_ROWS = 50_000  # of many, that settings are chosen on,
CHOICE_CELLS = 4_000  # as so many cells,
HELD_OUT_ROWS = 5_000  # by so many rows that are in none of them
SUPPORT_POINTS = 4_096
OF_CELLS = "1/8"  # the conditioning of sums
STRONGEST, EXACT_NOISE = "1/4", 0.01  # the conditioning and λ of many points, each solved for
TOGETHER = 1 / 4  # of the rows, from which on leaving cells out says little
MORE_NOISE = (1e-6, 1e-4, 1e-2)  # added to λ where rounding makes the matrix indefinite


def distinct(memory: Memory, which: Places) -> Places:
    """The group (k,) of each of some entries in canonical order: those of equal rows and targets
    are one point."""
    hashes, targets = memory.hashes[which], memory.targets[which]
    new = np.ones(len(which), bool)
    new[1:] = (hashes[1:] != hashes[:-1]) | (targets[1:] != targets[:-1])
    group: Places = np.cumsum(new) - 1
    return group


def chosen(
    memory: Memory,
    outputs: Outputs,
    conditionings: dict[str, Conditioning],
) -> tuple[Choice, Conditioning]:
    """The setting that leaving one point out finds best, or rows held out of cells where there are
    more points than can be left out; and its conditioning."""
    conditionings, widths = _candidates(memory, conditionings)
    order = memory.order
    group = distinct(memory, order)
    first = np.searchsorted(group, np.arange(group[-1] + 1))
    strata = outputs.strata(memory.targets[order[first]])

    if len(first) > MOST_POINTS:
        under = _held_out_rows(memory, order, axes_of(conditionings))
        choice = choose_for_cells(under, conditionings, outputs, widths)
        return choice, conditionings[choice.setting.conditioning]

    def points_by(by: Conditioning, most: int) -> Points:
        n = len(first)
        wanted = np.arange(n) if n <= most else lowest_hashes(strata, most)
        mine = np.isin(group, wanted)
        dense = np.searchsorted(wanted, group[mine])
        return points_of(memory, order[mine], dense, by)

    choice = choose(points_by, len(first), conditionings, outputs, widths)
    return choice, conditionings[choice.setting.conditioning]


def for_every_point(
    choice: Choice, conditionings: dict[str, Conditioning], memory: Memory
) -> Choice:
    """The setting for solving for every point, from the one that was chosen for cells.

    The more points there are, the more scaling of axes pays: where cells want some, all points
    want the strongest. CIFAR-100 with 50,000 rows: 81.7 in place of 81.5, seen on test rows, and
    leaving one of 20,000 rows out chooses the same.
    """
    if choice.setting.conditioning == PLAIN or STRONGEST not in conditionings:
        return choice
    first = memory.order[:MEDIAN_ROWS]
    by = conditionings[STRONGEST]
    unit = median_distance(points_of(memory, first, np.arange(len(first)), by).z)
    setting = Setting(STRONGEST, 1.0, EXACT_NOISE, choice.setting.score)
    return Choice(setting, setting.width / unit, None)


def _candidates(
    memory: Memory, conditionings: dict[str, Conditioning]
) -> tuple[dict[str, Conditioning], tuple[float, ...]]:
    """The conditionings and widths to choose from.

    Cells of one class lie where those of others do not, so that a cell of many rows is predicted
    well without it by any width, and best by one that is too wide for rows. Where many rows are in
    such cells, the conditioning and the width are those that predict rows to come well (measured).
    """
    together = int(memory.counts[memory.counts > 1].sum())
    if memory.keeps_rows or CENTRED in conditionings or OF_CELLS not in conditionings:
        return conditionings, WIDTHS
    if together < TOGETHER * memory.n_rows:
        return conditionings, WIDTHS
    return {OF_CELLS: conditionings[OF_CELLS]}, (Setting().width,)


def axes_of(conditionings: dict[str, Conditioning]) -> Conditioning:
    """The conditioning in whose components keys are fitted, if any has some."""
    axes = next((c for c in conditionings.values() if c.components is not None), None)
    return axes or next(iter(conditionings.values()))


def _held_out_rows(
    memory: Memory, order: Places, axes: Conditioning
) -> Callable[[Conditioning], HeldOut]:
    """What gives cells of some entries under a conditioning, and others that are held out."""
    if len(order) > CHOICE_ROWS:
        order = order[lowest_hashes(memory.targets[order], CHOICE_ROWS)]
    out = lowest_hashes(memory.targets[order], HELD_OUT_ROWS)
    rest = np.delete(order, out)
    group = fit_groups(memory, rest, axes, CHOICE_CELLS)

    def under(by: Conditioning) -> HeldOut:
        cells = points_of(memory, rest, group, by)
        return HeldOut(cells, points_of(memory, order[out], np.arange(len(out)), by))

    return under


def solve(
    memory: Memory,
    outputs: Outputs,
    setting: Setting,
    chosen_for: int,
    by: Conditioning,
    gamma: float,
    known: Solved | None = None,
) -> Solution:
    """Solve for all entries with a setting that was chosen; `known` is what the choice found for
    all distinct points."""
    order = memory.order
    group = distinct(memory, order)
    judged = None
    if group[-1] >= MOST_POINTS:
        group, known = fit_groups(memory, order, by, MOST_POINTS), None
        judged = _held_out(memory, outputs, order, group, by, gamma, setting.noise)
    points = points_of(memory, order, group, by)
    log.info("%d entries solved for as %d points", len(memory), len(points))
    rows = outputs.rows(points.targets)
    all_left_out = judged is None and len(points) <= ALL_LEFT_OUT
    if known is None and all_left_out:
        known = solved(factorised(points, gamma, setting.noise), rows)
    known = known or solved_in_float32(points, gamma, setting.noise, rows)
    values, lower, diagonal, ratio = known
    point_of = np.empty(len(order), np.int32)
    point_of[order] = group
    if not all_left_out and judged is None:
        judged = _left_out(memory, outputs, order, point_of, known, rows)
    return Solution(
        setting=setting,
        chosen_for=chosen_for,
        by=by,
        gamma=gamma,
        z=Growing(points.z),
        squares=Growing(squared_norms(points.z.astype(np.float64))),
        spread=points.spread,
        counts=points.counts,
        targets=points.targets,
        alpha=values,
        point_of=point_of,
        changed=np.zeros(0, np.int64),
        judged=judged,
        diagonal=diagonal,
        ratio=ratio,
        support=coarse(points, SUPPORT_POINTS) if len(points) > SUPPORT_POINTS else None,
        inverse=Inverse.of(lower, diagonal),
        anchors=np.arange(len(points)),
    )


def factorised(points: Points, gamma: float, noise: float, precision: Any = np.float64) -> Any:
    """The lower factor (N, N) of K + diag(λ/n) of points, with a little more noise where rounding
    makes it indefinite."""
    for more in (0.0, *MORE_NOISE):
        try:
            return cholesky(system(points, gamma, noise + more).astype(precision, copy=False))
        except NotPositiveDefinite:
            log.debug("not positive definite with lambda %g", noise + more)
    raise NotPositiveDefinite


def solved_in_float32(points: Points, gamma: float, noise: float, rows: F64) -> Solved:
    """Values for targets (N, T) of many points, and the factor in float32, which takes half the
    room and time; what it rounds, conjugate gradients make good."""
    kernel = KernelOperator.of(points, gamma, noise)
    lower = kernel.factor(MORE_NOISE)

    def precondition(r: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = cho_solve((lower, True), r, check_finite=False)
        return found

    def solve(b: F64) -> F64:
        found, _, _ = conjugate_gradients(
            kernel, b.astype(np.float32), precondition, tolerance=REFINED
        )
        return found.astype(np.float64)

    values, ratio = values_of(solve, rows)
    return Solved(values, lower, None, ratio)


def solve_exactly(
    s: Solution, memory: Memory, outputs: Outputs, progress: bool = False
) -> Solution:
    """Solve for every point with the setting of a solution `s` for cells, which from then on
    correct the others without a value of their own."""
    order = memory.order
    group = distinct(memory, order)
    points = points_of(memory, order, group, s.by)
    point_of = np.empty(len(order), np.int32)
    point_of[order] = group
    kernel = KernelOperator.of(points, s.gamma, s.noise)
    landmarks = lowest_hashes(outputs.strata(points.targets), min(LANDMARKS, len(points)))
    rows = outputs.rows(points.targets).astype(np.float32)
    probes = _signs(memory.hashes[order[np.searchsorted(group, np.arange(len(points)))]])
    found, steps, residual = conjugate_gradients(
        kernel, np.hstack([rows, probes]), preconditioner(kernel, landmarks), progress
    )
    log.info("%d points: %d steps, relative residual %.1e", len(points), steps, residual)
    alpha, answers = found[:, : rows.shape[1]], found[:, rows.shape[1] :]
    # Hutchinson's estimate of the diagonal: the mean over random signs v of v ⊙ A⁻¹v.
    diagonal = (probes * answers).mean(axis=1)
    diagonal = np.maximum(diagonal, np.median(diagonal) / 4)
    which = order
    if which.size * rows.shape[1] > MOST_JUDGED:
        which = order[_sample(memory, outputs, order)]
    place = point_of[which]
    predicted = rows[place] - alpha[place] / diagonal[place, None]
    cells, n = s.points, len(points)
    return replace(
        s,
        z=Growing(np.concatenate([points.z, cells.z])),
        squares=Growing(
            np.concatenate([squared_norms(points.z.astype(np.float64)), s.squares.array])
        ),
        spread=np.concatenate([points.spread, cells.spread]),
        counts=np.concatenate([points.counts, np.zeros(len(cells))]),
        targets=np.concatenate([points.targets, np.full(len(cells), -1)]),
        alpha=np.concatenate([alpha, np.zeros((len(cells), rows.shape[1]))]),
        point_of=point_of,
        judged=Judged(which, predicted.astype(np.float32), ESTIMATED),
        anchors=np.arange(n, n + len(cells)),
    )


def _signs(hashes: Places) -> NDArray[np.float32]:
    """PROBES random signs (N, PROBES) that follow from hashes (N,)."""
    signs = np.asarray(bits(0, 0, hashes[:, None], np.arange(PROBES))) & 1
    return (2 * signs - 1).astype(np.float32)


def _sample(memory: Memory, outputs: Outputs, order: Places) -> Places:
    """Positions in the canonical order of entries to judge by: the first of every kind."""
    most = min(JUDGED_ROWS * outputs.judged_by, max(JUDGED_ROWS, len(order) // 4))
    return lowest_hashes(outputs.strata(memory.targets[order]), most)


def _left_out(
    memory: Memory,
    outputs: Outputs,
    order: Places,
    point_of: Any,
    known: Solved,
    rows: F64,
) -> Judged:
    """What the other points predict for the points of some entries."""
    which, lower = order[_sample(memory, outputs, order)], known.lower
    own, back = np.unique(point_of[which], return_inverse=True)
    unit = np.zeros((len(lower), len(own)), lower.dtype, order="F")
    unit[own, np.arange(len(own))] = 1
    half = solve_triangular(lower, unit, lower=True, overwrite_b=True, check_finite=False)
    diagonal = np.einsum("ij,ij->j", half, half)
    kind = LEAVE_ONE_OUT if memory.keeps_rows else CELL_OUT
    predicted = rows[own] - known.values[own] / per_column(diagonal, known.ratio)
    return Judged(which, predicted[back].astype(np.float32), kind)


def _held_out(
    memory: Memory,
    outputs: Outputs,
    order: Places,
    group: Places,
    by: Conditioning,
    gamma: float,
    noise: float,
) -> Judged:
    """What cells predict for some entries while these are held out of them."""
    out = _sample(memory, outputs, order)
    rest = np.ones(len(order), bool)
    rest[out] = False
    dense = np.unique(group[rest], return_inverse=True)[1]
    cells = points_of(memory, order[rest], dense, by)
    values = solved_in_float32(cells, gamma, noise, outputs.rows(cells.targets)).values
    rows = points_of(memory, order[out], np.arange(len(out)), by)
    found = predicted(cells, values, rows, gamma)
    return Judged(order[out], found.astype(np.float32), HELD_OUT)

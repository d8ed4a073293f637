"""Solving for the points of a memory: exactly for as many as a machine can, else for cells."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dkvb.memory.blocks import Growing
from dkvb.memory.choose import (
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
)
from dkvb.memory.compress import coarse, fit_groups
from dkvb.memory.conditioning import PLAIN, Conditioning
from dkvb.memory.inverse import Inverse, NotPositiveDefinite, cholesky
from dkvb.memory.kernel import squared_norms
from dkvb.memory.outputs import Outputs
from dkvb.memory.points import Memory, Points, points_of
from dkvb.memory.solution import HELD_OUT, LEAVE_ONE_OUT, Judged, Solution

log = logging.getLogger(__name__)

F64 = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_POINTS = 12_000  # that are solved for exactly: more take minutes on a CPU
ALL_LEFT_OUT = 6_000  # up to which every point is left out; beyond, some rows
JUDGED_ROWS = 2_000
CHOICE_ROWS = 50_000  # of many, that settings are chosen on,
CHOICE_CELLS = 4_000  # as so many cells,
HELD_OUT_ROWS = 5_000  # by so many rows that are in none of them
SUPPORT_POINTS = 4_096
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
    memory: Memory, outputs: Outputs, conditionings: dict[str, Conditioning]
) -> tuple[Choice, Conditioning]:
    """The setting that leaving one point out finds best, and its conditioning."""
    order = memory.order
    group = distinct(memory, order)
    first = np.searchsorted(group, np.arange(group[-1] + 1))
    strata = outputs.strata(memory.targets[order[first]])

    if len(first) > MOST_POINTS:
        under = _held_out_rows(memory, order, axes_of(conditionings))
        choice = choose_for_cells(under, conditionings, outputs)
        return choice, conditionings[choice.setting.conditioning]

    def points_by(by: Conditioning, most: int) -> Points:
        n = len(first)
        wanted = np.arange(n) if n <= most else lowest_hashes(strata, most)
        mine = np.isin(group, wanted)
        dense = np.searchsorted(wanted, group[mine])
        return points_of(memory, order[mine], dense, by)

    choice = choose(points_by, len(first), conditionings, outputs)
    return choice, conditionings[choice.setting.conditioning]


def axes_of(conditionings: dict[str, Conditioning]) -> Conditioning:
    """The conditioning in whose components keys are fitted, if any has some."""
    axes = next((c for c in conditionings.values() if c.components is not None), None)
    return axes or conditionings[PLAIN]


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
    if known is None:
        known = solved(factorised(points, gamma, setting.noise), rows, all_left_out)
    values, lower, diagonal, ratio = known
    point_of = np.empty(len(order), np.int32)
    point_of[order] = group
    if not all_left_out and judged is None:
        judged = _left_out(memory, outputs, order, point_of, known, rows)
    if not all_left_out:  # twice the room, and more precise than corrections need
        lower, diagonal = lower.astype(np.float32), None
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


def factorised(points: Points, gamma: float, noise: float) -> Any:
    """The lower factor (N, N) of K + diag(λ/n) of points, with a little more noise where rounding
    makes it indefinite."""
    for more in (0.0, *MORE_NOISE):
        try:
            return cholesky(system(points, gamma, noise + more))
        except NotPositiveDefinite:
            log.debug("not positive definite with lambda %g", noise + more)
    raise NotPositiveDefinite


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
    predicted = rows[own] - known.values[own] / per_column(diagonal, known.ratio)
    return Judged(which, predicted[back].astype(np.float32), LEAVE_ONE_OUT)


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
    values = solved(factorised(cells, gamma, noise), outputs.rows(cells.targets), False).values
    rows = points_of(memory, order[out], np.arange(len(out)), by)
    found = predicted(cells, values, rows, gamma)
    return Judged(order[out], found.astype(np.float32), HELD_OUT)

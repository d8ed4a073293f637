"""Between solutions: what was learned or unlearned since is folded in, at once.

A point t that comes corrects every value: f₁(x) = f₀(x) + k̃(x, t)·(k̃(t, t) + λ/n)⁻¹·(y − f₀(t)),
where k̃ is the kernel conditioned on the points that were solved for; one that goes takes the same
back. Where all points are conditioned on, this is what solving anew gives. Where these are too
many, on a file just opened, a few that stand for all of them take their place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve as solve_system

from dkvb.memory.inverse import Inverse
from dkvb.memory.kernel import rbf, self_similarity, spread_factors, squared_norms
from dkvb.memory.missing import without_influence
from dkvb.memory.outputs import Outputs
from dkvb.memory.points import Memory, Points, points_of
from dkvb.memory.solution import Judged, Solution
from dkvb.memory.solve import SUPPORT_POINTS, factorised

Rows = NDArray[Any]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

AT_ONCE = 256  # points that come or go together
MOST_VECTORS = 1 << 26  # numbers of what came and went; beyond, corrections start again
SAME = 1e-4  # of the largest number of a point: how far apart one and the same lie at most
_ODD = 0x2545F4914F6CDD1D
MOST_GONE = 512  # points that stand for nothing, until they are cleared away


class StillThere(ArithmeticError):
    """A row that was unlearned would stay in the solution."""


def settled(s: Solution, memory: Memory, outputs: Outputs) -> Solution:
    """The solution with all changes of the memory folded in."""
    if not s.pending:
        return s
    s = ready(s, memory, outputs).touched(_twins(s, memory))
    _check_gone(s)
    entries, group = _regrouped(s, memory)
    added = points_of(memory, entries, group, s.by)
    point_of = s.point_of.copy()
    point_of[entries] = len(s) + group
    for start in range(0, len(s.changed), AT_ONCE):
        s = _removed(s, s.changed[start : start + AT_ONCE])
    s = s.moved_on(point_of=point_of, changed=s.changed[:0])
    for start in range(0, len(added), AT_ONCE):
        s = _added(s, added[start : start + AT_ONCE], outputs)
    s = _without_influence(s, outputs)
    gone = (s.counts == 0) & (s.targets >= 0)
    if gone.any() and (memory.keeps_rows or gone.sum() > MOST_GONE):
        s = s.only(~gone)
    return s


def _without_influence(s: Solution, outputs: Outputs) -> Solution:
    """With values of 0 where nobody said a target, as solving anew gives; where points are
    corrected by a few others, what is unsaid stays as it was predicted when it came."""
    missing = np.isnan(outputs.rows(s.targets)) & (s.counts > 0)[:, None]
    if not missing.any() or not s.exact:
        return s
    assert s.inverse is not None
    assert s.anchors is not None
    alive, inverse = s.anchors >= 0, s.inverse
    mine = s.anchors[alive]

    def solve(b: F64) -> F64:
        whole = np.zeros((len(inverse), b.shape[1]))
        whole[alive] = b[mine]
        found = np.zeros_like(b)
        found[mine] = inverse.solve(whole)[alive]
        return found

    return s.moved_on(alpha=without_influence(solve, s.alpha, missing, s.diagonal))


def ready(s: Solution, memory: Memory, outputs: Outputs) -> Solution:
    """With an inverse to correct by: of all points, or of a few that stand for them."""
    grown = s.inverse is not None and s.inverse.count * s.inverse.size > MOST_VECTORS
    if s.inverse is not None and not grown:
        return s
    if not s.exact or len(s) > SUPPORT_POINTS:
        return _supported(s, memory, outputs)
    s = s.compacted()
    lower = factorised(s.points, s.gamma, s.noise)
    return s.moved_on(inverse=Inverse.of(lower, s.diagonal), anchors=np.arange(len(s)))


def _supported(s: Solution, memory: Memory, outputs: Outputs) -> Solution:
    """With a few more points, of no value yet, by which the others are corrected."""
    if s.exact:  # what was left out is known for the points as they are now
        which = memory.order
        which = which[s.point_of[which] >= 0]
        predicted = s.left_out(outputs.rows(s.targets))[s.point_of[which]]
        judged = Judged(which, predicted.astype(np.float32), s.kind)
        s = replace(s, diagonal=None, judged=judged)
    n, points = len(s), s.support
    if points is None:  # the points that were solved for have outgrown the inverse
        real = np.nonzero(s.counts > 0)[0]
        few = s.points[real[:: max(1, -(-len(real) // SUPPORT_POINTS))]]
        share = s.counts.sum() / few.counts.sum()
        points = Points(few.z, few.spread, few.counts * share, np.full(len(few), -1))
    earlier = (s.targets < 0) & (s.alpha == 0).all(axis=1)
    if earlier.any():
        s = s.only(~earlier)
        n = len(s)
    # Twice as fast, and more precise than a few that stand for all can be.
    lower = factorised(points, s.gamma, s.noise, np.float32)
    s = _with_points(s, points, np.zeros((len(points), s.alpha.shape[1])), s.alpha)
    counts = np.concatenate([s.counts[:n], np.zeros(len(points))])
    return s.moved_on(counts=counts, inverse=Inverse.of(lower), anchors=np.arange(n, len(s)))


def _check_gone(s: Solution) -> None:
    """Raise where an unlearned row is also one of the few points that others are corrected by.

    What stands for several rows stays until the next solution, as conditioning and settings do.
    """
    gone = np.setdiff1d(s.changed, s.point_of)
    few = [s.z.array[s.targets < 0], *([] if s.support is None else [s.support.z])]
    for rows in few:
        for point in gone if len(rows) else ():
            apart = np.abs(rows - s.z.array[point]).max(axis=1)
            if (apart <= SAME * np.abs(s.z.array[point]).max()).any():
                raise StillThere


def _twins(s: Solution, memory: Memory) -> Places:
    """The entries that have a point, and the row and target of one that has none yet."""
    with np.errstate(over="ignore"):
        pair = memory.hashes + memory.targets * _ODD
    new = s.point_of < 0
    return np.nonzero(~new & np.isin(pair, pair[new]))[0]


def _regrouped(s: Solution, memory: Memory) -> tuple[Places, Places]:
    """The entries (k,) of points to come, and the group of each: those of a changed point, and new
    ones, of which equals are one point."""
    new = np.nonzero(s.point_of < 0)[0]
    members = np.nonzero(np.isin(s.point_of, s.changed))[0] if len(s.changed) else new[:0]
    entries = np.concatenate([members, new])
    entries = entries[np.lexsort((memory.targets[entries], memory.hashes[entries]))]
    own = s.point_of[entries].astype(np.int64)
    hashes, targets = memory.hashes[entries], memory.targets[entries]
    first = np.ones(len(entries), bool)
    first[1:] = (hashes[1:] != hashes[:-1]) | (targets[1:] != targets[:-1])
    run = np.cumsum(first) - 1
    # Equal entries stand side by side: if one has a point already, the others join it.
    joined = np.full(int(run[-1]) + 1 if len(run) else 0, -1)
    np.maximum.at(joined, run, own)
    label = np.where(joined[run] >= 0, joined[run], len(s) + run)
    return entries, np.unique(label, return_inverse=True)[1]


def _removed(s: Solution, places: Places) -> Solution:
    """Without some points, of which nothing is left but the places."""
    assert s.inverse is not None
    assert s.anchors is not None
    alpha, counts, anchors, inverse = s.alpha.copy(), s.counts.copy(), s.anchors.copy(), s.inverse
    at = np.full(len(s), -1)
    alive = anchors >= 0
    at[anchors[alive]] = np.nonzero(alive)[0]
    others, mine = places[at[places] < 0], places[at[places] >= 0]
    if len(others):
        u = inverse.solve(_cross(s, s.points[others]))
        alpha[anchors[alive]] += (u @ alpha[others])[alive]
    if len(mine):
        inverse, columns = inverse.removed(at[mine])
        alpha[anchors[alive]] -= (columns @ alpha[mine])[alive]
        anchors[at[mine]] = -1
    alpha[places], counts[places] = 0, 0
    return s.moved_on(
        alpha=alpha,
        counts=counts,
        inverse=inverse,
        anchors=anchors,
        diagonal=_spread_out(inverse, anchors, len(s)) if s.exact else None,
    )


def _added(s: Solution, points: Points, outputs: Outputs) -> Solution:
    """With more points."""
    assert s.inverse is not None
    assert s.anchors is not None
    factors = spread_factors(points.spread, s.gamma)
    z = points.z.astype(np.float64)
    corner = rbf(z, z, s.gamma) * np.outer(factors, factors)
    own = self_similarity(points.spread, points.counts, s.gamma)
    corner[np.diag_indices(len(points))] = own + s.noise / points.counts
    inverse, u, schur = s.inverse.added(_cross(s, points), corner)
    now = (
        rbf(points.z.astype(s.rows.dtype), s.rows, s.gamma, s.squares.array).astype(np.float64)
        @ s.values
    )
    residual = outputs.rows(points.targets) - now * factors[:, None]
    residual = np.nan_to_num(residual)  # what nobody said is as it is predicted
    beta = solve_system(schur, residual, assume_a="pos")
    alpha, alive = s.alpha.copy(), s.anchors >= 0
    alpha[s.anchors[alive]] -= (u @ beta)[alive]
    anchors = np.concatenate([s.anchors, np.arange(len(s), len(s) + len(points))])
    n = len(s) + len(points)
    later = _with_points(s, points, beta, alpha)
    diagonal = _spread_out(inverse, anchors, n) if s.exact else None
    return later.moved_on(inverse=inverse, anchors=anchors, diagonal=diagonal)


def _with_points(s: Solution, points: Points, values: F64, alpha: F64) -> Solution:
    return s.moved_on(
        z=s.z.appended(points.z),
        squares=s.squares.appended(squared_norms(points.z.astype(np.float64))),
        spread=np.concatenate([s.spread, points.spread]),
        counts=np.concatenate([s.counts, points.counts]),
        targets=np.concatenate([s.targets, points.targets]),
        alpha=np.concatenate([alpha, values]),
    )


def _cross(s: Solution, points: Points) -> F64:
    """The kernel (M, t) of the anchors and other points; 0 of anchors that went."""
    assert s.anchors is not None
    mine = np.maximum(s.anchors, 0)
    kernel = rbf(s.rows[mine], points.z.astype(s.rows.dtype), s.gamma).astype(np.float64)
    kernel *= np.where(s.anchors >= 0, spread_factors(s.spread[mine], s.gamma), 0)[:, None]
    kernel *= spread_factors(points.spread, s.gamma)
    return kernel


def _spread_out(inverse: Inverse, anchors: Places, n: int) -> F64:
    """The diagonal of the inverse in the order of the points (n,)."""
    assert inverse.diagonal is not None
    diagonal, alive = np.ones(n), anchors >= 0
    diagonal[anchors[alive]] = inverse.diagonal[alive]
    return diagonal

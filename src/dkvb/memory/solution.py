"""A solved kernel ridge problem: what predictions are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.blocks import Growing
from dkvb.memory.choose import Setting, per_column
from dkvb.memory.conditioning import Conditioning
from dkvb.memory.inverse import Inverse
from dkvb.memory.kernel import spread_factors, squared_distances
from dkvb.memory.points import Points, working

if TYPE_CHECKING:
    from dkvb.kernels.distances import Panels

Rows = NDArray[Any]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

LEAVE_ONE_OUT, HELD_OUT = "leave-one-out", "held-out"
ESTIMATED = "leave-one-out, estimated"
CELL_OUT = "leave-one-cell-out"  # which flatters: cells of one class lie where others do not
KINDS = (LEAVE_ONE_OUT, CELL_OUT, ESTIMATED, HELD_OUT)
FEW_INPUTS = 64
MOST_BESIDE = 8192  # points that came since the others were laid out for a few inputs
NOVELTY_POINTS = 1000
CACHED = ("panels", "rows", "values")
_NUMBERS = 1 << 25  # of the kernel matrix at a time


@dataclass(frozen=True, eq=False)
class Judged:
    """What the others predict for some entries, found when all was solved for."""

    which: Places  # (k,) positions of entries, in their canonical order
    predicted: NDArray[np.float32]  # (k, T)
    kind: str  # LEAVE_ONE_OUT, CELL_OUT, ESTIMATED or HELD_OUT

    def kept(self, mask: NDArray[np.bool_]) -> Judged:
        """Without entries that went; the others have moved up."""
        mine = mask[self.which]
        which = (np.cumsum(mask) - 1)[self.which[mine]]
        return Judged(which, self.predicted[mine], self.kind)


@dataclass(frozen=True, eq=False)
class Solution:
    """N points with a value for each column, and how they follow when entries change."""

    setting: Setting
    chosen_for: int  # rows that the setting was chosen for
    by: Conditioning
    gamma: float
    z: Growing  # (N, p) conditioned points, float32
    squares: Growing  # (N,) their squared norms, float64
    spread: F64  # (N,)
    counts: F64  # (N,) rows; 0 for a point that only helps to correct the others
    targets: Places  # (N,)
    alpha: F64  # (N, T)
    point_of: NDArray[np.int32]  # (E,) of each entry of the memory; −1: not solved for yet
    changed: Places  # points of which rows came or went since
    judged: Judged | None = None  # None: all points were left out, by `diagonal`
    diagonal: F64 | None = None  # (N,) of the inverse for all points
    ratio: F64 | None = None  # (T,) of it that is left where only what was said counts
    support: Points | None = None  # few points that stand for all rows, to correct by
    inverse: Inverse | None = None  # of the points at `anchors`
    anchors: Places | None = None  # (M,)

    def __getstate__(self) -> dict[str, Any]:
        # As in a file: what speeds up the next change is N² numbers, and is computed again.
        state = {k: v for k, v in vars(self).items() if k not in CACHED}
        return state | {"inverse": None, "anchors": None}

    def __len__(self) -> int:
        return len(self.z)

    @property
    def noise(self) -> float:
        return self.setting.noise

    @cached_property
    def rows(self) -> Rows:
        """The points (N, p) in the precision in which they are reckoned with."""
        return working(self.z.array)

    @property
    def kind(self) -> str:
        """How what the solution predicts for its own entries was found."""
        if self.judged is not None:
            return self.judged.kind
        return CELL_OUT if (self.spread > 0).any() else LEAVE_ONE_OUT

    @property
    def exact(self) -> bool:
        """Whether every point can be left out without solving again."""
        return self.diagonal is not None

    @property
    def is_compressed(self) -> bool:
        """Whether entries were made into fewer points: what they predict was held out of them."""
        return self.kind == HELD_OUT

    @property
    def pending(self) -> int:
        """How many points and entries are to be folded in."""
        return len(self.changed) + int((self.point_of < 0).sum())

    @property
    def points(self) -> Points:
        """The points as the solver saw them."""
        return Points(self.z.array, self.spread, self.counts, self.targets)

    @cached_property
    def values(self) -> F64:
        """What similarities are multiplied by (N, T): α, less what spread takes."""
        return self.alpha * spread_factors(self.spread, self.gamma)[:, None]

    @cached_property
    def panels(self) -> Panels:
        """The points, or the first of them, laid out for a few inputs."""
        from dkvb.kernels.distances import Panels  # numba takes time and memory to import

        return Panels.of(self.z.array)

    # --------------------------------------------------------------------------------- predicting
    def predict(self, x: Rows) -> F64:
        """Predictions (n, T) for embeddings x (n, m)."""
        return self.predict_and_nearest(x)[0]

    def predict_and_nearest(self, x: Rows) -> tuple[F64, F64]:
        """Predictions (n, T) for embeddings x (n, m), and the squared distance (n,) to the nearest
        point, from the same distances."""
        if len(x) <= FEW_INPUTS and self.rows.dtype == np.float32:
            return self._of_a_few(x)
        predicted, nearest = np.empty((len(x), self.alpha.shape[1])), np.empty(len(x))
        step = max(1, _NUMBERS // max(1, len(self)))
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            z = self.by(x[part]).astype(self.rows.dtype)
            distances = squared_distances(z, self.rows, self.squares.array)
            nearest[part] = distances.min(axis=1)
            distances *= -self.gamma
            predicted[part] = np.exp(distances, out=distances).astype(np.float64) @ self.values
        return predicted, nearest

    def _of_a_few(self, x: Rows) -> tuple[F64, F64]:
        """`predict_and_nearest` of a few embeddings, from points laid out for them."""
        z = self.by(x)
        n = self.panels.n_rows
        predicted, nearest = self.panels.rbf_sums(z, self.gamma, self.values)
        if n < len(self):  # points that have come since the others were laid out
            distances = squared_distances(z, self.z.array[n:], self.squares.array[n:])
            nearest = np.minimum(nearest, distances.min(axis=1))
            kernel = np.exp(-self.gamma * distances).astype(np.float64)
            predicted = predicted + kernel @ self.values[n:]
        return predicted, nearest.astype(np.float64)

    def nearest_distances(self, x: Rows) -> F64:
        """The squared distance (n,) from embeddings x (n, m) to the nearest point."""
        return self.predict_and_nearest(x)[1]

    def reference_distances(self) -> F64:
        """Squared distances that rows of some points have to the nearest point without them,
        sorted.

        A row of a point of many lies about as far from it as its spread says.
        """
        real = np.nonzero(self.counts > 0)[0]
        which = real[:: max(1, -(-len(real) // NOVELTY_POINTS))]
        distances = squared_distances(self.rows[which], self.rows[real])
        own = np.searchsorted(real, which)
        distances[np.arange(len(which)), own] = np.inf
        nearest = distances.min(axis=1).astype(np.float64) + self.spread[which]
        n = self.counts[which]
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(self.spread[which] > 0, self.spread[which] * n / (n - 1), np.inf)
        nearest = np.repeat(np.minimum(nearest, inside), np.minimum(n, 100).astype(int))
        reference: F64 = np.sort(nearest[np.isfinite(nearest)])
        return reference

    # ------------------------------------------------------------------------------- leaving out
    def left_out(self, rows: F64) -> F64:
        """What the others predict for each point (N, T), whose targets are rows (N, T)."""
        assert self.diagonal is not None
        return rows - self.alpha / per_column(self.diagonal, self.ratio)

    # ---------------------------------------------------------------------------------- changing
    def kept(self, mask: NDArray[np.bool_]) -> Solution:
        """With less entries in the memory: those where a mask (E,) is false went."""
        gone = self.point_of[~mask]
        changed = np.union1d(self.changed, gone[gone >= 0])
        judged = None if self.judged is None else self.judged.kept(mask)
        return self._later(point_of=self.point_of[mask], changed=changed, judged=judged)

    def appended(self, n: int) -> Solution:
        """With n more entries in the memory."""
        new = np.full(n, -1, np.int32)
        return self._later(point_of=np.concatenate([self.point_of, new]))

    def touched(self, which: Places) -> Solution:
        """With other rows in some entries of the memory."""
        points = self.point_of[which]
        return self._later(changed=np.union1d(self.changed, points[points >= 0]))

    def reordered(self, order: Places) -> Solution:
        """With the entries of the memory in another order."""
        judged = self.judged
        if judged is not None:
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            judged = replace(judged, which=place[judged.which])
        return self._later(point_of=self.point_of[order], judged=judged)

    def with_columns(self, table: Places, n_columns: int) -> Solution:
        """Where column i, and target i, has the index table[i] of n_columns."""
        if len(table) == n_columns and (table == np.arange(n_columns)).all():
            return self

        def moved(old: NDArray[Any]) -> NDArray[Any]:
            new = np.zeros((len(old), n_columns), old.dtype)
            new[:, table] = old
            return new

        judged = self.judged
        if judged is not None:
            judged = replace(judged, predicted=moved(judged.predicted))
        found = self._later(
            alpha=moved(self.alpha),
            targets=np.where(self.targets < 0, -1, table[self.targets]),
            judged=judged,
        )
        vars(found).pop("values", None)
        return found

    def with_targets(self, place: Places) -> Solution:
        """Where target i has the index place[i], and columns stay."""
        targets = np.where(self.targets < 0, -1, place[self.targets])
        return self._later(targets=targets)

    def with_value_columns(self, which: Places) -> Solution:
        """With the columns `which` (T,) of values, and zeros where one is −1."""

        def moved(old: NDArray[Any]) -> NDArray[Any]:
            wide = np.concatenate([old, np.zeros((len(old), 1), old.dtype)], axis=1)
            new: NDArray[Any] = wide[:, which]
            return new

        judged = self.judged
        if judged is not None:
            judged = replace(judged, predicted=moved(judged.predicted))
        ratio = None if self.ratio is None else np.append(self.ratio, 1.0)[which]
        found = self._later(alpha=moved(self.alpha), judged=judged, ratio=ratio)
        vars(found).pop("values", None)
        return found

    def without_columns(self, left: NDArray[np.bool_]) -> Solution:
        """Without the columns, and targets, where a mask (Y,) is false: no row has them."""
        judged, place = self.judged, np.append(np.cumsum(left) - 1, -1)
        if judged is not None:
            judged = replace(judged, predicted=judged.predicted[:, left])
        # A point of a class that goes is about to go; −1 is of points that only correct others.
        targets = np.where(self.targets < 0, -1, np.maximum(place[self.targets], 0))
        found = self._later(alpha=self.alpha[:, left], targets=targets, judged=judged)
        vars(found).pop("values", None)
        return found

    def _later(self, **changes: Any) -> Solution:
        """With other fields, points and values being the same."""
        later = replace(self, **changes)
        for name in CACHED:
            if name in vars(self):
                vars(later)[name] = vars(self)[name]
        return later

    def moved_on(self, **changes: Any) -> Solution:
        """With other points, of which those that were laid out are still the first."""
        later, panels = replace(self, **changes), vars(self).get("panels")
        if panels is not None and panels.n_rows <= len(later.z) <= panels.n_rows + MOST_BESIDE:
            vars(later)["panels"] = panels
        return later

    def compacted(self) -> Solution:
        """Without points that stand for nothing any more."""
        kept = (self.counts > 0) | (self.alpha != 0).any(axis=1)
        if kept.all():
            return self
        return self.only(kept)

    def only(self, kept: NDArray[np.bool_]) -> Solution:
        """Only the points where a mask (N,) is true."""
        place = np.append(np.cumsum(kept) - 1, -1)
        anchors = None
        if self.anchors is not None:
            anchors = np.where(kept[self.anchors], place[self.anchors], -1)
        changed = self.changed[kept[self.changed]]
        return replace(
            self,
            z=Growing(self.z.array[kept]),
            squares=Growing(self.squares.array[kept]),
            spread=self.spread[kept],
            counts=self.counts[kept],
            targets=self.targets[kept],
            alpha=self.alpha[kept],
            diagonal=None if self.diagonal is None else self.diagonal[kept],
            point_of=place[self.point_of].astype(np.int32),
            changed=place[changed],
            anchors=anchors,
        )

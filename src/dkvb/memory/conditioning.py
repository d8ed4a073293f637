"""Embeddings made comparable: root, unit length, centre, principal axes scaled or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.kernel import squared_norms

Rows = NDArray[Any]  # (n, m) of real numbers
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

PLAIN = "none"
EXPONENTS = {PLAIN: 0.0, "1/8": 0.125, "1/4": 0.25}  # of variances, whose powers divide the axes
OF_KEYS = "keys"
CENTRED = "centred"  # neither root nor unit length
FEW_DIMENSIONS = 64  # below which the length of a row may say as much as its direction
EXACT_NUMBERS = 1 << 22  # of embeddings that are conditioned in float64 at a time
FLOOR = 0.1  # of the mean variance, added so that small axes are not blown up


@dataclass(frozen=True, eq=False)
class Conditioning:
    """Signed power, unit length, centring, and a linear map, each optional but the centring.

    Up to the centring a row depends on nothing that was learned: sums of such rows can be added up
    before anybody knows the centre.
    """

    centre: F32  # (m,)
    components: F32 | None = None  # (m, p) principal axes, scaled
    power: float = 1.0
    normalise: bool = False
    stretch: float = 1.0  # by how much the linear map multiplies the variance of rows

    @property
    def width(self) -> int:
        return len(self.centre)

    @property
    def output_width(self) -> int:
        return self.width if self.components is None else self.components.shape[1]

    def leading(self, n: int) -> Conditioning:
        """With the first n components alone."""
        assert self.components is not None
        return replace(self, components=np.ascontiguousarray(self.components[:, :n]))

    def __call__(self, x: F32) -> F32:
        """Embeddings (n, m) → conditioned rows (n, p)."""
        return self.of_units(self.units(x))

    def units(self, x: F32, exactly: bool = False) -> Rows:
        """Embeddings (n, m) → rows (n, m) before centring.

        A few rows cost little in float64; for many, float32 is precise enough.
        """
        precise = exactly or x.size <= EXACT_NUMBERS
        z: Rows = x.astype(np.float64 if precise else np.float32)
        if self.power == 0.5:
            root = np.sqrt(np.abs(z))
            z = np.copysign(root, z, out=root)
        elif self.power != 1.0:
            z = np.copysign(np.abs(z) ** self.power, z)
        if self.normalise:
            norms = np.sqrt(squared_norms(z))
            z /= np.where(norms > 0, norms, 1.0)[:, None].astype(z.dtype)
        return z

    def of_units(self, units: Rows) -> F32:
        """Rows (n, m) before centring, or means of such rows → conditioned rows (n, p)."""
        centred = units - self.centre.astype(units.dtype)
        if self.components is not None:
            centred = centred @ self.components.astype(units.dtype, copy=False)
        rows: F32 = centred.astype(np.float32, copy=False)
        return rows


@dataclass
class Moments:
    """Sums over rows before centring, from which conditionings are fitted."""

    power: float
    count: float
    total: F64  # (m,) sum of rows
    raw: F64 | None  # (m,) sum of the embeddings themselves, where these are kept
    moment: F64 | None  # (m, m) sum of outer products, where there are enough rows for axes

    @property
    def mean(self) -> F64:
        mean: F64 = self.total / self.count
        return mean


def units(x: F32, power: float, exactly: bool = False) -> Rows:
    """Embeddings (n, m) → their signed powers, of unit length (n, m)."""
    return Conditioning(np.zeros(x.shape[1], np.float32), None, power, True).units(x, exactly)


def fit_conditionings(found: Moments) -> dict[str, Conditioning]:
    """Conditionings fitted to sums over rows, by name.

    Square root where no embedding is negative, unit length, centring, and principal axes divided by
    (variance + 0.1·mean)**exponent. Without scaling, axes change no distance and are left out. With
    few dimensions also centring alone.
    """
    width, mean = len(found.total), found.mean
    centre = mean.astype(np.float32)
    fitted = {PLAIN: Conditioning(centre, None, found.power, normalise=True)}
    if found.raw is not None and width < FEW_DIMENSIONS:
        fitted[CENTRED] = Conditioning((found.raw / found.count).astype(np.float32))
    if found.moment is None:
        return fitted
    covariance = found.moment / found.count - np.outer(mean, mean)
    precision = np.float32 if width > FEW_DIMENSIONS else np.float64  # axes need no more
    variance, axes = np.linalg.eigh(covariance.astype(precision))
    variance, axes = np.maximum(variance[::-1].astype(np.float64), 0), axes[:, ::-1]
    if variance.sum() == 0:  # all rows are one
        return fitted
    floored = variance + FLOOR * variance.mean()
    for name, exponent in EXPONENTS.items():
        if exponent:
            scales = floored**-exponent
            stretch = float(variance @ scales**2 / variance.sum())
            components = (axes * scales).astype(np.float32)
            fitted[name] = Conditioning(centre, components, found.power, True, stretch)
    return fitted


def conditionings_of_keys(given: Any) -> dict[str, Conditioning]:
    """The conditioning of `Keys`, with and without its axes, by name."""
    centre, components = (
        None if one is None else one.detach().cpu().numpy()
        for one in (given.centre, given.components)
    )
    assert centre is not None
    plain = Conditioning(centre, None, given.power, given.normalise)
    if components is None:
        return {PLAIN: plain}
    stretch = float((components.astype(np.float64) ** 2).sum() / len(components))
    own = Conditioning(centre, components, given.power, given.normalise, stretch)
    return {PLAIN: plain, OF_KEYS: own}

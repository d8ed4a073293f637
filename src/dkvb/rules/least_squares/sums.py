"""Sums over rows, all that ridge regression needs: independent of order, mergeable, subtractable.

With features φ (M,) and targets y (Y,) of a row, V = (Σφφᵀ + λ·I)⁻¹ Σφyᵀ needs two sums only. Rows
that a hash of their content holds out keep the same sums for themselves, from which the error of
any V on them follows, so that λ can be chosen after the fact, without a second look at the data.

Sums of features that are whole numbers are exact: the same bits in any order, and after adding and
taking away. A float64 holds whole numbers up to 2⁵³; what is above goes to a second one, the high
limb, which is there only where a sum needs it. Sums of other features are exact to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import process_group
from dkvb._support.hashing import content_hash
from dkvb._support.validation import check_memory

HELD_OUT = 10  # one row in this many is held out
LIMB = 2.0**53  # what a high limb counts; low limbs lie in [−LIMB/2, LIMB/2)
MOST_ROWS = 1 << 20  # of a batch, so that low limbs stay exact: products are below 2³²
STRIPE = 512  # rows of G that are kept, updated and factorised together
_LOW = ("gram", "cross", "total", "square")  # sums, or their low limbs

Batch = tuple[Tensor, Tensor, Tensor]  # φ (n, M), targets (n,) or (n, Y), held out (n,)


def stripes(packed: Tensor, n: int) -> Iterator[tuple[int, Tensor]]:
    """(a, A[a:a+s, a:]) for every stripe of a symmetric matrix A (n, n): views of the flat tensor
    that keeps these stripes one after another."""
    offset = 0
    for start in range(0, n, STRIPE):
        shape = min(STRIPE, n - start), n - start
        size = shape[0] * shape[1]
        yield start, packed[offset : offset + size].view(shape)
        offset += size


def diagonal(packed: Tensor, n: int) -> Tensor:
    """The diagonal (n,) of a matrix that is kept in stripes."""
    return torch.cat([stripe.diagonal() for _, stripe in stripes(packed, n)])


@dataclass(frozen=True, eq=False)
class Moments:
    """What ridge regression needs to know of some rows; every field is a sum over them.

    `gram` is G = Σφφᵀ without what symmetry repeats: stripes of a few rows, each from the diagonal
    to the right, one after another in a flat tensor. Where there are high limbs, a sum is
    low + LIMB · high. Equal sums have equal limbs (`carried`).
    """

    gram: Tensor  # (T,) float64, a little more than M²/2 numbers
    cross: Tensor  # (M, Y) float64, Σ φyᵀ
    total: Tensor  # (Y,) float64, Σ y: the number of rows a class
    square: Tensor  # (Y,) float64, Σ y², the same again for classes
    gram_high: Tensor | None = None  # (T,) float64, None where all are zero; so is
    cross_high: Tensor | None = None  # (M, Y) float64

    def tensors(self) -> dict[str, Tensor]:
        """All sums by name, high limbs where there are any."""
        return {name: sum_ for name, sum_ in vars(self).items() if sum_ is not None}

    def without_products(self) -> Moments:
        return replace(self, gram=self.gram[:0].clone(), gram_high=None)

    def rounded(self) -> Moments:
        """The sums as one float64 each, as solving needs them."""
        gram, cross = self.gram, self.cross
        if self.gram_high is not None:
            gram = torch.add(gram, self.gram_high, alpha=LIMB)
        if self.cross_high is not None:
            cross = torch.add(cross, self.cross_high, alpha=LIMB)
        return Moments(gram, cross, self.total, self.square)

    def dense(self) -> Dense:
        """The sums as one float64 each, G as a square matrix."""
        rounded, M = self.rounded(), len(self.cross)
        square = self.gram.new_empty((M, M))
        for start, stripe in stripes(rounded.gram, M):
            stop = start + len(stripe)
            square[start:stop, start:] = stripe
            square[stop:, start:stop] = stripe[:, stop - start :].T
        return Dense(square, rounded.cross, self.total, self.square)

    @property
    def trace(self) -> float:
        """tr(G)."""
        n, high = len(self.cross), self.gram_high
        low = float(diagonal(self.gram, n).sum())
        return low if high is None else low + LIMB * float(diagonal(high, n).sum())

    def product(self, values: Tensor) -> Tensor:
        """GV for V (M, Y), multiplied in the precision of V."""
        product = torch.zeros_like(values)
        for start, stripe in stripes(self.gram, len(self.cross)):
            stop, stripe = start + len(stripe), stripe.to(values.dtype)
            beside = stripe[:, len(stripe) :]  # what lies right of the stripe's square block
            product[start:stop].addmm_(stripe, values[start:])
            product[stop:].addmm_(beside.T, values[start:stop])
        return product


@dataclass(frozen=True, eq=False)
class Dense:
    """Moments of few features, G as a square matrix."""

    gram: Tensor  # (r, r)
    cross: Tensor  # (r, Y)
    total: Tensor  # (Y,)
    square: Tensor  # (Y,)


@dataclass(frozen=True, eq=False)
class RidgeSums:
    """Sums over the rows learned from and, apart, over those held out to choose λ by."""

    learned: Moments
    held: Moments

    @property
    def n_features(self) -> int:
        """M."""
        return self.learned.cross.shape[0]

    @property
    def n_columns(self) -> int:
        """Y."""
        return self.learned.cross.shape[1]

    @property
    def total(self) -> Tensor:
        """Σ y over all rows (Y,): the number of rows a class."""
        return self.learned.total + self.held.total

    @property
    def trace(self) -> float:
        """tr(G) over all rows."""
        return self.learned.trace + self.held.trace

    def to(self, device: torch.device | str) -> RidgeSums:
        """The same sums on another device."""

        def moved(part: Moments) -> Moments:
            return Moments(**{name: sum_.to(device) for name, sum_ in part.tensors().items()})

        return RidgeSums(moved(self.learned), moved(self.held))

    def without_products(self) -> RidgeSums:
        """Without what only learning needs."""
        return RidgeSums(self.learned.without_products(), self.held.without_products())

    def tensors(self) -> dict[str, Tensor]:
        """All sums by name."""
        parts = {"": self.learned, "held_": self.held}
        return {
            prefix + name: sum_
            for prefix, moments in parts.items()
            for name, sum_ in moments.tensors().items()
        }


def empty(n_features: int, n_columns: int = 0, device: torch.device | str = "cpu") -> RidgeSums:
    """Sums over no rows.

    >>> empty(3, 2).learned.cross.shape
    torch.Size([3, 2])
    """
    zeros = partial(torch.zeros, dtype=torch.float64, device=device)
    M, Y, size = n_features, n_columns, gram_size(n_features)
    return RidgeSums(*(Moments(zeros(size), zeros(M, Y), zeros(Y), zeros(Y)) for _ in range(2)))


def gram_size(n_features: int) -> int:
    """How many numbers `Moments.gram` keeps."""
    M = n_features
    return sum(min(STRIPE, M - start) * (M - start) for start in range(0, M, STRIPE))


def held_out(rows: Tensor, one_in: int = HELD_OUT) -> Tensor:
    """Which float32 rows (n,) bool are kept apart to choose λ by: a function of content alone."""
    return content_hash(rows) % one_in == 0


def update(sums: RidgeSums, batches: Iterable[Batch], sign: int = 1) -> RidgeSums:
    """The sums with rows added, or with `sign=-1` taken away again; those given stay as they are.

    φ in float32 is multiplied in float32, batch by batch, and summed in float64; in float64 it is
    float64 throughout. Targets are columns (n,) int64 or numbers (n, Y). Batches have at most
    MOST_ROWS rows.
    """
    moments, copied = [sums.learned, sums.held], [False, False]
    for phi, targets, held in batches:
        for part, chosen in enumerate((~held, held)):
            if not bool(chosen.any()):
                continue
            own = moments[part]
            if not copied[part]:  # only what changes is copied: G is large
                changed = {name: getattr(own, name).clone() for name in _LOW}
                own, copied[part] = replace(own, **changed), True
            _add(own, phi[chosen], targets[chosen], sign)
            moments[part] = carried(own)
    return RidgeSums(*moments)


def update_together(sums: RidgeSums, batches: Iterable[Batch]) -> RidgeSums:
    """`update` with the rows of all processes, each of which gives its own, or none.

    All get the same sums: those of one process to the last bit where features are whole numbers.
    Every sum travels once, 8 bytes a number, and high limbs where a process has any.
    """
    if process_group.world_size() == 1:
        return update(sums, batches)
    first = process_group.rank() == 0  # what was there before counts once
    before = sums if first else empty(sums.n_features, sums.n_columns, sums.learned.gram.device)
    after = update(before, batches)
    return RidgeSums(
        _all_reduced(after.learned, before.learned), _all_reduced(after.held, before.held)
    )


def _all_reduced(own: Moments, given: Moments) -> Moments:
    """The sums of all processes; those `given` stay as they are."""
    lows = {name: getattr(own, name) for name in _LOW}
    highs = {name: getattr(own, name + "_high") for name in _LOW[:2]}
    largest = diagonal(own.gram, len(own.cross)).max()[None] + LIMB * any(
        high is not None for high in highs.values()
    )
    if float(process_group.all_reduce(largest, "notes")) < LIMB / 2:
        if own is given:
            lows = {name: low.clone() for name, low in lows.items()}
        return Moments(**{name: process_group.all_reduce(low) for name, low in lows.items()})
    # As integers: thousands of low limbs add up to less than 2⁶³.
    whole = {name: process_group.all_reduce(low.long()) for name, low in lows.items()}
    found: dict[str, Tensor | None] = {name: whole[name].double() for name in _LOW[2:]}
    for name, high in highs.items():
        high = torch.zeros_like(lows[name]) if high is None else high.clone()
        found[name], found[name + "_high"] = _limbs(whole[name], process_group.all_reduce(high))
    return Moments(**found)  # type: ignore[arg-type]


def _add(moments: Moments, phi: Tensor, targets: Tensor, sign: int) -> None:
    for start, stripe in stripes(moments.gram, len(moments.cross)):
        left, right = phi[:, start : start + len(stripe)], phi[:, start:]
        if phi.dtype == torch.float64:
            stripe.addmm_(left.T, right, alpha=sign)
        else:
            stripe.add_(left.T @ right, alpha=sign)
    if targets.ndim == 1:  # only the classes present: a product is the same on every run
        present, position = targets.unique(return_inverse=True)  # (P,), (n,)
        one_hot = torch.nn.functional.one_hot(position, len(present)).to(phi.dtype)  # (n, P)
        moments.cross[:, present] += sign * (phi.T @ one_hot).double()
        rows = sign * one_hot.double().sum(dim=0)
        moments.total[present] += rows
        moments.square[present] += rows
    else:
        targets = targets.double()
        moments.cross.addmm_(phi.double().T, targets, alpha=sign)
        moments.total.add_(targets.sum(dim=0), alpha=sign)
        moments.square.add_(targets.square().sum(dim=0), alpha=sign)


def carried(moments: Moments) -> Moments:
    """The same sums, low limbs in [−LIMB/2, LIMB/2) and the rest in high ones: one form for all
    ways to come to a sum."""
    low_only = moments.gram_high is None and moments.cross_high is None
    squares = [stripe.diagonal().max() for _, stripe in stripes(moments.gram, len(moments.cross))]
    # No sum of whole numbers is above the largest sum of squares.
    if low_only and float(max(squares)) < LIMB / 2:
        return moments
    check_memory(
        "high limbs of sums",
        4 * moments.gram.nbytes,
        "learn the rest in another model, or use fewer pairs",
        moments.gram.device,
    )
    gram, gram_high = _limbs(moments.gram, moments.gram_high)
    cross, cross_high = _limbs(moments.cross, moments.cross_high)
    return Moments(gram, cross, moments.total, moments.square, gram_high, cross_high)


def _limbs(low: Tensor, high: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both limbs, float64, of low + LIMB · high, where `low` is of any size and may be int64."""
    limb = int(LIMB)
    over = torch.div(low + limb // 2, limb, rounding_mode="floor")
    low, over = (low - over * limb).double(), over.double()
    high = over if high is None else high + over
    return low, high if bool(high.any()) else None


def merge(first: RidgeSums, second: RidgeSums) -> RidgeSums:
    """The sums over the rows of both."""
    ours, theirs = (tuple(sums.learned.cross.shape) for sums in (first, second))
    if ours != theirs:
        raise ValueError(
            f"second: expected sums over as many features and columns as the first, {ours}; "
            f"got {theirs}; use map_classes"
        )

    def both(one: Moments, other: Moments) -> Moments:
        ours, theirs = one.tensors(), other.tensors()
        every = ours | theirs
        for name in ours.keys() & theirs.keys():
            every[name] = ours[name] + theirs[name]
        return carried(Moments(**every))

    return RidgeSums(both(first.learned, second.learned), both(first.held, second.held))


def map_classes(sums: RidgeSums, target: Tensor, n_classes: int) -> RidgeSums:
    """Class y becomes target[y] of `n_classes`, those that meet are added, and a negative target
    drops the class; the rows stay in G, which is shared and not copied."""
    kept = target >= 0

    def mapped(sum_: Tensor) -> Tensor:
        out = sum_.new_zeros((*sum_.shape[:-1], n_classes))
        return out.index_add_(sum_.ndim - 1, target[kept], sum_[..., kept])

    def of(part: Moments) -> Moments:
        lows = mapped(part.total), mapped(part.square)
        if part.cross_high is None:
            return Moments(part.gram, mapped(part.cross), *lows, part.gram_high)
        # As integers: the low limbs of many classes may meet.
        cross, cross_high = _limbs(mapped(part.cross.long()), mapped(part.cross_high))
        return Moments(part.gram, cross, *lows, part.gram_high, cross_high)

    return RidgeSums(of(sums.learned), of(sums.held))


def grow_classes(sums: RidgeSums, n_classes: int) -> RidgeSums:
    """The same sums with zeros for the classes that are new."""
    new = n_classes - sums.learned.cross.shape[1]
    if new == 0:
        return sums
    learned, held = (
        {
            name: sum_ if sum_ is None or name.startswith("gram") else pad(sum_, (0, new))
            for name, sum_ in vars(part).items()
        }
        for part in (sums.learned, sums.held)
    )
    return RidgeSums(Moments(**learned), Moments(**held))

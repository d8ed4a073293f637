"""Values by ridge regression, from sums over rows: independent of order, mergeable, subtractable.

With features φ (M,) and targets y (Y,) of a row, V = (Σφφᵀ + λ·I)⁻¹ Σφyᵀ needs two sums only. Rows
that a hash of their content holds out keep the same sums for themselves, from which the error of
any V on them follows, so that λ can be chosen after the fact, without a second look at the data.
λ is in units of tr(G)/M, which frees it from the scale of φ and the number of rows.

Sums of features that are whole numbers are exact: the same bits in any order, and after adding and
taking away. A float64 holds whole numbers up to 2⁵³; what is above goes to a second one, the high
limb, which is there only where a sum needs it. Sums of other features are exact to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support import process_group
from dkvb._support.hashing import content_hash
from dkvb._support.validation import check_memory
from dkvb.rules.least_squares.low_rank import span

HELD_OUT = 10  # one row in this many is held out
TOLERANCE = 0.05  # how much more than the lowest squared error a smaller λ may cost
GRID = tuple(10.0 ** (1 - step / 4) for step in range(23))  # 10 … 10^-4.5, four a decade
LIMB = 2.0**53  # what a high limb counts; low limbs lie in [−LIMB/2, LIMB/2)
MOST_ROWS = 1 << 20  # of a batch, so that low limbs stay exact: products are below 2³²
_DECADE = 4  # steps of the grid
_FIRST = 8  # place of the grid where the search starts: 0.1
_LARGEST = 1e6  # λ beyond which no rounding explains that G is not positive
_DEFAULT = 0.01  # where there are no rows to choose by
_STRIPE = 512  # rows of G that are kept, and updated, together
_FEW = 0.5  # rows per feature up to which the problem is solved in the space that they span
_LOW = ("gram", "cross", "total", "square")  # sums, or their low limbs

Batch = tuple[Tensor, Tensor, Tensor]  # φ (n, M), targets (n,) or (n, Y), held out (n,)


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

    def stripes(self) -> Iterator[tuple[int, Tensor]]:
        """(a, G[a:a+s, a:]) for every stripe: views of the flat tensor."""
        M, offset = self.cross.shape[0], 0
        for start in range(0, M, _STRIPE):
            shape = min(_STRIPE, M - start), M - start
            size = shape[0] * shape[1]
            yield start, self.gram[offset : offset + size].view(shape)
            offset += size

    def diagonal(self) -> Tensor:
        """Σ φ² (M,), their low limbs."""
        return torch.cat([stripe.diagonal() for _, stripe in self.stripes()])


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
    return sum(min(_STRIPE, M - start) * (M - start) for start in range(0, M, _STRIPE))


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
    largest = own.diagonal().max()[None] + LIMB * any(high is not None for high in highs.values())
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
    for start, stripe in moments.stripes():
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
    # No sum of whole numbers is above the largest sum of squares.
    if low_only and float(moments.diagonal().max()) < LIMB / 2:
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
            name: sum_ if name.startswith("gram") else pad(sum_, (0, new))
            for name, sum_ in part.tensors().items()
        }
        for part in (sums.learned, sums.held)
    )
    return RidgeSums(Moments(**learned), Moments(**held))


def solve(moments: Sequence[Moments], lam: float, width: int | None = None) -> Tensor:
    """The ridge solution V (M, Y) for λ = `lam`·tr(G)/`width`, from the rows of all `moments`.

    `width` is M unless given. One Cholesky factorisation, M³/3 multiplications, and two matrices
    (M, M).
    """
    cross = torch.stack([part.cross for part in moments]).sum(dim=0)  # (M, Y)
    upper = _upper(moments)
    unit = float(upper.diagonal().sum()) / (width or len(cross))
    if unit <= 0:
        return torch.zeros_like(cross)
    upper.diagonal().add_(lam * unit)
    factor, failed = torch.linalg.cholesky_ex(upper.T)  # which reads the lower triangle only
    if bool(failed):
        # Rounding may leave G a little below positive: then the smallest usable λ is larger.
        if lam > _LARGEST:
            raise ValueError("sums: expected those of some rows; got impossible ones")
        del upper, factor
        return solve(moments, 10 * lam, width)
    # In rows, as a file gives it back: products with it are rounded by how it lies in memory.
    return torch.cholesky_solve(cross, factor).contiguous()


def _upper(moments: Sequence[Moments]) -> Tensor:
    """The upper triangle (M, M) of G over the rows of all `moments`; below it are zeros."""
    M = len(moments[0].cross)
    upper = moments[0].cross.new_zeros((M, M))
    for part in moments:
        for start, stripe in part.stripes():
            upper[start : start + len(stripe), start:] += stripe
    return upper


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """How a solution V does on some rows, as far as their sums can tell."""

    moments: Moments
    score_squares: Tensor  # (Y, Y), VᵀGV: the sum over rows of Vᵀφ times its transpose
    score_sums: Tensor  # (Y, Y), VᵀQ: column b is the sum of Vᵀφ over rows of class b

    @property
    def squared_error(self) -> float:
        """Σ ‖y − Vᵀφ‖² = Σ‖y‖² − 2 tr(VᵀQ) + tr(VᵀGV)."""
        error = self.moments.square.sum() - 2 * self.score_sums.trace() + self.score_squares.trace()
        return max(0.0, float(error))  # rounding may leave a perfect fit a little below

    @property
    def score_deviation(self) -> float:
        """How far scores lie from the mean of their class, over rows and columns that have any."""
        rows = self.moments.total  # (Y,)
        means = self.score_sums / rows.clamp(min=1)  # (Y, Y), a class a column
        within = self.score_squares.diagonal() - (means.square() * rows).sum(dim=1)  # (Y,)
        present = rows > 0
        free = float((rows.sum() - present.sum()).clamp(min=1)) * max(1, int(present.sum()))
        return math.sqrt(max(0.0, float(within[present].sum()) / free))


def evaluate_on(moments: Moments, values: Tensor) -> HeldOutScores:
    """How V (M, Y) does on the rows of `moments`."""
    return HeldOutScores(moments, values.T @ _product(moments, values), values.T @ moments.cross)


def _product(moments: Moments, values: Tensor) -> Tensor:
    """GV for V (M, Y)."""
    product = torch.zeros_like(values)
    for start, stripe in moments.stripes():
        stop = start + len(stripe)
        beside = stripe[:, len(stripe) :]  # what lies right of the stripe's square block
        product[start:stop] += stripe @ values[start:]
        product[stop:] += beside.T @ values[start:stop]
    return product


@dataclass(frozen=True, eq=False)
class Solution:
    """Values, the λ they were found with, and how that λ does on held-out rows."""

    values: Tensor  # (M, Y)
    lam: float  # in units of tr(G)/M
    held_out_scores: HeldOutScores | None  # of values from other rows; None without held-out rows

    def without_products(self) -> Solution:
        """Without what only learning needs."""
        scored = self.held_out_scores
        if scored is not None:
            scored = replace(scored, moments=scored.moments.without_products())
        return replace(self, held_out_scores=scored)


def balance(sums: RidgeSums, solution: Solution) -> Solution:
    """The same solution with scores normalised per class: the mean square of a class's scores over
    all rows is that of the others.

    Ridge regression shrinks the scores of a class the more the fewer rows it has, which costs it
    more than its due when the highest score wins. Needs no more than the sums.
    """
    squares = [
        evaluate_on(part.rounded(), solution.values).score_squares
        for part in (sums.learned, sums.held)
    ]
    size = (squares[0] + squares[1]).diagonal().clamp(min=0).sqrt()  # (Y,)
    seen = size > 0
    if not bool(seen.any()):
        return solution
    factor = torch.where(seen, size[seen].mean() / size, 1.0)  # scores stay about as large
    scored = solution.held_out_scores
    if scored is not None:
        scored = HeldOutScores(
            scored.moments,
            factor[:, None] * scored.score_squares * factor,
            factor[:, None] * scored.score_sums,
        )
    return Solution(solution.values * factor, solution.lam, scored)


def fit(
    sums: RidgeSums,
    grid: Sequence[float] = GRID,
    tolerance: float = TOLERANCE,
    n_rows: float = math.inf,
) -> Solution:
    """The solution from all rows, with the smallest λ of the grid whose squared error on held-out
    rows is within `tolerance` of the lowest.

    The lowest squared error itself asks for too large a λ when classes are many: shrinking all
    scores towards zero lowers it without changing which score is the highest.

    The products of `n_rows` rows, where these are known to be fewer than features, have no higher
    rank. The problem is then solved in the space that the rows span, where V lies too.
    """
    M, basis = len(sums.learned.cross), None
    both = [sums.learned.rounded(), sums.held.rounded()]
    without_choice = not all(bool(part.diagonal().any()) for part in both)
    if 0 < n_rows <= _FEW * M and sums.learned.gram.device.type == "cpu":
        basis, both = _in_span(*both)  # (M, r)
    evaluated: dict[int, HeldOutScores] = {}

    def error(place: int) -> float:
        evaluated[place] = evaluate_on(both[1], solve(both[:1], grid[place], M))
        return evaluated[place].squared_error

    lam, scored = _DEFAULT, None
    if not without_choice:
        chosen = select_lambda(error, len(grid), tolerance)
        lam, scored = grid[chosen], replace(evaluated[chosen], moments=sums.held)
    values = solve(both, lam, M)
    return Solution(values if basis is None else (basis @ values).contiguous(), lam, scored)


def cost(n_features: int, n_rows: float) -> float:
    """About how many multiplications `fit` takes."""
    M, looks = n_features, 8
    if n_rows > _FEW * M:
        return looks * M**3 / 3
    return (4 * M + looks * n_rows) * M * n_rows


def _in_span(learned: Moments, held: Moments) -> tuple[Tensor, list[Moments]]:
    """An orthonormal basis (M, r) of the space that all rows span, and the moments in it."""
    basis, gram = span(_upper([learned, held]))
    of_held = basis.T @ _product(held, basis)  # (r, r)
    moments = []
    for part, own in ((learned, gram - of_held), (held, of_held)):
        stripes = [own[a : a + _STRIPE, a:].flatten() for a in range(0, len(own), _STRIPE)]
        moments.append(replace(part, gram=torch.cat(stripes), cross=basis.T @ part.cross))
    return basis, moments


def select_lambda(error: Callable[[int], float], n: int, tolerance: float) -> int:
    """The last of n places whose error is within `tolerance` of the lowest, with few looks at it.

    The error falls and then rises from place to place, slowly: its lowest value is looked for in
    wide steps and once more at the vertex of the parabola there, the border by halving. Looks at
    about six places.
    """
    seen: dict[int, float] = {}

    def evaluate_at(place: int) -> float:
        if place not in seen:
            seen[place] = error(place)
        return seen[place]

    best = min(_FIRST, n - 1)
    while True:
        near = [min(best + _DECADE, n - 1), max(best - _DECADE, 0)]
        lower = next((place for place in near if evaluate_at(place) < evaluate_at(best)), None)
        if lower is None:
            break
        best = lower
    if near == [best + _DECADE, best - _DECADE]:
        after, before = (evaluate_at(place) - evaluate_at(best) for place in near)
        if after + before > 0:
            evaluate_at(best + round(_DECADE / 2 * (before - after) / (before + after)))
    while True:
        limit = min(seen.values()) * (1 + tolerance)
        inside = max(place for place, value in seen.items() if value <= limit)
        outside = min((place for place in seen if place > inside), default=None)
        if inside == n - 1 or outside == inside + 1:
            return inside
        evaluate_at(min(inside + _DECADE, n - 1) if outside is None else (inside + outside) // 2)

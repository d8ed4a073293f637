"""Values by counting: how often each pair was selected by each class, n[c, k, y], in one pass.

Counts are integers over (pair, class), kept as sorted lists of those that are not zero, so that
memory follows what was seen and not pairs × classes. Learning adds a short list; lists of similar
length are merged, so that a single example costs milliseconds however much was learned before.
The state depends on what was counted alone: not on order, batches or processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dkvb.bottleneck.values import flat_codes

COLUMNS = 1 << 20  # of classes that a place has room for
DENSE_ELEMENTS = 1 << 23  # counts of a chunk of rows, laid out for reading
GROWTH = 4  # a list is merged into the one before it unless that one is this many times longer


@dataclass(frozen=True, eq=False)
class Tally:
    """A sorted list of places (pair · COLUMNS + class) and the counts there."""

    places: Tensor  # (E,) int64, ascending, distinct
    counts: Tensor  # (E,) int32

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, eq=False)
class CountState:
    """Tallies whose sum is n[c, k, y], and the rows a class."""

    n_codebooks: int
    n_pairs: int
    tallies: tuple[Tally, ...]
    per_class: Tensor  # (Y,) int64

    @property
    def device(self) -> torch.device:
        return self.per_class.device


def start(n_codebooks: int, n_pairs: int, device: torch.device | str = "cpu") -> CountState:
    """Nothing counted, no classes yet."""
    return CountState(
        n_codebooks, n_pairs, (), torch.zeros(0, dtype=torch.int64, device=device)
    )


def grow(state: CountState, n_columns: int) -> CountState:
    """The same state with room for more classes."""
    per_class = torch.nn.functional.pad(state.per_class, (0, n_columns - len(state.per_class)))
    return CountState(state.n_codebooks, state.n_pairs, state.tallies, per_class)


def update(state: CountState, codes: Tensor, columns: Tensor, sign: int = 1) -> CountState:
    """Count codes (n, C) of rows with labels in `columns` (n,); `sign=-1` takes them away again."""
    places = flat_codes(codes, state.n_pairs) * COLUMNS + columns[:, None]
    distinct, counts = torch.unique(places, return_counts=True)
    tally = Tally(distinct, (sign * counts).to(torch.int32))
    per_class = state.per_class + sign * torch.bincount(columns, minlength=len(state.per_class))
    if sign < 0:
        _check_enough(state, tally, per_class)
    tallies = _settled((*state.tallies, tally))
    return CountState(state.n_codebooks, state.n_pairs, tallies, per_class)


def merge(first: CountState, second: CountState) -> CountState:
    """Both states' counts together; columns must mean the same classes."""
    ours = first.n_codebooks, first.n_pairs, len(first.per_class)
    theirs = second.n_codebooks, second.n_pairs, len(second.per_class)
    if ours != theirs:
        raise ValueError(
            f"second: expected counts of the same codebooks, pairs and classes, {ours}; got {theirs}; "
            "use grow"
        )
    tallies = _settled((*first.tallies, *second.tallies))
    per_class = first.per_class + second.per_class
    return CountState(first.n_codebooks, first.n_pairs, tallies, per_class)


def move_columns(state: CountState, target: Tensor) -> CountState:
    """Column y becomes target[y]; a negative target drops its counts: how classes are forgotten,
    joined or put in another's order."""
    tally = compact(state).tallies[0]
    column = target[tally.places % COLUMNS]
    kept = column >= 0
    places = (tally.places[kept] // COLUMNS) * COLUMNS + column[kept]
    moved = _merged(Tally(places, tally.counts[kept]))
    per_class = torch.zeros(
        int(target.max()) + 1 if len(target) else 0, dtype=torch.int64, device=state.device
    )
    per_class.index_add_(0, target[target >= 0], state.per_class[target >= 0])
    return CountState(state.n_codebooks, state.n_pairs, (moved,), per_class)


def compact(state: CountState) -> CountState:
    """The same counts as one list: equal counts give equal bits."""
    empty = torch.zeros(0, dtype=torch.int64, device=state.device)
    everything = _merged(Tally(empty, empty.int()), *state.tallies)
    return CountState(state.n_codebooks, state.n_pairs, (everything,), state.per_class)


def read(state: CountState, codes: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Counts that rows with codes (n, C) find: (slice, counts (r, C, Y) float64), chunk by chunk."""
    n, C = codes.shape
    Y = len(state.per_class)
    step = max(1, DENSE_ELEMENTS // max(1, C * Y))
    for first in range(0, n, step):
        part = slice(first, min(first + step, n))
        pairs = flat_codes(codes[part], state.n_pairs).flatten()  # (r·C,)
        dense = torch.zeros(len(pairs) * Y, dtype=torch.float64, device=codes.device)
        for tally in state.tallies:
            low = torch.searchsorted(tally.places, pairs * COLUMNS)
            length = torch.searchsorted(tally.places, (pairs + 1) * COLUMNS) - low
            read_by = torch.repeat_interleave(length)  # (entries,) which of the pairs
            start_of = torch.cumsum(length, 0) - length
            entry = torch.arange(len(read_by), device=codes.device) - start_of[read_by] + low[read_by]
            place = read_by * Y + tally.places[entry] % COLUMNS
            dense.index_add_(0, place, tally.counts[entry].double())
        yield part, dense.view(part.stop - part.start, C, Y)


def log_posterior(
    state: CountState, codes: Tensor, *, smoothing: float, prior: str
) -> Tensor:
    """log p(y) + Σ_c log p(code_c | y), up to a constant of the row: (n, Y) float64.

    p(k | y) = (n[c, k, y] + a) / (N_y + a·K), smoothed when read since classes grow. The prior is
    added once, not once a codebook.
    """
    rows = state.per_class.double()
    base = -state.n_codebooks * torch.log(rows + smoothing * state.n_pairs)  # (Y,)
    if prior == "empirical":
        base = base + torch.log(rows / rows.sum())
    out = torch.empty((len(codes), len(rows)), dtype=torch.float64, device=codes.device)
    for part, counts in read(state, codes):
        out[part] = torch.log1p(counts / smoothing).sum(dim=1) + base
    return out


def votes(state: CountState, codes: Tensor) -> Tensor:
    """The mean over codebooks of counts: what the paper's SGD approaches, scaled: (n, Y)."""
    out = torch.empty((len(codes), len(state.per_class)), dtype=torch.float64, device=codes.device)
    for part, counts in read(state, codes):
        out[part] = counts.mean(dim=1)
    return out


def _merged(*tallies: Tally) -> Tally:
    """One list with the sums of all, zeros dropped."""
    places, order = torch.sort(torch.cat([tally.places for tally in tallies]))
    counts = torch.cat([tally.counts for tally in tallies])[order].long()
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts)
    kept = total != 0
    return Tally(distinct[kept], total[kept].to(torch.int32))


def _settled(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
    """Merge from the end until every list is much longer than the next."""
    if not tallies:
        return ()
    *rest, last = tallies
    while rest and len(rest[-1]) < GROWTH * len(last):
        last = _merged(rest.pop(), last)
    return (*rest, last)


def _check_enough(state: CountState, taken: Tally, per_class: Tensor) -> None:
    found = torch.zeros(len(taken), dtype=torch.int64, device=state.device)
    for tally in state.tallies:
        if len(tally):
            at = torch.searchsorted(tally.places, taken.places).clamp(max=len(tally) - 1)
            found += torch.where(tally.places[at] == taken.places, tally.counts[at], 0)
    if bool((found + taken.counts < 0).any()) or bool((per_class < 0).any()):
        raise ValueError(
            "X, y: expected rows that were learned with these labels; got rows that were not, or "
            "more often than they were learned; nothing was changed"
        )

"""Values by counting: how often each pair was selected by each class, n[c, k, y], in one pass.

Counts are integers over (pair, class), kept as sorted lists of those that are not zero, so that
memory follows what was seen and not pairs × classes. Learning adds a short list; lists of similar
length are merged, so that a single example costs milliseconds however much was learned before.
The codes and labels of one row in 20, picked by a hash of the codes, are kept as they are: they
say how far scores can be trusted (see `leave_one_out`).

The state depends on what was counted alone: not on order, batches or processes. Scores are sums of
integers, so that they too are the same in any batch and on any device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from dkvb.bottleneck.values import flat_codes
from dkvb.kernels import tally
from dkvb.kernels.tally import COLUMNS
from dkvb.learning.kept import code_hash, left_after

PLACES = 1 << 23  # that are counted at a time
DENSE_ELEMENTS = 1 << 25  # pairs or scores of a chunk of rows
GROWTH = 4  # a list is merged into the one before it unless that one is this many times longer
KEPT = 20  # one row in this many is kept
FEW_ROWS = 64  # up to here, a search in several lists is quicker than merging them
UNIT = 2.0**-44  # of logarithms as integers: their sums are exact


@dataclass(frozen=True, eq=False)
class Tally:
    """A sorted list of places (pair · COLUMNS + class) and the counts there."""

    places: Tensor  # (E,) int64, ascending, distinct
    counts: Tensor  # (E,) int32

    def __len__(self) -> int:
        return len(self.places)

    def to(self, device: torch.device | str) -> Tally:
        return Tally(self.places.to(device), self.counts.to(device))


@dataclass(frozen=True, eq=False)
class CountState:
    """Tallies whose sum is n[c, k, y], the rows a class, and the rows that are kept as they are."""

    n_codebooks: int
    n_pairs: int
    tallies: tuple[Tally, ...]
    per_class: Tensor  # (Y,) int64
    kept_codes: Tensor  # (S, C) int32
    kept_columns: Tensor  # (S,) int64
    smoothed_pairs: int  # pairs a codebook that smoothing spreads over: all, pruned ones included

    @property
    def device(self) -> torch.device:
        return self.per_class.device

    @cached_property
    def whole(self) -> Tally:
        """All tallies as one: equal counts give equal bits."""
        return reduce(_merged, reversed(self.tallies))  # short lists first

    @cached_property
    def bounds(self) -> Tensor:
        """Where each pair's entries begin in `whole` (C·K + 1,)."""
        n_entries = torch.bincount(
            self.whole.places // COLUMNS, minlength=self.n_codebooks * self.n_pairs
        )
        return torch.nn.functional.pad(n_entries.cumsum(0), (1, 0))

    @cached_property
    def most(self) -> int:
        """The largest count that any pair could have for a class."""
        return int(self.per_class.max()) if len(self.per_class) else 0

    @cached_property
    def usage(self) -> Tensor:
        """How many rows selected each pair (C, K) int64."""
        total = torch.zeros(self.n_codebooks * self.n_pairs, dtype=torch.int64, device=self.device)
        for one in self.tallies:
            total.index_add_(0, one.places // COLUMNS, one.counts.long())
        return total.view(self.n_codebooks, self.n_pairs)

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # the rest can be found again

    def to(self, device: torch.device | str) -> CountState:
        """The same counts on another device."""
        return CountState(
            self.n_codebooks,
            self.n_pairs,
            tuple(one.to(device) for one in self.tallies),
            self.per_class.to(device),
            self.kept_codes.to(device),
            self.kept_columns.to(device),
            self.smoothed_pairs,
        )


def start(n_codebooks: int, n_pairs: int, device: torch.device | str = "cpu") -> CountState:
    """Nothing counted, no classes yet."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    return CountState(
        n_codebooks,
        n_pairs,
        (Tally(none, none.int()),),
        none,
        none.int().view(0, n_codebooks),
        none,
        n_pairs,
    )


def grow(state: CountState, n_columns: int) -> CountState:
    """The same state with room for more classes."""
    per_class = torch.nn.functional.pad(state.per_class, (0, n_columns - len(state.per_class)))
    return replace(state, per_class=per_class)


def more_pairs(state: CountState, n_pairs: int) -> CountState:
    """The same state with room for more pairs a codebook; those there keep their numbers."""
    pair, column = state.whole.places // COLUMNS, state.whole.places % COLUMNS
    pair = pair // state.n_pairs * n_pairs + pair % state.n_pairs
    whole = Tally(pair * COLUMNS + column, state.whole.counts)
    return replace(state, n_pairs=n_pairs, smoothed_pairs=n_pairs, tallies=(whole,))


def update(state: CountState, codes: Tensor, columns: Tensor, sign: int = 1) -> CountState:
    """Count codes (n, C) of rows with labels in `columns` (n,); `sign=-1` takes them away again."""
    step = max(1, PLACES // state.n_codebooks)
    if len(codes) > step:  # what is counted at a time takes several times its own memory
        for first in range(0, len(codes), step):
            part = slice(first, first + step)
            state = update(state, codes[part], columns[part], sign)
        return state
    codes = codes.to(torch.int32)
    places = flat_codes(codes, state.n_pairs) * COLUMNS + columns[:, None]
    distinct, counts = torch.unique(places, return_counts=True)
    change = Tally(distinct, (sign * counts).to(torch.int32))
    per_class = state.per_class + sign * torch.bincount(columns, minlength=len(state.per_class))
    kept = code_hash(codes) % KEPT == 0
    if sign > 0:
        kept_codes = torch.cat([state.kept_codes, codes[kept]])
        kept_columns = torch.cat([state.kept_columns, columns[kept]])
    else:
        if bool((_at(state, distinct) + change.counts < 0).any()) or bool((per_class < 0).any()):
            raise ValueError(NOT_LEARNED)
        left = left_after(state.kept_codes, state.kept_columns, codes[kept], columns[kept])
        if left is None:
            raise ValueError(NOT_LEARNED)
        kept_codes, kept_columns = state.kept_codes[left], state.kept_columns[left]
    tallies = _settled((*_lists(state), change))
    return replace(
        state,
        tallies=tallies,
        per_class=per_class,
        kept_codes=kept_codes,
        kept_columns=kept_columns,
    )


NOT_LEARNED = (
    "X, y: expected rows that were learned with these labels; got rows that were not, or more "
    "often than they were learned; nothing was changed"
)


def merge(first: CountState, second: CountState) -> CountState:
    """Both states' counts together; columns must mean the same classes."""
    ours = first.n_codebooks, first.n_pairs, len(first.per_class)
    theirs = second.n_codebooks, second.n_pairs, len(second.per_class)
    if ours != theirs:
        raise ValueError(
            f"second: expected counts of the same codebooks, pairs and classes, {ours}; "
            f"got {theirs}; use grow"
        )
    return replace(
        first,
        tallies=(_merged(first.whole, second.whole),),
        per_class=first.per_class + second.per_class,
        kept_codes=torch.cat([first.kept_codes, second.kept_codes]),
        kept_columns=torch.cat([first.kept_columns, second.kept_columns]),
    )


def move_columns(state: CountState, target: Tensor) -> CountState:
    """Column y becomes target[y]; a negative target drops its counts: how classes are forgotten,
    joined or put in another's order."""
    whole = state.whole
    column = target[whole.places % COLUMNS]
    kept = column >= 0
    places = whole.places[kept] // COLUMNS * COLUMNS + column[kept]
    n_columns = int(target.max()) + 1 if len(target) else 0
    per_class = torch.zeros(max(0, n_columns), dtype=torch.int64, device=state.device)
    per_class.index_add_(0, target[target >= 0], state.per_class[target >= 0])
    left = target[state.kept_columns] >= 0
    return replace(
        state,
        tallies=(_sorted(places, whole.counts[kept]),),
        per_class=per_class,
        kept_codes=state.kept_codes[left],
        kept_columns=target[state.kept_columns[left]],
    )


def only_pairs(state: CountState, place: Tensor) -> CountState:
    """The counts of some pairs, those at place (C, K') here, and no rows kept: all that is read."""
    C, new = place.shape
    number = torch.arange(new, device=place.device).expand(C, -1)
    lookup = torch.full((C, state.n_pairs), new, device=place.device)
    lookup.scatter_reduce_(1, place, number, "amin")  # a pair that is there twice is read first
    pair = state.whole.places // COLUMNS
    book, code = pair // state.n_pairs, lookup.view(-1)[pair]
    places = (book * new + code) * COLUMNS + state.whole.places % COLUMNS
    read = code < new
    return replace(
        state,
        n_pairs=new,
        tallies=(_sorted(places[read], state.whole.counts[read]),),
        kept_codes=state.kept_codes[:0],
        kept_columns=state.kept_columns[:0],
    )


def canonical(state: CountState) -> dict[str, Tensor]:
    """The state as tensors that are equal bit for bit if what was counted is."""
    kept = torch.cat([state.kept_codes, state.kept_columns.int()[:, None]], dim=1)  # (S, C + 1)
    distinct, times = torch.unique(kept, dim=0, return_counts=True)  # sorted
    return {
        "places": state.whole.places,
        "counts": state.whole.counts,
        "per_class": state.per_class,
        "kept": distinct.repeat_interleave(times, dim=0) if len(kept) else kept,
    }


def read(state: CountState, codes: Tensor) -> Tensor:
    """The counts that a few rows with codes (n, C) find: (n, C, Y) int64.

    In NumPy, since torch wakes its threads even for 200 numbers, and waiting for them can cost
    more than the work.
    """
    Y = len(state.per_class)
    pairs = flat_codes(codes, state.n_pairs).flatten().cpu().numpy()  # (n·C,)
    dense = np.zeros(len(pairs) * Y, dtype=np.int64)
    for one in _lists(state):
        places, counts = one.places.cpu().numpy(), one.counts.cpu().numpy()
        low = np.searchsorted(places, pairs * COLUMNS)
        length = np.searchsorted(places, (pairs + 1) * COLUMNS) - low
        reader = np.repeat(np.arange(len(pairs)), length)  # (e,) which of the pairs
        entry = np.arange(len(reader)) + (low - np.cumsum(length) + length)[reader]
        dense[reader * Y + places[entry] % COLUMNS] += counts[entry]  # distinct in one list
    return torch.from_numpy(dense.reshape(*codes.shape, Y)).to(codes.device)


def log_posterior(state: CountState, codes: Tensor, *, smoothing: float, prior: str) -> Tensor:
    """log p(y) + Σ_c log p(code_c | y), up to a constant of the row: (n, Y) float64.

    p(k | y) = (n[c, k, y] + a) / (N_y + a·K), smoothed when read since classes grow. The prior is
    added once, not once a codebook.
    """
    gains = _pooled(state, codes, _gains(state.most, smoothing))
    return gains.double() * UNIT + base(state, smoothing=smoothing, prior=prior)


def base(state: CountState, *, smoothing: float, prior: str) -> Tensor:
    """What `log_posterior` is before any count is read: (Y,) float64."""
    rows = state.per_class.double()
    constant = -state.n_codebooks * torch.log(rows + smoothing * state.smoothed_pairs)
    return constant + torch.log(rows / rows.sum()) if prior == "empirical" else constant


def votes(state: CountState, codes: Tensor) -> Tensor:
    """The mean over codebooks of counts: what the paper's SGD approaches, scaled: (n, Y)."""
    return _pooled(state, codes, torch.arange(state.most + 1)).double() / state.n_codebooks


def leave_one_out(
    state: CountState, *, most: int, smoothing: float, prior: str, pooling: str
) -> tuple[Tensor, Tensor]:
    """Scores (s, Y) of at most so many kept rows, each by a model that never saw that row, and
    their labels (s,): exact, since a row's own counts can be taken away.

    Rows whose class has no other row say nothing and are left out.
    """
    codes, columns = state.kept_codes, state.kept_columns
    others = state.per_class[columns] > 1
    codes, columns = codes[others], columns[others]
    # The first by hash, ties by label: the same rows whatever the order they came in.
    order = torch.argsort(columns, stable=True)
    order = order[torch.argsort(code_hash(codes[order]), stable=True)][:most]
    codes, columns = codes[order], columns[order]
    row = torch.arange(len(codes), device=codes.device)
    own = _at(state, flat_codes(codes, state.n_pairs) * COLUMNS + columns[:, None])  # (s, C)
    if pooling == "votes":
        scores = votes(state, codes)
        scores[row, columns] -= 1.0
        return scores, columns
    scores = log_posterior(state, codes, smoothing=smoothing, prior=prior)
    gain = _gains(state.most, smoothing).to(state.device)
    fewer = replace(state, per_class=state.per_class - 1)
    scores[row, columns] += (gain[own - 1] - gain[own]).sum(dim=1).double() * UNIT
    scores[row, columns] += (
        base(fewer, smoothing=smoothing, prior="uniform")
        - base(state, smoothing=smoothing, prior="uniform")
    )[columns]
    if prior == "empirical":
        rows = state.per_class.double()[columns]
        scores[row, columns] += torch.log((rows - 1) / rows)
    return scores, columns


def _gains(most: int, smoothing: float) -> Tensor:
    """log(1 + n/a) for counts up to `most`, in units of UNIT."""
    return torch.from_numpy(
        np.rint(np.log1p(np.arange(most + 1) / smoothing) / UNIT).astype(np.int64)
    )


def _pooled(state: CountState, codes: Tensor, table: Tensor) -> Tensor:
    """Σ_c table[n[c, code_c, y]] for codes (n, C), where table[0] is 0: (n, Y) int64."""
    if len(_lists(state)) > 1 and len(codes) <= FEW_ROWS and state.device.type == "cpu":
        found = [table.numpy()[read(state, code).numpy()].sum(axis=1) for code in codes.split(1)]
        return torch.from_numpy(np.concatenate(found))
    whole, Y, table = state.whole, len(state.per_class), table.to(state.device)
    parts = [torch.zeros((0, Y), dtype=torch.int64, device=state.device)]
    for part in codes.split(max(1, DENSE_ELEMENTS // (state.n_codebooks + Y))):
        pairs = flat_codes(part, state.n_pairs)
        parts.append(tally.pool(whole.places, whole.counts, state.bounds, pairs, table, Y))
    return torch.cat(parts)


def _at(state: CountState, places: Tensor) -> Tensor:
    """The counts at places (...) of any shape, int64."""
    found = torch.zeros_like(places)
    for one in _lists(state):
        if len(one):
            at = torch.searchsorted(one.places, places).clamp(max=len(one) - 1)
            found += torch.where(one.places[at] == places, one.counts[at], 0)
    return found


def _lists(state: CountState) -> tuple[Tally, ...]:
    """The state's tallies, as one if they were merged for a reader."""
    return (state.whole,) if "whole" in vars(state) else state.tallies


def _merged(first: Tally, second: Tally) -> Tally:
    """One list with the sums of both, zeros dropped."""
    return Tally(*tally.join((first.places, first.counts), (second.places, second.counts)))


def _sorted(places: Tensor, counts: Tensor) -> Tally:
    """A list of places in any order, the same ones added."""
    places, order = torch.sort(places)
    if bool((places[1:] > places[:-1]).all()):  # nothing to add
        return Tally(places, counts[order])
    distinct, group = torch.unique_consecutive(places, return_inverse=True)
    total = torch.zeros_like(distinct).index_add_(0, group, counts[order].long())
    return Tally(distinct, total.to(torch.int32))


def _settled(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
    """Merge from the end until every list is much longer than the next."""
    *rest, last = tallies
    while rest and len(rest[-1]) < GROWTH * len(last):
        last = _merged(rest.pop(), last)
    return (*rest, last)

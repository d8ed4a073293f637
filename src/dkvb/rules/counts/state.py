"""Values by counting: how often each pair was selected by each class, n[c, k, y], in one pass.

Counts are integers over (pair, class), kept as sorted lists of those that are not zero (`sparse`),
so that memory follows what was seen and not pairs × classes. The same counts are aggregated over
clusters of keys, cached. One row in 20, picked by a hash of the codes, goes into a sketch, from
which some rows of each class can be read (`sketch`): they say how far scores can be trusted
(`leave_one_out`). Embeddings are summed by class (`class_means`).

The state depends on what was counted alone: not on order, batches or processes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support.hashing import bits
from dkvb.bottleneck.key_clusters import KeyClusters
from dkvb.kernels.counts import CLASS_STRIDE, backend
from dkvb.rules.base import NOT_LEARNED
from dkvb.rules.counts.class_sums import FULL, ClassSums, by_class, in_limbs
from dkvb.rules.counts.sketch import KEPT, Sketch, added, sketch_of
from dkvb.rules.counts.sparse import (
    SparseCounts,
    Tallies,
    at,
    in_order,
    merged,
    whole,
)

PENDING = 2048  # kept rows that wait to be sketched, and a quarter of the sketch
GROWTH = 4  # a list is merged into the one before it unless that one is this many times longer


@dataclass(frozen=True, eq=False)
class CountState:
    """Tallies whose sum is n[c, k, y], the rows per class, and the rows kept for calibration."""

    n_codebooks: int
    n_pairs: int
    smoothed_pairs: int  # pairs per codebook that smoothing spreads over: all, pruned ones included
    tallies: Tallies
    per_class: Tensor  # (Y,) int64
    kept_codes: Tensor  # (S, C) int32, of rows that are not in the sketch yet
    kept_class_index: Tensor  # (S,) int64
    clusters: KeyClusters | None = None
    by_cluster: Tallies = ()  # the same counts aggregated over clusters: R·C codebooks of G
    class_sums: ClassSums | None = None  # None where the first rows had none
    sketch: Sketch | None = None  # None where no row is in it

    @property
    def device(self) -> torch.device:
        return self.per_class.device

    @cached_property
    def whole(self) -> SparseCounts:
        """All tallies as one: equal counts give equal bits."""
        return whole(self.tallies)

    @cached_property
    def usage(self) -> Tensor:
        """How many rows selected each pair (C, K) int64."""
        total = torch.zeros(self.n_codebooks * self.n_pairs, dtype=torch.int64, device=self.device)
        for one in self.tallies:
            total.index_add_(0, one.places // CLASS_STRIDE, one.counts.long())
        return total.view(self.n_codebooks, self.n_pairs)

    @cached_property
    def kept(self) -> Sketch:
        """All rows kept for calibration."""
        factors = hash_factors(self.n_codebooks, self.device)
        rows = sketch_of(self.kept_codes, self.kept_class_index, factors)
        return rows if self.sketch is None else added([self.sketch, rows])

    def __getstate__(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # the rest can be found again

    def to(self, device: torch.device | str) -> CountState:
        """The same counts on another device."""
        return replace(
            self,
            tallies=tuple(one.to(device) for one in self.tallies),
            per_class=self.per_class.to(device),
            kept_codes=self.kept_codes.to(device),
            kept_class_index=self.kept_class_index.to(device),
            clusters=self.clusters and self.clusters.to(device),
            by_cluster=tuple(one.to(device) for one in self.by_cluster),
            class_sums=self.class_sums and self.class_sums.to(device),
            sketch=self.sketch and self.sketch.to(device),
        )


def start(
    n_codebooks: int,
    n_pairs: int,
    device: torch.device | str = "cpu",
    clusters: KeyClusters | None = None,
    sums_width: int | None = None,
) -> CountState:
    """Nothing counted, no classes yet; with `clusters`, rows will be counted by those as well, and
    with `sums_width`, that of their sums, embeddings will be summed."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    empty = (SparseCounts(none, none.int()),)
    return CountState(
        n_codebooks,
        n_pairs,
        n_pairs,
        empty,
        none,
        none.int().view(0, n_codebooks),
        none,
        clusters,
        () if clusters is None else empty,
        None if sums_width is None else ClassSums(none.new_zeros((0, sums_width))),
    )


def grow(state: CountState, n_classes: int) -> CountState:
    """The same state with more classes."""
    more, sums = n_classes - len(state.per_class), state.class_sums
    if sums is not None:
        high = None if sums.high is None else pad(sums.high, (0, 0, 0, more))
        sums = ClassSums(pad(sums.low, (0, 0, 0, more)), high)
    return replace(state, per_class=pad(state.per_class, (0, more)), class_sums=sums)


def update(
    state: CountState,
    codes: Tensor,
    class_index: Tensor,
    class_sums: ClassSums | None = None,
    sign: int = 1,
) -> CountState:
    """Count codes (n, C) of rows with classes (n,) and add their sums; `sign=-1` takes both away
    again. Where some rows have no sums, those of others say nothing: all are dropped.
    """
    kernels, K = backend(codes.device), state.n_pairs
    change = SparseCounts(*kernels.count(codes, class_index, K))
    in_clusters = None
    if state.clusters is not None:
        of_key, books = state.clusters.of_key, torch.arange(codes.shape[1], device=codes.device)
        clusters = of_key[:, books, codes.long()].transpose(0, 1).flatten(1).int()  # (n, R·C)
        G = state.clusters.sizes.shape[2]
        in_clusters = SparseCounts(*kernels.count(clusters, class_index, G))
    factors = hash_factors(codes.shape[1], codes.device)
    kept = torch.nonzero(kernels.hash_codes(codes, factors) % KEPT == 0)[:, 0]
    # torch cannot index uint16 on every device.
    narrow = codes.dtype == torch.uint16
    kept_codes = codes.view(torch.int16)[kept].int() & 0xFFFF if narrow else codes[kept].int()
    kept_class_index, sketch = class_index[kept], state.sketch
    if sign > 0:
        kept_codes = torch.cat([state.kept_codes, kept_codes])
        kept_class_index = torch.cat([state.kept_class_index, kept_class_index])
    else:
        sketch = added([state.kept], gone=sketch_of(kept_codes, kept_class_index, factors))
        kept_codes, kept_class_index = kept_codes[:0], kept_class_index[:0]
    by_cluster = state.by_cluster
    if in_clusters is not None:
        by_cluster = _with_change(by_cluster, in_clusters, sign)
    after = replace(
        state,
        tallies=_with_change(state.tallies, change, sign),
        per_class=state.per_class
        + sign * torch.bincount(class_index, minlength=len(state.per_class)),
        kept_codes=kept_codes,
        kept_class_index=kept_class_index,
        by_cluster=by_cluster,
        class_sums=_sums(state.class_sums, class_sums, sign),
        sketch=sketch,
    )
    if sign < 0:
        _check_learned(after, change)
    elif len(kept_codes) > PENDING:
        return _sketched(after)
    return after


def _sketched(state: CountState) -> CountState:
    """The same state, with the rows that wait in the sketch if they are many."""
    if state.sketch is not None and len(state.kept_codes) < len(state.sketch.cells) // 4:
        return state
    none = state.kept_codes[:0], state.kept_class_index[:0]
    return replace(state, sketch=state.kept, kept_codes=none[0], kept_class_index=none[1])


def _sums(first: ClassSums | None, second: ClassSums | None, sign: int = 1) -> ClassSums | None:
    """The sums of both, or their difference; None where the rows of one have none."""
    if first is None or second is None:
        return None
    low, high = first.low + sign * second.low, first.high
    if high is None and second.high is None:
        ends = low.aminmax() if low.numel() else ()
        if all(-FULL <= int(end) < FULL for end in ends):
            return ClassSums(low)
    if second.high is not None:
        high = sign * second.high if high is None else high + sign * second.high
    return in_limbs(low, high)


def _with_change(lists: Tallies, change: SparseCounts, sign: int = 1) -> Tallies:
    """With one more list, merged from the end until every list is much longer than the next."""
    rest, last = list(lists), SparseCounts(change.places, sign * change.counts)
    while rest and len(rest[-1].places) < GROWTH * len(last.places):
        shorter = rest.pop()
        last = merged(shorter, last) if len(shorter.places) else last
    return (*rest, last)


def _check_learned(after: CountState, change: SparseCounts) -> None:
    """Raise where rows that were taken away cannot have been learned."""
    gone = after.per_class == 0
    if (
        bool((at(after.tallies, change.places) < 0).any())
        or bool((after.per_class < 0).any())
        or any(bool(limb[gone].any()) for limb in after.class_sums or () if limb is not None)
    ):
        raise ValueError(NOT_LEARNED)


@cache
def hash_factors(n_codebooks: int, device: torch.device) -> Tensor:
    """Odd numbers (C,) that `hash_codes` multiplies codes by."""
    return 2 * bits(2, torch.arange(n_codebooks, device=device), 0, 0) + 1


def with_clusters(state: CountState, clusters: KeyClusters) -> CountState:
    """The same state, what was counted being counted by clusters as well."""
    pair, class_index = state.whole.places // CLASS_STRIDE, state.whole.places % CLASS_STRIDE
    places = clusters.cells[:, pair].long() * CLASS_STRIDE + class_index  # (R, E)
    counts = state.whole.counts.expand(len(places), -1)
    found = in_order(places.flatten(), counts.flatten())
    return replace(state, clusters=clusters, by_cluster=(found,))


def more_pairs(state: CountState, n_pairs: int, clusters: KeyClusters | None = None) -> CountState:
    """The same state with more pairs per codebook; those there keep their numbers."""
    pair, class_index = state.whole.places // CLASS_STRIDE, state.whole.places % CLASS_STRIDE
    pair = pair // state.n_pairs * n_pairs + pair % state.n_pairs
    moved = SparseCounts(pair * CLASS_STRIDE + class_index, state.whole.counts)
    state = replace(state, n_pairs=n_pairs, smoothed_pairs=n_pairs, tallies=(moved,))
    return state if clusters is None else with_clusters(state, clusters)


def merge(first: CountState, second: CountState) -> CountState:
    """Both states' counts together; class indices must mean the same classes."""
    ours = first.n_codebooks, first.n_pairs, len(first.per_class)
    theirs = second.n_codebooks, second.n_pairs, len(second.per_class)
    if ours != theirs:
        raise ValueError(
            f"second: expected counts of the same codebooks, pairs and classes, {ours}; "
            f"got {theirs}; use grow"
        )
    if first.clusters is not None and not _same(first.clusters, second.clusters):
        second = with_clusters(second, first.clusters)
    sketches = [one.sketch for one in (first, second) if one.sketch is not None]
    both = replace(
        first,
        tallies=_with_change(first.tallies, second.whole),
        per_class=first.per_class + second.per_class,
        kept_codes=torch.cat([first.kept_codes, second.kept_codes]),
        kept_class_index=torch.cat([first.kept_class_index, second.kept_class_index]),
        by_cluster=first.by_cluster and _with_change(first.by_cluster, whole(second.by_cluster)),
        class_sums=_sums(first.class_sums, second.class_sums),
        sketch=added(sketches) if sketches else None,
    )
    return _sketched(both) if len(both.kept_codes) > PENDING else both


def _same(first: KeyClusters, second: KeyClusters | None) -> bool:
    return first is second or (second is not None and torch.equal(first.of_key, second.of_key))


def map_classes(state: CountState, target: Tensor) -> CountState:
    """Class y becomes target[y]; a negative target drops its counts: how classes are forgotten,
    joined or put in another's order."""
    kept, n_classes = target >= 0, max(0, int(target.max()) + 1) if len(target) else 0

    def listed(lists: Tallies) -> Tallies:
        found = whole(lists)
        class_index = target[found.places % CLASS_STRIDE]
        left = class_index >= 0
        places = found.places[left] // CLASS_STRIDE * CLASS_STRIDE + class_index[left]
        return (in_order(places, found.counts[left]),)

    left = kept[state.kept_class_index]
    return replace(
        state,
        tallies=listed(state.tallies),
        per_class=target.new_zeros(n_classes).index_add_(0, target[kept], state.per_class[kept]),
        kept_codes=state.kept_codes[left],
        kept_class_index=target[state.kept_class_index[left]],
        by_cluster=state.by_cluster and listed(state.by_cluster),
        class_sums=state.class_sums and by_class(state.class_sums, target, n_classes),
        sketch=state.sketch and state.sketch.by_class(target),
    )


def only_pairs(state: CountState, number: Tensor) -> CountState:
    """The counts of some pairs, with numbers (C, K') here, and no rows kept: all that is read."""
    C, new = number.shape
    order = torch.arange(new, device=number.device).expand(C, -1)
    lookup = torch.full((C, state.n_pairs), new, device=number.device)
    lookup.scatter_reduce_(1, number, order, "amin")  # a pair that is there twice is read first
    pair = state.whole.places // CLASS_STRIDE
    book, code = pair // state.n_pairs, lookup.view(-1)[pair]
    places = (book * new + code) * CLASS_STRIDE + state.whole.places % CLASS_STRIDE
    read = code < new
    return replace(
        state,
        n_pairs=new,
        tallies=(in_order(places[read], state.whole.counts[read]),),
        kept_codes=state.kept_codes[:0],
        kept_class_index=state.kept_class_index[:0],
        sketch=None,
        clusters=state.clusters and state.clusters.of_pairs(number),
    )


def canonical(state: CountState) -> dict[str, Tensor]:
    """The state as tensors that are equal bit for bit if what was counted is."""
    sums = {} if state.class_sums is None else state.class_sums._asdict()
    return {
        "places": state.whole.places,
        "counts": state.whole.counts,
        "per_class": state.per_class,
        **{"kept_" + name: part for name, part in vars(state.kept).items()},
        **{f"class_sums_{name}": limb for name, limb in sums.items() if limb is not None},
    }

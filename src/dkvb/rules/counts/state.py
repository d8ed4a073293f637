"""Values by counting: how often each pair was selected by each class, n[c, k, y], in one pass.

Counts are integers over (pair, class), kept as sorted lists of those that are not zero, so that
memory follows what was seen and not pairs × classes. Learning adds a short list; lists of similar
length are merged, so that a single example costs milliseconds however much was learned before.
The codes and labels of one row in 20, picked by a hash of the codes, are kept as they are: they
say how far scores can be trusted (see `posterior`). Rows are counted a second time by
the clusters that their keys lie in, which follows from the counts, and is part of the state only so
that it need not be found again.

The state depends on what was counted alone: not on order, batches or processes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support import process_group
from dkvb.bottleneck.key_clusters import KeyClusters
from dkvb.bottleneck.values import flat_codes
from dkvb.kernels.counts import CLASS_STRIDE, Bounded, backend
from dkvb.rules.base import NOT_LEARNED
from dkvb.rules.counts import sparse
from dkvb.rules.counts.class_sums import ClassSums
from dkvb.rules.counts.sparse import (
    SparseCounts,
    in_order,
    left_after,
    merged,
    of_books,
    settled,
)

PLACES = 1 << 23  # that are counted at a time
DENSE_ELEMENTS = 1 << 25  # pairs or scores of a chunk of rows
FEW_ROWS = 64  # up to here, a search in several lists is quicker than merging them


@dataclass(frozen=True, eq=False)
class CountState:
    """Tallies whose sum is n[c, k, y], the rows a class, and the rows that are kept as they are."""

    n_codebooks: int
    n_pairs: int
    tallies: tuple[SparseCounts, ...]
    per_class: Tensor  # (Y,) int64
    kept_codes: Tensor  # (S, C) int32
    kept_columns: Tensor  # (S,) int64
    smoothed_pairs: int  # pairs a codebook that smoothing spreads over: all, pruned ones included
    clusters: KeyClusters | None = None
    by_cluster: CountState | None = None  # the same rows, counted by cluster: R·C codebooks of G
    keeps: bool = True  # some rows as they are
    class_sums: ClassSums | None = None  # of embeddings; None where the first rows had none

    @property
    def device(self) -> torch.device:
        return self.per_class.device

    @cached_property
    def whole(self) -> SparseCounts:
        """All tallies as one: equal counts give equal bits."""
        return reduce(merged, reversed(self.tallies))  # short lists first

    @cached_property
    def bounded(self) -> Bounded:
        """`whole`, and where the entries of each pair begin in it."""
        n_pairs, device = self.n_codebooks * self.n_pairs, self.per_class.device
        pair = torch.arange(n_pairs + 1, device=device)
        bounds = torch.searchsorted(self.whole.places, pair * CLASS_STRIDE)
        return Bounded(self.whole.places, self.whole.counts, bounds)

    @cached_property
    def usage(self) -> Tensor:
        """How many rows selected each pair (C, K) int64."""
        total = torch.zeros(self.n_codebooks * self.n_pairs, dtype=torch.int64, device=self.device)
        for one in self.tallies:
            total.index_add_(0, one.places // CLASS_STRIDE, one.counts.long())
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
            self.clusters and self.clusters.to(device),
            self.by_cluster and self.by_cluster.to(device),
            self.keeps,
            self.class_sums and self.class_sums.to(device),
        )


def start(
    n_codebooks: int,
    n_pairs: int,
    device: torch.device | str = "cpu",
    clusters: KeyClusters | None = None,
    class_sums: ClassSums | None = None,
) -> CountState:
    """Nothing counted, no classes yet; with `clusters`, rows will be counted by those as well, and
    with `class_sums` of no classes, embeddings will be summed."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    by_cluster = None
    if clusters is not None:
        R, C, G = clusters.sizes.shape
        by_cluster = replace(start(R * C, G, device), keeps=False)
    return CountState(
        n_codebooks,
        n_pairs,
        (SparseCounts(none, none.int()),),
        none,
        none.int().view(0, n_codebooks),
        none,
        n_pairs,
        clusters,
        by_cluster,
        class_sums=class_sums,
    )


def with_clusters(state: CountState, clusters: KeyClusters) -> CountState:
    """The same state, what was counted being counted by clusters as well."""
    C, K, R, G = state.n_codebooks, state.n_pairs, clusters.n_partitions, clusters.n_clusters
    pair, column = state.whole.places // CLASS_STRIDE, state.whole.places % CLASS_STRIDE
    of_key = clusters.of_key.view(R, C * K)
    first = torch.arange(R, device=state.device)[:, None] * C * G
    cluster = first + pair // K * G + of_key[:, pair].long()  # (R, E)
    counts = state.whole.counts.expand(R, -1)
    found = in_order((cluster * CLASS_STRIDE + column).flatten(), counts.flatten())
    by_cluster = grow(start(R * C, G, state.device), len(state.per_class))
    by_cluster = replace(by_cluster, tallies=(found,), per_class=state.per_class, keeps=False)
    return replace(state, clusters=clusters, by_cluster=by_cluster)


def grow(state: CountState, n_columns: int) -> CountState:
    """The same state with more classes."""
    per_class = torch.nn.functional.pad(state.per_class, (0, n_columns - len(state.per_class)))
    by_cluster = state.by_cluster and grow(state.by_cluster, n_columns)
    sums = state.class_sums and state.class_sums.grow(n_columns)
    return replace(state, per_class=per_class, by_cluster=by_cluster, class_sums=sums)


def more_pairs(state: CountState, n_pairs: int, clusters: KeyClusters | None = None) -> CountState:
    """The same state with more pairs per codebook; those there keep their numbers."""
    pair, column = state.whole.places // CLASS_STRIDE, state.whole.places % CLASS_STRIDE
    pair = pair // state.n_pairs * n_pairs + pair % state.n_pairs
    whole = SparseCounts(pair * CLASS_STRIDE + column, state.whole.counts)
    state = replace(state, n_pairs=n_pairs, smoothed_pairs=n_pairs, tallies=(whole,))
    return state if clusters is None else with_clusters(state, clusters)


def update(state: CountState, codes: Tensor, columns: Tensor, sign: int = 1) -> CountState:
    """Count codes (n, C) of rows with labels in `columns` (n,); `sign=-1` takes them away again."""
    step = max(1, PLACES // state.n_codebooks)
    rows_per_class = torch.bincount(columns, minlength=len(state.per_class))
    present = torch.nonzero(rows_per_class)[:, 0]
    if len(codes) > step and not sparse.table_pays(codes, state.n_pairs, len(present)):
        # Sorting takes several times its own memory: some rows at a time. Class by class, since
        # rows of a class share pairs, and the lists to be merged are short then.
        for rows in torch.argsort(columns, stable=True).split(step):
            state = update(state, sparse.some_rows(codes, rows), columns[rows], sign)
        return state
    by_cluster = None
    if state.clusters is not None and state.by_cluster is not None:
        in_regions = cluster_codes(state.clusters, codes)
        by_cluster = update(state.by_cluster, in_regions, columns, sign)
    change = sparse.count(codes, columns, state.n_pairs, present)
    distinct, change = change.places, SparseCounts(change.places, sign * change.counts)
    per_class = state.per_class + sign * rows_per_class
    if not state.keeps:  # of key clusters no row is
        kept_codes, kept_columns = state.kept_codes, state.kept_columns
        if sign < 0 and bool((at(state, distinct) + change.counts < 0).any()):
            raise ValueError(NOT_LEARNED)
    elif sign > 0:
        kept, taken = sparse.kept_rows(codes)
        kept_codes = torch.cat([state.kept_codes, taken])
        kept_columns = torch.cat([state.kept_columns, columns[kept]])
    else:
        if bool((at(state, distinct) + change.counts < 0).any()) or bool((per_class < 0).any()):
            raise ValueError(NOT_LEARNED)
        kept, taken = sparse.kept_rows(codes)
        left = left_after(state.kept_codes, state.kept_columns, taken, columns[kept])
        if left is None:
            raise ValueError(NOT_LEARNED)
        kept_codes, kept_columns = state.kept_codes[left], state.kept_columns[left]
    # As one list if they were merged for a reader.
    lists = (state.whole,) if "whole" in vars(state) else state.tallies
    return replace(
        state,
        tallies=settled((*lists, change)),
        per_class=per_class,
        kept_codes=kept_codes,
        kept_columns=kept_columns,
        by_cluster=by_cluster,
    )


def cluster_codes(clusters: KeyClusters, codes: Tensor) -> Tensor:
    """The clusters (n, R·C) of keys with codes (n, C), partition by partition."""
    where = codes.T.long()  # (C, n)
    return torch.cat([partition.gather(1, where) for partition in clusters.of_key]).T.int()


def update_sums(state: CountState, sums: ClassSums | None, sign: int = 1) -> CountState:
    """The same state with the sums of rows that were counted added, or subtracted where these are
    counted no longer. Where some rows have no sums, those of others say nothing, and are dropped.
    """
    if state.class_sums is None or sums is None:
        return replace(state, class_sums=None)
    total = state.class_sums.plus(sums, sign)
    gone = state.per_class == 0
    if bool(total.sums[gone].any()) or bool(total.squares[gone].any()):
        raise ValueError(NOT_LEARNED)
    return replace(state, class_sums=total)


def update_together(state: CountState, codes: Tensor, columns: Tensor) -> CountState:
    """`update` with the rows of all processes, each of which gives its own: none, if it has none.

    Columns must mean the same classes everywhere. All get the same state, and the same bits as if
    one process had counted all rows.
    """
    C, K, Y = state.n_codebooks, state.n_pairs, len(state.per_class)
    by_cluster = None
    if state.clusters is not None and state.by_cluster is not None:
        by_cluster = update_together(
            state.by_cluster, cluster_codes(state.clusters, codes), columns
        )
    empty = replace(start(C, K, state.device), keeps=state.keeps)
    own = update(grow(empty, Y), codes, columns)
    whole = SparseCounts(*sparse.summed(own.whole.places, own.whole.counts, C, K, Y))
    kept = own.kept_codes if K > 1 << 16 else own.kept_codes.to(torch.uint16)  # half the bytes
    return replace(
        state,
        tallies=settled((*_lists(state), whole)),
        per_class=state.per_class + process_group.all_reduce(own.per_class),
        kept_codes=torch.cat(
            [state.kept_codes, *(k.int() for k in process_group.all_gather(kept))]
        ),
        kept_columns=torch.cat([state.kept_columns, *process_group.all_gather(own.kept_columns)]),
        by_cluster=by_cluster,
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
    if first.clusters is not None and not _same(first.clusters, second.clusters):
        second = with_clusters(second, first.clusters)
    return replace(
        first,
        tallies=(merged(first.whole, second.whole),),
        per_class=first.per_class + second.per_class,
        kept_codes=torch.cat([first.kept_codes, second.kept_codes]),
        kept_columns=torch.cat([first.kept_columns, second.kept_columns]),
        by_cluster=first.by_cluster
        and second.by_cluster
        and merge(first.by_cluster, second.by_cluster),
        class_sums=first.class_sums
        and second.class_sums
        and first.class_sums.plus(second.class_sums),
    )


def _same(first: KeyClusters, second: KeyClusters | None) -> bool:
    return first is second or (second is not None and torch.equal(first.of_key, second.of_key))


def map_classes(state: CountState, target: Tensor) -> CountState:
    """Class y becomes target[y]; a negative target drops its counts: how classes are forgotten,
    joined or put in another's order."""
    whole = state.whole
    column = target[whole.places % CLASS_STRIDE]
    kept = column >= 0
    places = whole.places[kept] // CLASS_STRIDE * CLASS_STRIDE + column[kept]
    n_columns = int(target.max()) + 1 if len(target) else 0
    per_class = torch.zeros(max(0, n_columns), dtype=torch.int64, device=state.device)
    per_class.index_add_(0, target[target >= 0], state.per_class[target >= 0])
    left = target[state.kept_columns] >= 0
    return replace(
        state,
        tallies=(in_order(places, whole.counts[kept]),),
        per_class=per_class,
        kept_codes=state.kept_codes[left],
        kept_columns=target[state.kept_columns[left]],
        by_cluster=state.by_cluster and map_classes(state.by_cluster, target),
        class_sums=state.class_sums and state.class_sums.map_classes(target, len(per_class)),
    )


def only_pairs(state: CountState, place: Tensor) -> CountState:
    """The counts of some pairs, those at place (C, K') here, and no rows kept: all that is read."""
    C, new = place.shape
    number = torch.arange(new, device=place.device).expand(C, -1)
    lookup = torch.full((C, state.n_pairs), new, device=place.device)
    lookup.scatter_reduce_(1, place, number, "amin")  # a pair that is there twice is read first
    pair = state.whole.places // CLASS_STRIDE
    book, code = pair // state.n_pairs, lookup.view(-1)[pair]
    places = (book * new + code) * CLASS_STRIDE + state.whole.places % CLASS_STRIDE
    read = code < new
    return replace(
        state,
        n_pairs=new,
        tallies=(in_order(places[read], state.whole.counts[read]),),
        kept_codes=state.kept_codes[:0],
        kept_columns=state.kept_columns[:0],
        clusters=state.clusters and state.clusters.of_pairs(place),
    )


def codebook(state: CountState, book: int) -> CountState:
    """The counts of one codebook, and no rows kept."""
    empty = replace(start(1, state.n_pairs, state.device), smoothed_pairs=state.smoothed_pairs)
    own = (of_books(_lists(state), [book], state.n_pairs),)
    found = replace(empty, tallies=own, per_class=state.per_class)
    if state.clusters is None or state.by_cluster is None:
        return found
    clusters = KeyClusters(state.clusters.of_key[:, [book]], state.clusters.sizes[:, [book]])
    books = [partition * state.n_codebooks + book for partition in range(clusters.n_partitions)]
    empty = start(clusters.n_partitions, clusters.n_clusters, state.device)
    own = (of_books(_lists(state.by_cluster), books, clusters.n_clusters),)
    by_cluster = replace(empty, tallies=own, per_class=state.per_class, keeps=False)
    return replace(found, clusters=clusters, by_cluster=by_cluster)


def canonical(state: CountState) -> dict[str, Tensor]:
    """The state as tensors that are equal bit for bit if what was counted is."""
    kept = torch.cat([state.kept_codes, state.kept_columns.int()[:, None]], dim=1)  # (S, C + 1)
    distinct, times = torch.unique(kept, dim=0, return_counts=True)  # sorted
    sums = (
        {}
        if state.class_sums is None
        else {f"class_{k}": t for k, t in vars(state.class_sums).items()}
    )
    return {
        "places": state.whole.places,
        "counts": state.whole.counts,
        "per_class": state.per_class,
        "kept": distinct.repeat_interleave(times, dim=0) if len(kept) else kept,
        **sums,
    }


def read(state: CountState, codes: Tensor) -> NDArray[np.int64]:
    """The counts that a few rows with codes (n, C) find: (n, C, Y)."""
    first = np.arange(state.n_codebooks) * state.n_pairs
    pairs = (codes.cpu().numpy().astype(np.int64) + first).ravel()  # (n·C,)
    found = sparse.of_pairs(_lists(state), pairs, len(state.per_class))
    return found.reshape(*codes.shape, len(state.per_class))  # −1 fails where there are no rows


def votes(state: CountState, codes: Tensor) -> Tensor:
    """The mean over codebooks of counts: what the paper's SGD approaches, scaled: (n, Y)."""
    if read_apart(state, codes):
        return torch.from_numpy(read(state, codes).mean(axis=1))
    Y = len(state.per_class)
    parts = codes.split(max(1, DENSE_ELEMENTS // (state.n_codebooks + Y)))
    pooled = [
        backend(state.device).pool(state.bounded, flat_codes(part, state.n_pairs), Y)
        for part in parts
    ]
    return torch.cat(pooled).double() / state.n_codebooks


def read_apart(state: CountState, codes: Tensor) -> bool:
    """Whether to read each list for so few rows: merging the lists would take longer."""
    return len(_lists(state)) > 1 and len(codes) <= FEW_ROWS and state.device.type == "cpu"


def at(state: CountState, places: Tensor) -> Tensor:
    """The counts at places (...) of any shape, int64."""
    return sparse.at(_lists(state), places)


def _lists(state: CountState) -> tuple[SparseCounts, ...]:
    """The state's tallies, as one if they were merged for a reader."""
    return (state.whole,) if "whole" in vars(state) else state.tallies

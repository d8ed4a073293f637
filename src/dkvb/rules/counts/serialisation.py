"""What rule `counts` has learned, as tensors and facts, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb.bottleneck import Keys
from dkvb.bottleneck.key_clusters import KeyClusters
from dkvb.kernels.counts import CLASS_STRIDE, narrowed
from dkvb.rules import candidates
from dkvb.rules.base import MOST_OF_A_CLASS
from dkvb.rules.counts.class_sums import ClassSums, by_class, in_limbs
from dkvb.rules.counts.sketch import CELLS, Sketch
from dkvb.rules.counts.sparse import SparseCounts, whole
from dkvb.rules.counts.state import CountState

CLASS_WEIGHTS = {"uniform": "balanced", "empirical": None}  # by the names of formats 1 and 2
_CANDIDATES = {"selected": "used", "all": "all", None: "all"}


def to_state(state: CountState, keys: Keys) -> State:
    """Counts, rows that are kept, and temperatures that are known: an inference-only copy could not
    find these again."""
    tensors = {"per_class": state.per_class}
    tensors |= {"kept_" + name: part for name, part in vars(state.kept).items()}
    known = vars(state).get("_temperatures", {})
    temperatures = [[*how, temperature] for how, temperature in known.items()]
    facts = {"smoothed_pairs": state.smoothed_pairs, "temperatures": temperatures}
    if state.class_sums is not None:
        tensors |= named_sums(state.class_sums, keys)
    saved = State({**tensors, **vars(state.whole)}, facts)
    if state.clusters is not None:
        clusters = {"of_key": state.clusters.of_key, "sizes": state.clusters.sizes}
        by_cluster = vars(whole(state.by_cluster))
        saved = saved.with_part("regional", State({**clusters, **by_cluster}))
    return saved


def named_sums(class_sums: ClassSums, keys: Keys) -> dict[str, Tensor]:
    """Sums (Y, m + p + 1) as the tensors of a file: of rows, and of their squares."""
    found = {}
    for suffix, limb in zip(("", "_high"), class_sums, strict=True):
        if limb is not None:
            found["class_sums" + suffix] = limb[:, : keys.width].contiguous()
            found["class_squares" + suffix] = limb[:, keys.width :].contiguous()
    return found


def from_state(state: State, keys: Keys, n_classes: int) -> CountState:
    """The state that `to_state` describes."""
    C, K, Y = keys.n_codebooks, keys.n_pairs, n_classes
    per_class = state.whole_numbers("per_class", (Y,), high=MOST_OF_A_CLASS + 1)
    tally = _tally(state, C, K, per_class)
    smoothed_pairs = state.whole_number("smoothed_pairs", low=1)
    kept, class_index, sketch = _kept(state, C, K, Y)
    found = CountState(C, K, smoothed_pairs, (tally,), per_class, kept, class_index, sketch=sketch)
    by_cluster = state.part("regional")
    if by_cluster.tensors:
        found = _with_clusters(found, by_cluster)
    found = replace(found, class_sums=_class_sums(state, keys, Y, per_class)).to(keys.device)
    vars(found)["_temperatures"] = _temperatures(state)
    return found


def _kept(state: State, C: int, K: int, Y: int) -> tuple[Tensor, Tensor, Sketch | None]:
    """Codes and classes of kept rows that are in no sketch yet, as files of version 0.1 hold all of
    them, and the sketch of the others."""
    if "kept_columns" in state.tensors:
        class_index = state.whole_numbers("kept_columns", (None,), high=max(1, Y))
        kept = state.tensor("kept_codes", torch.int32, (len(class_index), C))
        if kept.numel() and not 0 <= int(kept.min()) <= int(kept.max()) < K:
            raise state.damaged("kept_codes: expected pairs that are there")
        return kept, class_index, None
    cells = state.whole_numbers("kept_cells", (None,), high=max(1, Y * CELLS))
    times = state.whole_numbers("kept_times", (len(cells),), low=1)
    codes = _counts(state, "kept_codes", (len(cells), C))
    checks = state.tensor("kept_checks", torch.int64, (len(cells),))
    if not bool((cells[1:] > cells[:-1]).all()) or bool((codes < 0).any()):
        raise state.damaged("kept_cells, kept_codes: expected ascending cells and sums of codes")
    return codes[:0].int(), cells[:0], Sketch(cells, times, codes, checks)


def _counts(state: State, name: str, shape: tuple[int, ...]) -> Tensor:
    """Whole numbers in int32, or in int64 where one needs it."""
    found = state.tensors.get(name)
    wide = found is not None and found.dtype == torch.int64
    return narrowed(state.tensor(name, torch.int64 if wide else torch.int32, shape))


def _class_sums(
    state: State, keys: Keys, n_classes: int, per_class: Tensor | None = None
) -> ClassSums | None:
    """Sums of embeddings; None where the file holds none, as those of formats 1 and 2."""
    if "class_sums" not in state.tensors:
        return None
    m, p = keys.fixed_point.axes.shape
    suffixes = ("", "_high") if "class_sums_high" in state.tensors else ("",)
    limbs = [
        torch.cat(
            [
                state.tensor("class_sums" + suffix, torch.int64, (n_classes, m)),
                state.tensor("class_squares" + suffix, torch.int64, (n_classes, p + 1)),
            ],
            dim=1,
        )
        for suffix in suffixes
    ]
    sums = in_limbs(*limbs)
    squares = sums.low if sums.high is None else torch.where(sums.high == 0, sums.low, sums.high)
    if bool((squares[:, m:] < 0).any()):
        raise state.damaged("class_squares: expected sums of at least 0")
    if per_class is not None and any(bool(limb[per_class == 0].any()) for limb in limbs):
        raise state.damaged("class_sums: expected none of classes without rows")
    return sums


@dataclass(frozen=True, eq=False)
class JournaledRows:
    """What a journal holds of rows: their codes, and the sums of their classes."""

    codes: Tensor  # (n, C)
    sums: ClassSums | None  # of the classes of the record
    class_index: Tensor  # (n,) among these

    def __len__(self) -> int:
        return len(self.codes)

    def class_sums(self, class_index: Tensor, n_classes: int) -> ClassSums | None:
        """The sums by the classes (n,) of a model, of which it has n_classes."""
        if self.sums is None:
            return None
        target = torch.full_like(self.sums.low[:, 0], -1)
        target[self.class_index] = class_index
        return by_class(self.sums, target, n_classes)


def from_journal(record: State, keys: Keys, n: int) -> JournaledRows:
    """Rows of which a journal holds the codes and, if version 0.2 wrote it, sums by class."""
    codes = candidates.codes_from_journal(record, keys, n).codes
    class_index = torch.zeros(n, dtype=torch.int64)
    sums = None
    if "class_sums" in record.tensors:
        n_classes = len(record.tensors["class_sums"])
        class_index = record.whole_numbers("class_index", (n,), high=max(1, n_classes))
        sums = _class_sums(record, keys, n_classes)
    device = keys.device
    return JournaledRows(codes, sums and sums.to(device), class_index.to(device))


def params_from_flat(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the rule from those of a classifier of format 1 or 2."""
    found: dict[str, Any] = {"candidate_keys": _CANDIDATES[params.get("search")]}
    if "prior" in params:
        found["class_weight"] = CLASS_WEIGHTS[params["prior"]]
    renamed = {"smoothing": "pseudocount", "pooling": "pooling"}
    return found | {new: params[old] for old, new in renamed.items() if old in params}


def _tally(state: State, C: int, K: int, per_class: Tensor) -> SparseCounts:
    """Places and counts that rows can have, so many of each class."""
    Y = len(per_class)
    places = state.whole_numbers("places", (None,), high=C * K * CLASS_STRIDE)
    entries = _counts(state, "counts", (len(places),))
    class_index = places % CLASS_STRIDE
    ascending = bool((places[1:] > places[:-1]).all())
    if not ascending or bool((class_index >= Y).any()) or bool((entries <= 0).any()):
        raise state.damaged("places, counts: expected ascending places of classes that are there")
    # Every row selects one pair per codebook.
    found = torch.zeros_like(per_class).index_add_(0, class_index, entries.long())
    if not torch.equal(found, C * per_class):
        raise state.damaged("counts: expected as many as rows were learned, in every codebook")
    return SparseCounts(places, entries)


def _with_clusters(found: CountState, state: State) -> CountState:
    """The same with what was counted by key cluster."""
    C, K = found.n_codebooks, found.n_pairs
    of_key = state.tensor("of_key", torch.int16, (None, C, K))
    R = len(of_key)
    extent = state.tensor("sizes", torch.int32, (R, C, None))
    G = extent.shape[2]
    if not R or not 0 <= int(of_key.min()) <= int(of_key.max()) < G or int(extent.min()) < 0:
        raise state.damaged("of_key, sizes: expected key clusters that are there")
    tally = _tally(state, R * C, G, found.per_class)
    return replace(found, clusters=KeyClusters(of_key, extent), by_cluster=(tally,))


def _temperatures(state: State) -> dict[Any, float]:
    """Known temperatures by pseudocount, class weight and pooling."""
    if "temperatures" not in state.facts:  # formats 1 and 2 kept one
        one = state.fact("temperature", (list, type(None)))
        if one is None:
            return {}
        if [type(item) for item in one] != [dict, float] or not one[1] > 0:
            raise state.damaged("temperature: expected parameters and a number above 0")
        how = one[0]
        weight = CLASS_WEIGHTS.get(how.get("prior"), "balanced")
        return {(how.get("smoothing"), weight, how.get("pooling")): one[1]}
    known = {}
    for item in state.fact("temperatures", list):
        if not isinstance(item, list) or len(item) != 4 or not isinstance(item[3], float):
            raise state.damaged("temperatures: expected three parameters and a number each")
        if not item[3] > 0 or not all(isinstance(p, str | float | int | None) for p in item[:3]):
            raise state.damaged("temperatures: expected numbers above 0")
        known[tuple(item[:3])] = item[3]
    return known

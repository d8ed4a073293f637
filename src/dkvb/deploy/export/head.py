"""What a trained model needs to answer, as plain tensors: what exported graphs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb.bottleneck import Keys
from dkvb.bottleneck.assignment import SoftReads, _spread
from dkvb.bottleneck.conditioning import Conditioning
from dkvb.bottleneck.projection import Projection
from dkvb.deploy.export.counted import Counts, narrow, posterior_of, votes_of
from dkvb.estimators import regressor
from dkvb.estimators._memory import Memory
from dkvb.estimators.bottleneck import BottleneckClassifier
from dkvb.estimators.regressor import BottleneckRegressor
from dkvb.rules.base import CountsRule, HardRule, SgdRule
from dkvb.rules.least_squares.rule import LeastSquaresRule

_HALF = 2.0**-11  # how far rounding to float16 moves a number, at most
_LARGEST_HALF = 2.0**15  # what the largest number of a tensor becomes in float16


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor as it lies in a file, in units of a power of two: float16 has a narrow range."""

    tensor: Tensor
    unit: float = 1.0

    def halved(self) -> Stored:
        """The same numbers rounded to float16."""
        largest = float(self.tensor.abs().max()) if self.tensor.numel() else 0.0
        if largest == 0:
            return Stored(self.tensor.half())
        unit = 2.0 ** (torch.tensor(largest / _LARGEST_HALF).log2().ceil().item())
        return Stored((self.tensor.double() / unit).half(), unit)

    def double(self) -> Tensor:
        """The numbers that the file stands for."""
        return self.tensor.double() * self.unit


@dataclass(frozen=True, eq=False)
class Values:
    """One value for each key, fetched by code (`sgd`)."""

    table: Stored  # (T, Y)


@dataclass(frozen=True, eq=False)
class SoftValues:
    """Values weighed by a softmax over all keys of a codebook (`least_squares`)."""

    table: Stored  # (T, Y)
    sharpness: Tensor  # (C,) float64, 2 / (temperature · spread)
    unit: float  # of the float16 numbers that conditioned rows are rounded to


@dataclass(frozen=True, eq=False)
class Rejection:
    """Above which novelty an input is answered −1."""

    above: float
    spread: Tensor  # (C,) float64
    reference: Tensor  # (h,) float32, ascending distances of held-out rows


@dataclass(frozen=True, eq=False)
class Head:
    """From embeddings to scores: base + scale · Σ over codebooks of what was read.

    The keys of all codebooks lie one after another: copies of an earlier key of the same codebook,
    which can never be selected, and keys that predictions do not search, are left out.
    """

    rule: str
    fingerprint: str  # of the classifier's keys
    power: float
    normalise: bool
    centre: Tensor  # (m,) float32
    components: Stored | None  # (m, p)
    projection: str  # kind
    matrices: Stored | None  # (C, p, d)
    keys: Stored  # (T, d)
    bounds: Tensor  # (C + 1,) int64, where the keys of each codebook begin
    numbers: Tensor | None  # (T,) codes that keys have in the classifier; None: 0 … K − 1
    read: Values | Counts | SoftValues
    scale: Tensor  # (Y,) float64
    base: Tensor  # (Y,) float64
    temperature: float | None  # of the softmax over scores; None: no probabilities
    labels: list[Any] | None  # in the order of columns
    rejection: Rejection | None

    @property
    def n_codebooks(self) -> int:
        return len(self.bounds) - 1

    @property
    def width(self) -> int:
        return len(self.centre)

    @property
    def n_outputs(self) -> int:
        return len(self.base)

    @property
    def row_width(self) -> int:
        """Width p of conditioned rows."""
        return self.width if self.components is None else self.components.tensor.shape[1]

    def halved(self) -> Head:
        """The same with large tensors in float16; counts are whole numbers and stay exact."""
        read = self.read
        if not isinstance(read, Counts):
            read = replace(read, table=read.table.halved())
        return replace(
            self,
            components=None if self.components is None else self.components.halved(),
            matrices=None if self.matrices is None else self.matrices.halved(),
            keys=self.keys.halved(),
            read=read,
        )

    def tie_margin(self) -> float:
        """How close two squared distances must come for this head to choose another key than the
        classifier, in units of S² with S = ‖A‖·‖P‖·(‖x‖ + ‖centre‖) + max ‖key‖, the size of all
        that is added up (x the row after power and norm, A components, P the codebook's matrix,
        Frobenius norms)."""
        # Both of the two distances move by at most what head and key move: rounding of stored
        # numbers, and of sums in float64, here and in the classifier.
        half = self.keys.tensor.dtype == torch.float16
        terms = self.width + self.row_width + self.keys.tensor.shape[1] + 12
        return 8.1 * ((_HALF if half else 0.0) + 2 * terms * 2.0**-53)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor."""
        yield from _tensors(self)


def head_of(model: BottleneckClassifier | BottleneckRegressor) -> Head:
    """The head of a trained model; it shares nothing that learning will change."""
    if isinstance(model, BottleneckRegressor):
        return _of_regressor(model)
    if isinstance(model, BottleneckClassifier):
        return _of_classifier(model)
    raise TypeError(
        "classifier: expected a BottleneckClassifier or BottleneckRegressor; "
        f"got {type(model).__name__}"
    )


def _of_classifier(classifier: BottleneckClassifier) -> Head:
    memory = classifier._ready_memory()
    rule, order = memory.rule, torch.from_numpy(memory.labels.order)
    shared: dict[str, Any] = {
        "rule": classifier.rule,
        "temperature": rule.temperature(),
        "labels": memory.labels.classes_.tolist(),
        "rejection": _rejection(classifier, memory),
    }
    if isinstance(rule, LeastSquaresRule):
        values = rule._solution(rule.state).values[:, order.to(rule.keys.device)]
        base = torch.zeros(len(order), dtype=torch.float64)
        base[rule.state.sums.total.cpu()[order] == 0] = -torch.inf
        return _soft(rule.reads, values, base, shared)
    assert isinstance(rule, HardRule)
    keys, place = rule._pruned()
    kept = keys.first_of_equals  # (C, K'), false for the copies that fill up short codebooks too
    books = torch.arange(keys.n_codebooks, device=place.device)[:, None]
    pairs = (books * rule.keys.n_pairs + place)[kept]  # (T,) among all pairs of the classifier
    numbers = None if kept.all() and keys is rule.keys else narrow(place[kept].cpu())
    fields_of = {**_keys_part(keys, kept), **shared, "numbers": numbers}
    # The classifier's keys, of which those selected are some.
    fields_of["fingerprint"] = rule.keys.fingerprint
    zero = torch.zeros(len(order), dtype=torch.float64)
    mean = zero + 1 / keys.n_codebooks
    if isinstance(rule, SgdRule):
        if process_group.world_size() > 1:
            raise ValueError(
                "classifier: expected one that holds all its codebooks; got one of a job of "
                f"{process_group.world_size()} processes, which holds some; save it, and export it "
                "in one process"
            )
        table = rule.state.values.flatten(0, 1)[pairs].cpu()[:, order]
        if table.dtype == torch.bfloat16:  # which few runtimes know
            table = table.float()
        return Head(**fields_of, read=Values(Stored(table)), scale=mean, base=zero)
    assert isinstance(rule, CountsRule)
    s = rule.settings
    if s.pooling == "votes":
        read = votes_of(rule.state, pairs, order)
        return Head(**fields_of, read=read, scale=mean, base=zero)
    read, scale, base = posterior_of(rule.state, pairs, order, s.smoothing, s.prior)
    return Head(**fields_of, read=read, scale=scale, base=base)


def _of_regressor(model: BottleneckRegressor) -> Head:
    values, mean, scale = regressor._solution(model._sums)
    shared = {"rule": "regression", "temperature": None, "labels": None, "rejection": None}
    return _soft(model._reads, values * scale, mean.cpu(), shared)


def _soft(reads: SoftReads, values: Tensor, base: Tensor, shared: dict[str, Any]) -> Head:
    keys, kept = reads.keys, reads.keys.first_of_equals
    sharpness = 2 / (reads.temperature * _spread(keys).cpu())
    table = Stored(values[kept.flatten()].float().cpu())
    return Head(
        **_keys_part(keys, kept),
        **shared,
        numbers=None,
        read=SoftValues(table, sharpness, reads._unit),
        scale=torch.ones_like(base),
        base=base,
    )


def _keys_part(keys: Keys, kept: Tensor) -> dict[str, Any]:
    """All that leads to codes, with the keys that are kept (C, K) only."""
    conditioning: Conditioning = keys.conditioning.to("cpu")
    projection: Projection = keys.projection.to("cpu")
    return {
        "fingerprint": keys.fingerprint,
        "power": conditioning.power,
        "normalise": conditioning.normalise,
        "centre": conditioning.centre,
        "components": _stored(conditioning.components),
        "projection": projection.kind,
        "matrices": _stored(projection.matrices),
        "keys": Stored(keys.keys[kept].cpu()),
        "bounds": torch.nn.functional.pad(kept.sum(dim=1).cumsum(0), (1, 0)).cpu(),
    }


def _stored(tensor: Tensor | None) -> Stored | None:
    return None if tensor is None else Stored(tensor)


def _rejection(classifier: BottleneckClassifier, memory: Memory) -> Rejection | None:
    if classifier.reject is None:
        return None
    rule, keys = memory.rule, memory.keys
    searched = rule._pruned()[0] if isinstance(rule, HardRule) else None
    if searched is None or searched.first_of_equals.sum() != keys.first_of_equals.sum():
        reads = "all keys softly" if searched is None else "selected keys only"
        raise ValueError(
            "reject: expected None where novelty is measured from other keys than predictions "
            f"read; got {classifier.reject} with rule={classifier.rule!r}, which reads {reads}; "
            "set reject=None" + ("" if searched is None else ", or search='all', or prune() first")
        )
    tiny = float(torch.finfo(torch.float32).tiny)
    spread = keys.spread.double().clamp(min=tiny).cpu()
    return Rejection(float(classifier.reject), spread, keys.novelty.cpu())


def _tensors(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors(getattr(part, field.name))

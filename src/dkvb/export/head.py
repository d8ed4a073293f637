"""What a trained model needs to answer, as plain tensors: what exported graphs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dkvb.bottleneck import Keys
from dkvb.bottleneck.assignment import SoftAssignment, _quantization_error
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.estimators import regressor
from dkvb.estimators.bottleneck import BottleneckClassifier
from dkvb.estimators.kernel import KernelClassifier
from dkvb.estimators.kernel.functions import KernelFunction
from dkvb.estimators.learned_state import LearnedState
from dkvb.estimators.regressor import BottleneckRegressor
from dkvb.rules.counts.export import Counts, CountsView, narrow
from dkvb.rules.least_squares.export import SoftValuesView
from dkvb.rules.sgd.export import ValuesView

Exportable: TypeAlias = BottleneckClassifier | KernelClassifier | BottleneckRegressor

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
    sharpness: Tensor  # (C,) float64, 2 / (temperature · quantization_error)
    unit: float  # of the float16 numbers that conditioned rows are rounded to


@dataclass(frozen=True, eq=False)
class KernelValues:
    """Values weighed by a kernel of the distances to all keys, the learned examples (`kernel`)."""

    table: Stored  # (T, Y)
    function: KernelFunction


@dataclass(frozen=True, eq=False)
class Rejection:
    """Above which novelty an input is answered −1."""

    above: float
    quantization_error: Tensor  # (C,) float64
    reference: Tensor  # (h,) float32, ascending distances of held-out rows


@dataclass(frozen=True, eq=False)
class Head:
    """From embeddings to scores: base + scale · Σ over codebooks of what was read + rows · linear.

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
    read: Values | Counts | SoftValues | KernelValues
    scale: Tensor  # (Y,) float64
    base: Tensor  # (Y,) float64
    temperature: float | None  # of the softmax over scores; None: no probabilities
    labels: list[Any] | None  # in the order of columns
    rejection: Rejection | None
    slope: float | None = None  # of scores in log softplus(slope · score), a softmax's argument
    linear: Tensor | None = None  # (m, Y) float64, for rows before the linear map of conditioning

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


def head_of(model: Exportable) -> Head:
    """The head of a trained model; it shares nothing that learning will change."""
    if isinstance(model, BottleneckRegressor):
        return _of_regressor(model)
    if isinstance(model, BottleneckClassifier):
        return _of_classifier(model)
    if isinstance(model, KernelClassifier):
        return _of_kernel(model)
    raise TypeError(
        "classifier: expected a BottleneckClassifier, KernelClassifier or BottleneckRegressor; "
        f"got {type(model).__name__}"
    )


def _of_classifier(classifier: BottleneckClassifier) -> Head:
    state = classifier._ready()
    view, order = state.rule.export_view(), torch.from_numpy(state.labels.order)
    shared: dict[str, Any] = {
        "rule": state.rule.name,
        "temperature": state.rule.softmax_temperature(),
        "labels": state.labels.classes_.tolist(),
        "rejection": _rejection(classifier, state, view),
    }
    if isinstance(view, SoftValuesView):
        base = torch.zeros(len(order), dtype=torch.float64)
        base[view.class_counts.cpu()[order] == 0] = -torch.inf
        return _soft(view.assignment, view.values[:, order.to(view.values.device)], base, shared)
    keys, number = view.searched, view.number
    kept = keys.first_of_equals  # (C, K'), false for the copies that fill up short codebooks too
    books = torch.arange(keys.n_codebooks, device=number.device)[:, None]
    pairs = (books * view.keys.n_pairs + number)[kept]  # (T,) among all pairs of the classifier
    numbers = None if kept.all() and keys is view.keys else narrow(number[kept].cpu())
    fields_of = {**_keys_part(keys, kept), **shared, "numbers": numbers}
    # The classifier's keys, of which those used are some.
    fields_of["fingerprint"] = view.keys.fingerprint
    if isinstance(view, CountsView):
        read, scale, base = view.read(pairs, order)
        linear = None
        if (means := view.linear(order)) is not None:
            linear, offset = means
            base = base + offset
        return Head(**fields_of, read=read, scale=scale, base=base, linear=linear)
    table = view.values.flatten(0, 1)[pairs].cpu()[:, order]
    if table.dtype == torch.bfloat16:  # which few runtimes know
        table = table.float()
    zero = torch.zeros(len(order), dtype=torch.float64)
    mean = zero + 1 / keys.n_codebooks
    return Head(**fields_of, read=Values(Stored(table)), scale=mean, base=zero)


def _of_regressor(model: BottleneckRegressor) -> Head:
    values, mean, scale = regressor._solution(model._sums)
    shared = {"rule": "regression", "temperature": None, "labels": None, "rejection": None}
    return _soft(model._assignment, values * scale, mean.cpu(), shared)


def _of_kernel(classifier: KernelClassifier) -> Head:
    view = classifier.export_view()
    c = view.conditioning.to("cpu")
    rejection = None
    if classifier.novelty_threshold is not None:
        unit = torch.ones(1, dtype=torch.float64)
        above = float(classifier.novelty_threshold)
        rejection = Rejection(above, unit, view.reference_distances.float())
    # One codebook whose keys are the learned examples.
    return Head(
        rule="kernel",
        fingerprint="" if view.keys is None else view.keys.fingerprint,
        power=c.power,
        normalise=c.normalise,
        centre=c.centre,
        components=_stored(c.components),
        projection="identity",
        matrices=None,
        keys=Stored(view.z.float().cpu()),
        bounds=torch.tensor([0, len(view.z)]),
        numbers=None,
        read=KernelValues(Stored(view.alpha.float().cpu()), view.function),
        scale=view.factors,
        base=torch.where(view.factors > 0, 0.0, -torch.inf).double(),
        temperature=1 / view.calibration.power,
        slope=view.calibration.slope,
        labels=view.labels,
        rejection=rejection,
    )


def _soft(assignment: SoftAssignment, values: Tensor, base: Tensor, shared: dict[str, Any]) -> Head:
    keys, kept = assignment.keys, assignment.keys.first_of_equals
    sharpness = 2 / (assignment.temperature * _quantization_error(keys).cpu())
    table = Stored(values[kept.flatten()].float().cpu())
    return Head(
        **_keys_part(keys, kept),
        **shared,
        numbers=None,
        read=SoftValues(table, sharpness, assignment._unit),
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


def _rejection(
    classifier: BottleneckClassifier,
    state: LearnedState,
    view: ValuesView | CountsView | SoftValuesView,
) -> Rejection | None:
    threshold, keys = classifier.novelty_threshold, state.keys
    if threshold is None:
        return None
    searched = None if isinstance(view, SoftValuesView) else view.searched
    if searched is None or searched.first_of_equals.sum() != keys.first_of_equals.sum():
        reads = "all keys softly" if searched is None else "used keys only"
        raise ValueError(
            "novelty_threshold: expected None where novelty is measured from other keys than "
            f"predictions read; got {threshold} with rule={state.rule.name!r}, which reads {reads};"
            " set novelty_threshold=None"
            + ("" if searched is None else ", or candidate_keys='all', or freeze() first")
        )
    tiny = float(torch.finfo(torch.float32).tiny)
    quantization_error = keys.quantization_error.double().clamp(min=tiny).cpu()
    return Rejection(float(threshold), quantization_error, keys.novelty.cpu())


def _tensors(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors(getattr(part, field.name))

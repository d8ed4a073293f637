"""Trained models as the plain tensors that exported graphs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dkvb.bottleneck import Keys
from dkvb.bottleneck.classifier import BottleneckClassifier, LearnedState
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.used_keys import candidate_keys
from dkvb.memory import KernelClassifier

Exportable: TypeAlias = BottleneckClassifier | KernelClassifier

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
    """One value for each key, fetched by code, of a `BottleneckClassifier`."""

    table: Stored  # (T, Y)


@dataclass(frozen=True, eq=False)
class KernelValues:
    """Values weighed by exp(−γ·d²) of the distances d to the learned points."""

    table: Stored  # (T, Y)
    gamma: float


@dataclass(frozen=True, eq=False)
class Rejection:
    """Above which novelty an input is answered −1."""

    above: float
    quantization_error: Tensor  # (C,) float64
    reference: Tensor  # (h,) float32, ascending distances of held-out rows


@dataclass(frozen=True, eq=False)
class Head:
    """From embeddings to scores: base + scale · Σ over codebooks of the values read.

    The keys of all codebooks lie one after another: copies of an earlier key of the same codebook,
    which can never be selected, and keys that predictions do not search, are left out.
    """

    kind: str  # "bottleneck" or "kernel"
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
    read: Values | KernelValues
    scale: Tensor  # (Y,) float64
    base: Tensor  # (Y,) float64
    temperature: float  # of the softmax over scores
    labels: list[Any]  # in the order of columns
    rejection: Rejection | None
    slope: float | None = None  # of scores in log softplus(slope · score), a softmax's argument

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
        """Return the same with large tensors in float16."""
        return replace(
            self,
            components=None if self.components is None else self.components.halved(),
            matrices=None if self.matrices is None else self.matrices.halved(),
            keys=self.keys.halved(),
            read=replace(self.read, table=self.read.table.halved()),
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
    if isinstance(model, BottleneckClassifier):
        return _of_classifier(model)
    if isinstance(model, KernelClassifier):
        return _of_kernel(model)
    raise TypeError(
        "classifier: expected a BottleneckClassifier or a KernelClassifier; "
        f"got {type(model).__name__}"
    )


def _of_classifier(classifier: BottleneckClassifier) -> Head:
    state = classifier._fitted()
    order = torch.from_numpy(state.labels.order)
    keys, number = candidate_keys(state.keys, state.values, classifier.candidate_keys)
    kept = keys.first_of_equals  # (C, K'), false for the copies that fill up short codebooks too
    books = torch.arange(keys.n_codebooks, device=number.device)[:, None]
    pairs = (books * state.keys.n_pairs + number)[kept]  # (T,) among all pairs of the classifier
    table = state.values.values.flatten(0, 1)[pairs].cpu()[:, order]
    if table.dtype == torch.bfloat16:  # which few runtimes know
        table = table.float()
    zero = torch.zeros(len(order), dtype=torch.float64)
    parts = _keys_part(keys, kept)
    parts["fingerprint"] = state.keys.fingerprint  # of all keys, of which those used are some
    return Head(
        kind="bottleneck",
        **parts,
        numbers=None if kept.all() and keys is state.keys else narrow(number[kept].cpu()),
        read=Values(Stored(table)),
        scale=zero + 1 / keys.n_codebooks,
        base=zero,
        temperature=1.0,
        labels=state.labels.classes_.tolist(),
        rejection=_rejection(classifier, state, keys),
    )


def _of_kernel(classifier: KernelClassifier) -> Head:
    view = classifier.export_view()
    c = view.conditioning
    rejection = None
    if classifier.novelty_threshold is not None:
        unit = torch.ones(1, dtype=torch.float64)
        above = float(classifier.novelty_threshold)
        rejection = Rejection(above, unit, torch.from_numpy(view.reference_distances).float())
    factors = torch.from_numpy(view.factors)
    # One codebook whose keys are the learned points.
    return Head(
        kind="kernel",
        fingerprint=view.fingerprint,
        power=c.power,
        normalise=c.normalise,
        centre=torch.from_numpy(c.centre),
        components=_stored(None if c.components is None else torch.from_numpy(c.components)),
        projection="identity",
        matrices=None,
        keys=Stored(torch.tensor(view.z)),
        bounds=torch.tensor([0, len(view.z)]),
        numbers=None,
        read=KernelValues(Stored(torch.from_numpy(view.values).float()), view.gamma),
        scale=factors,
        base=torch.where(factors > 0, 0.0, -torch.inf).double(),
        temperature=1 / view.calibration.power,
        slope=view.calibration.slope,
        labels=view.labels,
        rejection=rejection,
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
    classifier: BottleneckClassifier, state: LearnedState, searched: Keys
) -> Rejection | None:
    threshold, keys = classifier.novelty_threshold, state.keys
    if threshold is None:
        return None
    if searched.first_of_equals.sum() != keys.first_of_equals.sum():
        raise ValueError(
            "novelty_threshold: expected None where novelty is measured from other keys than "
            f"predictions read; got {threshold} with candidate_keys='used'; set "
            "novelty_threshold=None, or candidate_keys='all', or freeze() first"
        )
    tiny = float(torch.finfo(torch.float32).tiny)
    quantization_error = keys.quantization_error.double().clamp(min=tiny).cpu()
    return Rejection(float(threshold), quantization_error, keys.novelty.cpu())


def narrow(numbers: Tensor) -> Tensor:
    """Return whole numbers from 0 on in the smallest dtype that holds them."""
    largest = int(numbers.max()) if numbers.numel() else 0
    for dtype in (torch.uint8, torch.uint16, torch.int32):
        if largest <= torch.iinfo(dtype).max:
            return numbers.to(dtype)
    return numbers


def _tensors(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors(getattr(part, field.name))

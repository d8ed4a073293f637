"""Keys, values and bottlenecks as arrays and facts, and back from a file that may be wrong."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor, nn

from dkvb._support.files import State
from dkvb._support.validation import one_of
from dkvb.bottleneck.decoder import MeanPool
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.keys import KeyReport, Keys
from dkvb.bottleneck.projection import KINDS
from dkvb.bottleneck.sgd import DTYPES, LearnedValues

if TYPE_CHECKING:
    from dkvb.bottleneck.module import KeyValueBottleneck

ROUNDED = ("float16", "int8")  # dtypes that values can be rounded to in a file
_BITS = np.uint16  # what values of bfloat16 are saved as: NumPy does not have the dtype
_FLOATS = (np.float32, np.float64)  # modules may have been moved to the latter
_LEVELS = 127  # of int8, either side of zero
_HALF = (-65504.0, 65504.0)  # the range of float16


# ------------------------------------------------------------------------------------------ keys
def keys_state(keys: Keys) -> State:
    """All there is to know of keys."""
    c, p = keys.conditioning, keys.projection
    tensors = {
        "centre": c.centre,
        "components": c.components,
        "projection": p.matrices,
        "keys": keys.keys,
        "spread": keys.quantization_error,
        "novelty": keys.novelty,
    }
    facts = {
        "power": c.power,
        "normalise": c.normalise,
        "projection": p.kind,
        "report": asdict(keys.report),
        "settings": keys.settings,
        "fingerprint": keys.fingerprint,
    }
    return State.of(facts, **{name: t for name, t in tensors.items() if t is not None})


def keys_from(state: State, device: torch.device | str = "cpu") -> Keys:
    """The keys that `keys_state` describes; an error where the file contradicts itself."""
    keys = _tensor(state, "keys", _FLOATS, (None, None, None))  # (C, K, d)
    dtype = state.arrays["keys"].dtype  # of all that makes them up
    C, _, d = keys.shape
    if not keys.numel():
        raise state.damaged("keys: expected at least one")
    centre = _tensor(state, "centre", dtype, (None,))
    width = len(centre)
    components = None
    if "components" in state.arrays:
        components = _tensor(state, "components", dtype, (len(centre), None))
        width = components.shape[1]  # of conditioned rows
    kind = state.fact("projection", str)
    if kind not in KINDS or width == 0:
        raise state.damaged(f"projection: expected one of {', '.join(KINDS)}; got {kind!r:.40}")
    matrices = _tensor(state, "projection", dtype, (C, width, d)) if kind == "gaussian" else None
    if {"partition": C * d, "identity": d}.get(kind, width) != width:
        raise state.damaged(f"projection: {kind!r} cannot lead from width {width} to {d}")
    quantization_error = _tensor(state, "spread", np.float32, (C,))
    novelty = _tensor(state, "novelty", np.float32, (None,))
    for name in state.arrays.keys() - {"spread", "novelty"}:  # which may have overflown
        array = state.arrays[name]
        if not (np.isfinite(array.min()) and np.isfinite(array.max())):  # in no memory of its own
            raise state.damaged(f"tensor {name!r}: expected finite numbers")
    power = float(state.fact("power", (int, float)))
    if not (power > 0 and math.isfinite(power)) or len(novelty) == 0:
        raise state.damaged("expected a power above 0 and distances of held-out rows")
    settings = state.fact("settings", dict)
    if type(settings.get("generation", 0)) is not int:
        raise state.damaged("settings: expected a whole number of generations")
    found = Keys(
        Conditioning(centre, components, power, state.fact("normalise", bool)),
        Projection(kind, C, d, width, matrices),
        keys,
        quantization_error,
        novelty,
        _report(state),
        settings,
    )
    if found.fingerprint != state.fact("fingerprint", str):
        raise state.damaged("keys: expected those whose fingerprint is stated; got others")
    return found.to(device)


def _report(state: State) -> KeyReport:
    facts = State(facts=state.fact("report", dict), path=state.path)
    number = (int, float)
    return KeyReport(
        facts.whole_number("rows"),
        facts.fact("quantization_error", number),
        facts.fact("relative_error", number),
        facts.fact("distinct", number),
        facts.fact("used", number),
    )


# ---------------------------------------------------------------------------------------- values
def values_state(learned: LearnedValues, dtype: str | None = None) -> State:
    """Return values, usage and the epochs so far, the values rounded to `dtype` if it is given."""
    facts: dict[str, Any] = {"epoch": learned.epoch, "unseen": learned.unseen}
    facts["rounded_from"] = None
    columns = learned.columns
    if dtype is None:
        values = columns.view(torch.uint16) if columns.dtype == torch.bfloat16 else columns
        return State.of(facts, values=values, usage=learned.usage)
    one_of("dtype", dtype, ROUNDED)
    facts["rounded_from"] = next(name for name, kind in DTYPES.items() if kind == columns.dtype)
    if dtype == "float16":
        rounded = {"values": columns.clamp(*_HALF).to(torch.float16)}
    else:  # in steps of a size for each codebook and class
        columns = columns.float()
        step = columns.abs().amax(dim=1, keepdim=True) / _LEVELS  # (C, 1, Y)
        steps = (columns / torch.where(step > 0, step, 1.0)).round()
        rounded = {"values": steps.to(torch.int8), "step": step}
    return State.of(facts, **rounded, usage=learned.usage)


def values_from(state: State, keys: Keys, n_classes: int) -> LearnedValues:
    """Return the values that `values_state` describes."""
    C, K, device = keys.n_codebooks, keys.n_pairs, keys.device
    unseen = bool(state.fact("unseen", bool))
    kinds, shape = (np.float32, np.float16, _BITS, np.int8), (C, K, n_classes + unseen)
    columns = _tensor(state, "values", kinds, shape, device)
    if columns.dtype == torch.uint16:
        columns = columns.view(torch.bfloat16)
    rounded_from = state.fact("rounded_from", (str, type(None)))
    if rounded_from is not None:
        if rounded_from not in DTYPES:
            raise state.damaged(f"rounded_from: expected a dtype; got {rounded_from!r:.40}")
        if columns.dtype == torch.int8:
            step = _tensor(state, "step", np.float32, (C, 1, n_classes + unseen), device)
            columns = columns.float() * step
        columns = columns.to(DTYPES[rounded_from])
    elif columns.dtype == torch.int8:
        raise state.damaged("values: expected numbers that learning can go on from; got int8")
    usage = torch.from_numpy(state.whole_numbers("usage", (C, K))).to(device)
    return LearnedValues(columns, usage, state.whole_number("epoch"), unseen)


# ------------------------------------------------------------------------------------ the module
def bottleneck_state(model: KeyValueBottleneck) -> State:
    """A module's keys, values, usage, decoder and settings."""
    decoder = {f"decoder.{name}": t for name, t in model.decoder.state_dict().items()}
    facts = {
        "decoder": decoder_kind(model.decoder),
        "pool": model.pool,
        "gradient": model.gradient,
        "temperature": model.temperature,
        "seed": model.seed,
        "draws": model._draws,
        "training": model.training,
        "train_decoder": any(p.requires_grad for p in model.decoder.parameters()),
    }
    own = State.of(facts, values=model.values, usage=model.usage, **decoder)
    return own.with_part("keys", keys_state(model.frozen_keys()))


def bottleneck_from(
    state: State, decoder: nn.Module | None, device: torch.device | str
) -> KeyValueBottleneck:
    """The module that `bottleneck_state` describes; a decoder of one's own must be given."""
    from dkvb.bottleneck.module import KeyValueBottleneck

    keys = keys_from(state.part("keys"), device)
    C, K = keys.n_codebooks, keys.n_pairs
    values = _tensor(state, "values", _FLOATS, (C, K, None), device)
    if not values.numel():
        raise state.damaged("values: expected at least one a pair")
    usage = torch.from_numpy(state.whole_numbers("usage", (C, K)))
    kind = state.fact("decoder", str)
    if kind == "custom" and decoder is None:
        raise ValueError(
            f"decoder: expected a module like the one that {state.path} was saved with, since it "
            "is not one of ours and files hold no code; got None"
        )
    if decoder is None:
        decoder = _decoder(state, kind, C * values.shape[2], state.arrays["values"].dtype)
    settings: dict[str, Any] = {
        name: state.fact(name, kind)
        for name, kind in (("pool", str), ("gradient", str), ("train_decoder", bool))
    }
    try:
        model = KeyValueBottleneck(
            keys,
            n_outputs=values.shape[2],
            decoder=decoder,
            temperature=state.fact("temperature", (int, float)),
            seed=state.whole_number("seed", low=-(1 << 63), high=1 << 64),
            **settings,
        )
        model.decoder.load_state_dict(
            {
                name.removeprefix("decoder."): torch.from_numpy(array)
                for name, array in state.arrays.items()
                if name.startswith("decoder.")
            }
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise state.damaged(str(error)) from error
    model.values.data = values.clone()
    model.usage.copy_(usage)
    model._draws = state.whole_number("draws")
    return model.to(device).train(state.fact("training", bool))


def decoder_kind(decoder: nn.Module) -> str:
    """The name of a decoder of ours, or "custom"."""
    if isinstance(decoder, MeanPool):
        return "mean"
    layers = list(decoder) if type(decoder) is nn.Sequential else []
    kinds = [type(layer).__name__ for layer in layers]
    return {"Flatten Linear": "linear", "Flatten Linear ReLU Linear": "mlp"}.get(
        " ".join(kinds), "custom"
    )


def _decoder(state: State, kind: str, width: int, dtype: DTypeLike) -> nn.Module:
    """A decoder of ours for values of that kind, with layers of the shapes that the file holds."""
    if kind == "mean":
        return MeanPool()
    if kind not in ("linear", "mlp"):
        raise state.damaged(f"decoder: expected 'mean', 'linear', 'mlp' or 'custom'; got {kind!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    for place in (1,) if kind == "linear" else (1, 3):
        if place == 3:
            layers.append(nn.ReLU())
        weight = _tensor(state, f"decoder.{place}.weight", dtype, (None, width))
        layers.append(_linear(weight))
        width = len(weight)
    return nn.Sequential(*layers)


def _linear(weight: Tensor) -> nn.Linear:
    outputs, inputs = weight.shape
    return nn.Linear(inputs, outputs, dtype=weight.dtype)


def _tensor(
    state: State,
    name: str,
    dtype: DTypeLike | tuple[DTypeLike, ...],
    shape: tuple[int | None, ...],
    device: torch.device | str = "cpu",
) -> Tensor:
    """A state's array as a tensor on a device."""
    return torch.from_numpy(state.array(name, dtype, shape)).to(device)

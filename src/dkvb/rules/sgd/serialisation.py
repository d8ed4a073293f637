"""What rule `sgd` has learned, as tensors and facts, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb._support.validation import one_of
from dkvb.bottleneck import Keys
from dkvb.rules.sgd.descent import DTYPES, SgdState

ROUNDED = ("float16", "int8")  # what values can be rounded to in a file
_LEVELS = 127  # of int8, either side of zero
_HALF = (-65504.0, 65504.0)  # what float16 can hold
_CANDIDATES = {"selected": "used", "all": "all", None: "used"}


def to_state(state: SgdState) -> State:
    """Values, usage, and the epochs so far."""
    facts = {"epoch": state.epoch, "unseen": state.unseen, "rounded_from": None}
    return State({"values": state.columns, "usage": state.usage}, facts)


def rounded(saved: State, values: Tensor, dtype: str) -> State:
    """The same with values rounded."""
    one_of("dtype", dtype, ROUNDED)
    stored = next(name for name, kind in DTYPES.items() if kind == values.dtype)
    tensors = dict(saved.tensors)
    if dtype == "float16":
        tensors["values"] = values.clamp(*_HALF).to(torch.float16)
    else:  # in steps of a size for each codebook and class
        values = values.float()
        step = values.abs().amax(dim=1, keepdim=True) / _LEVELS  # (C, 1, Y)
        steps = (values / torch.where(step > 0, step, 1.0)).round()
        tensors |= {"values": steps.to(torch.int8), "step": step}
    return State(tensors, {**saved.facts, "rounded_from": stored})


def from_state(state: State, keys: Keys, n_classes: int) -> SgdState:
    """The state that `to_state` describes."""
    C, K, device = keys.n_codebooks, keys.n_pairs, keys.device
    # Format 2 had another name for it, and format 1 knew none.
    name = next((name for name in ("unseen", "reserve") if name in state.facts), None)
    unseen = name is not None and bool(state.fact(name, bool))
    kinds, shape = (*DTYPES.values(), torch.int8), (C, K, n_classes + unseen)
    columns = state.tensor("values", kinds, shape, device)
    if state.fact("rounded_from", (str, type(None))) is not None:
        if columns.dtype == torch.int8:
            step = state.tensor("step", torch.float32, (C, 1, n_classes + unseen), device)
            columns = columns.float() * step
        columns = columns.to(DTYPES[state.fact("rounded_from", str)])
    elif columns.dtype == torch.int8:
        raise state.damaged("values: expected numbers that learning can go on from; got int8")
    usage = state.whole_numbers("usage", (C, K)).to(device)
    return SgdState(columns, usage, state.whole_number("epoch"), unseen)


def params_from_flat(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the rule from those of a classifier of format 1 or 2."""
    same = ("epochs", "learning_rate", "batch_size", "label_smoothing", "value_dtype")
    found = {name: params[name] for name in same if name in params}
    return found | {"candidate_keys": _CANDIDATES[params.get("search")]}

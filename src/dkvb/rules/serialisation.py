"""What each rule of the bottleneck has learned, as tensors and facts, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dkvb._support import process_group
from dkvb._support.files import State
from dkvb._support.validation import one_of
from dkvb.bottleneck import Keys
from dkvb.bottleneck.assignment import SoftReads
from dkvb.bottleneck.key_clusters import Regions
from dkvb.kernels.counts import CLASS_STRIDE
from dkvb.rules.base import RULES, CountsRule, Rule, SgdRule
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.sparse import Tally
from dkvb.rules.least_squares.ridge import Judgement, Solution, ridge_sums_from
from dkvb.rules.least_squares.rule import LeastSquaresRule, Ledger
from dkvb.rules.least_squares.rule import State as SumsState
from dkvb.rules.sgd import descent as sgd

DTYPES = ("float16", "int8")  # that values learned by sgd can be rounded to
_LEVELS = 127  # of int8, either side of zero
_HALF = (-65504.0, 65504.0)  # what float16 can hold
_PRIORS = ("empirical", "uniform")


class Sizes(NamedTuple):
    """What a rule's tensors must fit: codebooks, pairs, columns."""

    C: int
    K: int
    Y: int


def rule_state(rule: Rule, dtype: str | None = None) -> State:
    """What a rule has learned; `dtype` rounds the values of sgd."""
    name = next(name for name in RULES if RULES[name] is type(rule))
    if dtype is not None and one_of("dtype", dtype, DTYPES) and name != "sgd":
        raise ValueError(
            f"dtype: expected None for rule={name!r}, whose counts and sums are exact; "
            f"got {dtype!r}; only the values of rule='sgd' can be rounded"
        )
    if not rule.splits_rows and process_group.world_size() > 1:
        raise ValueError(
            f"save: expected all codebooks of rule={name!r} in one process; got a job of several"
        )
    state = _sgd_state(rule, dtype) if isinstance(rule, SgdRule) else _WRITERS[name](rule)
    return State(state.tensors, {**state.facts, "rule": name, "seed": rule.seed})


def rule_from(state: State, classifier: Any, keys: Keys, n_columns: int) -> Rule:
    """The rule that `rule_state` describes, with the settings of a classifier."""
    name = state.fact("rule", str)
    if name not in RULES:
        raise state.damaged(f"rule: expected one of {', '.join(RULES)}; got {name!r:.40}")
    rule = RULES[name](classifier)
    rule.seed = state.whole_number("seed", low=-(1 << 63), high=1 << 64)
    rule.keys = keys
    _READERS[name](rule, state, Sizes(keys.n_codebooks, keys.n_pairs, n_columns))
    return rule


# ------------------------------------------------------------------------------------------- sgd
def _sgd_state(rule: SgdRule, dtype: str | None) -> State:
    values = rule.state.columns
    facts = {
        "epoch": rule.state.epoch,
        "reserve": rule.state.reserve,
        "rounded_from": None if dtype is None else _kind(values),
    }
    tensors = {"values": values, "usage": rule.state.usage}
    if dtype == "float16":
        tensors["values"] = values.clamp(*_HALF).to(torch.float16)
    elif dtype == "int8":  # in steps of a size for each codebook and class
        values = values.float()
        step = values.abs().amax(dim=1, keepdim=True) / _LEVELS  # (C, 1, Y)
        steps = (values / torch.where(step > 0, step, 1.0)).round()
        tensors |= {"values": steps.to(torch.int8), "step": step}
    return State(tensors, facts)


def _sgd_from(rule: SgdRule, state: State, sizes: Sizes) -> None:
    C, K, Y = sizes
    device = rule.keys.device
    reserve = "reserve" in state.facts and state.fact("reserve", bool)  # format 1 knew none
    kinds, shape = (*sgd.DTYPES.values(), torch.int8), (C, K, Y + reserve)
    columns = state.tensor("values", kinds, shape, device)
    if state.fact("rounded_from", (str, type(None))) is not None:
        if columns.dtype == torch.int8:
            step = state.tensor("step", torch.float32, (C, 1, Y + reserve), device)
            columns = columns.float() * step
        columns = columns.to(sgd.DTYPES[state.fact("rounded_from", str)])
    elif columns.dtype == torch.int8:
        raise state.damaged("values: expected numbers that learning can go on from; got int8")
    usage = state.whole_numbers("usage", (C, K)).to(device)
    rule.open_ended = reserve
    rule.state = sgd.SgdState(columns, usage, state.whole_number("epoch"), reserve)


def _kind(values: Tensor) -> str:
    return next(name for name, dtype in sgd.DTYPES.items() if dtype == values.dtype)


# ---------------------------------------------------------------------------------------- counts
def _counts_state(rule: CountsRule) -> State:
    state = rule.state
    tensors = {
        "per_class": state.per_class,
        "kept_codes": state.kept_codes,
        "kept_columns": state.kept_columns,
    }
    facts: dict[str, Any] = {"smoothed_pairs": state.smoothed_pairs, "temperature": None}
    known = rule._temperature
    if known is not None and known[0] is state:  # a sealed copy could not find it again
        facts["temperature"] = [known[1], known[2]]
    saved = State({**tensors, **vars(state.whole)}, facts)
    if state.regions is not None and state.regional is not None:
        regional = State({**vars(state.regions), **vars(state.regional.whole)})
        saved = saved.with_part("regional", regional)
    return saved


def _counts_from(rule: CountsRule, state: State, sizes: Sizes) -> None:
    C, K, Y = sizes
    per_class = state.whole_numbers("per_class", (Y,), high=1 << 31)
    whole = _tally(state, sizes, per_class)
    kept_columns = state.whole_numbers("kept_columns", (None,), high=max(1, Y))
    kept = state.tensor("kept_codes", torch.int32, (len(kept_columns), C))
    if kept.numel() and not 0 <= int(kept.min()) <= int(kept.max()) < K:
        raise state.damaged("kept_codes: expected pairs that are there")
    smoothed_pairs = state.whole_number("smoothed_pairs", low=1)
    found = counts.CountState(C, K, (whole,), per_class, kept, kept_columns, smoothed_pairs)
    regional = state.part("regional")
    if regional.tensors:
        found = _with_regions(found, regional, Y)
    rule.state = found.to(rule.keys.device)
    if state.fact("temperature", (list, type(None))) is not None:
        how, temperature = _pair(state, "temperature", dict, float)
        rule._temperature = (rule.state, how, temperature)


def _tally(state: State, sizes: Sizes, per_class: Tensor) -> Tally:
    """Places and counts that rows can have, so many of each class."""
    C, K, Y = sizes
    places = state.whole_numbers("places", (None,), high=C * K * CLASS_STRIDE)
    entries = state.tensor("counts", torch.int32, (len(places),))
    column = places % CLASS_STRIDE
    ascending = bool((places[1:] > places[:-1]).all())
    if not ascending or bool((column >= Y).any()) or bool((entries <= 0).any()):
        raise state.damaged("places, counts: expected ascending places of classes that are there")
    # Every row selects one pair a codebook.
    found = torch.bincount(column, weights=entries.double(), minlength=Y)
    if not torch.equal(found, C * per_class.double()):
        raise state.damaged("counts: expected as many as rows were learned, in every codebook")
    return Tally(places, entries)


def _with_regions(found: counts.CountState, state: State, Y: int) -> counts.CountState:
    """The same with what was counted by region, as `counts.with_regions` would count it."""
    C, K = found.n_codebooks, found.n_pairs
    of_key = state.tensor("of_key", torch.int16, (None, C, K))
    R = len(of_key)
    extent = state.tensor("sizes", torch.int32, (R, C, None))
    G = extent.shape[2]
    if not R or not 0 <= int(of_key.min()) <= int(of_key.max()) < G or int(extent.min()) < 0:
        raise state.damaged("of_key, sizes: expected regions that are there")
    whole = _tally(state, Sizes(R * C, G, Y), found.per_class)
    none = found.kept_columns[:0]
    no_codes = none.int().view(0, 1).expand(0, R * C)
    regional = counts.CountState(
        R * C, G, (whole,), found.per_class, no_codes, none, G, keeps=False
    )
    return replace(found, regions=Regions(of_key, extent), regional=regional)


def _pair(state: State, name: str, *kinds: type) -> list[Any]:
    pair: list[Any] = state.fact(name, list)
    if [type(item) for item in pair] != list(kinds) or not pair[1] > 0:
        raise state.damaged(f"fact {name!r}: expected {[kind.__name__ for kind in kinds]}")
    return pair


# --------------------------------------------------------------------------------- least squares
def _sums_state(rule: LeastSquaresRule) -> State:
    state, facts = rule.state, {"temperature": rule.reads.temperature}
    # Solutions that are known are small beside the sums, and a sealed copy has nothing else.
    solved = [prior for prior in _PRIORS if prior in vars(state)]
    saved = State(rule.state_tensors(), {**facts, "solved": solved})
    for prior in solved:
        saved = saved.with_part(prior, _solution_state(getattr(state, prior)))
    return saved


def _solution_state(solution: Solution) -> State:
    judged = solution.judgement
    tensors = {"values": solution.values}
    if judged is not None:
        tensors |= {"score_squares": judged.score_squares, "score_sums": judged.score_sums}
    return State(tensors, {"lam": solution.lam, "judged": judged is not None})


def _sums_from(rule: LeastSquaresRule, state: State, sizes: Sizes) -> None:
    M, Y, device = sizes.C * sizes.K, sizes.Y, rule.keys.device
    temperature = float(state.fact("temperature", (int, float)))
    if not 0 < temperature < float("inf"):
        raise state.damaged(f"temperature: expected a number above 0; got {temperature}")
    solved = state.fact("solved", list)
    sealed = "gram" in state.tensors and not state.tensors["gram"].numel()
    if not set(solved) <= set(_PRIORS) or (sealed and set(solved) != set(_PRIORS)):
        raise state.damaged("solved: expected the priors that values are known for")
    sums = ridge_sums_from(state, M, Y, device, sealed=sealed)
    selected = state.whole_numbers("selected", (M,)).to(device)
    rule.reads = SoftReads(rule.keys, temperature)
    rule.state = SumsState(sums, selected, _ledger(state, rule.keys, Y))
    for prior in solved:
        part = state.part(prior)
        values = part.tensor("values", torch.float64, (M, Y), device)
        judged = None
        if part.fact("judged", bool):
            squares, own = (
                part.tensor(name, torch.float64, (Y, Y), device)
                for name in ("score_squares", "score_sums")
            )
            judged = Judgement(sums.held, squares, own)
        vars(rule.state)[prior] = Solution(values, float(part.fact("lam", float)), judged)


def _ledger(state: State, keys: Keys, Y: int) -> Ledger | None:
    if "ledger_columns" not in state.tensors:
        return None
    columns = state.whole_numbers("ledger_columns", (None,), high=max(1, Y))
    hashes = state.whole_numbers("ledger_hashes", columns.shape, high=1 << 63)
    shape = (len(columns), keys.projection.width)
    rows = state.tensor("ledger_rows", torch.float16, shape)
    return Ledger(*(tensor.to(keys.device) for tensor in (rows, hashes, columns)))


_WRITERS: dict[str, Callable[[Any], State]] = {
    "counts": _counts_state,
    "least_squares": _sums_state,
}
_READERS: dict[str, Callable[[Any, State, Sizes], None]] = {
    "sgd": _sgd_from,
    "counts": _counts_from,
    "least_squares": _sums_from,
}

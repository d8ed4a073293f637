"""What a kernel classifier has learned as tensors and facts, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.files import State
from dkvb.bottleneck import Keys
from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.changeable import AuditRecord
from dkvb.estimators.kernel.choice import WIDTHS, Setting
from dkvb.estimators.kernel.examples import CHUNK, Examples, distinct
from dkvb.estimators.kernel.functions import KERNELS, KernelFunction
from dkvb.estimators.kernel.ridge import LAMBDAS
from dkvb.estimators.kernel.solution import (
    ESTIMATED,
    EXACT_NUMBERS,
    HELD_OUT,
    LEAVE_ONE_OUT,
    Solution,
)
from dkvb.estimators.kernel.state import KernelState
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.serialisation import labels_from, labels_state


def kernel_state(state: KernelState) -> State:
    """Labels, examples and, where there is one, the solution."""
    facts = {
        "declared": sorted(state.declared),
        "keys": None if state.keys is None else state.keys.fingerprint,
        "inference_only": state.inference_only,
        "audit": [[r.operation, r.rows, r.pairs] for r in state.audit],
        "solved": state.solution is not None,
    }
    sorted_labels = LabelIndex()
    sorted_labels.add(state.labels.classes_, "labels")
    whole = State(facts=facts).with_part("labels", labels_state(sorted_labels))
    whole = whole.with_part("examples", _examples_state(state.examples))
    solution = state.solution or state.earlier
    if solution is None:
        return whole
    return whole.with_part("solution", _solution_state(solution, state.solution is not None))


def kernel_state_from(
    state: State, keys: dict[str, Keys], width: int, device: torch.device | str
) -> KernelState:
    """The state that `kernel_state` describes."""
    labels = labels_from(state.part("labels"))
    if labels.classes_.tolist() != labels.plain() and labels.kind != "number":
        raise state.damaged("labels: expected sorted ones")
    named = state.fact("keys", (str, type(None)))
    if named is not None and named not in keys:
        raise state.damaged("keys: expected those that the file holds or names")
    declared = state.fact("declared", list)
    if not all(isinstance(one, str | int | float) and one in labels for one in declared):
        raise state.damaged("declared: expected labels that are there")
    examples = _examples_from(state.part("examples"), width, len(labels))
    result = KernelState(
        labels,
        examples,
        frozenset(declared),
        None if named is None else keys[named],
        _audit(state),
        inference_only=state.fact("inference_only", bool),
    )
    solved, part = state.fact("solved", bool), state.part("solution")
    if solved != ("alpha" in part.arrays):
        raise state.damaged("solved: expected true if, and only if, there are values")
    if not part.facts:
        return result
    solution = _solution_from(part, examples, len(labels), device)
    return result.with_solution(solution, current=solved)


def record_state(
    X: Tensor, y: NDArray[Any], known: LabelIndex, ids: list[Any] | None = None
) -> State:
    """Examples X (n, m) float32 of labels y (n,) as a journal keeps them."""
    known.copy().add(y, "y")  # raises for labels of another kind
    labels = LabelIndex()
    labels.add(y, "y")
    facts = {} if ids is None else {"ids": ids}
    record = State.of(facts, X=X, targets=labels.indices(y))
    return record.with_part("labels", labels_state(labels))


def record_from(
    state: State, width: int
) -> tuple[NDArray[np.float32], NDArray[Any], list[Any] | None]:
    """The embeddings, labels and ids that `record_state` describes."""
    labels = labels_from(state.part("labels"))
    X = state.array("X", np.float32, (None, width))
    targets = state.whole_numbers("targets", (len(X),), high=max(1, len(labels)))
    if not len(X) or not np.isfinite(X).all():
        raise state.damaged("X: expected finite embeddings, at least one")
    values = np.empty_like(labels.classes_)
    values[labels.order] = labels.classes_
    ids = state.fact("ids", list) if "ids" in state.facts else None
    if ids is not None:
        _check_ids(state, ids, len(X))
    return X, values[targets], ids


def _examples_state(examples: Examples) -> State:
    names = ("halves", "exponents", "targets")  # hashes follow from these
    tensors = {name: getattr(examples, name) for name in names}
    ids = None if examples.ids is None else examples.ids.tolist()
    return State.of({"ids": ids}, **tensors)


def _examples_from(state: State, width: int, n_classes: int) -> Examples:
    halves = torch.from_numpy(state.array("halves", np.float16, (None, width)))
    n = len(halves)
    exponents = torch.from_numpy(state.array("exponents", np.int16, (n,)))
    targets = torch.from_numpy(state.whole_numbers("targets", (n,), high=max(1, n_classes)))
    ids = state.fact("ids", (list, type(None)))
    array = None
    if ids is not None:
        _check_ids(state, ids, n)
        array = np.empty(n, dtype=object)
        array[:] = ids
    examples = Examples.read(halves, exponents, targets, array)
    if examples is None:
        raise state.damaged("examples: expected finite ones, in canonical order")
    return examples


def _check_ids(state: State, ids: list[Any], n: int) -> None:
    if len(ids) != n or not all(i is None or type(i) in (int, str) for i in ids):
        raise state.damaged(f"ids: expected {n} strings, integers or null")


def _solution_state(solution: Solution, current: bool) -> State:
    s = solution
    order = torch.argsort(s.hashes)  # examples are in this order
    tensors = {"hashes": s.hashes[order], "centre": s.conditioning.centre.cpu()}
    if s.conditioning.components is not None:
        tensors["components"] = s.conditioning.components.cpu()
    facts = {
        "setting": [s.setting.conditioning, s.setting.kind, s.setting.width, s.setting.noise],
        "score": s.setting.score,
        "chosen_for": s.chosen_for,
        "power": s.conditioning.power,
        "normalise": s.conditioning.normalise,
        "gamma": s.function.gamma,
        "noise": s.noise,
        "judged_by": s.judged_by,
    }
    if not current:  # only how to solve is of use
        return State.of(facts, **tensors)
    if s.landmarks is None:
        tensors["alpha"] = s.alpha.cpu()[order]
    else:
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order))
        tensors["alpha"], tensors["landmarks"] = s.alpha.cpu(), rank[s.landmarks]
    if s.diagonal is not None:
        tensors["diagonal"] = s.diagonal.cpu()[order]
    if s.held_out is not None:
        tensors["held_out"] = s.held_out.cpu()[order]
    return State.of(facts, **tensors)


def _solution_from(
    state: State, examples: Examples, n_classes: int, device: torch.device | str
) -> Solution:
    width = examples.halves.shape[1]
    components = None
    if "components" in state.arrays:
        components = torch.from_numpy(state.array("components", np.float32, (width, None)))
        components = components.to(device)
    conditioning = Conditioning(
        torch.from_numpy(state.array("centre", np.float32, (width,))).to(device),
        components,
        _number(state, "power"),
        state.fact("normalise", bool),
    )
    setting = _setting(state)
    rows = distinct(examples, n_classes)
    current = "alpha" in state.arrays
    landmarks = None
    if "landmarks" in state.arrays:
        found = state.whole_numbers("landmarks", (None,), high=max(1, len(rows.hashes)))
        landmarks = torch.from_numpy(found)
    if current and not np.array_equal(state.array("hashes", np.int64, (None,)), rows.hashes):
        raise state.damaged("hashes: expected those of the examples")
    which = rows.first if landmarks is None else rows.first[landmarks]
    if not current:
        which = which[:0]
    dtype = torch.float64 if len(which) * width <= EXACT_NUMBERS else None
    z = torch.cat(
        [
            conditioning(examples.embeddings(part).to(device)).to(dtype or torch.float32)
            for part in which.split(CHUNK)
        ]
    )
    judged_by = state.fact("judged_by", str)
    if judged_by not in (LEAVE_ONE_OUT, ESTIMATED, HELD_OUT):
        raise state.damaged(f"judged_by: got {judged_by!r:.40}")
    n, Y = len(rows.hashes), n_classes

    def floats(name: str, shape: tuple[int, ...]) -> Tensor | None:
        if name not in state.arrays:
            return None
        return torch.from_numpy(state.array(name, np.float64, shape)).to(device)

    alpha = floats("alpha", (len(which), Y))
    diagonal, held_out = floats("diagonal", (n,)), floats("held_out", (n, Y))
    if current and (diagonal is None) == (held_out is None):
        raise state.damaged("solution: expected either a diagonal or held-out scores")
    return Solution(
        setting,
        state.whole_number("chosen_for", low=1),
        conditioning,
        KernelFunction(setting.kind, _number(state, "gamma")),
        _number(state, "noise"),
        z,
        z.square().sum(dim=1),
        rows.hashes,
        rows.weights.to(device),
        rows.targets.to(device),
        rows.targets.to(device) if alpha is None else alpha,
        diagonal,
        judged_by,
        held_out,
        landmarks=landmarks,
    )


def _setting(state: State) -> Setting:
    fact = state.fact("setting", list)
    if (
        [type(item) for item in fact] != [str, str, float, float]
        or fact[1] not in KERNELS
        or fact[2] not in WIDTHS
        or fact[3] not in LAMBDAS
    ):
        raise state.damaged(f"setting: got {fact!r:.60}")
    return Setting(fact[0], fact[1], fact[2], fact[3], _number(state, "score"))


def _number(state: State, name: str) -> float:
    value = float(state.fact(name, (int, float)))
    if not np.isfinite(value) or value < 0:
        raise state.damaged(f"{name}: expected a number of at least 0; got {value}")
    return value


def _audit(state: State) -> tuple[AuditRecord, ...]:
    records = state.fact("audit", list)
    if not all(
        isinstance(record, list) and [type(item) for item in record] == [str, int, int]
        for record in records
    ):
        raise state.damaged("audit: expected an operation and two numbers for each record")
    return tuple(AuditRecord(*record) for record in records)

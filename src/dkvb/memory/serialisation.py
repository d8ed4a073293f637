"""What a kernel estimator has learned as arrays and facts, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb._support.files import State
from dkvb.estimators.changeable import AuditRecord
from dkvb.estimators.labels import LabelIndex
from dkvb.estimators.serialisation import labels_from, labels_state
from dkvb.memory.blocks import Blocks, Growing
from dkvb.memory.cells import MOST_ROWS, Cells
from dkvb.memory.choose import LAMBDAS, WIDTHS, Setting
from dkvb.memory.coders import Coder
from dkvb.memory.conditioning import Conditioning
from dkvb.memory.examples import Examples
from dkvb.memory.kernel import squared_norms
from dkvb.memory.label_sets import NOT_SAID, LabelSetState
from dkvb.memory.points import Points
from dkvb.memory.solution import KINDS, Judged, Solution
from dkvb.memory.solve import MOST_POINTS
from dkvb.memory.state import KernelState, Learned
from dkvb.memory.tabled import Tabled

F64 = NDArray[np.float64]

_SUMS: tuple[np.dtype[Any], ...] = tuple(
    map(np.dtype, ("i2", "i4", "i8"))
)  # the narrowest that holds a cell


def labelled_state(state: KernelState | LabelSetState) -> State:
    """Labels, what was learned and, where there is one, the solution."""
    state = state.canonical()
    sorted_labels = LabelIndex()
    sorted_labels.add(state.labels.classes_, "labels")
    whole = learned_state(state).with_part("labels", labels_state(sorted_labels))
    whole = State(whole.arrays, whole.facts | {"declared": sorted(state.declared)})
    if isinstance(state, KernelState):
        return whole
    part = table_state(state)
    return whole.with_part("sets", State(part.arrays, part.facts | {"listed": state.listed}))


def labelled_state_from(
    state: State, keys: dict[str, Any], width: int, coder: Coder | None
) -> KernelState | LabelSetState:
    """The state that `labelled_state` describes."""
    labels = labels_from(state.part("labels"))
    if labels.classes_.tolist() != labels.plain() and labels.kind != "number":
        raise state.damaged("labels: expected sorted ones")
    declared = state.fact("declared", list)
    if not all(isinstance(one, str | int | float) and one in labels for one in declared):
        raise state.damaged("declared: expected labels that are there")
    named: dict[str, Any] = {"labels": labels, "declared": frozenset(declared)}
    sets = state.part("sets")
    if not sets.facts:
        memory = _memory_from(state, width, coder, len(labels))
        known = learned_from(state, keys, memory, width, len(labels), len(labels))
        return KernelState(**known, **named)
    table = sets.array("table", np.int8, (None, len(labels)))
    if not np.isin(table, (NOT_SAID, 0, 1)).all():
        raise sets.damaged("table: expected 0, 1 and −1")
    memory = _memory_from(state, width, coder, len(table))
    cells = grouping_from(sets, len(memory))
    n_targets = len(table) + cells["n_cells"]
    known = learned_from(state, keys, memory, width, n_targets, len(labels))
    listed = sets.fact("listed", bool)
    return LabelSetState(**known, **cells, **named, table=table, listed=listed)


def _memory_from(state: State, width: int, coder: Coder | None, n_targets: int) -> Examples | Cells:
    part = state.part("memory")
    if coder is None:
        return examples_from(part, width, n_targets)
    return cells_from(part, coder, n_targets)


def learned_state(state: Learned) -> State:
    """What states of all kinds say: the memory, its solution, and what was done."""
    facts = {
        "keys": None if state.keys is None else state.keys.fingerprint,
        "inference_only": state.inference_only,
        "audit": [[one.operation, one.rows, one.pairs] for one in state.audit],
    }
    whole = State(facts=facts).with_part("memory", memory_state(state.memory))
    if state.solution is None:
        return whole
    return whole.with_part("solution", _solution_state(state.solution))


def learned_from(
    state: State,
    keys: dict[str, Any],
    memory: Examples | Cells,
    width: int,
    n_targets: int,
    n_columns: int,
) -> dict[str, Any]:
    """The fields of a state that `learned_state` described; its memory has been read."""
    named = state.fact("keys", (str, type(None)))
    if named is not None and named not in keys:
        raise state.damaged("keys: expected those that the file holds or names")
    part = state.part("solution")
    solution = None
    if part.facts:
        solution = _solution_from(part, len(memory), width, n_targets, n_columns)
    return {
        "memory": memory,
        "keys": None if named is None else keys[named],
        "audit": _audit(state),
        "solution": solution,
        "inference_only": state.fact("inference_only", bool),
    }


def table_state(state: Tabled) -> State:
    """The table, and which entries share a cell."""
    arrays = {"table": state.table}
    if state.cells is not None:
        arrays["cells"] = state.cells
    return State(arrays, {"n_cells": state.n_cells})


def grouping_from(state: State, n_entries: int) -> dict[str, Any]:
    """The cells that `table_state` described, as fields of a state."""
    n_cells = state.whole_number("n_cells", high=MOST_POINTS + 1)
    cells = None
    if "cells" in state.arrays:
        cells = state.whole_numbers("cells", (n_entries,), low=-1, high=n_cells)
    return {"cells": cells, "n_cells": n_cells}


def record_state(
    X: NDArray[np.float32], y: NDArray[Any], known: LabelIndex, ids: list[Any] | None = None
) -> State:
    """Examples X (n, m) of labels y (n,) as a journal keeps them."""
    known.copy().add(y, "y")  # raises for labels of another kind
    labels = LabelIndex()
    labels.add(y, "y")
    facts = {} if ids is None else {"ids": ids}
    record = State({"X": X, "targets": labels.indices(y)}, facts)
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


# ---------------------------------------------------------------------------------------- memory
def memory_state(memory: Examples | Cells) -> State:
    """What was learned, in the order in which it stands."""
    if isinstance(memory, Examples):
        arrays = {
            "halves": memory.halves.joined(),
            "exponents": memory.exponents,
            "targets": memory.targets,
            "hashes": memory.hashes,
        }
        return State(arrays, {"ids": None if memory.ids is None else memory.ids.tolist()})
    return _cells_state(memory)


def examples_from(state: State, width: int, n_classes: int) -> Examples:
    """The examples that `memory_state` describes."""
    halves = state.array("halves", np.float16, (None, width))
    n = len(halves)
    exponents = state.array("exponents", np.int16, (n,))
    targets = state.whole_numbers("targets", (n,), high=max(1, n_classes))
    hashes = state.array("hashes", np.int64, (n,))
    ids = state.fact("ids", (list, type(None)))
    array = None
    if ids is not None:
        _check_ids(state, ids, n)
        array = np.empty(n, dtype=object)
        array[:] = ids
    # Of rows and hashes that do not belong together only forgetting them would suffer, and to find
    # out takes as long as learning them.
    examples = Examples(Blocks.of(halves), exponents, targets, hashes, array)
    if not examples.finite:
        raise state.damaged("examples: expected finite ones")
    if (examples.order != np.arange(n)).any():
        raise state.damaged("examples: expected them in canonical order")
    return examples


def _check_ids(state: State, ids: list[Any], n: int) -> None:
    if len(ids) != n or not all(i is None or type(i) in (int, str) for i in ids):
        raise state.damaged(f"ids: expected {n} strings, integers or null")


def _cells_state(cells: Cells) -> State:
    """Sums in the narrowest integers that hold them: those of few rows take 2 bytes a number."""
    width = np.zeros(len(cells), np.uint8)
    for place, part in cells.sums:
        largest = np.abs(part).max(axis=1)
        width[place] = sum((largest > np.iinfo(kind).max).astype(int) for kind in _SUMS[:-1])
    arrays = {
        f"sums_{kind.name}": cells.sums[np.nonzero(width == i)[0]].astype(kind)
        for i, kind in enumerate(_SUMS)
    }
    return State(
        {
            "keys": cells.hashes,
            "targets": cells.targets,
            "counts": cells.counts,
            "width": width,
            **arrays,
        },
        {"coder": cells.coder.fingerprint},
    )


def cells_from(state: State, coder: Coder, n_classes: int) -> Cells:
    """The cells that `memory_state` describes."""
    if state.fact("coder", str) != coder.fingerprint:
        raise state.damaged("cells: expected those of the keys that the parameters name")
    keys = state.whole_numbers("keys", (None,), high=1 << 63)
    n = len(keys)
    targets = state.whole_numbers("targets", (n,), high=max(1, n_classes))
    counts = state.whole_numbers("counts", (n,), low=1, high=MOST_ROWS + 1)
    width = state.array("width", np.uint8, (n,))
    sums = np.zeros((n, coder.width), np.int64)
    for i, kind in enumerate(_SUMS):
        mine = width == i
        sums[mine] = state.array(f"sums_{kind.name}", kind, (int(mine.sum()), coder.width))
    cells = Cells(coder, keys, targets, counts, Blocks.of(sums))
    if (cells.order != np.arange(n)).any() or (width >= len(_SUMS)).any():
        raise state.damaged("cells: expected them in canonical order")
    return cells


# -------------------------------------------------------------------------------------- solution
def _solution_state(s: Solution) -> State:
    arrays = {
        "centre": s.by.centre,
        "z": s.z.array,
        "spread": s.spread,
        "counts": s.counts,
        "targets": s.targets,
        "alpha": s.alpha,
        "point_of": s.point_of,
        "changed": s.changed,
    }
    optional = {
        "components": s.by.components,
        "diagonal": s.diagonal,
        "ratio": s.ratio,
        "judged": None if s.judged is None else s.judged.which,
        "predicted": None if s.judged is None else s.judged.predicted,
    }
    arrays |= {name: array for name, array in optional.items() if array is not None}
    if s.support is not None:
        arrays |= {f"support_{name}": array for name, array in vars(s.support).items()}
    facts = {
        "setting": [s.setting.conditioning, s.setting.width, s.setting.noise],
        "score": s.setting.score,
        "chosen_for": s.chosen_for,
        "power": s.by.power,
        "normalise": s.by.normalise,
        "stretch": s.by.stretch,
        "gamma": s.gamma,
        "kind": s.kind,
    }
    return State(arrays, facts)


def _solution_from(
    state: State, n_entries: int, width: int, n_targets: int, n_columns: int
) -> Solution:
    components = None
    if "components" in state.arrays:
        components = floats(state, "components", (width, None), np.float32)
    by = Conditioning(
        floats(state, "centre", (width,), np.float32),
        components,
        _number(state, "power"),
        state.fact("normalise", bool),
        _number(state, "stretch"),
    )
    z = floats(state, "z", (None, by.output_width), np.float32)
    n = len(z)
    judged = None
    if "judged" in state.arrays:
        which = state.whole_numbers("judged", (None,), high=max(1, n_entries))
        predicted = floats(state, "predicted", (len(which), n_columns), np.float32)
        kind = state.fact("kind", str)
        if kind not in KINDS:
            raise state.damaged(f"kind: got {kind!r:.40}")
        judged = Judged(which, predicted, kind)
    diagonal = floats(state, "diagonal", (n,)) if "diagonal" in state.arrays else None
    if (judged is None) == (diagonal is None):
        raise state.damaged("solution: expected either a diagonal or entries that were judged")
    point_of = state.array("point_of", np.int32, (n_entries,))
    if len(point_of) and not -1 <= point_of.min() <= point_of.max() < n:
        raise state.damaged("point_of: expected points that are there, or −1")
    return Solution(
        setting=_setting(state),
        chosen_for=state.whole_number("chosen_for", low=1),
        by=by,
        gamma=_number(state, "gamma"),
        z=Growing(z),
        squares=Growing(squared_norms(z.astype(np.float64))),
        spread=floats(state, "spread", (n,), low=0),
        counts=floats(state, "counts", (n,), low=0 if diagonal is None else 1),
        targets=state.whole_numbers("targets", (n,), low=-1, high=max(1, n_targets)),
        alpha=floats(state, "alpha", (n, n_columns)),
        point_of=point_of,
        changed=state.whole_numbers("changed", (None,), high=n),
        judged=judged,
        diagonal=diagonal,
        ratio=floats(state, "ratio", (n_columns,)) if "ratio" in state.arrays else None,
        support=_support_from(state, by.output_width),
    )


def _support_from(state: State, width: int) -> Points | None:
    if "support_z" not in state.arrays:
        return None
    z = floats(state, "support_z", (None, width), np.float32)
    n = len(z)
    spread = floats(state, "support_spread", (n,), low=0)
    counts = floats(state, "support_counts", (n,), low=1)
    return Points(z, spread, counts, state.whole_numbers("support_targets", (n,), low=-1, high=0))


def floats(
    state: State,
    name: str,
    shape: tuple[int | None, ...],
    kind: Any = np.float64,
    low: float = -np.inf,
) -> NDArray[Any]:
    """Finite numbers of a file, none below `low`."""
    array = state.array(name, kind, shape)
    if not np.isfinite(array).all():
        raise state.damaged(f"{name}: expected finite numbers")
    if array.size and array.min() < low:
        raise state.damaged(f"{name}: expected numbers of at least {low:g}; got {array.min():g}")
    return array


def _setting(state: State) -> Setting:
    fact = state.fact("setting", list)
    types = [type(item) for item in fact]
    if types != [str, float, float] or fact[1] not in WIDTHS or fact[2] not in LAMBDAS:
        raise state.damaged(f"setting: got {fact!r:.60}")
    return Setting(fact[0], fact[1], fact[2], _number(state, "score"))


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

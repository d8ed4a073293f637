"""What every engine does: learn a partition, merge models as a tree, predict a partition.

An engine brings a map over partitions and a way to run a function of earlier results. Workers get
and return bytes: an estimator with keys and nothing learned (the template), states without keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dkvb._support import files
from dkvb._support.arrow import EmbeddingTable, Source
from dkvb._support.files import State
from dkvb._support.optional import require
from dkvb.estimators.serialisation import estimator_from
from dkvb.store.shards import merge_tree, new_like

PREDICTION = "prediction"  # the column that `predict` adds
_KEYS = "keys/"  # tensors of keys, in the state of an estimator


def template_of(estimator: Any) -> bytes:
    """Return an estimator with its keys and settings, and nothing learned, as bytes for workers."""
    name = type(estimator).__name__
    if not hasattr(estimator, "merge"):
        raise TypeError(
            f"estimator: expected a KernelClassifier; got {name}, whose models cannot be merged"
        )
    fresh = new_like(estimator) if hasattr(estimator, "classes_") else estimator
    return _encoded(fresh._file_state())


def learn(
    template: bytes, batches: Iterable[Any], x_column: str | None, y_column: str | None
) -> bytes | None:
    """Return the state of a model of all rows in record batches; None where there are none."""
    # Keys are shared, so that what follows from them is found once per worker.
    classifier = clone(_loaded(template))
    table = _table(batches, x_column, y_column, labelled=True)
    if table is None:
        return None
    return _learned(classifier.partial_fit(*table.arrays()))  # which keeps the rows in any case


def merge(template: bytes, *states: bytes | None) -> bytes | None:
    """Return the state of the union of models, given by their states."""
    found = [state for state in states if state is not None]
    if len(found) < 2:
        return found[0] if found else None
    return _learned(merge_tree(with_keys(template, state) for state in found))


def merge_pairs(states: list[Any], merge_two: Callable[[Any, Any], Any]) -> Any:
    """Return what is left when states, or what stands for them, are merged two by two; None of
    none."""
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [merge_two(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return states[0] if states else None


def finished(template: bytes, state: bytes | None) -> Any:
    """Return the classifier with that state, which has learned all partitions."""
    if state is None:
        raise ValueError("dataset: expected at least one row; got an empty dataset")
    classifier = with_keys(template, state)
    # Settings are a function of the set of examples, as those of `fit` are.
    return classifier.tune() if hasattr(classifier, "tune") else classifier


def with_keys(template: bytes, state: bytes) -> Any:
    """Return the classifier of a state, with the keys of the template."""
    keys = {k: t for k, t in files.decode(template).state.arrays.items() if k.startswith(_KEYS)}
    found = files.decode(state).state
    return estimator_from(State({**found.arrays, **keys}, found.facts))


def model_bytes(classifier: Any) -> bytes:
    """Return a fitted classifier as bytes for workers that predict."""
    if not hasattr(classifier, "classes_"):
        raise ValueError("classifier: expected one that has learned something; got none; fit it")
    smaller = classifier.freeze() if hasattr(classifier, "freeze") else classifier
    return _encoded(smaller._file_state())


def predict(model: bytes, batches: Iterable[Any], x_column: str | None) -> Iterator[Any]:
    """Yield the record batches with a column `prediction`."""
    arrow = require("pyarrow", "arrow", "dkvb.engines")
    classifier = _loaded(model)
    for batch in batches:
        if not len(batch):
            continue
        table = _table([batch], x_column, None, labelled=False)
        assert table is not None
        labels = np.concatenate([classifier.predict(X) for X, _ in table])
        yield batch.append_column(PREDICTION, arrow.array(labels, label_type(classifier.classes_)))


def predicted_table(model: bytes, schema: Any, batches: Iterable[Any], x_column: str | None) -> Any:
    """Return the record batches of a partition, none perhaps, with a column `prediction`, as one
    table."""
    arrow = require("pyarrow", "arrow", "dkvb.engines")
    schema = schema.append(arrow.field(PREDICTION, label_type(_loaded(model).classes_)))
    return arrow.Table.from_batches(predict(model, batches, x_column), schema)


def label_type(classes: NDArray[Any]) -> Any:
    """Return the Arrow type of predictions."""
    arrow = require("pyarrow", "arrow", "dkvb.engines")
    return {"U": arrow.string(), "b": arrow.bool_()}.get(classes.dtype.kind, arrow.int64())


@lru_cache(maxsize=1)
def _loaded(model: bytes) -> Any:
    return estimator_from(files.decode(model).state)


def _table(
    batches: Iterable[Any], x_column: str | None, y_column: str | None, labelled: bool
) -> EmbeddingTable | None:
    """The embeddings and labels of record batches; None where there are no rows."""
    rest = (batch for batch in batches if len(batch))
    first = next(rest, None)
    if first is None:
        return None

    def read(columns: list[str], rows: int) -> Iterator[Any]:
        yield first.select(columns)
        for batch in rest:
            yield batch.select(columns)

    source = Source(first.schema, read)
    return EmbeddingTable(source, x_column, y_column, labelled=labelled, name="dataset")


def _learned(classifier: Any) -> bytes:
    state = classifier._file_state()
    kept = {name: t for name, t in state.arrays.items() if not name.startswith(_KEYS)}
    return _encoded(State(kept, state.facts))


def _encoded(state: State) -> bytes:
    return b"".join(bytes(piece) for piece in files.encode("estimator", state)[1])

"""Spark: one accumulator per partition (`mapInArrow`), then a tree of merges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dkvb._support.optional import require
from dkvb.engines import _partition


def fit(
    dataset: Any,
    estimator: Any,
    *,
    x_column: str | None = None,
    y_column: str | None = None,
    depth: int = 2,
) -> Any:
    """Return a classifier that has learned all rows of a Spark DataFrame.

    Parameters
    ----------
    dataset : pyspark.sql.DataFrame
        Embeddings in a column of arrays of numbers, and labels in another.
    estimator : BottleneckClassifier or KernelClassifier
        Classifier to train, with keys that are fitted already; it stays as it is.
    x_column, y_column : str, optional
        Columns of embeddings and labels; guessed where there is one.
    depth : int
        Depth of the tree of merges.
    """
    template = _partition.template_of(estimator)
    session = dataset.sparkSession
    shared = session.sparkContext.broadcast(template)
    arrow = require("pyarrow", "spark", "dkvb.engines.spark")

    def learn(batches: Iterator[Any]) -> Iterator[Any]:
        state = _partition.learn(shared.value, batches, x_column, y_column)
        if state is not None:
            yield arrow.RecordBatch.from_pydict({"state": arrow.array([state], arrow.binary())})

    def merge(one: Any, other: Any) -> Any:
        return _partition.merge(shared.value, one, other)

    states = dataset.mapInArrow(learn, "state binary").rdd.map(lambda row: bytes(row.state))
    try:
        state = states.treeAggregate(None, merge, merge, depth)
        return _partition.finished(template, state)
    finally:
        shared.unpersist()


def predict(dataset: Any, classifier: Any, *, x_column: str | None = None) -> Any:
    """Return a DataFrame with a column `prediction` beside those that are there.

    `x_column` names the column of embeddings; it is guessed where there is one.
    """
    types = require("pyspark.sql.types", "spark", "dkvb.engines.spark")
    shared = dataset.sparkSession.sparkContext.broadcast(_partition.model_bytes(classifier))
    kind = classifier.classes_.dtype.kind
    label = {"U": types.StringType(), "b": types.BooleanType()}.get(kind, types.LongType())
    schema = types.StructType(
        [*dataset.schema.fields, types.StructField(_partition.PREDICTION, label)]
    )
    return dataset.mapInArrow(
        lambda batches: _partition.predict(shared.value, batches, x_column), schema
    )

"""Dask: a tree of delayed merges over the partitions."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from dkvb._support.arrow import Source, source_of
from dkvb._support.optional import require
from dkvb.engines import _partition

_PURPOSE = "dkvb.engines.dask"
_ROWS = 1 << 14  # of a record batch


def fit(
    dataset: Any,
    estimator: Any,
    *,
    x_column: str | None = None,
    y_column: str | None = None,
) -> Any:
    """Return a classifier that has learned all partitions.

    Parameters
    ----------
    dataset : dask.dataframe.DataFrame, or sequence
        Partitions: those of a data frame, or tables (pyarrow, pandas, polars), files of Arrow data
        (`dkvb.embedding.read_table`) or delayed objects of these. Embeddings are in a column of
        lists of numbers, and labels in another.
    estimator : BottleneckClassifier or KernelClassifier
        Classifier to train, with keys that are fitted already; it stays as it is.
    x_column, y_column : str, optional
        Columns of embeddings and labels; guessed where there is one.
    """
    dask = require("dask", "dask", _PURPOSE)
    template = _partition.template_of(estimator)
    shared = _shared(dask, template)
    learn, merge = dask.delayed(_learn), dask.delayed(_partition.merge)
    states = [learn(shared, part, x_column, y_column) for part in _partitions(dataset)]
    union = _partition.merge_pairs(states, partial(merge, shared))
    return _partition.finished(template, dask.compute(union)[0])


def predict(dataset: Any, classifier: Any, *, x_column: str | None = None) -> Any:
    """Return a data frame with a column `prediction`, or, for a sequence, delayed tables with it.

    `x_column` names the column of embeddings; it is guessed where there is one.
    """
    dask = require("dask", "dask", _PURPOSE)
    shared = _shared(dask, _partition.model_bytes(classifier))
    if not hasattr(dataset, "map_partitions"):
        predicted = dask.delayed(_predicted)
        return [predicted(shared, part, x_column) for part in _partitions(dataset)]
    kind = {"U": "str", "b": "bool"}.get(classifier.classes_.dtype.kind, "int64")
    meta = dataset._meta.assign(**{_partition.PREDICTION: []})
    meta[_partition.PREDICTION] = meta[_partition.PREDICTION].astype(kind)
    return dataset.map_partitions(_predicted_frame, shared, x_column, meta=meta)


def _shared(dask: Any, content: bytes) -> Any:
    """Bytes that every worker gets once."""
    if dask.config.get("scheduler", None) in (None, "distributed", "dask.distributed"):
        with suppress(ValueError):  # no cluster: threads or processes of this machine
            client = require("distributed", "dask", _PURPOSE).get_client()
            return client.scatter(content, broadcast=True)
    return dask.delayed(content)


def _partitions(dataset: Any) -> list[Any]:
    return list(dataset.to_delayed()) if hasattr(dataset, "to_delayed") else list(dataset)


def _source(part: Any) -> Source:
    if isinstance(part, str) or hasattr(part, "__fspath__"):
        from dkvb.embedding.arrow import open_source

        return open_source(part)
    return source_of(part, "dataset")


def _learn(template: bytes, part: Any, x_column: str | None, y_column: str | None) -> bytes | None:
    source = _source(part)
    batches = source.batches(source.schema.names, _ROWS)
    return _partition.learn(template, batches, x_column, y_column)


def _predicted(model: bytes, part: Any, x_column: str | None) -> Any:
    source = _source(part)
    batches = source.batches(source.schema.names, _ROWS)
    return _partition.predicted_table(model, source.schema, batches, x_column)


def _predicted_frame(part: Any, model: bytes, x_column: str | None) -> Any:
    labels = _predicted(model, part, x_column)[_partition.PREDICTION].to_pandas()
    return part.assign(**{_partition.PREDICTION: labels.to_numpy()})

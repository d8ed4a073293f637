"""Ray: actors that each read a part of the stream, then a tree of merges."""

from __future__ import annotations

from typing import Any

from dkvb._support.optional import require
from dkvb._support.validation import positive_int
from dkvb.deploy.engines import _partition

_PURPOSE = "dkvb.deploy.engines.ray"


def fit(
    dataset: Any,
    estimator: Any,
    *,
    x_column: str | None = None,
    y_column: str | None = None,
    n_workers: int = 2,
    retries: int = 3,
) -> Any:
    """Return a classifier that has learned all rows of a Ray dataset.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Embeddings in a column of lists of numbers, and labels in another.
    estimator : BottleneckClassifier or KernelClassifier
        Classifier to train, with keys that are fitted already; it stays as it is.
    x_column, y_column : str, optional
        Columns of embeddings and labels; guessed where there is one.
    n_workers : int
        Number of actors. Each takes whatever blocks of the stream come to it.
    retries : int
        How often all is done again after an actor died: what it had read is in no other one.
    """
    ray = require("ray", "ray", _PURPOSE)
    positive_int("n_workers", n_workers)
    template = _partition.template_of(estimator)
    shared = ray.put(template)
    for attempt in range(retries + 1):
        try:
            states = _learned(ray, dataset, shared, x_column, y_column, n_workers)
            break
        except ray.exceptions.RayActorError:
            if attempt == retries:
                raise
    merge = ray.remote(_merge)
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [merge.remote(shared, *pair) for pair in pairs]
    return _partition.finished(template, ray.get(states[0]))


def predict(dataset: Any, classifier: Any, *, x_column: str | None = None) -> Any:
    """Return a dataset with a column `prediction` beside those that are there.

    `x_column` names the column of embeddings; it is guessed where there is one.
    """
    ray = require("ray", "ray", _PURPOSE)
    shared = ray.put(_partition.model_bytes(classifier))
    return dataset.map_batches(
        _predicted, batch_format="pyarrow", batch_size=None, fn_args=(shared, x_column)
    )


def _learned(
    ray: Any, dataset: Any, shared: Any, x_column: str | None, y_column: str | None, n_workers: int
) -> list[Any]:
    """One state per actor."""
    shards = dataset.streaming_split(n_workers, equal=False)
    learners = [ray.remote(_Learner).remote() for _ in shards]
    try:
        pending = [
            learner.learn.remote(shard, shared, x_column, y_column)
            for learner, shard in zip(learners, shards, strict=True)
        ]
        states = list(pending)
        while pending:  # one at a time: the death of one leaves others waiting for ever
            done, pending = ray.wait(pending)
            ray.wait([ray.get(done)[0][0]])
        return [ray.get(state)[0] for state in states]
    finally:
        for learner in learners:
            ray.kill(learner)


class _Learner:
    """An actor with one accumulator."""

    def learn(
        self, shard: Any, template: bytes, x_column: str | None, y_column: str | None
    ) -> list[Any]:
        """Return a reference to the state of a model of all rows that come."""
        ray = require("ray", "ray", _PURPOSE)
        tables = shard.iter_batches(batch_size=None, batch_format="pyarrow")
        batches = (batch for table in tables for batch in table.to_batches())
        return [ray.put(_partition.learn(template, batches, x_column, y_column))]


def _merge(template: bytes, *states: bytes | None) -> bytes | None:
    return _partition.merge(template, states)


def _predicted(table: Any, shared: Any, x_column: str | None) -> Any:
    ray = require("ray", "ray", _PURPOSE)
    arrow = require("pyarrow", "ray", _PURPOSE)
    batches = table.combine_chunks().to_batches()
    return arrow.Table.from_batches(_partition.predict(ray.get(shared), batches, x_column))

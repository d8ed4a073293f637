"""Ray: actors that each read a part of the stream, then a tree of merges."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from dkvb._support.optional import require, switch_telemetry_off
from dkvb._support.validation import positive_int
from dkvb.engines import _partition

_PURPOSE = "dkvb.engines.ray"
switch_telemetry_off()  # here, since ray.init comes before any function of this module


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
        How often all is done again after an actor or its node died: what it had read is in no
        other one.
    """
    ray = require("ray", "ray", _PURPOSE)
    positive_int("n_workers", n_workers)
    template = _partition.template_of(estimator)
    shared = ray.put(template)
    merge = partial(ray.remote(_partition.merge).remote, shared)

    def fitted() -> Any:
        states = _learned(ray, dataset, shared, x_column, y_column, n_workers)
        return _partition.finished(template, ray.get(_partition.merge_pairs(states, merge)))

    for _ in range(retries):
        with suppress(ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
            return fitted()
    return fitted()


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
        results = [
            learner.learn.options(num_returns=2).remote(shard, shared, x_column, y_column)
            for learner, shard in zip(learners, shards, strict=True)
        ]
        pending = [done for done, _ in results]
        while pending:  # one at a time: the death of one leaves others waiting for ever
            ready, pending = ray.wait(pending)
            ray.get(ready)  # raises what the actor raised
        return [state for _, state in results]
    finally:
        for learner in learners:
            ray.kill(learner)


class _Learner:
    """An actor with one accumulator."""

    def learn(
        self, shard: Any, template: bytes, x_column: str | None, y_column: str | None
    ) -> tuple[bool, bytes | None]:
        """Return that it is done, and the state of a model of all rows that came.

        Two results, so that the driver can wait for the first without fetching the second. Both
        belong to the driver, and outlive the actor.
        """
        tables = shard.iter_batches(batch_size=None, batch_format="pyarrow")
        batches = (batch for table in tables for batch in table.to_batches())
        return True, _partition.learn(template, batches, x_column, y_column)


def _predicted(table: Any, shared: Any, x_column: str | None) -> Any:
    model = require("ray", "ray", _PURPOSE).get(shared)
    batches = table.combine_chunks().to_batches()
    return _partition.predicted_table(model, table.schema, batches, x_column)

"""What the routes share: the model, its encoder, batches, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkvb._support import validation
from dkvb.estimators.answers import Answers
from dkvb.serve.batching import Batcher
from dkvb.serve.encoding import BATCH, Encoding, decoded_image
from dkvb.serve.inputs import Inputs
from dkvb.serve.metrics import Metrics
from dkvb.serve.problems import Problem
from dkvb.serve.remembered import Prequential, Remembered
from dkvb.serve.settings import Settings
from dkvb.serve.solver import Solver
from dkvb.serve.thumbnails import Thumbnails, thumbnail
from dkvb.serve.writer import Writer
from dkvb.store import Model

Embeddings = NDArray[np.float32]
ROWS = 1024  # that are predicted at a time, so that a large request lets others in between


class Models(Protocol):
    """Who has the model: the writer, or a reader that follows it."""

    @property
    def model(self) -> Model:
        """The model as it is now."""


class Service:
    """One process of the service."""

    def __init__(self, settings: Settings, models: Models, encoding: Encoding | None) -> None:
        self.settings, self.limits = settings, settings.limits
        self.encoding, self._models = encoding, models
        self.remembered, self.prequential = Remembered(), Prequential()
        self.metrics = Metrics(shared=settings.workers > 1)
        self._predicted = self.metrics.rows.labels("predict")
        self.thumbnails = Thumbnails(settings.model / "images") if settings.keep_images else None
        compute = ThreadPoolExecutor(1, "compute")
        how: dict[str, Any] = {"queue": self.limits.queue, "seconds": self.limits.seconds}
        self.encoder: Batcher[Any, Embeddings] = Batcher(self._encode, compute, most=BATCH, **how)
        self.predictor: Batcher[Embeddings, Answers] = Batcher(
            self.answers, compute, most=ROWS, **how
        )
        self.pictures = ThreadPoolExecutor(1, "pictures")
        self.solver = Solver()

    @property
    def model(self) -> Model:
        """The model as it is now."""
        return self._models.model

    @property
    def writer(self) -> Writer:
        """The writer, in the process that is it."""
        if not isinstance(self._models, Writer):
            raise Problem(503, "this process only reads; try again later", {"Retry-After": "1"})
        return self._models

    @property
    def sequence(self) -> int:
        """The number of the last operation that this process knows of."""
        history = self.model.history
        return (history[-1].sequence or len(history)) if history else 0

    # --------------------------------------------------------------------------------------- rows
    async def embeddings(self, inputs: Inputs) -> tuple[Embeddings, list[bytes | None]]:
        """Return embeddings (n, m) of what came in, and pictures of images that are kept."""
        nothing: list[bytes | None] = [None] * len(inputs)
        if inputs.embeddings is not None:
            return self.checked(inputs.embeddings), nothing
        if inputs.prediction_ids is not None:
            found = self.remembered.get(inputs.prediction_ids)
            return np.stack([one.row for one in found]), [one.thumbnail for one in found]
        if inputs.texts is not None:
            self._check_takes("text")
            return await self._encoded(inputs.texts), nothing
        self._check_takes("image")
        assert inputs.images is not None
        return await self._encoded_images(inputs.images)

    def checked(self, X: Any) -> Embeddings:
        """Return embeddings as float32, if they are finite and as wide as the model's."""
        array: Embeddings = validation.rows(X, "X", self.model.width)
        if array.dtype != np.float32 or not array.flags.c_contiguous:
            with np.errstate(over="ignore"):
                array = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(array).all():
            validation.as_float32(array)  # which says where
        return array

    def _check_takes(self, kind: str) -> None:
        takes = None if self.encoding is None else self.encoding.takes
        if takes != kind:
            encoder = self.model.encoder
            has = f"encodes {takes}s" if takes else "has no encoder here"
            raise Problem(
                422,
                f"body: expected embeddings{f' or {takes}s' if takes else ''}, since the model "
                f"{has} ({encoder or 'it remembers none'}); got {kind}s; embed them first, or "
                "start dkvb serve with --encoder",
            )

    async def _encoded(self, items: Sequence[Any]) -> Embeddings:
        parts = [await self.encoder.submit(items[i : i + BATCH])
                 for i in range(0, len(items), BATCH)]  # fmt: skip
        return np.concatenate(parts)

    async def _encoded_images(self, contents: list[bytes]) -> tuple[Embeddings, list[Any]]:
        loop = asyncio.get_running_loop()
        rows: list[Embeddings] = []
        kept: list[bytes | None] = []
        for start in range(0, len(contents), BATCH):
            part = contents[start : start + BATCH]
            images = await loop.run_in_executor(self.pictures, self._decoded, part, start)
            rows.append(await self.encoder.submit(images))
            kept += map(thumbnail, images) if self.thumbnails else [None] * len(images)
        return np.concatenate(rows), kept

    def _decoded(self, contents: list[bytes], first: int) -> list[Any]:
        pixels = self.limits.pixels
        return [decoded_image(one, first + i, pixels) for i, one in enumerate(contents)]

    # -------------------------------------------------------------------------------- predictions
    async def predict(self, X: Embeddings) -> Answers:
        """Return what the model says of checked embeddings."""
        if len(X) <= ROWS:
            answers = await self.predictor.submit(X)
        else:
            parts = [await self.predictor.submit(X[i : i + ROWS]) for i in range(0, len(X), ROWS)]
            answers = Answers.joined(parts)
        self._predicted.inc(len(X))
        return answers

    def _encode(self, parts: list[Any]) -> Sequence[Embeddings | Exception]:
        assert self.encoding is not None
        return self.encoding.encode(parts)

    def answers(self, parts: list[Embeddings]) -> list[Answers | Exception]:
        """Return what the model says of several requests; one that is wrong fails alone."""
        classifier = self.solver.settled(self.model.classifier)
        try:
            found: Answers = classifier.ask(np.concatenate(parts)).recorded()
        except (ValueError, TypeError) as error:
            if len(parts) == 1:
                return [error]
            return [one for part in parts for one in self.answers([part])]
        ends = accumulate(map(len, parts))
        return [found.part(end - len(part), end) for part, end in zip(parts, ends, strict=True)]

    def keep_pictures(self) -> None:
        """Remove pictures of rows that are no longer there."""
        if self.thumbnails is not None:
            self.thumbnails.keep_only(self.model.ids() if self.model.keeps_ids else ())

"""A model folder to give away: a snapshot and keys, without a journal or a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dkvb.store.classifiers import total_count
from dkvb.store.folder import create
from dkvb.store.layout import LOCK
from dkvb.store.opening import read_model
from dkvb.store.reading import Model


def pack(model: Any, path: Path) -> Model:
    """Write a model to a new folder, and return it.

    `model` is a model folder, a model's file, or a fitted classifier.
    """
    found = read_model(model) if isinstance(model, str | Path) else Model(model, None)
    with create(
        path,
        found.classifier,
        encoder=found.encoder,
        encoder_fingerprint=found.encoder_fingerprint,
        rows=total_count(found.classifier),
    ):
        pass
    (path / LOCK).unlink(missing_ok=True)
    return found

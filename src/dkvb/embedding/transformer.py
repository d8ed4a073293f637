"""Encoders as scikit-learn transformers: images or texts in, embeddings out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dkvb._support import validation
from dkvb.embedding.datasets.dataset import decode_image
from dkvb.embedding.encoders.encoder import FrozenEncoder
from dkvb.embedding.encoders.registry import DEFAULT, load_encoder
from dkvb.embedding.pictures import pillow


class Encoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A frozen encoder in a scikit-learn `Pipeline`.

    Nothing is learned: `fit` loads the encoder. A saved pipeline holds its parameters, not the
    encoder's weights.

    Parameters
    ----------
    encoder : str or encoder
        Name of an encoder, as `load_encoder` takes it, or an encoder.
    weights, layers, pooling, views, device, precision, allow_download
        As `load_encoder` takes them; not used if `encoder` is an object.
    batch_size : int
        Items that are encoded at a time.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from dkvb import KernelClassifier
    >>> from dkvb.embedding import CallableEncoder
    >>> letters = CallableEncoder(
    ...     lambda texts: [[text.count(letter) for letter in "abc"] for text in texts],
    ...     name="letters", dimension=3, takes="text", fingerprint="1",
    ... )
    >>> pipeline = make_pipeline(Encoder(letters), KernelClassifier())
    >>> texts, y = ["aa", "ab", "aab", "cc", "bc", "bcc"], [0, 0, 0, 1, 1, 1]
    >>> pipeline.fit(texts, y).predict(["aaa", "ccc"])
    array([0, 1])
    """

    def __init__(
        self,
        encoder: str | FrozenEncoder = DEFAULT,
        *,
        weights: str | Path | None = None,
        layers: str | Sequence[str] | None = None,
        pooling: str | None = None,
        views: str | None = None,
        device: str = "cpu",
        precision: str = "auto",
        allow_download: bool = True,
        batch_size: int = 32,
    ) -> None:
        self.encoder = encoder
        self.weights = weights
        self.layers = layers
        self.pooling = pooling
        self.views = views
        self.device = device
        self.precision = precision
        self.allow_download = allow_download
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the encoder; X and y are not read."""
        validation.positive_int("batch_size", self.batch_size)
        self.encoder_ = self._load()
        self._n_features_out = self.encoder_.dimension
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return embeddings (n, m) of n items.

        Parameters
        ----------
        X : sequence
            Texts; or images: files, bytes of files, PIL images, or arrays (height, width, 3) of
            bytes. A column of a data frame, or a frame of one column, is a sequence, too.
        """
        if not hasattr(self, "encoder_"):  # nothing is learned: it may be used at once
            self.fit(X)
        encoder, items = self.encoder_, _items(X)
        read = _image if encoder.takes == "image" else _text if encoder.takes == "text" else _same
        parts = [
            encoder.encode(
                [
                    encoder.transform(read(item, number))
                    for number, item in enumerate(items[start : start + self.batch_size], start)
                ]
            )
            for start in range(0, len(items), self.batch_size)
        ]
        if not parts:
            return np.empty((0, encoder.dimension), np.float32)
        rows: NDArray[np.float32] = torch.cat(parts).float().numpy()
        return rows

    def _load(self) -> FrozenEncoder:
        if not isinstance(self.encoder, str):
            return self.encoder
        return load_encoder(
            self.encoder,
            weights=self.weights,
            layers=self.layers,
            pooling=self.pooling,
            views=self.views,
            device=self.device,
            precision=self.precision,
            allow_download=self.allow_download,
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "encoder_"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags


def _items(X: Any) -> list[Any]:
    """The items of a sequence, a column, or a frame of one column."""
    if isinstance(X, str | bytes):
        raise TypeError("X: expected a sequence of texts or images; got one; pass a list")
    if hasattr(X, "iloc") and getattr(X, "ndim", 1) == 2:
        if X.shape[1] != 1:
            raise ValueError(f"X: expected one column of items; got {X.shape[1]}; choose one")
        X = X.iloc[:, 0]
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OU":
        X = X[:, 0]
    return list(X)


def _text(item: Any, number: int) -> str:
    if not isinstance(item, str):
        raise TypeError(f"X: expected texts; item {number} is {type(item).__name__}")
    return str(item)


def _image(item: Any, number: int) -> Any:
    if isinstance(item, str | Path):
        try:
            return decode_image(Path(item).read_bytes())
        except Exception as error:  # Pillow raises anything for a damaged file
            raise ValueError(
                f"X: expected images that can be read; item {number}, {item}, cannot "
                f"({' '.join(str(error).split())[:200]})"
            ) from error
    if isinstance(item, bytes):
        return decode_image(item)
    if isinstance(item, np.ndarray):
        if item.ndim != 3 or item.shape[2] != 3 or item.dtype != np.uint8:
            raise TypeError(
                "X: expected arrays (height, width, 3) of bytes; item "
                f"{number} has shape {item.shape} and dtype {item.dtype}"
            )
        return pillow("images").fromarray(item)
    if not hasattr(item, "convert"):
        raise TypeError(
            f"X: expected files, PIL images or arrays; item {number} is {type(item).__name__}"
        )
    return item


def _same(item: Any, number: int) -> Any:
    return item

"""Embeddings of images and texts by the model's own encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.embedding import absolute_name, encoder_fingerprint, load_encoder
from dkvb.embedding.datasets.dataset import decode_image
from dkvb.embedding.pictures import pillow

BATCH = 32  # items that are encoded at a time


class Encoding:
    """An encoder, and the name and fingerprint that a model remembers of it."""

    def __init__(self, name: str, device: str, allow_download: bool) -> None:
        self._encoder = load_encoder(name, device=device, allow_download=allow_download)
        self.name = absolute_name(name)
        self.fingerprint = encoder_fingerprint(self._encoder.identity)
        self.takes, self.width = self._encoder.takes, self._encoder.dimension

    def check_made(self, model: Any) -> None:
        """Raise unless a model was learned from embeddings of this encoder."""
        known = model.encoder_fingerprint
        if known not in (None, self.fingerprint) or model.width not in (None, self.width):
            raise ValueError(
                f"--encoder: expected {model.encoder or 'the encoder'} with the weights and "
                f"settings that made what the model learned (fingerprint {str(known)[:8]}, width "
                f"{model.width}); got {self.name} ({self.fingerprint[:8]}, width {self.width})"
            )

    def encode(self, parts: list[Sequence[Any]]) -> list[NDArray[np.float32] | Exception]:
        """Return embeddings (n, m) for each part: a list of decoded images or of texts."""
        items = [self._encoder.transform(item) for part in parts for item in part]
        blocks = (items[i : i + BATCH] for i in range(0, len(items), BATCH))
        rows = np.concatenate([self._encoder.encode(block).numpy() for block in blocks])
        ends = np.cumsum([len(part) for part in parts])
        return list(np.split(rows, ends[:-1]))


def decoded_image(content: bytes, number: int, pixels: int) -> Any:
    """Return an image from the bytes of its file, or an error that says which and why."""
    library = pillow("images")
    try:
        return decode_image(content, pixels).convert("RGB")
    except _errors(library) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"image {number}: expected a whole image of at most {pixels:,} pixels, in JPEG, PNG, "
            f"WebP, GIF, BMP, PPM or TIFF; got {len(content):,} bytes that are none: {why}; send "
            "it again, or make it smaller"
        ) from None


def _errors(library: Any) -> tuple[type[Exception], ...]:
    """What Pillow raises for files that are no images, cut, or too large."""
    bombs = library.DecompressionBombError, library.DecompressionBombWarning
    return OSError, ValueError, SyntaxError, EOFError, *bombs

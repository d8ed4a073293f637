"""Labels that are texts: how long they may be, and which characters they may hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CHARACTERS = 1000  # an array of labels is as wide as its longest


def check_texts(labels: Iterable[Any], name: str) -> None:
    """Raise for a label that is too long, or holds control characters or lone surrogates.

    NumPy drops NULs at the end of a text, so that "a" and "a\\0" would be one class. Others change
    what a terminal shows, or cannot be written as UTF-8.

    >>> check_texts(["ant", "bee", 3], "y")
    >>> check_texts(["ant", "a\\n"], "y")
    Traceback (most recent call last):
        ...
    ValueError: y: expected labels without control characters; got 'a\\n'; remove them
    """
    for label in labels:
        if not isinstance(label, str):
            continue
        if len(label) > MAX_CHARACTERS:
            raise ValueError(
                f"{name}: expected labels of at most {MAX_CHARACTERS:,} characters; got one of "
                f"{len(label):,} that starts with {label[:20]!r}; use shorter names"
            )
        if not label.isprintable() and any(_is_refused(ord(character)) for character in label):
            raise ValueError(
                f"{name}: expected labels without control characters; got {label[:60]!r}; "
                "remove them"
            )


def check_text_array(labels: NDArray[Any], name: str) -> None:
    """`check_texts` for an array of texts (n,), in which only suspicious ones are looked at."""
    if labels.dtype.kind != "U" or not labels.size or not labels.dtype.itemsize:
        return
    codes = np.ascontiguousarray(labels).view(np.uint32).reshape(len(labels), -1)  # (n, width)
    suspicious = np.zeros(len(labels), dtype=bool)
    for column in codes.T:
        low = (column < 0x20) & (column > 0)
        suspicious |= low | ((column >= 0x7F) & (column < 0xA0)) | ((column >> 11) == 0x1B)
    if codes.shape[1] > 1:
        suspicious |= ((codes[:, :-1] == 0) & (codes[:, 1:] != 0)).any(axis=1)  # NULs inside
    if codes.shape[1] > MAX_CHARACTERS:
        suspicious |= codes[:, MAX_CHARACTERS:].any(axis=1)
    check_texts(labels[suspicious].tolist(), name)


def _is_refused(code: int) -> bool:
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000

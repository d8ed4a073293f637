"""Bundled embeddings of real images, for demos, examples and tests (see README.md here)."""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from dkvb._support.validation import one_of

__all__ = ["load"]

Rows = tuple[NDArray[np.float32], NDArray[np.str_]]


def load(name: str, split: str = "train") -> Rows:
    """Embeddings x (n, 256) and class names y (n,) of "cifar10" or "cifar100", "train" or "test".

    >>> x, y = load("cifar10", "test")
    >>> x.shape, str(x.dtype), str(y[0])
    ((2000, 256), 'float32', '...')
    """
    one_of("name", name, ("cifar10", "cifar100"))
    one_of("split", split, ("train", "test"))
    with (files(__name__) / f"{name}-{split}.npz").open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        x = file["codes"].astype(np.float32) * file["step"]  # (n, 256)
        return x, file["classes"][file["labels"]]

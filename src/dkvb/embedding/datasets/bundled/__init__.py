"""Bundled embeddings of real images and texts, for demos, examples and tests: see README.md."""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from dkvb._support.validation import one_of

__all__ = ["load"]

Rows = tuple[NDArray[np.float32], NDArray[np.str_]]


def load(name: str, split: str = "train") -> Rows:
    """Embeddings x (n, m) and class names y (n,) of the "train" or "test" rows of a data set:
    "cifar10" or "cifar100" (images, m = 256), or "banking77" (texts, 20 classes, m = 384).

    >>> x, y = load("cifar10", "test")
    >>> x.shape, str(x.dtype), str(y[0])
    ((2000, 256), 'float32', '...')
    """
    one_of("name", name, ("cifar10", "cifar100", "banking77"))
    one_of("split", split, ("train", "test"))
    with (files(__name__) / f"{name}-{split}.npz").open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        x = file["codes"].astype(np.float32) * file["step"]  # (n, m)
        return x, file["classes"][file["labels"]]

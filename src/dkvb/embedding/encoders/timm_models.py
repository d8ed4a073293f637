"""Any image model of timm, with timm's own weights and transform."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder
from dkvb.embedding.encoders.layers import joined, pooled
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import download, load_into, read_state


def build(spec: EncoderSpec) -> ModuleEncoder:
    """The timm model after the colon; "last" is what its classifier would see."""
    name, weights, layers, pooling = spec[:4]
    library = require("timm", "timm", f"encoder {name}")
    model_name = name.partition(":")[2]
    if not model_name.startswith("hf") and not library.is_model(model_name):
        family = model_name.partition("_")[0]
        near = library.list_models(f"{family}*")[:8] or library.list_models()[:8]
        raise ValueError(
            f"encoder: expected a model of timm, such as {', '.join(near)}; got {model_name!r}"
        )
    if weights is None:
        model = download(lambda: library.create_model(model_name, pretrained=True), spec)
    else:
        model = library.create_model(model_name, pretrained=False)
        head = model.pretrained_cfg.get("classifier") or "classifier"
        heads = (head,) if isinstance(head, str) else tuple(head)
        load_into(model, read_state(weights), name, unused=tuple(f"{h}." for h in heads))
    indices = [_index(model, layer, name) for layer in layers]
    config = library.data.resolve_model_data_config(model)
    signed = _signed(model, indices, pooling, config["input_size"]) if len(layers) > 1 else [False]
    return ModuleEncoder(
        name,
        model,
        partial(_features, model, indices, pooling, signed),
        _transform(config),
        identity=spec.settings,
        views=spec.views,
        device=spec.device,
        precision=spec.precision,
    )


def _features(
    model: Any, indices: list[int | None], pooling: str, signed: list[bool], x: Tensor
) -> Tensor:
    return joined(_layers(model, indices, pooling, x), signed)


def _layers(model: Any, indices: list[int | None], pooling: str, x: Tensor) -> list[Tensor]:
    """Rows (n, m) of each layer, in one pass."""
    stages = sorted(index for index in indices if index is not None)
    maps: dict[int, Tensor] = {}
    features = None
    if not stages:
        features = model.forward_features(x)
    elif None in indices:
        features, found = model.forward_intermediates(x, indices=stages)
        maps = dict(zip(stages, found, strict=True))
    else:
        found = model.forward_intermediates(x, indices=stages, intermediates_only=True)
        maps = dict(zip(stages, found, strict=True))
    rows = {index: pooled(found, pooling) for index, found in maps.items()}
    return [_last(model, features, pooling) if index is None else rows[index] for index in indices]


def _last(model: Any, features: Any, pooling: str) -> Tensor:
    if pooling == "map":
        return pooled(features, pooling)
    rows: Tensor = model.forward_head(features, pre_logits=True)
    return rows.flatten(1)


def _signed(
    model: Any, indices: list[int | None], pooling: str, size: tuple[int, ...]
) -> list[bool]:
    """Which layers have negative numbers, by one image of noise: timm does not tell."""
    noise = torch.randn(1, *size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return [bool((rows < 0).any()) for rows in _layers(model.eval(), indices, pooling, noise)]


def _index(model: Any, layer: str, name: str) -> int | None:
    """Which of the model's feature maps has the size of the stage asked for."""
    if layer == "last":
        return None
    info = getattr(model, "feature_info", None) or ()
    reductions = [item["reduction"] for item in getattr(info, "info", info)]
    reduction = 2 ** (int(layer[-1]) + 1)
    if reductions.count(reduction) != 1 or not hasattr(model, "forward_intermediates"):
        raise ValueError(f"layers: expected last for {name}, which has no stages; got {layer!r}")
    return reductions.index(reduction)


def _transform(config: dict[str, Any]) -> ImageTransform:
    size = config["input_size"][-1]
    cut = config["crop_mode"] == "center"
    return ImageTransform(
        size,
        math.floor(size / config["crop_pct"]) if cut else None,
        config["interpolation"],
        tuple(config["mean"]),
        tuple(config["std"]),
    )

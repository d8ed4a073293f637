"""Any image model of timm, with timm's own weights and transform."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch import Tensor

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder, pooled
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import download, load_into, read_state


def build(spec: EncoderSpec) -> ModuleEncoder:
    """The timm model after the colon; "last" is what its classifier would see."""
    name, weights, layer, pooling = spec[:4]
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
    return ModuleEncoder(
        name,
        model,
        partial(_features, model, _index(model, layer, name), pooling),
        _transform(library.data.resolve_model_data_config(model)),
        identity=spec.settings,
        device=spec.device,
        precision=spec.precision,
    )


def _features(model: Any, index: int | None, pooling: str, x: Tensor) -> Tensor:
    if index is not None:
        maps = model.forward_intermediates(x, indices=[index], intermediates_only=True)
        return pooled(maps[0], pooling)
    features = model.forward_features(x)
    if pooling == "map":
        return pooled(features, pooling)
    rows: Tensor = model.forward_head(features, pre_logits=True)
    return rows.flatten(1)


def _index(model: Any, layer: str, name: str) -> int | None:
    """Which of the model's feature maps has the size of the stage asked for."""
    if layer == "last":
        return None
    info = getattr(model, "feature_info", None) or ()
    reductions = [item["reduction"] for item in getattr(info, "info", info)]
    reduction = 2 ** (int(layer[-1]) + 1)
    if reductions.count(reduction) != 1 or not hasattr(model, "forward_intermediates"):
        raise ValueError(f"layer: expected last for {name}, which has no stages; got {layer!r}")
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

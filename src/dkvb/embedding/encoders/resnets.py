"""ResNet50 three times: supervised (torchvision), by SwAV and by DINO (torch.hub state dicts)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder
from dkvb.embedding.encoders.layers import joined, pooled
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import download, load_into, read_state

_SERVER = "https://dl.fbaipublicfiles.com"
_URLS = {
    "swav_resnet50w2": f"{_SERVER}/deepcluster/swav_RN50w2_400ep_pretrain.pth.tar",
    "dino_resnet50": f"{_SERVER}/dino/dino_resnet50_pretrain/dino_resnet50_pretrain.pth",
}
_HEADS = ("fc.", "projection_head.", "prototypes.")


def build(spec: EncoderSpec) -> ModuleEncoder:
    """The ResNet50 called `name`, with torchvision's or the authors' weights."""
    name, weights, layers, pooling = spec[:4]
    models = require("torchvision.models", "torchvision", f"encoder {name}")
    network = _wide_resnet50(models, 2) if name == "swav_resnet50w2" else models.resnet50()
    load_into(network, read_state(weights) if weights else _published(spec, models), name, _HEADS)
    network.fc = nn.Identity()
    supervised = name == "resnet50"
    return ModuleEncoder(
        name,
        network,
        partial(_features, network, layers, pooling),
        # Each as its authors evaluate it.
        ImageTransform(
            224, 232 if supervised else 256, "bicubic" if name.startswith("dino") else "bilinear"
        ),
        identity=spec.settings,
        views=spec.views,
        device=spec.device,
        precision=spec.precision,
    )


def _published(spec: EncoderSpec, models: Any) -> Any:
    published = models.ResNet50_Weights.IMAGENET1K_V2
    url = published.url if spec.name == "resnet50" else _URLS[spec.name]
    path = Path(torch.hub.get_dir()) / "checkpoints" / Path(url).name  # where torch.hub keeps it

    def fetch() -> Any:
        if not path.is_file() and not spec.allow_download:
            raise FileNotFoundError(f"there is no file {path}")
        if spec.name == "resnet50":
            return published.get_state_dict(progress=False, check_hash=True)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path), progress=False)
        return read_state(path)

    return download(fetch, spec)


def _wide_resnet50(models: Any, width: int) -> Any:
    """ResNet50 with every layer `width` times as wide, as SwAV has it.

    torchvision's wide_resnet50_2 widens the middle of each block only.
    """
    resnet = models.resnet
    network = resnet.ResNet(resnet.Bottleneck, [3, 4, 6, 3])
    network.inplanes = 64 * width
    network.conv1 = nn.Conv2d(3, network.inplanes, 7, stride=2, padding=3, bias=False)
    network.bn1 = nn.BatchNorm2d(network.inplanes)
    for number, (blocks, stride) in enumerate([(3, 1), (4, 2), (6, 2), (3, 2)]):
        planes = 64 * width * 2**number
        layer = network._make_layer(resnet.Bottleneck, planes, blocks, stride=stride)
        setattr(network, f"layer{number + 1}", layer)
    return network


def _features(network: Any, layers: tuple[str, ...], pooling: str, x: Tensor) -> Tensor:
    numbers = [4 if layer == "last" else int(layer[-1]) for layer in layers]
    x = network.maxpool(network.relu(network.bn1(network.conv1(x))))  # (n, 64, 56, 56)
    stages = (network.layer1, network.layer2, network.layer3, network.layer4)
    found: dict[int, Tensor] = {}
    for number, stage in enumerate(stages[: max(numbers)], 1):
        x = stage(x)
        if number in numbers:
            found[number] = pooled(x, pooling)
    # Every stage ends with a rectifier.
    return joined([found[number] for number in numbers], [False] * len(numbers))

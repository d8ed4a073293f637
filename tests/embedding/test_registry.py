"""Encoders by name, and the files their weights come from."""

import sys

import pytest
import torch
from torch import nn

from dkvb.embedding import MissingPackageError, load_encoder
from dkvb.embedding.encoders.weights import fingerprint, read_state

from .packages import needs


def test_an_unknown_encoder_lists_the_names_and_what_to_install():
    for name in ("resnet51", "timm:", "", "tim:x"):
        with pytest.raises(ValueError, match=r"resnet50 \(dkvb\[torchvision\]\), .*onnx:\.\.\. "):
            load_encoder(name)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(MissingPackageError, match=r'pip install "dkvb\[torchvision\]"'):
        load_encoder("resnet50")


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="layers: expected one of 'last'"):
        load_encoder(layers="stage9")
    with pytest.raises(ValueError, match="pooling: expected one of"):
        load_encoder(pooling="max")


@pytest.mark.parametrize("content", [b"", b"not weights", b"\x80\x04K\x01."])
def test_files_that_hold_no_weights_are_refused(tmp_path, content):
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"weights .*w.pth: expected a state dict"):
        read_state(tmp_path / "w.pth")
    with pytest.raises(ValueError, match="found none at"):
        read_state(tmp_path / "nothing.pth")


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # still how OpenAI's CLIP comes
def test_state_dicts_are_the_same_from_any_kind_of_file(tmp_path):
    state = {"a.weight": torch.randn(3, 2), "b": torch.tensor(3)}
    torch.save(state, tmp_path / "a.pth")
    torch.save({"model": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "b.pth")
    save = needs("safetensors.torch").save_file
    save(state, tmp_path / "c.safetensors")
    script = torch.jit.script(nn.Linear(2, 3))
    script.save(str(tmp_path / "d.pt"))
    prints = {fingerprint(read_state(tmp_path / n)) for n in ("a.pth", "b.pth", "c.safetensors")}
    assert prints == {fingerprint(state)}
    assert set(read_state(tmp_path / "d.pt", scripted=True)) == {"weight", "bias"}
    with pytest.raises(ValueError, match="cannot be read"):
        read_state(tmp_path / "d.pt")

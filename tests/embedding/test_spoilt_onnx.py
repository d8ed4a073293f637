"""ONNX files that cannot be used end with one line, and open no file but those beside them."""

import numpy as np
import pytest

from dkvb.embedding import load_encoder

from .packages import needs
from .test_encoders import write_onnx

APART = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}


@pytest.fixture
def folder(tmp_path):
    needs("onnxruntime")
    return tmp_path


def problem(path):
    with pytest.raises(ValueError, match="encoder onnx") as caught:
        load_encoder(f"onnx:{path}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no model", b"\x08\x08"])
def test_other_files_are_refused(folder, content):
    (folder / "net.onnx").write_bytes(content)
    assert "it fails" in problem(folder / "net.onnx")


def test_spoilt_files_load_or_are_refused_in_one_line(folder):
    write_onnx(folder / "net.onnx", "n")
    content = (folder / "net.onnx").read_bytes()
    rng = np.random.default_rng(0)
    refused = []
    for _ in range(60):
        spoilt = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            spoilt[place] = rng.integers(256)
        (folder / "net.onnx").write_bytes(spoilt[: rng.integers(len(content) // 2, len(content))])
        try:
            load_encoder(f"onnx:{folder / 'net.onnx'}")
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert not any("\n" in message for message in refused)


def test_a_message_that_is_no_text_stays_out_of_standard_output(folder, capfd):
    write_onnx(folder / "net.onnx", "n")
    content = (folder / "net.onnx").read_bytes()
    for operator in (b"Conv", b"Flatten", b"Reshape", b"GlobalAveragePool", b"Relu"):
        content = content.replace(operator, b"\xe7" * len(operator))
    (folder / "net.onnx").write_bytes(content)
    assert "it fails" in problem(folder / "net.onnx")
    assert capfd.readouterr().out == ""


def moved(folder, place):
    """A model that says that its tensors lie elsewhere."""
    onnx = needs("onnx")
    write_onnx(folder / "net.onnx", "n", **APART)
    model = onnx.load(str(folder / "net.onnx"), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = place
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


def test_tensors_lie_beside_the_model(folder):
    (folder / "models").mkdir()
    (folder / "secret.bin").write_bytes(b"s" * 432)
    for place in ("../secret.bin", str(folder / "secret.bin"), "/dev/zero"):
        assert "which lies elsewhere" in problem(moved(folder / "models", place))
    (folder / "models" / "link.bin").symlink_to(folder / "secret.bin")
    assert "which lies elsewhere" in problem(moved(folder / "models", "link.bin"))
    (folder / "models" / "link.bin").unlink()
    assert "No such file" in problem(moved(folder / "models", "link.bin"))


def test_a_device_holds_no_tensors(folder):
    import os

    os.mkfifo(folder / "pipe.bin")
    assert "not a regular file" in problem(moved(folder, "pipe.bin"))


def test_a_file_that_asks_for_huge_images_is_refused(folder):
    onnx = needs("onnx")
    write_onnx(folder / "net.onnx", "n")
    model = onnx.load(str(folder / "net.onnx"))
    for side in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        side.dim_value = 10**9
    model.graph.output[0].type.tensor_type.shape.ClearField("dim")
    onnx.save(model, str(folder / "net.onnx"))
    assert "above 8192" in problem(folder / "net.onnx") or "it fails" in problem(
        folder / "net.onnx"
    )

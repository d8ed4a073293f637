"""Encoder and head in one ONNX file: from images to probabilities."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from dkvb import BottleneckClassifier, export_onnx, fit_keys
from dkvb.export import check_onnx

from .problems import keys, made, rows, trained


class Tiny(nn.Module):
    """A small network with what encoders have: convolutions, normalisation, dropout, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 12)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.norm(self.stem(image)))
        return self.last(nn.functional.dropout(maps, 0.5, self.training).mean(dim=(2, 3)))


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    torch.manual_seed(0)
    return Tiny().train()


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).normal(size=(1000, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def embeddings(tiny: Tiny, images: Any) -> Any:
    tiny.eval()
    with torch.no_grad():
        found = tiny(torch.from_numpy(images)).numpy()
    tiny.train()
    return found


@pytest.fixture(scope="module")
def classifiers(embeddings: Any) -> dict[str, BottleneckClassifier]:
    own = fit_keys(
        embeddings, preset="paper", n_codebooks=6, n_pairs=32, key_dim=3, method="sample"
    )
    y = np.arange(200) % 5
    return {name: made(name, own).fit(embeddings[:200], y) for name in ("used", "all")}


@pytest.fixture(scope="module")
def traced(
    tiny: Tiny,
    classifiers: dict[str, BottleneckClassifier],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("traced") / "used.onnx"
    report = export_onnx(classifiers["used"], path, encoder=tiny, input_shape=(3, 8, 8))
    assert report.inputs == ("image",)
    assert tiny.training  # as it was
    return path


def test_a_torch_module_and_the_head(
    traced: Path, classifiers: dict[str, BottleneckClassifier], embeddings: Any, images: Any
) -> None:
    parity = check_onnx(traced, classifiers["used"], embeddings, images)
    # The encoder's own arithmetic is float32, in another order: a few codes may move.
    assert parity.rows == 1000
    assert parity.codes_differ <= 6
    assert parity.probability_difference < 1e-5
    assert parity.labels_differ == 0


@pytest.mark.parametrize("name", ["used", "all"])
def test_an_onnx_file_and_the_head(
    name: str,
    traced: Path,
    classifiers: dict[str, BottleneckClassifier],
    embeddings: Any,
    images: Any,
    tmp_path: Path,
) -> None:
    # The encoder of the file above, cut out of it.
    last = next(n for n in onnx.load(traced).graph.node if n.output[0] == "embedding").input[0]
    encoder = tmp_path / "encoder.onnx"
    onnx.utils.extract_model(str(traced), str(encoder), ["image"], [last])
    report = export_onnx(classifiers[name], tmp_path / "model.onnx", encoder=encoder)
    session = onnxruntime.InferenceSession(str(encoder), providers=["CPUExecutionProvider"])
    (own,) = session.run(None, {"image": images})
    assert own == pytest.approx(embeddings, abs=1e-5)
    parity = check_onnx(report.path, classifiers[name], own, images)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert parity.probability_difference < 1e-6
    # Torch's embeddings differ in their last bits, which soft reads see in half precision.
    near = check_onnx(report.path, classifiers[name], embeddings, images)
    assert near.codes_differ <= 6
    assert near.probability_difference < 1e-5
    assert near.labels_differ == 0


def linear(
    path: Path, *, width: int = 12, opset: int = 13, batch: Any = "n", outputs: int = 1
) -> Path:
    """An encoder file that multiplies by two, with names that the head uses too."""
    shape = [batch, width]
    nodes = [helper.make_node("Add", ["x", "x"], ["scores"])]
    nodes += [helper.make_node("Identity", ["scores"], [f"more{i}"]) for i in range(1, outputs)]
    ends = ["scores", *(f"more{i}" for i in range(1, outputs))]
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ends],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("opset", [13, 18, 20])
def test_files_of_older_and_newer_opsets(opset: int, tmp_path: Path) -> None:
    encoder = linear(tmp_path / "encoder.onnx", opset=opset)
    report = export_onnx(trained("used"), tmp_path / "model.onnx", encoder=encoder)
    assert report.opset == max(18, opset)
    x, _ = rows(300, seed=3)
    parity = check_onnx(report.path, trained("used"), x, x / 2)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    if opset == 20:
        with pytest.raises(ValueError, match="opset: expected at least 20, that of the encoder"):
            export_onnx(trained("used"), tmp_path / "model.onnx", encoder=encoder, opset=19)


def test_encoders_that_do_not_fit_are_refused(tmp_path: Path, tiny: Tiny) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        (r"expected embeddings \(batch, 12\), the width of the keys; got \('n', 7\)", {"width": 7}),
        ("expected one input and one output", {"outputs": 2}),
        ("expected a file for any number of inputs; got one for 4", {"batch": 4}),
    ]
    for message, shape in cases:
        encoder = linear(tmp_path / "encoder.onnx", **shape)
        with pytest.raises(ValueError, match=message):
            export_onnx(trained("used"), tmp_path / "model.onnx", encoder=encoder)
    with pytest.raises(ValueError, match="input_shape: expected the shape of one input"):
        export_onnx(trained("used"), tmp_path / "model.onnx", encoder=tiny)
    with pytest.raises(ValueError, match="input_shape: expected None for an ONNX file"):
        export_onnx(
            trained("used"), tmp_path / "model.onnx", encoder=encoder, input_shape=(3, 8, 8)
        )
    assert not (tmp_path / "model.onnx").exists()
    assert keys().width == 12

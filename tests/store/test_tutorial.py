"""The commands of the tutorial run, in its order, on images that come with scikit-learn."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from typer.testing import CliRunner

from dkvb.cli import app
from dkvb.embedding.encoders.encoder import ModuleEncoder
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.store import read_folder

TUTORIAL = Path(__file__).parents[2] / "docs" / "get-started" / "photos.md"
# Handwritten digits stand in for photos.
NAMES = {0: "airplane", 1: "bird", 3: "cat", 6: "dog", 7: "ship"}


def small_encoder(name, device="cpu", **_):
    """What stands in for a network whose weights are not here: random filters, pooled."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten()
        )
    assert name == "efficientnet_lite0"
    return ModuleEncoder(name, network, network, ImageTransform(24), identity={"name": name})


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dkvb.embedding.load_encoder", small_encoder)
    images, digits = load_digits(return_X_y=True)

    def write(folder, digit, start, stop):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        for i, row in enumerate(images[digits == digit][start:stop]):
            image = Image.fromarray((row.reshape(8, 8) * 15).astype(np.uint8))
            image.resize((24, 24)).save(place / f"{i:03}.jpg", quality=95)

    for digit, name in NAMES.items():
        write(f"photos/{name}", digit, 0, 60)
        write(f"new-photos/{name}", digit, 60, 80)
    write("monday/horse", 4, 0, 60)
    return tmp_path


def commands():
    blocks = re.findall(r"```sh\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def run(line):
    program, *arguments = shlex.split(line)
    assert program == "dkvb"
    return CliRunner().invoke(app, arguments)


def test_every_command_of_the_tutorial(photos, capsys):
    told = {}
    lines = commands()
    assert len(lines) == 16
    for line in lines:
        done = run(line)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        told.setdefault(line, done.stdout)
        if line.startswith("dkvb export model model.onnx"):
            check_deployed(photos)
        if line.startswith("dkvb export model camera.onnx"):
            check_camera(capsys)
    assert told[lines[0]] == "learned 300 rows; model knows 5 classes\n"
    assert "airplane" in told["dkvb inspect model"]
    lines = csv.DictReader(told["dkvb predict model --data new-photos"].splitlines())
    items, labels = zip(*((line["item"], line["label"]) for line in lines), strict=True)
    assert items[0] == "airplane/000.jpg"
    right = np.repeat(sorted(NAMES.values()), 20)
    assert (np.array(labels) == right).mean() > 0.9
    answers = json.loads(told["dkvb predict model --data new-photos --json"])
    assert [answer["label"] for answer in answers] == list(labels)
    assert all(0 <= answer["novelty"] <= 1 for answer in answers)
    one = list(csv.DictReader(told["dkvb predict model new-photos/bird/000.jpg"].splitlines()))
    assert [(line["item"], line["label"]) for line in one] == [("new-photos/bird/000.jpg", "bird")]
    with Path("answers.csv").open() as file:
        assert [line["label_1"] for line in csv.DictReader(file)] == list(labels)
    would = told["dkvb learn model --data monday --dry-run"]
    assert would.startswith("would have learned 60 rows; model would know 6 classes")
    assert told["dkvb learn model --data monday"].startswith("learned 60 rows; model knows 6")
    assert told["dkvb forget model --label dog"].startswith("forgot 60 rows; model knows 5")
    history = [line.split()[1:] for line in told["dkvb history model"].splitlines()]
    assert history == [["fit", "300", "rows"], ["learn", "60", "rows"], ["forget", "60", "rows"]]
    known = ["airplane", "bird", "cat", "horse", "ship"]
    assert read_folder("model").classifier.classes_.tolist() == known
    assert Path("camera.onnx").stat().st_size > Path("model.onnx").stat().st_size


def check_camera(capsys):
    """The tutorial's program answers pictures as `dkvb predict` does."""
    (program,) = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == "bird\n"


def check_deployed(folder):
    """The exported file answers what the model does, without this package."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession("model.onnx")
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    classifier = read_folder("model").classifier
    assert labels == classifier.classes_.tolist()
    encoder = small_encoder("efficientnet_lite0")
    files = sorted((folder / "new-photos").rglob("*.jpg"))
    rows = encoder.encode([encoder.transform(Image.open(file)) for file in files]).numpy()
    found = np.array(labels)[session.run(["label"], {"embedding": rows})[0]]
    assert (found == classifier.predict(rows)).mean() > 0.98  # but for ties of keys


def test_the_script_compares_words_exactly_and_percentages_within_a_point():
    from scripts.check_tutorial import states

    line = "accuracy: 82.50 % of 200 rows"
    assert states(line, line)
    assert states(line, "accuracy: 83.50 % of 200 rows")
    assert not states(line, "accuracy: 84.00 % of 200 rows")
    assert not states(line, "accuracy: 82.50 % of 300 rows")
    assert not states(line, "learned 200 rows")


def test_the_folders_of_the_script_are_those_of_the_test(tmp_path):
    from scripts import check_tutorial

    assert sorted(check_tutorial.CLASSES) == sorted(NAMES.values())
    images = tmp_path / "images"
    for split in ("train", "test"):
        for label in (*check_tutorial.CLASSES, check_tutorial.NEW_CLASS):
            (images / split / label).mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(images / split / label / f"{i}.png")
    check_tutorial.build(images, tmp_path)
    for folder, count in (("photos", 10), ("new-photos", 10), ("monday", 2)):
        assert len(list((tmp_path / folder).rglob("*.jpg"))) == count

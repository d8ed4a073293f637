"""Blocks of code of the documentation run, on small data of their kind.

Run elsewhere: the tutorial (tests/store), the page on serving (tests/serve), engines
(`make test-engines`), doctests (tests/test_pages.py). Not run: what needs a GPU, a download, or
embeddings that this repository has not; tests/docs/test_commands.py parses those.
"""

import shutil

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import dkvb
from dkvb import KernelClassifier
from dkvb.cli import app
from tests.docs.blocks import ROOT, commands, python_blocks

pytestmark = pytest.mark.docs

X, y = load_digits(return_X_y=True)
X, y = X.astype(np.float32), np.array([f"digit {number}" for number in y])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the pages speak of: photos, embeddings, tables."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)

    def photos(name, labels, count):
        for label, digit in labels.items():
            place = tmp_path / name / label
            place.mkdir(parents=True)
            for i, row in enumerate(X[y == f"digit {digit}"][:count]):
                image = Image.fromarray((row.reshape(8, 8) * 15).astype(np.uint8))
                image.resize((64, 64)).save(place / f"{i}.jpg", quality=95)

    photos("photos", {"cat": 0, "dog": 1}, 12)
    photos("monday", {"horse": 4}, 6)
    photos("new-photos", {"cat": 0, "dog": 1}, 4)
    for name, start in {"photos": 0, "train": 0, "test": 600, "unlabelled": 900}.items():
        np.savez(f"{name}.npz", x=X[start : start + 150], y=y[start : start + 150])

    def table(start):
        rows = pa.FixedSizeListArray.from_arrays(X[start : start + 300].ravel(), X.shape[1])
        return pa.table({"x": rows, "y": y[start : start + 300]})

    for name in ("more", "rows"):
        (tmp_path / name).mkdir()
    names = ("rows", "more/0", "rows/0", "rows/1")
    for number, name in enumerate(names):
        pyarrow.parquet.write_table(table(300 * number), f"{name}.parquet")
    pyarrow.feather.write_feather(table(1400), "new.arrow", compression="uncompressed")
    return tmp_path


def run(line):
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, f"dkvb {' '.join(line)}\n{done.output}\n{done.exception!r}"
    return done.output


def test_commands_of_the_readme(folder):
    lines = commands(ROOT / "README.md")
    assert [line[0] for line in lines][:5] == ["fit", "learn", "predict", "forget", "export"]
    (folder / "photos.npz").unlink()  # which `dkvb embed` writes
    for line in lines:
        run(line)
    assert (folder / "model.onnx").is_file()


def test_commands_of_the_page_on_data(folder):
    for line in commands(ROOT / "docs" / "how-to" / "data.md"):
        if line[0] == "embed":
            (folder / "rows.parquet").unlink()
        run(line)


def test_commands_of_the_page_on_engines(folder):
    for line in commands(ROOT / "docs" / "how-to" / "engines.md"):
        run(line)
    assert len(dkvb.load("union").classes_) == 10


def test_exporting_with_an_encoder(folder):
    from torch import nn

    from dkvb.embedding import Encoder, load_encoder

    photos = sorted((folder / "photos").rglob("*.jpg"))
    encoder = load_encoder("efficientnet_lite0")  # in the place of ResNet50's weights
    sees = KernelClassifier().fit(
        Encoder(encoder).fit_transform(photos), [path.parent.name for path in photos]
    )
    network = nn.Sequential(nn.Conv2d(3, 4, 5, stride=8), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    names = {"network": network.eval(), "load_encoder": lambda name: encoder}
    names |= {"export_onnx": dkvb.export_onnx, "clf": sees}
    camera, runtime = python_blocks(ROOT / "docs" / "how-to" / "deploy.md")
    pictures, module, file = camera.split("export_onnx(")[1:]
    exec(f"export_onnx({pictures}", names)
    names["clf"] = KernelClassifier().fit(X[:200], y[:200])
    exec(f"export_onnx({module}", names)
    dkvb.export_onnx(sees, "encoder.onnx")  # any file with one input and a table as output
    assert "encoder=" in file
    shutil.copy(photos[0], "photo.jpg")
    exec(runtime, names)
    assert names["label"].shape == (1,)


def test_batched_training():
    (block,) = python_blocks(ROOT / "docs" / "reference" / "baselines.md")
    names = {"X": X[:60] / 16, "y": y[:60], "X_test": X[60:90] / 16, "y_test": y[60:90]}
    exec(block.replace("epochs=2000", "epochs=100"), names)
    assert len(names["records"]) == 20

"""Encoders as scikit-learn transformers."""

import pickle

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline

from dkvb import BottleneckClassifier, KernelClassifier
from dkvb.embedding import Encoder, embed, load_dataset

from . import tiny
from .test_run import pixels_encoder


def texts():
    dataset = tiny.dataset(60)
    return [dataset.item(i) for i in range(60)], dataset.labels


def test_texts_in_a_pipeline():
    X, y = texts()
    encoder = Encoder(tiny.encoder(), batch_size=60)
    rows = encoder.fit_transform(X)
    assert rows.shape == (60, tiny.WIDTH)
    pipeline = make_pipeline(encoder, KernelClassifier())
    assert (pipeline.fit(X, y).predict(X) == KernelClassifier().fit(rows, y).predict(rows)).all()
    assert (clone(pipeline).fit(X, y).predict(X) == pipeline.predict(X)).all()
    keys = {"n_codebooks": 2, "n_pairs": 4, "key_dim": 2}
    assert len(make_pipeline(encoder, BottleneckClassifier(keys)).fit(X, y).predict(X)) == 60


def test_columns_and_pandas_output():
    pandas = pytest.importorskip("pandas")
    X, _ = texts()
    frame = pandas.DataFrame({"text": X, "length": [len(text) for text in X]})
    rows = Encoder(tiny.encoder()).fit_transform(X)
    made = make_column_transformer((Encoder(tiny.encoder()), "text"), ("passthrough", ["length"]))
    assert np.allclose(made.fit_transform(frame)[:, :-1], rows)
    named = Encoder(tiny.encoder()).set_output(transform="pandas").fit(X)
    assert named.transform(frame[["text"]]).columns.tolist() == [
        f"encoder{i}" for i in range(tiny.WIDTH)
    ]
    with pytest.raises(ValueError, match="expected one column of items; got 2"):
        named.transform(frame)


def test_images_of_every_kind_give_the_same_rows(tmp_path):
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 255, size=(9, 9, 3), dtype=np.uint8) for _ in range(3)]
    for i, one in enumerate(pixels):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(one).save(tmp_path / "a" / f"{i}.png")
    files = sorted((tmp_path / "a").glob("*.png"))
    encoder = Encoder(pixels_encoder())
    rows = encoder.transform(pixels)
    for items in (files, [str(f) for f in files], [f.read_bytes() for f in files],
                  [Image.open(f) for f in files], np.stack(pixels)):  # fmt: skip
        assert (encoder.transform(items) == rows).all()
    dataset = load_dataset(tmp_path, kind="image")
    assert (embed(pixels_encoder(), dataset, tmp_path / "cache").array() == rows).all()


def test_what_is_no_item_is_refused(tmp_path):
    encoder = Encoder(pixels_encoder())
    (tmp_path / "a.png").write_bytes(b"no image")
    for items, message in (
        ([tmp_path / "a.png"], "item 0, .*a.png, cannot"),
        ([np.zeros((4, 4))], "item 0 has shape"),
        ([3], "item 0 is int"),
        ("a.png", "expected a sequence"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            encoder.transform(items)
    with pytest.raises(TypeError, match="expected texts; item 1 is int"):
        Encoder(tiny.encoder()).transform(["a", 1])
    assert encoder.transform([]).shape == (0, 3)


def test_a_saved_pipeline_holds_no_weights(monkeypatch):
    made = []
    monkeypatch.setattr(
        "dkvb.embedding.transformer.load_encoder",
        lambda name, **_: made.append(name) or tiny.encoder(),
    )
    encoder = Encoder("tiny").fit([])
    again = pickle.loads(pickle.dumps(encoder))
    assert not hasattr(again, "encoder_")
    assert (again.transform(["abc"]) == encoder.transform(["abc"])).all()
    assert made == ["tiny", "tiny"]

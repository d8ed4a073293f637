"""Every route, over a real server."""

import io
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest

import dkvb
from dkvb.serve.encoding import Encoding
from dkvb.store import read_folder

from .shared import CLASSES, WIDTH, good, make_model, npy, picture, problem, rows, running

NPY = {"Content-Type": "application/x-npy"}
STREAM = {"Content-Type": "application/vnd.apache.arrow.stream"}
FILE = {"Content-Type": "application/vnd.apache.arrow.file"}


def arrow(X, y=None, ids=None, file=False, **options):
    columns = {"embedding": pa.FixedSizeListArray.from_arrays(X.ravel(), X.shape[1])}
    columns |= {} if y is None else {"label": pa.array(y)}
    columns |= {} if ids is None else {"id": pa.array(ids)}
    table, buffer = pa.table(columns), io.BytesIO()
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(buffer, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def test_predictions_are_the_classifiers_in_every_format(client, model):
    X, _ = rows(9, seed=1)
    expected = read_folder(model).classifier.ask(X).records()
    bodies = [
        {"content": npy(X), "headers": NPY},
        {"content": npy(np.asfortranarray(X.astype(np.float64))), "headers": NPY},
        {"content": arrow(X), "headers": STREAM},
        {"content": arrow(X, file=True), "headers": FILE},
        {"json": {"embeddings": X.tolist()}},
    ]
    for body in bodies:
        found = good(client.post("/v1/predict", **body))
        assert found["model"] == "pets"
        assert found["sequence"] == 1
        for ours, theirs in zip(found["predictions"], expected, strict=True):
            assert ours["label"] == theirs["label"]
            assert ours["probability"] == pytest.approx(theirs["probability"], abs=1e-6)
            assert ours["novelty"] == pytest.approx(theirs["novelty"], abs=0.05)
    one = good(client.post("/v1/predict?top=2", content=npy(X[0]), headers=NPY))["predictions"]
    assert [len(p["top"]) for p in one] == [2]


def test_every_classifier_learns_predicts_and_says_what_it_cannot(any_client):
    X, y = rows(6, seed=1)
    done = good(any_client.post("/v1/learn?label=elk", content=npy(X[:2] + 9), headers=NPY))
    assert (done["operation"], done["count"], done["sequence"]) == ("learn", 2, 2)
    assert done["classes"] == 4
    assert (done["ids"] is not None) == (any_client.name == "kernel")
    found = good(any_client.post("/v1/predict", content=npy(X), headers=NPY))["predictions"]
    assert {one["label"] for one in found} <= {*CLASSES, "elk"}
    assert len(good(any_client.get("/v1/classes"))["classes"]) == 4
    assert good(any_client.get("/v1/quality"))["prequential"]["scored"] == 0
    body = {"embeddings": X.tolist(), "labels": y.tolist()}
    measured = good(any_client.post("/v1/quality", json=body))
    assert (measured["kind"], measured["rows"]) == ("held-out", 6)
    assert sum(map(sum, measured["confusion"])) == 6
    closed_form = any_client.name in ("kernel", "sums")
    if closed_form:
        kind = good(any_client.get("/v1/quality"))["kind"]
        assert kind == {"kernel": "leave-one-out", "sums": "leave-one-cell-out"}[any_client.name]
    if any_client.name == "kernel":
        good(any_client.get("/v1/suspects"))
    else:
        problem(any_client.get("/v1/suspects"), 409, "--classifier kernel")
        gone = {"ids": ["a"], "confirm": True}
        problem(any_client.post("/v1/forget", json=gone), 409, "send the embeddings")
    forgotten = any_client.post("/v1/forget", json={"classes": ["elk"], "confirm": True})
    if closed_form:
        assert good(forgotten)["count"] == 2
    else:
        problem(forgotten, 422)
    renamed = any_client.post("/v1/rename", json={"label": "ant", "new_label": "aunt"})
    if closed_form:
        good(renamed)
        good(any_client.post("/v1/undo"))
    else:
        problem(renamed, 422, "expected a KernelClassifier")
    assert "ant" in [c["label"] for c in good(any_client.get("/v1/classes"))["classes"]]
    suggested = any_client.post("/v1/suggestions?n=2", content=npy(X), headers=NPY)
    if not closed_form:
        assert suggested.status_code in (200, 422)
    else:
        assert len(good(suggested)["suggestions"]) == 2


def test_learning_in_every_format(client, model):
    X, y = rows(3, seed=1)
    ids = ["p", "q", "r"]
    bodies = [
        ("", {"content": arrow(X, y, ids), "headers": STREAM}),
        ("?label=ant&label=bee&label=cat&id=p&id=q&id=r", {"content": npy(X), "headers": NPY}),
        ("", {"json": {"embeddings": X.tolist(), "labels": y.tolist(), "ids": ids}}),
    ]
    for query, body in bodies:
        done = good(client.post(f"/v1/learn{query}", **body))
        assert (done["count"], done["ids"]) == (3, ids)
        good(client.post("/v1/undo"))
    for query, body in bodies:
        good(client.post(f"/v1/learn{query}", **body))
    assert len(read_folder(model).ids()) == 9


def test_corrections_are_undone_one_after_another(client, model):
    before = read_folder(model).classifier
    X, _ = rows(3, seed=1)
    done = good(client.post("/v1/learn?label=dog", content=npy(X), headers=NPY))
    good(client.post("/v1/relabel", json={"ids": done["ids"][:1], "label": "elk"}))
    old = {"embeddings": X[1:].tolist(), "old_label": "dog", "labels": ["fox", "gnu"]}
    assert good(client.post("/v1/relabel", json=old))["count"] == 2
    good(client.post("/v1/rename", json={"label": "elk", "new_label": "moose"}))
    merged = good(client.post("/v1/merge", json={"labels": ["fox", "gnu"], "into": "beast"}))
    assert (merged["operation"], merged["count"]) == ("merge_classes", 2)
    counts = {c["label"]: c["count"] for c in good(client.get("/v1/classes"))["classes"]}
    assert counts == {"ant": 10, "bee": 10, "cat": 10, "beast": 2, "moose": 1}
    last = good(client.get("/v1/model"))["undo"]
    assert last == {"operation": "merge_classes", "count": 2, "sequence": merged["sequence"]}
    problem(client.post("/v1/undo", json={"sequence": 1}), 409, "/v1/history")
    assert good(client.post("/v1/undo", json={"sequence": merged["sequence"]}))["count"] == 2
    for _ in range(4):
        good(client.post("/v1/undo"))
    problem(client.post("/v1/undo"), 409, "a forget is final")
    after = read_folder(model).classifier
    assert all(np.array_equal(t, after.state_arrays()[n]) for n, t in before.state_arrays().items())
    history = good(client.get("/v1/history"))["history"]
    assert [one["sequence"] for one in history] == list(range(1, 12))
    assert len(good(client.get("/v1/history?after=9"))["history"]) == 2


def test_forgetting_asks_and_is_final(client, model):
    X, _ = rows(4, seed=1)
    learn = "/v1/learn?label=dog&source=camera"
    ids = good(client.post(learn, content=npy(X), headers=NPY))["ids"]
    assert all(own.startswith("camera/") for own in ids)
    asked = problem(client.post("/v1/forget", json={"classes": ["ant"]}), 422, "final")
    assert asked["rows"] == 10
    sure = {"confirm": True}
    assert good(client.post("/v1/forget", json={"ids": ids[:1], **sure}))["count"] == 1
    assert good(client.post("/v1/forget", json={"source": "camera", **sure}))["count"] == 3
    known = {"embeddings": rows()[0][:1].tolist(), "labels": ["ant"], **sure}
    assert good(client.post("/v1/forget", json=known))["count"] == 1
    assert good(client.post("/v1/forget", json={"classes": ["bee", "cat"], **sure}))["count"] == 20
    problem(client.post("/v1/undo"), 409)
    assert read_folder(model).classifier.class_count_ == {"ant": 9}
    good(client.post("/v1/forget", json={"classes": ["ant"], **sure}))
    problem(client.post("/v1/predict", content=npy(X), headers=NPY), 409, "learn something first")
    assert good(client.get("/v1/quality"))["accuracy"] is None
    good(client.post("/v1/learn?label=new", content=npy(X), headers=NPY))
    assert good(client.post("/v1/predict", content=npy(X), headers=NPY))["predictions"]


def test_predictions_are_remembered_scored_and_suggested(client):
    X, y = rows(6, seed=1)
    asked = client.post("/v1/predict?remember=true", content=npy(X), headers=NPY)
    found = good(asked)["predictions"]
    ids = [one["prediction_id"] for one in found]
    suggested = good(client.get("/v1/suggestions?n=3"))["suggestions"]
    assert len({one["prediction_id"] for one in suggested} & set(ids)) == 3
    body = {"prediction_ids": ids[:4], "labels": y[:4].tolist()}
    assert good(client.post("/v1/learn", json=body))["count"] == 4
    scored = good(client.get("/v1/quality"))["prequential"]
    right = np.mean([one["label"] == label for one, label in zip(found[:4], y, strict=False)])
    assert (scored["scored"], scored["accuracy"]) == (4, right)
    assert len(scored["curve"]) == 4
    problem(client.post("/v1/learn", json=body), 404, "send the rows themselves")
    good(client.post("/v1/forget", json={"classes": ["ant"], "confirm": True}))
    problem(client.post("/v1/predict", json={"prediction_ids": ids[4:]}), 404)


def test_a_prediction_that_is_asked_for_again_keeps_its_id(client):
    X, _ = rows(3, seed=1)
    asked = client.post("/v1/predict?remember=true", content=npy(X), headers=NPY)
    ids = [one["prediction_id"] for one in good(asked)["predictions"]]
    good(client.post("/v1/rename", json={"label": "ant", "new_label": "dog"}))
    again = client.post("/v1/predict?remember=true&top=2", json={"prediction_ids": ids})
    found = good(again)["predictions"]
    assert [one["prediction_id"] for one in found] == ids
    assert len(good(client.get("/v1/suggestions?n=100"))["suggestions"]) == 3  # none is twice
    labels = [one["label"] for one in found]
    assert "dog" in labels  # which the first answer could not be
    good(client.post("/v1/learn", json={"prediction_ids": ids, "labels": labels}))
    assert good(client.get("/v1/quality"))["prequential"]["accuracy"] == 1.0


@pytest.mark.parametrize("name", ["kernel"])
def test_explanations(tmp_path, name):
    path, (X, _) = make_model(tmp_path / "m", name), rows(2, seed=1)
    with running(path) as url:
        asked = httpx.post(f"{url}/v1/predict?explain=1", content=npy(X), headers=NPY)
        why = good(asked)["predictions"][0]["why"]
        many = httpx.post(f"{url}/v1/predict?explain=1", content=npy(rows()[0]), headers=NPY)
        problem(many, 413, "ask for fewer")
    assert set(why) == {"examples" if name == "kernel" else "keys"}
    assert all(one["label"] in CLASSES for one in next(iter(why.values())))


def test_exports_load(client, model, tmp_path):
    X, _ = rows(5, seed=1)
    for kind in ("safetensors", "onnx"):
        answer = client.get(f"/v1/export?format={kind}")
        assert answer.status_code == 200
        assert f'filename="pets.{kind}"' in answer.headers["content-disposition"]
        (tmp_path / f"x.{kind}").write_bytes(answer.content)
    again = dkvb.load(tmp_path / "x.safetensors")
    assert np.array_equal(again.predict(X), read_folder(model).classifier.predict(X))


def test_rows_health_metrics_and_headers(client):
    found = good(client.get("/v1/rows?label=ant&n=4"))
    assert (found["total"], len(found["rows"]), found["next"]) == (10, 4, 4)
    assert good(client.get("/v1/rows?label=ant&start=8"))["next"] is None
    problem(client.get("/v1/rows?label=zebra"), 404)
    assert good(client.get("/health"))["status"] == "UP"
    assert good(client.get("/ready"))["status"] == "READY"
    text = client.get("/metrics").text
    assert 'dkvb_requests_total{method="GET",route="/v1/rows",status="200"} 2.0' in text
    assert 'dkvb_model{what="classes"} 3.0' in text
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/page/index.html").content == page.content
    problem(client.get("/page/../serve.py"), 404)
    problem(client.get("/page/%2e%2e/__init__.py"), 404)


def test_images_from_nothing_with_pictures_kept(tmp_path):
    model = tmp_path / "photos"
    red, blue = (220, 20, 20), (20, 20, 220)
    how = {"encoder": "efficientnet_lite0", "keep_images": True}
    with running(model, **how) as url, httpx.Client(base_url=url, timeout=60) as client:
        facts = good(client.get("/v1/model"))
        assert (facts["takes"], facts["classes"], facts["keeps_images"]) == ("image", 0, True)
        problem(client.post("/v1/predict", files={"image": picture(red)}), 409, "learn something")
        problem(client.post("/v1/predict", json={"texts": ["red"]}), 422, "encodes images")
        for color, label in ((red, "red"), (blue, "blue")):
            files = [("image", picture(color, seed)) for seed in range(3)]
            done = good(client.post("/v1/learn", files=files, data={"label": label}))
            assert done["count"] == 3
        files = [("image", picture(red, 9)), ("image", picture(blue, 9))]
        asked = client.post("/v1/predict?explain=1&remember=1", files=files)
        first, second = good(asked)["predictions"]
        assert (first["label"], second["label"]) == ("red", "blue")
        example = first["why"]["examples"][0]
        assert example["image"]
        image = client.get(f"/v1/images/{example['id']}")
        assert image.content.startswith(b"\xff\xd8")
        ids = {"prediction_ids": [first["prediction_id"]], "label": "red", "source": "phone"}
        learned = good(client.post("/v1/learn", json=ids))["ids"][0]
        assert client.get(f"/v1/images/{learned}").status_code == 200
        assert len(list((model / "images").iterdir())) == 7
        good(client.post("/v1/undo"))
        problem(client.get(f"/v1/images/{learned}"), 404)
        good(client.post("/v1/forget", json={"classes": ["red"], "confirm": True}))
        assert len(list((model / "images").iterdir())) == 3
    other = Encoding("efficientnet_lite0", "cpu", False)
    other.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="expected efficientnet_lite0"):
        other.check_made(read_folder(model))


def test_a_new_folder_needs_an_encoder_or_a_width(tmp_path):
    with pytest.raises(ValueError, match="--encoder"), running(tmp_path / "new"):
        pass
    with running(tmp_path / "new", width=WIDTH) as url:
        problem(httpx.get(f"{url}/v1/suspects"), 409, "learn something first")
        assert good(httpx.get(f"{url}/v1/classes")) == {
            "sequence": 1, "rows": 0, "kind": None, "classes": [],
        }  # fmt: skip
        many = httpx.post(f"{url}/v1/learn?label=1", content=npy(rows()[0]), headers=NPY)
        assert good(many)["count"] == 30
        assert good(httpx.get(f"{url}/v1/classes"))["kind"] == "string"


def test_answers_are_not_held_back(client):
    """A socket without its protocol keeps Nagle's algorithm: 40 ms for each answer."""
    client.get("/health")
    start = time.perf_counter()
    for _ in range(20):
        client.post("/v1/rename", json={})
    assert time.perf_counter() - start < 20 * 0.04

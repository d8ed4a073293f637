"""Clients of the Open Inference Protocol and Label Studio."""

import base64

import httpx
import pytest

from dkvb.store import read_folder

from .shared import CLASSES, good, make_model, picture, problem, rows, running

CONFIG = '<View><Image name="img" value="$image"/><Choices name="kind" toName="img"/></View>'


def test_open_inference(client, model):
    X, _ = rows(4, seed=1)
    assert good(client.get("/v2"))["name"] == "dkvb"
    assert good(client.get("/v2/health/live")) == {"live": True}
    assert good(client.get("/v2/models/pets/ready"))["ready"]
    described = good(client.get("/v2/models/pets"))
    assert described["inputs"] == [{"name": "embeddings", "datatype": "FP32", "shape": [-1, 6]}]
    tensor = {"name": "embeddings", "shape": [4, 6], "datatype": "FP32"}
    found = read_folder(model).classifier.ask(X)
    for data in (X.ravel().tolist(), X.tolist()):
        body = {"id": "7", "inputs": [{**tensor, "data": data}]}
        answer = good(client.post("/v2/models/pets/infer", json=body))
        assert (answer["model_name"], answer["model_version"], answer["id"]) == ("pets", "1", "7")
        outputs = {one["name"]: one for one in answer["outputs"]}
        assert outputs["label"]["data"] == found.labels.tolist()
        assert outputs["classes"]["data"] == CLASSES
        assert outputs["probability"]["shape"] == [4, 3]
        assert outputs["probability"]["data"] == pytest.approx(
            found.probabilities.ravel(), abs=1e-6
        )
    body = {"inputs": [{**tensor, "data": X.tolist()}], "outputs": [{"name": "novelty"}]}
    answer = good(client.post("/v2/models/pets/infer", json=body))
    assert [one["name"] for one in answer["outputs"]] == ["novelty"]
    wrong = {"inputs": [{**tensor, "data": [1.0]}]}
    refused = problem(client.post("/v2/models/pets/infer", json=wrong), 422, "24 numbers")
    assert refused["error"] == refused["detail"]
    unknown = {**body, "outputs": [{"name": "color"}]}
    problem(client.post("/v2/models/pets/infer", json=unknown), 422, "novelty")


def test_label_studio_with_embeddings(client, model):
    X, _ = rows(3, seed=1)
    version = good(client.post("/setup", json={"project": "1", "schema": CONFIG}))
    assert version == {"model_version": "pets-1"}
    tasks = [{"id": i, "data": {"vector": x}} for i, x in enumerate(X.tolist())]
    body = {"tasks": tasks, "label_config": CONFIG}
    results = good(client.post("/predict", json=body))["results"]
    assert [one["result"][0]["from_name"] for one in results] == ["kind"] * 3
    assert all(one["result"][0]["value"]["choices"][0] in CLASSES for one in results)

    def annotation(label, own=5, when="monday"):
        result = [{"type": "choices", "value": {"choices": [label]}}]
        return {"id": own, "updated_at": when, "result": result}

    created = {"action": "ANNOTATION_CREATED", "task": tasks[0], "annotation": annotation("elk")}
    for _ in range(2):  # sent again, it counts once
        assert good(client.post("/webhook", json=created))["operation"] == "learn"
    assert read_folder(model).classifier.class_count_["elk"] == 1
    changed = {**created, "action": "ANNOTATION_UPDATED", "annotation": annotation("fox", 5, "now")}
    assert good(client.post("/webhook", json=changed))["operation"] == "relabel"
    assert "elk" not in read_folder(model).classifier.classes_
    deleted = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 5}, {"id": 6}]}
    assert good(client.post("/webhook", json=deleted))["count"] == 1
    assert good(client.post("/webhook", json=deleted))["operation"] is None
    assert read_folder(model).classifier.classes_.tolist() == CLASSES
    assert good(client.post("/webhook", json={"action": "PROJECT_UPDATED"}))["operation"] is None
    problem(client.post("/predict", json={"tasks": [{"data": {"text": "a"}}]}), 422, "never opened")


def test_label_studio_with_images(tmp_path):
    with running(tmp_path / "m", encoder="efficientnet_lite0") as url:
        for own, (color, label) in enumerate((((220, 9, 9), "red"), ((9, 9, 220), "blue"))):
            uri = f"data:image/png;base64,{base64.b64encode(picture(color)).decode()}"
            task = {"id": own, "data": {"image": uri}}
            result = [{"type": "choices", "value": {"choices": [label]}}]
            body = {"action": "ANNOTATION_CREATED", "task": task,
                    "annotation": {"id": own, "result": result}}  # fmt: skip
            good(httpx.post(f"{url}/webhook", json=body, timeout=60))
        found = good(httpx.post(f"{url}/predict", json={"tasks": [task]}, timeout=60))["results"]
        assert found[0]["result"][0]["value"]["choices"] == ["blue"]
        bad = {"tasks": [{"data": {"image": "data:image/png;base64,%%%"}}]}
        problem(httpx.post(f"{url}/predict", json=bad), 422, "base64")


def test_label_studio_with_a_bottleneck(tmp_path):
    X, _ = rows(1, seed=1)
    with running(make_model(tmp_path / "m", "bottleneck")) as url:
        result = [{"type": "choices", "value": {"choices": ["elk"]}}]
        body = {"action": "ANNOTATION_CREATED", "task": {"data": {"v": X[0].tolist()}},
                "annotation": {"id": 1, "result": result}}  # fmt: skip
        for repeated in (False, True):
            assert good(httpx.post(f"{url}/webhook", json=body))["repeated"] is repeated

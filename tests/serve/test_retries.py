"""Acknowledged is durable, and a repeated request counts once, also across a restart."""

import threading

import httpx
import numpy as np
import pytest

import dkvb
from dkvb.serve import Limits
from dkvb.store import folder as store
from dkvb.store import read_folder

from .shared import good, make_model, npy, problem, rows, running
from .test_routes import NPY


def test_a_repeated_request_counts_once_also_after_a_restart(model):
    X, _ = rows(2, seed=1)
    key = {"Idempotency-Key": "monday"}

    def learn(client, x, label="dog"):
        return client.post(f"/v1/learn?label={label}", content=npy(x), headers={**NPY, **key})

    with running(model) as url, httpx.Client(base_url=url) as client:
        first, second = good(learn(client, X)), good(learn(client, X))
        assert (first.pop("repeated"), second.pop("repeated")) == (False, True)
        assert first == second
        problem(learn(client, X + 1), 409, "other content")
        problem(learn(client, X, "elk"), 409)
        good(client.post("/v1/rename", json={"label": "dog", "new_label": "hound"}))
        rename = {"label": "ant", "new_label": "aunt"}
        named = {"Idempotency-Key": "tuesday"}
        for _ in range(2):
            good(client.post("/v1/rename", json=rename, headers=named))
        other = {"label": "bee", "new_label": "wasp"}
        problem(client.post("/v1/rename", json=other, headers=named), 409)
        problem(client.post("/v1/undo", headers=named), 409)
    with running(model) as url, httpx.Client(base_url=url) as client:
        assert good(learn(client, X))["sequence"] == first["sequence"]
        problem(learn(client, X + 1), 409)
        problem(client.post("/v1/rename", json=other, headers=named), 409)
        gone = {"classes": ["hound"], "confirm": True}
        last = {"Idempotency-Key": "friday"}
        answers = [good(client.post("/v1/forget", json=gone, headers=last)) for _ in range(2)]
        assert [one["count"] for one in answers] == [2, 2]
        problem(client.post("/v1/forget", json={**gone, "classes": ["bee"]}, headers=last), 409)
        assert good(learn(client, X))["repeated"]  # what was forgotten stays forgotten
        problem(client.post("/v1/undo", headers={"Idempotency-Key": "x" * 300}), 422)
    counts = read_folder(model).classifier.class_count_
    assert counts == {"aunt": 10, "bee": 10, "cat": 10}


def test_a_full_disk_is_507_and_nothing_is_half_done(client, model, monkeypatch):
    X, _ = rows(2, seed=1)

    def full(*_):
        raise OSError(28, "No space left on device")

    before = read_folder(model)
    with monkeypatch.context() as context:
        context.setattr(store, "append", full)
        context.setattr(store.files, "write", full)
        for path, body in (
            ("/v1/learn?label=dog", {"content": npy(X), "headers": NPY}),
            ("/v1/forget", {"json": {"classes": ["ant"], "confirm": True}}),
            ("/v1/rename", {"json": {"label": "ant", "new_label": "aunt"}}),
        ):
            problem(client.post(path, **body), 507, "No space left")
        assert good(client.post("/v1/predict", content=npy(X), headers=NPY))["sequence"] == 1
    assert read_folder(model).history == before.history
    assert good(client.post("/v1/learn?label=dog", content=npy(X), headers=NPY))["sequence"] == 2


def test_too_many_requests_are_503_and_come_back_later(model, monkeypatch):
    X, _ = rows(1, seed=1)
    go_on, begun = threading.Event(), threading.Event()
    ask = dkvb.KernelClassifier.ask

    def slow(self, X):
        begun.set()
        assert go_on.wait(20)
        return ask(self, X)

    with running(model, limits=Limits(queue=2, seconds=20)) as url:
        monkeypatch.setattr(dkvb.KernelClassifier, "ask", slow)
        answers = []

        def predict():
            answers.append(httpx.post(f"{url}/v1/predict", content=npy(X), headers=NPY, timeout=30))

        threads = [threading.Thread(target=predict) for _ in range(6)]
        threads[0].start()
        begun.wait(10)
        for thread in threads[1:]:
            thread.start()
        while len(answers) < 3:
            pass
        for answer in answers[:3]:
            problem(answer, 503, "try again later")
            assert answer.headers["retry-after"] == "1"
        go_on.set()
        for thread in threads:
            thread.join()
        assert sorted(one.status_code for one in answers) == [200] * 3 + [503] * 3


def test_requests_are_batched_and_a_bad_one_fails_alone(model, monkeypatch):
    X, _ = rows(12, seed=1)
    sizes, release = [], threading.Event()
    ask = dkvb.KernelClassifier.ask

    def counted(self, X):
        sizes.append(len(X))
        if len(sizes) == 1:
            release.wait(20)
        return ask(self, X)

    with running(model) as url:
        monkeypatch.setattr(dkvb.KernelClassifier, "ask", counted)
        answers = {}

        def predict(i):
            x = np.full((1, 6), np.nan) if i == 5 else X[i : i + 1]
            answers[i] = httpx.post(f"{url}/v1/predict", content=npy(x), headers=NPY, timeout=30)

        threads = [threading.Thread(target=predict, args=(i,)) for i in range(12)]
        threads[0].start()
        while not sizes:
            pass
        for thread in threads[1:]:
            thread.start()
        while 'queue="predict"} 10.0' not in httpx.get(f"{url}/metrics").text:
            pass
        release.set()
        for thread in threads:
            thread.join()
    problem(answers.pop(5), 422, "drop or repair")
    expected = read_folder(model).classifier.predict(X)
    assert all(good(one)["predictions"][0]["label"] == expected[i] for i, one in answers.items())
    assert max(sizes) > 5


def test_a_request_that_takes_too_long_is_503(model, monkeypatch):
    ask = dkvb.KernelClassifier.ask
    go_on = threading.Event()

    def slow(self, X):
        go_on.wait(20)
        return ask(self, X)

    X, _ = rows(1, seed=1)
    with running(model, limits=Limits(seconds=0.2)) as url:
        monkeypatch.setattr(dkvb.KernelClassifier, "ask", slow)
        problem(httpx.post(f"{url}/v1/predict", content=npy(X), headers=NPY), 503, "0.2 seconds")
        go_on.set()


@pytest.mark.parametrize("name", ["kernel"])
def test_the_client_has_the_estimators_verbs(tmp_path, name):
    X, y = rows(6, seed=1)
    with running(make_model(tmp_path / "m", name)) as url, dkvb.client.Client(url) as client:
        before = client.predict(X)
        assert client.learn(X, y)["count"] == 6
        assert client.learn(X[0:1], "dog")["classes"] == 4
        assert client.relabel(X[0:1], "dog", "elk")["count"] == 1
        assert client.rename("elk", "moose")["count"] == 1
        assert client.merge_classes(["moose", "ant"], "ant")["count"] == 1
        assert client.classes() == {"ant": 13, "bee": 12, "cat": 12}
        for _ in range(4):
            client.undo()
        assert client.forget_samples(X, y)["count"] == 6
        assert client.predict(X).tolist() == before.tolist()
        assert client.forget("bee")["count"] == 10
        assert len(client.history()) == 12
        assert client.quality()["sequence"] == 12
        assert client.suggest(X, 2)
        assert client.model()["classes"] == 2
        client.export(tmp_path / "x.safetensors")
        assert dkvb.load(tmp_path / "x.safetensors").classes_.tolist() == ["ant", "cat"]
        with pytest.raises(dkvb.client.ServiceError, match="404: classes: expected") as caught:
            client.forget("bee")
        assert caught.value.status == 404
        with pytest.raises(ValueError, match="exactly one of"):
            client.predict()

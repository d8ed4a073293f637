"""One writer, many readers: readers follow within a second, pass changes on, and end with it."""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from dkvb.store import Following, open_folder, read_folder

from .shared import good, make_model, npy, process, rows
from .test_routes import NPY


def eventually(true, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.skipif(os.name != "posix", reason="needs a local socket")
def test_workers_follow_forward_and_are_replaced(model):
    X, _ = rows(2, seed=1)
    with process(model, "--workers", "2") as (url, child):

        def ask(path):  # a new connection each, so that both processes answer
            return good(httpx.get(f"{url}{path}"))

        eventually(lambda: children(child.pid), 20)
        readers = children(child.pid)
        # Whoever gets it, it is learned once, and all know within a second.
        for i in range(6):
            key = {"Idempotency-Key": f"key {i}"}
            learn = httpx.post(f"{url}/v1/learn?label=new{i}", content=npy(X), headers=NPY | key)
            sequence = good(learn)["sequence"]
            start = time.monotonic()
            eventually(lambda s=sequence: min(sequences(url)) >= s, 5)
            assert time.monotonic() - start < 2.0
        remembered = httpx.post(f"{url}/v1/predict?remember=1", content=npy(X), headers=NPY)
        ids = [one["prediction_id"] for one in good(remembered)["predictions"]]
        for own in ids:
            body = {"prediction_ids": [own], "label": "new0"}
            good(httpx.post(f"{url}/v1/learn", json=body))
        assert good(httpx.get(f"{url}/v1/quality"))["prequential"]["scored"] == 2
        good(httpx.post(f"{url}/v1/undo"))
        eventually(lambda: min(sequences(url)) >= 10, 5)
        assert {one["rows"] for one in (ask("/v1/classes") for _ in range(10))} == {43}
        total = sum(
            float(line.split()[-1])
            for line in httpx.get(f"{url}/metrics").text.splitlines()
            if line.startswith("dkvb_requests_total{") and 'route="/v1/classes"' in line
        )
        assert total >= 10
        os.kill(readers[0], signal.SIGKILL)
        eventually(lambda: children(child.pid) not in ([], readers), 20)
        child.kill()
        child.wait()
        eventually(lambda: not any(alive(pid) for pid in readers), 10)
    assert read_folder(model).classifier.class_count_["new0"] == 3


def sequences(url):
    return [good(httpx.get(f"{url}/v1/model"))["sequence"] for _ in range(4)]


def children(pid):
    """The processes that a process started, but for helpers of the interpreter."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == pid and b"spawn_main" in command:
            found.append(int(entry.name))
    return sorted(found)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("name", ["kernel"])
def test_following_reads_only_what_is_new(tmp_path, name, monkeypatch):
    path, (X, y) = make_model(tmp_path / "m", name), rows(6, seed=1)
    following = Following(path)
    first = following.model
    assert following.look() is first
    with open_folder(path) as folder:
        folder.learn(X[:3], y[:3])
        folder.learn(X[3:], ["elk"] * 3)
        with monkeypatch.context() as context:
            context.setattr("dkvb.store.reading.read_folder", None)
            same(following.look(), folder)
            folder.rename("elk", "moose")
            same(following.look(), folder)
        folder.undo()
        same(following.look(), folder)
        folder.undo()
        folder.learn(X[:1], y[:1])
        same(following.look(), folder)
        folder.forget("ant")
        same(following.look(), folder)
        folder.learn(X[:1], ["ant"])
        same(following.look(), folder)
    assert first.classifier.class_count_ == {"ant": 10, "bee": 10, "cat": 10}


def same(model, folder):
    assert model.history == folder.model.history
    assert model.undoable == folder.model.undoable
    ours, theirs = model.classifier.state_arrays(), folder.classifier.state_arrays()
    assert all((ours[name] == theirs[name]).all() for name in theirs)

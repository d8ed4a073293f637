"""Bad input: the right status, a message with the remedy, nothing changed."""

import io
import socket
import struct
import time
import zlib

import httpx
import numpy as np
import pytest

from dkvb.serve import Limits
from dkvb.store import read_folder

from .shared import WIDTH, good, make_model, npy, picture, problem, rows, running
from .test_routes import NPY, STREAM, arrow

ROW = [1.0] * WIDTH


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    model = make_model(place / "pets")
    limits = Limits(body_bytes=200_000, rows=50, body_seconds=0.5)
    with running(model, limits=limits) as url, httpx.Client(base_url=url) as client:
        client.model = model
        yield client


@pytest.fixture(autouse=True)
def _unchanged(request):
    """No bad request changes anything."""
    if "service" not in request.fixturenames:
        yield
        return
    path = request.getfixturevalue("service").model
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    yield
    assert {f.name: f.read_bytes() for f in path.iterdir() if f.is_file()} == before


def learn(**body):
    return {"path": "/v1/learn", "json": {"embeddings": [ROW], "label": "ant", **body}}


def raw(body, kind=NPY, path="/v1/predict"):
    return {"path": path, "content": body, "headers": kind}


REFUSED = {
    "empty body": (raw(b""), 422, "got an empty body"),
    "no content type": ({"path": "/v1/predict", "content": b"x"}, 415, "application/x-npy"),
    "not npy": (raw(b"no array at all"), 422, "numpy.save"),
    "cut npy": (raw(npy(np.ones((2, WIDTH)))[:-5]), 422, "send the whole array"),
    "huge npy": (raw(npy(np.ones((2, WIDTH))).replace(b"(2, 6), ", b"(9**9,),")), 422, "npy"),
    "objects": (raw(npy(np.array([["a"]]))), 422, "convert to float32"),
    "wrong width": (raw(npy(np.ones((1, 5)))), 422, f"expected width {WIDTH}"),
    "three dimensions": (raw(npy(np.ones((1, 1, WIDTH)))), 422, "2-d"),
    "NaN": (raw(npy(np.full((1, WIDTH), np.nan))), 422, "drop or repair"),
    "infinity": (raw(npy(np.full((1, WIDTH), 1e300))), 422, "drop or repair"),
    "NaN learned": (learn(embeddings=[[1e300] * WIDTH]), 422, "drop or repair"),
    "no rows": (raw(npy(np.ones((0, WIDTH)))), 422, "at least one row"),
    "too many rows": (raw(npy(np.ones((51, WIDTH)))), 413, "send them in parts"),
    "ragged": (learn(embeddings=[ROW, [1.0]]), 422, "one length"),
    "long label": (learn(label="x" * 10_000), 422, "use shorter names"),
    "control characters": (learn(label="a\x07"), 422, "remove them"),
    "surrogates": (raw(b'{"embeddings": [[1,1,1,1,1,1]], "label": "\\ud800"}',
                       {"Content-Type": "application/json"}, "/v1/learn"), 422, ""),
    "another kind of label": (learn(label=3), 422, "labels of one kind"),
    "kinds mixed": (learn(embeddings=[ROW] * 2, label=None, labels=["ant", 3]), 422, "one kind"),
    "null label": (learn(label=None, labels=[None]), 422, "labels"),
    "no label": (learn(label=None), 422, "give label or labels"),
    "labels missing": (learn(embeddings=[ROW] * 3, label=None, labels=["a", "b"]), 422, "per row"),
    "unknown name": (learn(lable="ant"), 422, "lable"),
    "no JSON": (raw(b"{", {"Content-Type": "application/json"}), 422, "JSON"),
    "two kinds of rows": (learn(texts=["a"]), 422, "one kind of rows"),
    "texts": ({"path": "/v1/predict", "json": {"texts": ["a"]}}, 422, "embed them first"),
    "bad source": (learn(source="a/b"), 422, "without a slash"),
    "not Arrow": (raw(b"arrow?", STREAM), 422, "pyarrow.ipc.new_stream"),
    "cut Arrow": (raw(arrow(rows()[0])[:-100], STREAM), 422, ""),
    "compressed Arrow": (raw(arrow(rows()[0], compression="zstd"), STREAM), 422, "compression="),
    "unknown class": ({"path": "/v1/forget", "json": {"classes": ["yak"], "confirm": True}}, 404,
                      "GET /v1/classes"),
    "unknown id": ({"path": "/v1/forget", "json": {"ids": ["yak"], "confirm": True}}, 404, "ids"),
    "unknown source": ({"path": "/v1/forget", "json": {"source": "y", "confirm": True}}, 404, "so"),
    "forget nothing": ({"path": "/v1/forget", "json": {"confirm": True}}, 422, "exactly one"),
    "unlearned rows": ({"path": "/v1/forget", "json": {
        "embeddings": [ROW], "labels": ["ant"], "confirm": True}}, 422, "nothing was changed"),
    "rename unknown": ({"path": "/v1/rename", "json": {"label": "y", "new_label": "z"}}, 404, ""),
    "rename to known": ({"path": "/v1/rename", "json": {"label": "ant", "new_label": "bee"}}, 409,
                        "/v1/merge"),
    "rename to number": ({"path": "/v1/rename", "json": {"label": "ant", "new_label": 3}}, 422, ""),
    "merge unknown": ({"path": "/v1/merge", "json": {"labels": ["y"], "into": "z"}}, 404, ""),
    "relabel unknown": ({"path": "/v1/relabel", "json": {"ids": ["y"], "label": "z"}}, 404, "ids"),
    "undo nothing": ({"path": "/v1/undo"}, 409, "a forget is final"),
    "unknown route": ({"path": "/v1/predikt"}, 404, "/openapi.json"),
    "wrong method": ({"path": "/v1/classes"}, 405, "/openapi.json"),
    "bad query": (raw(npy(rows()[0]), path="/v1/predict?top=0"), 422, "top"),
    "another model": ({"path": "/v2/models/dogs/infer", "json": {"inputs": [
        {"name": "x", "shape": [1, 6], "datatype": "FP32", "data": ROW}]}}, 404, "pets"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(service, what):
    request, status, text = REFUSED[what]
    request = dict(request)
    problem(service.post(request.pop("path"), **request), status, text)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(service):
    problem(
        service.post("/v1/predict", content=b"x" * 200_001, headers=NPY), 413, "several requests"
    )

    def chunks():
        for _ in range(30):
            yield b"x" * 10_000

    problem(service.post("/v1/predict", content=chunks(), headers=NPY), 413, "several requests")
    assert service.get("/health").status_code == 200


def test_a_body_larger_than_it_says_is_another_request(service):
    body = npy(np.ones((1, WIDTH), np.float32))
    with connection(service) as one:
        one.sendall(head(len(body)) + body + b"and more that is no request\r\n\r\n")
        answers = read_all(one)
    assert answers.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 400" in answers


def test_a_slow_sender_is_answered_and_others_are_not_kept_waiting(service):
    with connection(service) as slow:
        slow.sendall(head(1000) + b"x" * 10)
        start = time.perf_counter()
        assert service.get("/health").status_code == 200
        assert time.perf_counter() - start < 0.4
        answer = read_all(slow)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"send it faster" in answer


def test_images_that_are_none_cut_or_too_large(tmp_path):
    with running(tmp_path / "m", encoder="efficientnet_lite0") as url:
        whole = picture((9, 9, 9))
        for content, text in (
            (b"no image", "no image of a known format"),
            (whole[: len(whole) // 2], "image 0"),
            (b"", "image 0"),
            (bomb(20_000, 5_000), "make it smaller"),
            (bomb(30_000, 30_000), "make it smaller"),
        ):
            answer = httpx.post(f"{url}/v1/learn", files={"image": content}, data={"label": "a"})
            problem(answer, 422, text)
        form = {"Content-Type": "multipart/form-data"}
        problem(httpx.post(f"{url}/v1/learn", content=b"x", headers=form), 422, "boundary")
        cut = {"Content-Type": "multipart/form-data; boundary=b"}
        body = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nxyz'
        problem(httpx.post(f"{url}/v1/learn", content=body, headers=cut), 422)
        assert good(httpx.get(f"{url}/v1/classes"))["rows"] == 0
    assert len(read_folder(tmp_path / "m").history) == 1


def bomb(width, height):
    """A small PNG of many pixels."""

    def chunk(kind, data):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return io.BytesIO(png).getvalue()


def connection(client):
    url = client.base_url
    return socket.create_connection((url.host, url.port), timeout=10)


def head(length):
    return (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-npy\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def read_all(one):
    parts = []
    try:
        while part := one.recv(65536):
            parts.append(part)
    except TimeoutError:
        pass
    return b"".join(parts)

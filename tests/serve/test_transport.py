"""Head and body of a response leave in one write; nothing is held back for long."""

import asyncio
import socket

import httpx

from dkvb.serve.transport import Joined

from .shared import make_model, rows, running


class Recorder:
    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.written.append(data)

    def writelines(self, pieces):
        self.write(b"".join(pieces))

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def written_by(steps):
    """What reaches the transport, write by write."""

    async def run():
        under = Recorder()
        await steps(Joined(under))
        return under

    return asyncio.run(run())


def test_head_and_body_are_written_together():
    async def respond(transport):
        transport.write(b"head")
        transport.write(b"body")
        transport.write(b"")
        await asyncio.sleep(0)

    assert written_by(respond).written == [b"headbody"]


def test_lines_come_after_what_is_held():
    async def respond(transport):
        transport.write(memoryview(b"head"))
        transport.writelines([b"bo", b"dy"])

    assert written_by(respond).written == [b"head", b"body"]


def test_a_head_without_a_body_is_written_when_the_loop_goes_on():
    async def respond(transport):
        transport.write(b"HTTP/1.1 100 Continue")
        assert transport.is_closing() is False
        await asyncio.sleep(0)

    assert written_by(respond).written == [b"HTTP/1.1 100 Continue"]


def test_closing_writes_what_is_held():
    async def respond(transport):
        transport.write(b"head")
        transport.close()
        await asyncio.sleep(0)

    under = written_by(respond)
    assert under.written == [b"head"]
    assert under.closed


def test_a_response_comes_in_one_packet_and_all_of_a_large_one_comes(tmp_path):
    with running(make_model(tmp_path / "pets")) as url:
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port), 30) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert body.endswith(b"}")
        X, _ = rows(3000)
        answer = httpx.post(f"{url}/v1/predict", json={"embeddings": X.tolist()}, timeout=60)
        assert len(answer.json()["predictions"]) == 3000
        assert httpx.head(f"{url}/health").status_code in (200, 405)

"""Requests that come together are computed together; nobody waits for those who do not come."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx

from dkvb.serve.batching import Batcher

from .shared import make_model, running


def batches_of(clients, rounds, pause):
    """The sizes of batches when clients ask again as soon as they were answered."""
    sizes = []

    def work(parts):
        sizes.append(len(parts))
        time.sleep(pause)
        return [len(part) for part in parts]

    async def ask(batcher, client):
        for _ in range(rounds):
            assert await batcher.submit([0] * (client + 1)) == client + 1

    async def run():
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(work, thread, most=1024, queue=100, seconds=30.0)
            await asyncio.gather(*(ask(batcher, client) for client in range(clients)))

    asyncio.run(run())
    return sizes


def test_clients_that_ask_again_at_once_share_a_batch():
    sizes = batches_of(clients=8, rounds=20, pause=0.002)
    assert sum(sizes) == 160
    assert sorted(sizes)[len(sizes) // 2] == 8  # all of them, but for the first rounds


def test_a_client_that_is_alone_waits_for_nobody():
    start = time.perf_counter()
    assert batches_of(clients=1, rounds=200, pause=0) == [1] * 200
    assert time.perf_counter() - start < 200 * 0.01


def test_who_waits_too_long_is_told_so_and_others_are_answered():
    hold = Event()

    def work(parts):
        hold.wait(30)
        return [len(part) for part in parts]

    async def run():
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(work, thread, most=1, queue=100, seconds=0.3)
            first = [asyncio.create_task(batcher.submit([0])) for _ in range(3)]
            found = await asyncio.gather(*first, return_exceptions=True)
            hold.set()
            again = await asyncio.gather(*(batcher.submit([0]) for _ in range(3)))
        return found, again

    found, again = asyncio.run(run())
    assert [one.status_code for one in found] == [503] * 3
    assert "no answer within 0.3 seconds" in found[0].detail
    assert again == [1] * 3


def test_methods_that_nobody_knows_are_counted_together(tmp_path):
    with running(make_model(tmp_path / "pets")) as url, httpx.Client(base_url=url) as client:
        for number in range(20):
            assert client.request(f"METHOD{number}", "/v1/predict").status_code == 405
        text = client.get("/metrics").text
    assert "METHOD" not in text
    counted = 'dkvb_requests_total{method="other",route="/v1/predict",status="405"} 20.0'
    assert counted in text, text

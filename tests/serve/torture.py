"""Kill the service under load, fill its disk, and watch its memory.

    python -m tests.serve.torture [--kills 50] [--requests 20000] [--parts kills,disk,memory]

Four clients learn, relabel, rename and undo with idempotency keys, and repeat what was not
answered, while the service is killed again and again. At the end every acknowledged change is
there, once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dkvb.store import read_folder

from .shared import WIDTH, forked, free_port, make_model, npy, process, rows

CLIENTS = 4
NPY = {"Content-Type": "application/x-npy"}


class Load:
    """Clients that teach, each classes of its own, and what was acknowledged to them."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed, self.ended = url, seed, threading.Event()
        self.acknowledged: dict[str, dict[str, Any]] = {}  # by key
        self.expected: dict[str, int] = {}  # rows of classes that are left
        self.wrong: list[str] = []
        self.clients: dict[int, httpx.Client] = {}
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(CLIENTS)]

    def run(self, number: int) -> None:
        rng, own, i = random.Random(self.seed + number), {}, 0
        self.clients[number] = httpx.Client(base_url=self.url, timeout=60, verify=False)
        while not self.ended.is_set():
            i += 1
            label = f"c{number}-{i % 7}"
            n = rng.randint(1, 3)
            X = np.random.default_rng([number, i]).normal(size=(n, WIDTH)).astype(np.float32)
            way = rng.choice(["learn"] * 6 + ["relabel", "forget"])
            if way == "learn" or not own:
                path = "/v1/learn?" + "&".join(f"id={number}-{i}-{j}" for j in range(n))
                done = self.send(
                    f"{path}&label={label}", f"{number}-{i}", content=npy(X), headers=NPY
                )
                if done:
                    own |= dict.fromkeys(done["ids"], label)
            elif way == "relabel":
                row = rng.choice(list(own))
                body = {"ids": [row], "label": label}
                if self.send("/v1/relabel", f"{number}-{i}", json=body):
                    own[row] = label
            else:
                row = rng.choice(list(own))
                body = {"ids": [row], "confirm": True}
                if self.send("/v1/forget", f"{number}-{i}", json=body):
                    del own[row]
        with _LOCK:
            for label in own.values():
                self.expected[label] = self.expected.get(label, 0) + 1
        self.clients[number].close()

    def send(self, path: str, key: str, **body: Any) -> Any:
        """Repeat a change until it is answered."""
        client = self.clients[int(key.partition("-")[0])]
        headers = {**body.pop("headers", {}), "Idempotency-Key": key}
        while True:
            try:
                answer = client.post(path, headers=headers, **body)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 503:
                time.sleep(0.05)
                continue
            if answer.status_code != 200:
                with _LOCK:
                    self.wrong.append(f"{path} {answer.status_code} {answer.text}")
                return None
            with _LOCK:
                self.acknowledged[key] = answer.json()
            return answer.json()


_LOCK = threading.Lock()


def kills(place: Path, count: int, seconds: float, seed: int = 0) -> dict[str, Any]:
    """SIGKILL the service some times, at random moments, under load."""
    model, port, rng = make_model(place / "model"), free_port(), random.Random(seed)
    load = Load(f"http://127.0.0.1:{port}", seed)
    for thread in load.threads:
        thread.start()
    try:
        for _ in range(count):
            with forked(model, port):  # which is killed at its end
                time.sleep(rng.uniform(0.05, seconds))
        with forked(model, port):
            load.ended.set()
            for thread in load.threads:
                thread.join(60)
    finally:
        load.ended.set()
    check(model, load)
    history = read_folder(model).history
    return {"kills": count, "acknowledged": len(load.acknowledged), "operations": len(history)}


def check(model: Path, load: Load) -> None:
    """Every acknowledged change is there once; sequence numbers are those that were told."""
    assert not load.wrong, load.wrong[:3]
    found = read_folder(model)
    by_id = {one.id: one for one in found.history}
    assert len(by_id) == len(found.history), "an operation is there twice"
    for key, told in load.acknowledged.items():
        assert by_id[key].sequence == told["sequence"], key
        assert by_id[key].count == told["count"], key
    counts = found.classifier.class_count_
    own = {label: n for label, n in counts.items() if label.startswith("c") and "-" in label}
    assert own == load.expected, (own, load.expected)
    ids = found.ids()
    assert len(set(ids)) == len(ids), "a row is there twice"


# ---------------------------------------------------------------------------------------- full disk
@contextmanager
def small_disk(place: Path, size: str) -> Any:
    """A file system of that size; None where this may not be mounted."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place])
    try:
        yield place if not done.returncode else None
    finally:
        if not done.returncode:
            subprocess.run(["umount", place], check=True)


def full_disk(place: Path) -> dict[str, Any]:
    """Learn until the disk is full: 507, nothing half done, and on with what is forgotten."""
    with small_disk(place / "disk", "400k") as disk:
        if disk is None:
            return {"full disk": "may not mount"}
        model, refused, learned = make_model(disk / "model"), 0, 0
        X = np.tile(rows()[0], (10, 1))
        with process(model) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
            while refused < 3:
                path = "/v1/learn?label=more"
                answer = client.post(path, content=npy(X + learned), headers=NPY)
                if answer.status_code == 507:
                    refused += 1
                    classes = client.get("/v1/classes").json()
                    assert classes["rows"] == 30 + len(X) * learned, "half done"
                else:
                    assert answer.status_code == 200, answer.text
                    learned += 1
            assert client.post("/v1/predict", content=npy(X), headers=NPY).status_code == 200
        found = read_folder(model)
        assert sum(found.classifier.class_count_.values()) == 30 + len(X) * learned
    return {"learned before the disk was full": learned, "refused with 507": refused}


# ------------------------------------------------------------------------------------------- memory
def resident(pid: int) -> float:
    """Megabytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(place: Path, first: int, last: int) -> dict[str, Any]:
    """Megabytes by which the service grows between two numbers of requests of all kinds."""
    model, (X, _) = make_model(place / "model"), rows(4, seed=1)
    body, before, key = npy(X), 0.0, {"classes": ["old"], "confirm": True}
    with process(model) as (url, child), httpx.Client(base_url=url, timeout=60) as client:
        for i in range(last):
            if i == first:
                before = resident(child.pid)
            if i % 40 == 0:
                client.post("/v1/learn?label=old", content=body, headers=NPY).raise_for_status()
            elif i % 40 == 20:
                client.post("/v1/forget", json=key).raise_for_status()
            elif i % 4 == 1:
                client.post("/v1/predict?remember=1", content=body, headers=NPY).raise_for_status()
            elif i % 40 == 3:
                client.post("/v1/predict", content=b"bad", headers=NPY)
            elif i % 40 == 7:
                client.get("/v1/quality").raise_for_status()
            else:
                client.post("/v1/predict", content=body, headers=NPY).raise_for_status()
        grown = resident(child.pid) - before
    return {"requests": last, "megabytes grown": round(grown, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1.5, help="at most between two kills")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--parts", default="kills,disk,memory")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options = parser.parse_args()
    report: dict[str, Any] = {"seed": options.seed}
    parts = {
        "kills": lambda place: kills(place, options.kills, options.seconds, options.seed),
        "disk": full_disk,
        "memory": lambda place: memory(place, options.requests // 10, options.requests),
    }
    with tempfile.TemporaryDirectory() as name:
        for part in options.parts.split(","):
            place = Path(name) / part
            place.mkdir()
            report |= parts[part](place)
    assert report.get("megabytes grown", 0) < 20, report
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

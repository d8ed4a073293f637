"""Whatever happens, a run repeated ends with the same bits, and nothing is embedded twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkvb.embedding import Cache, embed
from dkvb.embedding.cache.store import address
from dkvb.embedding.npz import write_embeddings

from . import tiny

N, SHARD, BATCH = 100, 16, 4
SHARDS = 7

PROGRAM = """
import sys, tiny
from dkvb.embedding import embed
from dkvb.embedding.npz import write_embeddings
cache, out, seconds, most_batches = sys.argv[1:]
encoder = tiny.encoder(float(seconds), most_batches=int(most_batches) or None)
found = embed(encoder, tiny.dataset(), cache, shard_rows=16, batch_rows=4, workers=2)
write_embeddings(out, found.parts(), y=found.labels)
print(found.embedded)
"""


def start(
    cache: Path, out: Path, seconds_a_batch: float = 0.0, most_batches: int = 0
) -> subprocess.Popen[str]:
    """A process of its own that embeds the tiny data set; 0: all batches of it."""
    arguments = [cache, out, seconds_a_batch, most_batches]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )


def run(cache, **options):
    options = {"shard_rows": SHARD, "batch_rows": BATCH, "workers": 2} | options
    return embed(tiny.encoder(), tiny.dataset(), cache, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The rows, and the file, of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = run(folder / "cache")
    write_embeddings(folder / "out.npz", found.parts(), y=found.labels)
    return found.array(), (folder / "out.npz").read_bytes()


def test_a_killed_run_goes_on_where_it_stopped_to_the_same_bytes(tmp_path, undisturbed):
    cache, out = tmp_path / "cache", tmp_path / "out.npz"
    process = start(cache, out, most_batches=10)  # two shards and half of the third
    try:
        while len(list(cache.glob("embeddings/*/0000?.json"))) < 2:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not out.exists()
    (entry,) = Cache(cache).entries()
    assert len(entry.present()) == 2
    again = start(cache, out)
    printed, _ = again.communicate()
    assert again.returncode == 0
    assert int(printed) == N - 2 * SHARD
    assert out.read_bytes() == undisturbed[1]
    left = [path.name for path in entry.folder.iterdir() if path.suffix not in (".npy", ".json")]
    assert left == ["entry.lock"]  # nothing half-written, no claim


def test_two_processes_at_once_share_the_work_and_make_one_entry(tmp_path, undisturbed):
    cache = tmp_path / "cache"
    both = [start(cache, tmp_path / f"{i}.npz", 0.05) for i in range(2)]
    embedded = [int(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(embedded) == N  # nothing twice
    assert {(tmp_path / f"{i}.npz").read_bytes() for i in range(2)} == {undisturbed[1]}
    (entry,) = Cache(cache).entries()
    assert list(entry.damage()) == []


def test_a_second_run_embeds_nothing(tmp_path, undisturbed):
    assert run(tmp_path).embedded == N
    again = run(tmp_path)
    assert again.embedded == 0
    assert np.array_equal(again.array(), undisturbed[0])
    assert [len(part) for part in again.parts()] == [16] * 6 + [4]


@pytest.mark.parametrize("workers", [1, 3])
def test_bits_do_not_depend_on_workers_or_on_the_batch_size_asked_for_later(tmp_path, workers):
    first = run(tmp_path / "a", workers=workers)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (entry,) = Cache(tmp_path / "b").entries()
    for note in list(entry.folder.glob("0000[1-4].json")):
        note.unlink()
    # The entry's own plan wins, since other batches may give other last bits.
    later = run(tmp_path / "b", batch_rows=7, shard_rows=33)
    assert later.embedded == 4 * SHARD
    assert later.array().tobytes() == first.array().tobytes()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_found_and_only_that_shard_made_again(tmp_path, undisturbed, data):
    cache = tmp_path / "cache"
    run(cache)
    (entry,) = Cache(cache).entries()
    files = sorted([*entry.folder.glob("0*.json"), *entry.folder.glob("0*.npy")])
    path = data.draw(st.sampled_from(files))
    shard = int(path.name[:5])
    kind = data.draw(st.sampled_from(["flip", "cut", "empty", "delete"]))
    content = bytearray(path.read_bytes())
    if kind == "delete":
        path.unlink()
    elif kind == "flip":
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    else:
        keep = 0 if kind == "empty" else data.draw(st.integers(0, len(content) - 1))
        path.write_bytes(content[:keep])
    problems = {s for s in range(SHARDS) if entry.problem(s) is not None}
    assert problems == {shard}
    again = run(cache)
    assert again.embedded == len(entry.span(shard))
    assert again.array().tobytes() == undisturbed[0].tobytes()


def test_a_shard_of_another_entry_is_not_taken(tmp_path):
    run(tmp_path)
    embed(tiny.encoder(fingerprint="2"), tiny.dataset(), tmp_path, shard_rows=SHARD)
    one, two = Cache(tmp_path).entries()
    for path in two.folder.glob("00000*"):
        path.unlink()
    for path in one.folder.glob("00000*"):
        shutil.copy(path, two.folder / path.name)
    assert two.problem(0) == "missing"
    assert one.problem(0) is None


def test_an_entry_that_says_it_is_something_else_is_refused(tmp_path):
    found = run(tmp_path)
    about = json.loads((found.entry.folder / "entry.json").read_text())
    about["identity"]["encoder"]["weights"] = "other"
    (found.entry.folder / "entry.json").write_text(json.dumps(about))
    assert list(Cache(tmp_path).entries()) == []
    moved = found.entry.folder.with_name(address(about["identity"]))
    shutil.copytree(found.entry.folder, moved)
    (entry,) = Cache(tmp_path).entries()
    assert entry.present() == []  # its shards belong to the folder they came from


@pytest.mark.parametrize("change", ["encoder", "data", "dtype"])
def test_whatever_decides_the_rows_decides_the_address(tmp_path, change):
    run(tmp_path)
    encoder, dataset, options = tiny.encoder(), tiny.dataset(), {}
    if change == "encoder":
        encoder = tiny.encoder(fingerprint="2")
    elif change == "data":
        dataset = tiny.dataset(N - 1)
    else:
        options = {"dtype": "float16"}
    assert embed(encoder, dataset, tmp_path, **options).embedded == len(dataset)
    assert len(list(Cache(tmp_path).entries())) == 2


def test_other_labels_need_no_other_rows(tmp_path):
    run(tmp_path)
    relabelled = tiny.dataset()
    relabelled.labels[:] = "z"
    found = embed(tiny.encoder(), relabelled, tmp_path)
    assert found.embedded == 0
    assert set(found.labels) == {"z"}


def test_entries_are_found_by_the_start_of_their_address_and_removed(tmp_path):
    found = run(tmp_path)
    cache = Cache(tmp_path)
    assert cache.find(found.entry.address[:6]).folder == found.entry.folder
    with pytest.raises(ValueError, match="fits 0"):
        cache.find("nothing")
    with pytest.raises(ValueError, match="start of one address"):
        cache.find("")
    assert cache.remove(found.entry) > N * tiny.WIDTH * 4
    assert list(cache.entries()) == []
    assert not found.entry.folder.exists()


def test_half_a_surrogate_pair_in_an_entry_stops_no_command(tmp_path):
    embed(tiny.encoder(), tiny.dataset(6), tmp_path, workers=1)
    (entry,) = (tmp_path / "embeddings").iterdir()
    about = json.loads((entry / "entry.json").read_text())
    about["identity"]["encoder"]["name"] = "\ud800"
    (entry / "entry.json").write_text(json.dumps(about))
    assert list(Cache(tmp_path).entries()) == []  # another entry than its address says
    assert [path.name for path in Cache(tmp_path).damaged()] == [entry.name]

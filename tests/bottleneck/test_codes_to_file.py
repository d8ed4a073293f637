"""Codes of more rows than memory holds: from one memory map into another."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from .examples import gaussian_keys, keys_of


@pytest.mark.parametrize("top", [1, 3])
def test_the_file_holds_the_codes(tmp_path, top):
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    path = tmp_path / "codes.npy"
    codes = keys.codes(X, top=top, out=path)
    expected = keys.codes(X, top=top)
    assert torch.equal(codes, expected)
    stored = np.load(path)
    assert stored.dtype == np.uint16
    assert np.array_equal(stored, expected.numpy())
    assert [file.name for file in tmp_path.iterdir()] == ["codes.npy"]


def test_writing_to_the_tensor_leaves_the_file_alone(tmp_path):
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    codes = keys.codes(X, top=1, out=str(tmp_path / "codes.npy"))
    before = codes.clone()
    codes.fill_(0)
    assert np.array_equal(np.load(tmp_path / "codes.npy"), before.numpy())


def test_many_pairs(tmp_path):
    keys = keys_of(torch.arange(70_000.0).reshape(1, -1, 1))
    codes = keys.codes(torch.tensor([[69_000.0]]), top=1, out=tmp_path / "codes.npy")
    assert codes.dtype == torch.int32
    assert codes.item() == 69_000


def test_bad_rows_leave_no_file_and_no_trace_of_the_attempt(tmp_path):
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    keys.codes(X, out=tmp_path / "old.npy")
    old = (tmp_path / "old.npy").read_bytes()
    X[60, 3] = torch.nan
    for name in ("old.npy", "new.npy"):
        with pytest.raises(ValueError, match="first is row 60"):
            keys.codes(X, out=tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["old.npy"]
    assert (tmp_path / "old.npy").read_bytes() == old


def test_a_place_where_no_file_can_be_is_refused_before_any_work(tmp_path, monkeypatch):
    keys, X = gaussian_keys(61, 11, 3, 31, 2)
    monkeypatch.setattr(type(keys), "_restricted", None)  # what a search begins with
    with pytest.raises(ValueError, match=r"out: expected .*; got .*codes.npy, .*no folder .*nowh"):
        keys.codes(X, out=tmp_path / "nowhere" / "codes.npy")
    with pytest.raises(ValueError, match=r"out: expected .*; got the folder .*; add a name to it"):
        keys.codes(X, out=tmp_path)
    assert not list(tmp_path.iterdir())


SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import torch
from dkvb import fit_keys
from dkvb.bottleneck import batch as batch_module

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024

folder = Path(sys.argv[1])
X = np.load(folder / "x.npy", mmap_mode="r")
batch_module.CHUNK_ELEMENTS["cpu"] = 1 << 19
torch.set_num_threads(1)
keys = fit_keys(X[:2000], preset="paper", n_codebooks=16, n_pairs=8, key_dim=1, method="sample")
keys.codes(X[:20000], out=folder / "warm.npy")
before = anonymous()
codes = keys.codes(X, top=1, out=folder / "codes.npy")
assert codes.shape == (200_000, 16, 1)
assert int(codes[-1, -1, 0]) == int(keys.codes(X[-1:], top=1)[0, -1, 0])
where = [line for line in Path("/proc/self/maps").read_text().splitlines() if "codes.npy" in line]
start, stop = (int(end, 16) for end in where[0].split()[0].split("-"))
assert start <= codes.data_ptr() < stop  # the file is the tensor's memory
print(anonymous() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_neither_rows_nor_codes_are_held_in_memory(tmp_path, rng):
    np.save(tmp_path / "x.npy", rng.normal(size=(200_000, 64)).astype(np.float16))  # 26 MB
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 25  # MB: half of what the rows would take as float32

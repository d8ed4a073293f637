"""Spoil files of every kind that is read besides models, and read them.

`python -m tests.support.files.spoilt --files 10000`

Journals, npz, npy, pt, CSV, JSON Lines, Parquet, images, records of runs, entries of the cache,
ONNX encoders. Half of them are spoilt as a disk would (`fuzz.spoilt_bytes`), the other half as a
person would, who makes all checksums right again. Each must be read, or end with an error of one
line, within a few seconds, without a signal, and without more memory than four times the file's
size or 1 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.files.fuzz import ODD, spoilt_bytes, spoilt_state

SECONDS = 20  # a file may take, on a busy machine
MEMORY = 1 << 30  # bytes that a small file may take
REFUSALS = (ValueError, TypeError, OSError)  # what the command line shows in one line

Rng = np.random.Generator


class Kind(NamedTuple):
    """A kind of file: a good one, how a person spoils it, and who reads it."""

    make: Callable[[Path], Path]  # into an empty folder; returns the file to spoil
    spoil: Callable[[Path, Rng], None]  # as a person would
    read: Callable[[Path], Any]


# ------------------------------------------------------------------------------------ embeddings
def rows(n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 8)).astype(np.float32), np.array(["ant", "bee"])[np.arange(n) % 2]


def make_npz(folder: Path) -> Path:
    x, y = rows()
    np.savez(folder / "a.npz", x=x, y=y, encoder="an encoder", encoder_fingerprint="1", names=y)
    return folder / "a.npz"


SHAPES = ["(60, 8)", "(480,)", f"({10**11}, 8)", f"(60, {10**11})", "(-1, 8)", "(0, 8)", "()"]
DTYPES = ["<f4", "<f8", "<f2", "|O", "<U8", "<U900000000", "<i8", "|b1", "<c8", "V8", "x", ""]


def spoil_header(content: bytes, rng: Rng) -> bytes:
    """An npy file whose header says something else, with or without bytes enough for it."""
    shape, dtype = (str(rng.choice(options)) for options in (SHAPES, DTYPES))
    header = f"{{'descr': '{dtype}', 'fortran_order': {rng.random() < 0.2}, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    opening = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    body = content[128:]
    return opening + (body if rng.random() < 0.7 else bytes(int(rng.integers(1 << 20))))


def spoil_npz(path: Path, rng: Rng) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = str(rng.choice(list(members)))
    way = rng.integers(4)
    if way == 0:
        del members[name]
    elif way == 1:
        members[name] = spoilt_bytes(members[name], rng)
    elif way == 2:
        members[name] = spoil_header(members[name], rng)
    else:  # much in little
        buffer = io.BytesIO()
        np.save(buffer, np.zeros((int(rng.integers(1, 2000)), 5000), np.float32))
        members["x.npy"] = buffer.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, content in members.items():
            archive.writestr(one, content)


def read_npz(path: Path) -> None:
    from dkvb.embedding.npz import read_encoder, read_labelled, read_names

    read_encoder(path)
    x, _ = read_labelled(path, width=8)
    read_names(path, len(x))


def make_npy(folder: Path) -> Path:
    np.save(folder / "a.npy", rows()[0])
    return folder / "a.npy"


def spoil_npy(path: Path, rng: Rng) -> None:
    path.write_bytes(spoil_header(path.read_bytes(), rng))


def read_embeddings(path: Path) -> None:
    """As `dkvb fit --data` does."""
    from dkvb.cli._items import DEFAULTS
    from dkvb.cli._rows import read_rows

    read_rows(str(path), DEFAULTS, labelled=False, device="cpu", quiet=True)


def make_pt(folder: Path) -> Path:
    import torch

    x, y = rows()
    torch.save((torch.from_numpy(x), torch.arange(len(y)) % 2), folder / "a.pt")
    return folder / "a.pt"


def spoil_pt(path: Path, rng: Rng) -> None:
    import torch

    x = torch.from_numpy(rows()[0])
    repeated = x[:1].expand(10**10, 8)  # 8 numbers in the file
    odd: list[Any] = [
        {"x": x}, {"y": x}, (x,), (x, x), (x, None), (x[:, :0], None), [x, ["a"] * 60], 1.5, None,
        repeated, (repeated, None), x.to_sparse(), x.double(), x.to(torch.complex64), x.bool(),
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    ]  # fmt: skip
    torch.save(odd[int(rng.integers(len(odd)))], path)


def make_numbers(folder: Path) -> Path:
    x, y = rows()
    lines = [",".join([*map(str, row.tolist()), label]) for row, label in zip(x, y, strict=True)]
    path = folder / "a.csv"
    path.write_text("\n".join([",".join([*"abcdefgh", "label"]), *lines]) + "\n")
    return path


def make_parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, y = rows()
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.ravel(), 8), "label": y.tolist()})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def spoil_parquet(path: Path, rng: Rng) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, _ = rows()
    odd: list[Any] = [
        pa.array([None] * 60), pa.array([[1.0], [2.0, 3.0]] * 30), pa.array([["a"]] * 60),
        pa.array([[float("nan")] * 8] * 60), pa.array([[None] * 8] * 60), pa.array([[]] * 60),
        pa.array([{"a": 1}] * 60), pa.array(["\0"] * 60), pa.array([[10**9]] * 60),
        pa.array(list(x.astype(np.float16))), pa.array([[[1.0]]] * 60),
    ]  # fmt: skip
    columns = {
        str(rng.choice(["x", "label", "y", "", "x" * 9000])): odd[int(rng.integers(len(odd)))]
        for _ in range(int(rng.integers(1, 4)))
    }
    pq.write_table(pa.table(columns), path)


def make_image(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from PIL import Image

        pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"a{suffix}", exif=Image.Exif())
        return folder / f"a{suffix}"

    return make


def spoil_image(path: Path, rng: Rng) -> None:
    """Other sides in the header, or another format under the same name."""
    from PIL import Image

    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        Image.new("RGB", (9, 9)).save(path, format=str(rng.choice(["GIF", "TIFF", "PPM", "WEBP"])))
        content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        content[int(rng.integers(min(len(content), 300)))] = int(rng.choice([0, 1, 127, 255]))
    path.write_bytes(content)


def read_image(path: Path) -> None:
    from dkvb.embedding.datasets.dataset import image_files

    image_files("items", [path], None).item(0)


# ---------------------------------------------------------------------------------------- tables
def make_table(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / f"a{suffix}"
        pairs = [(f"text {i}, and more", "ant" if i % 2 else "bee") for i in range(40)]
        if suffix == ".jsonl":
            lines = [json.dumps({"text": t, "label": y, "split": "train"}) for t, y in pairs]
        else:
            lines = ["text,label", *(f'"{text}",{label}' for text, label in pairs)]
        path.write_text("\n".join(lines) + "\n")
        return path

    return make


CELLS = ["", "\0", '"', "\n", ",", "\x1b[2J", "9" * 5000, "a" * 200_000, "\ud83e", "=1+1", ";;;"]


def spoil_text(path: Path, rng: Rng) -> None:
    lines = path.read_text().split("\n")
    number = int(rng.integers(len(lines)))
    way = rng.integers(4)
    if way == 0 and path.suffix == ".jsonl":
        odd = json.dumps({"text": ODD[int(rng.integers(len(ODD)))], "label": None})
        lines[number] = str(rng.choice([odd, "[" * 100_000, "{}", '{"text": 1e999}', "null"]))
    elif way == 1:
        lines[number] = str(rng.choice(CELLS))
    elif way == 2:
        lines[number] += str(rng.choice(CELLS))
    else:
        lines = lines[:1] * int(rng.integers(0, 100))
    path.write_text("\n".join(lines), errors="surrogatepass")


def read_table(path: Path) -> None:
    from dkvb.embedding import load_dataset
    from dkvb.embedding.datasets import tables

    if tables.embeddings(path) is None:
        found = load_dataset(path, kind="text")
        found.item(len(found) - 1)


# --------------------------------------------------------------------------------------- records
def make_records(folder: Path) -> Path:
    from typer.testing import CliRunner

    from dkvb.cli import app

    data = str(make_npz(folder))
    command = ["evaluate", "--train", data, "--test", data, "--classifier", "prototypes"]
    command += ["--classes-per-task", "1", "--seeds", "1,2", "--out", str(folder / "runs")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return folder / "runs" / "records.jsonl"


def spoil_records(path: Path, rng: Rng) -> None:
    from tests.support.files.fuzz import _spoil_fact

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    _spoil_fact(lines, rng)
    path.write_text("\n".join(json.dumps(line) for line in lines))


def read_run_records(path: Path) -> None:
    from dkvb.evaluation.records import read_records, summarise

    summarise(read_records(path).records)


# ----------------------------------------------------------------------------------------- cache
def make_cache(folder: Path) -> Path:
    from dkvb.embedding import embed
    from tests.embedding import tiny

    embed(tiny.encoder(), tiny.dataset(20), folder, shard_rows=8, batch_rows=4, workers=1)
    (entry,) = (folder / "embeddings").iterdir()
    return entry


def _files(entry: Path) -> list[Path]:
    inside = [path for path in sorted(entry.iterdir()) if path.is_file()]
    return [*inside, entry.parent.parent / "files.sqlite"]


def spoil_cache_bytes(entry: Path, rng: Rng) -> None:
    path = _files(entry)[int(rng.integers(len(_files(entry)) - 1))]
    path.write_bytes(spoilt_bytes(path.read_bytes(), rng))


def spoil_cache(entry: Path, rng: Rng) -> None:
    from dkvb.embedding.cache.store import address
    from tests.support.files.fuzz import _spoil_fact

    notes = sorted(entry.glob("*.json"))
    path = notes[int(rng.integers(len(notes)))]
    described = path.name == "entry.json"
    facts = json.loads(path.read_text() if described else path.read_text().splitlines()[0])
    _spoil_fact(facts, rng)
    if described:
        path.write_text(json.dumps(facts))
        if isinstance(facts.get("identity"), dict) and rng.random() < 0.7:
            entry.rename(entry.with_name(address(facts["identity"])))
    else:
        changed = json.dumps(facts).encode()
        path.write_bytes(changed + b"\n" + hashlib.sha256(changed).hexdigest().encode())


def read_cache(entry: Path) -> None:
    from dkvb.embedding import Cache, embed
    from tests.embedding import tiny

    folder = entry.parent.parent
    cache = Cache(folder)
    for one in cache.entries():
        one.size()
        one.present()
        list(one.damage())
    cache.damaged()
    found = embed(tiny.encoder(), tiny.dataset(20), folder, batch_rows=4, workers=1)
    assert found.array().shape == (20, tiny.WIDTH)
    cache.remove_all()
    assert list(cache.entries()) == []


# -------------------------------------------------------------------------------------- journals
def make_folder(folder: Path) -> Path:
    from dkvb import KernelClassifier
    from dkvb.store import create

    x, y = rows()
    classifier = KernelClassifier().fit(x[:30], y[:30])
    with create(folder / "model", classifier, rows=30, with_summary=True) as model:
        model.learn(x[30:40], y[30:40])
        model.learn(x[40:], np.repeat("cow", 20))
    return folder / "model" / "journal"


def spoil_journal(path: Path, rng: Rng) -> None:
    from dkvb._support import files
    from dkvb.store import framing

    raw = path.read_bytes()
    found = list(framing.records(raw, path))
    number = int(rng.integers(len(found)))
    start = found[number - 1][2] if number else 0
    _, content, end = found[number]
    contents = files.decode(content, path)
    _, chunks = files.encode(contents.kind, spoilt_state(contents.state, rng))
    changed = framing.framed(b"".join(chunks), first=number == 0)
    path.write_bytes(raw[:start] + changed + raw[end:])


def read_model_folder(path: Path) -> None:
    from dkvb.store import open_folder, read_folder, read_history, read_summary

    read_history(path.parent)
    read_summary(path.parent)
    read_folder(path.parent).classifier.predict(rows()[0])
    with open_folder(path.parent) as model:
        model.learn(*rows(4))


# ------------------------------------------------------------------------------------------ ONNX
def make_onnx(folder: Path) -> Path:
    from tests.embedding.test_encoders import write_onnx

    write_onnx(folder / "net.onnx", "n", pooled=True)
    return folder / "net.onnx"


def spoil_onnx(path: Path, rng: Rng) -> None:
    import onnx

    model = onnx.load(str(path))
    graph, way = model.graph, rng.integers(7)
    if way == 0:
        sides = graph.input[0].type.tensor_type.shape.dim
        sides[int(rng.integers(4))].dim_value = int(rng.choice([0, 1, 10**5, 10**12]))
    elif way == 1:
        graph.node[int(rng.integers(len(graph.node)))].op_type = str(
            rng.choice(["Add", "Loop", ""])
        )
    elif way == 2:
        graph.initializer[0].dims[int(rng.integers(4))] = int(rng.choice([0, 7, 10**12]))
    elif way == 3:
        graph.initializer[0].data_type = int(rng.integers(0, 25))
    elif way == 4:
        del graph.node[int(rng.integers(len(graph.node)))]
    elif way == 5:
        place = str(rng.choice(["../a", "/dev/zero", "/etc/passwd", "a" * 5000, "", "."]))
        onnx.external_data_helper.set_external_data(graph.initializer[0], place)
        graph.initializer[0].ClearField("raw_data")
    else:
        graph.input[0].name = str(rng.choice(["", "y", "w", "a" * 10_000]))
    path.write_bytes(model.SerializeToString())


def read_onnx(path: Path) -> None:
    from dkvb.embedding import load_encoder

    load_encoder(f"onnx:{path}")


KINDS = {
    "journal": Kind(make_folder, spoil_journal, read_model_folder),
    "npz": Kind(make_npz, spoil_npz, read_npz),
    "npy": Kind(make_npy, spoil_npy, read_embeddings),
    "pt": Kind(make_pt, spoil_pt, read_embeddings),
    "numbers": Kind(make_numbers, spoil_text, read_embeddings),
    "parquet": Kind(make_parquet, spoil_parquet, read_embeddings),
    "jpeg": Kind(make_image(".jpg"), spoil_image, read_image),
    "png": Kind(make_image(".png"), spoil_image, read_image),
    "csv": Kind(make_table(".csv"), spoil_text, read_table),
    "jsonl": Kind(make_table(".jsonl"), spoil_text, read_table),
    "records": Kind(make_records, spoil_records, read_run_records),
    "cache": Kind(make_cache, spoil_cache, read_cache),
    "onnx": Kind(make_onnx, spoil_onnx, read_onnx),
}


# --------------------------------------------------------------------------------------- running
class TooSlow(BaseException):
    """A file took longer than it may."""


def _alarm(*_: object) -> None:
    raise TooSlow


def limited(size: int) -> None:
    """From here on, no more memory than this process has now and what the file may take."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + max(4 * size, MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def outcome(kind: Kind, path: Path, size: int) -> str:
    """What reading a file comes to; raises for what must not happen."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    limited(size)
    try:
        kind.read(path)
    except REFUSALS as error:
        if isinstance(error, MemoryError) or "allocate" in str(error).lower():
            raise MemoryError(str(error)) from error
        return "refused"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "read"


def try_files(name: str, seed: int, first: int, last: int, progress: Path) -> None:
    """Spoil and read files `first` to `last`; progress is on disk, should a signal end it."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _alarm)
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good"
        good.mkdir()
        inside = kind.make(good).relative_to(good)
        kind.read(_copy(good, Path(folder) / "first") / inside)  # imports, and that it is good
        for number in range(first, last):
            progress.write_text(json.dumps(number))
            rng = np.random.default_rng([seed, number])
            path = _copy(good, Path(folder) / "copy") / inside
            way = "bytes" if rng.random() < 0.5 else "content"
            if way == "content":
                kind.spoil(path, rng)
            elif path.is_dir():
                spoil_cache_bytes(path, rng)
            else:
                path.write_bytes(spoilt_bytes(path.read_bytes(), rng))
            size = path.stat().st_size if path.is_file() else 0
            line: dict[str, Any] = {"way": way}
            begun = time.perf_counter()
            try:
                line["outcome"] = outcome(kind, path, size)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                text = " ".join(str(error).split())[:200]
                line["wrong"] = f"{name}, {way}, file {number}: {type(error).__name__}: {text}"
            line["seconds"] = time.perf_counter() - begun
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def _copy(good: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(good, target))


def run(name: str, seed: int, count: int) -> list[dict[str, Any]]:
    """One line per file, tried in forked processes: a signal costs one file."""
    lines: list[dict[str, Any]] = []
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        out, progress = Path(folder) / "out", Path(folder) / "progress"
        while first < count:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with out.open("w") as file, redirect_stdout(file):
                        try_files(name, seed, first, count, progress)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for line in out.read_text().splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:  # nothing else may write to standard output
                    lines.append({"way": "", "wrong": f"{name}: printed {line!r:.200}"})
            if code == 0:
                break
            if code > 0 or not progress.exists():
                sys.exit(f"{name}: files could not be tried")
            number = json.loads(progress.read_text())
            lines.append({"way": "", "wrong": f"{name}, file {number}: signal {-code}"})
            first = number + 1
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    start = time.perf_counter()
    kinds = [options.kind] if options.kind else list(KINDS)
    found = {name: run(name, options.seed, options.files // len(kinds)) for name in kinds}
    lines = [line for one in found.values() for line in one]
    report = {
        "files": len(lines),
        "outcomes": {
            name: dict(Counter(line.get("outcome", "wrong") for line in one))
            for name, one in found.items()
        },
        "seed": options.seed,
        "wrong": [line["wrong"] for line in lines if "wrong" in line],
        "slowest_seconds": round(max((line.get("seconds", 0.0) for line in lines), default=0), 3),
        "seconds": round(time.perf_counter() - start, 1),
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    sys.exit(bool(report["wrong"]))


if __name__ == "__main__":
    main()

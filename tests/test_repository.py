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
    # Processor time, since the clock on the wall also measures who else uses this machine.
    seconds, loaded = json.loads(
        python("""
import json, sys, time
import numpy, torch
before, start = set(sys.modules), time.process_time()
import dkvb
print(json.dumps([time.process_time() - start, sorted(set(sys.modules) - before)]))
""")
    )
    assert seconds < 1.5
    heavy = {"matplotlib", "numba", "sklearn", "timm", "torchvision", "triton", "typer"}
    assert {name.partition(".")[0] for name in loaded} & heavy == set()


def test_model_imports_without_compilers_and_scikit_learn() -> None:
    imported = python("""
import importlib, pkgutil, sys
import numpy, torch

MISSING = "llvmlite matplotlib numba scipy sklearn tqdm triton typer".split()

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)

for name in list(sys.modules):
    if name.partition(".")[0] in MISSING:
        del sys.modules[name]
sys.meta_path.insert(0, Missing())
for name in ("_support", "kernels", "bottleneck"):
    package = importlib.import_module(f"dkvb.{name}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        # Of the kernels, everything but the packages and their oracles is imported where it runs.
        # The classifier, with its test of drift, is scikit-learn's kind.
        apart = module.name in ("dkvb.bottleneck.classifier", "dkvb.bottleneck.novelty")
        if not apart and (name != "kernels" or module.ispkg or module.name.endswith("oracle")):
            importlib.import_module(module.name)
            print(module.name)
""").split()
    assert {"dkvb.kernels.nearest", "dkvb.bottleneck.keys"} <= set(imported)


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
    ]
    assert printing == []


def test_every_dependency_of_the_package_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def expanded(requirements: list[str]) -> list[str]:
        """The requirements, with those of extras in place of `dkvb[extra]`."""
        own = [line for line in requirements if not line.startswith("dkvb[")]
        names = [n for line in requirements for n in re.findall(r"dkvb\[(.*)\]", line)]
        return own + [r for n in names for extra in n.split(",") for r in expanded(extras[extra])]

    wanted = expanded(project["dependencies"] + extras["dev"])
    text = (ROOT / "requirements" / "dev.txt").read_text().replace("\\\n", "")
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(
        re.match(r"[\w.-]+==[\w.]+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+$", line)
        for line in pins
    )
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


@pytest.mark.parametrize(
    ("script", "page"),
    [
        (("results_table.py",), "README.md"),
        (("methods_figure.py", "--table"), "docs/explanation/which-classifier.md"),
    ],
)
def test_a_page_shows_the_table_that_the_records_give(script: tuple[str, ...], page: str) -> None:
    name, *options = script
    command = [sys.executable, str(ROOT / "scripts" / name), *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() in (ROOT / page).read_text(encoding="utf-8")

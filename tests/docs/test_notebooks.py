"""The notebooks of examples/ run; the site shows what they printed and drew."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "examples" / "notebooks").glob("*.py"))

pytestmark = pytest.mark.docs


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_runs_and_ends_with_a_picture(source):
    if not find_spec("jupytext"):
        pytest.skip("jupytext is not installed: make docs-test")
    from scripts.run_notebook import run

    page = run(source, ROOT / "build" / "notebooks")
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert pictures
    assert (page.parent / pictures[-1]).stat().st_size > 10_000
    assert page.read_text(encoding="utf-8").rstrip().endswith(f"]({pictures[-1]})")

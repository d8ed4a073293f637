"""The examples of the documentation run and print what the pages show."""

import doctest
import re
from pathlib import Path

import pytest

import dkvb

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if ">>> " in path.read_text()
)


def test_pages_with_examples_are_found():
    assert {"how-to/teach.md", "how-to/data.md", "reference/files.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_what_happens(page):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=options)
    assert outcome.attempted > 5
    assert outcome.failed == 0


def test_every_public_name_is_in_the_reference():
    pages = [path.read_text() for path in (DOCS / "reference" / "api").glob("*.md")]
    described = {name for page in pages for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}
    elsewhere = {"client": "dkvb.serve.client"}
    elsewhere["export_onnx"] = "dkvb.export"
    missing = {n for n in dkvb.__all__ if elsewhere.get(n, f"dkvb.{n}") not in described}
    assert missing == set()

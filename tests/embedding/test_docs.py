"""The examples of docs/embedding.md and docs/data.md."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "fewest"), [("embedding.md", 6), ("data.md", 8)])
def test_the_page_shows_what_happens(page, fewest):
    if page == "data.md":
        pytest.importorskip("pyarrow")
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=options)
    assert outcome.attempted >= fewest
    assert outcome.failed == 0

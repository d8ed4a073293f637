"""The examples of docs/embedding.md."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "embedding.md"


def test_the_page_shows_what_happens():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testfile(str(PAGE), module_relative=False, optionflags=options)
    assert outcome.attempted > 5
    assert outcome.failed == 0

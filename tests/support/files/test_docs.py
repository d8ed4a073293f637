"""The page on files runs."""

import doctest
from pathlib import Path


def test_the_page_on_files_runs():
    page = Path(__file__).parents[3] / "docs" / "files.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 5
    assert failed == 0

"""Blocks of code of the documentation's pages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the blocks of a page in these languages."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if language in languages]


def python_blocks(page: Path) -> list[str]:
    """Return the blocks of Python that are no doctests."""
    return [text for text in blocks(page, "python") if ">>> " not in text]


def commands(page: Path) -> list[list[str]]:
    """Return the arguments of every `dkvb` command of a page."""
    text = "\n".join(blocks(page, "sh", "bash")).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("dkvb ")]

"""What a person does on the page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

SLOW = 60_000  # milliseconds: the encoder has its first images, or the machine much to do


def add_class(page: Any, label: str, paths: Iterable[Path]) -> None:
    """Name a class and choose photos for it."""
    page.get_by_label("Name of a new class").fill(label)
    page.keyboard.press("Enter")
    paths = list(paths)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=f"Add photos to {label}", exact=True).click()
    chooser.value.set_files(paths)
    expect_count(page, label, len(paths))


def add_photos(page: Any, paths: Iterable[Path]) -> None:
    """Choose photos, and wait until they are predicted."""
    before = page.locator(".item.predicted").count()
    paths = list(paths)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose photos").click()
    chooser.value.set_files(paths)
    expect(page.locator(".item.predicted")).to_have_count(before + len(paths), timeout=SLOW)


def expect_count(page: Any, label: str, n: int) -> None:
    """Wait until the list of classes says how many examples were learned."""
    text = f"{n} example{'' if n == 1 else 's'}"
    expect(page.locator(f'.class[data-label="{label}"]')).to_contain_text(text, timeout=SLOW)


def option(page: Any, name: str) -> Any:
    """The item of a file."""
    return page.get_by_role("option", name=name)

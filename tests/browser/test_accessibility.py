"""axe on every view, light and dark, on a desktop and on a phone; the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import axe
from tests.browser.steps import SLOW, add_class, add_photos, expect_count

pytestmark = pytest.mark.browser
Photos = dict[str, list[Path]]
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}


def violations(page: Any) -> list[str]:
    """What axe finds serious or critical, with the first element of each."""
    page.evaluate(axe())
    found = page.evaluate("axe.run(document)")["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:150]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def check_each_view(page: Any, found: dict[str, list[str]], name: str) -> None:
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found[f"{name}, {screen}, {scheme}"] = violations(page)


def test_axe_finds_nothing_serious(page: Any, photos: Photos) -> None:
    found: dict[str, list[str]] = {}
    expect(page.get_by_text("Teach the first classes")).to_be_visible(timeout=SLOW)
    check_each_view(page, found, "empty model")
    add_class(page, "flower", photos["flower"][:4])
    add_class(page, "temple", [*photos["temple"][:4], photos["flower"][5]])
    add_photos(page, photos["temple"][4:6])
    page.get_by_role("option").first.click()
    expect(page.get_by_text("Learned examples that decided")).to_be_visible(timeout=SLOW)
    check_each_view(page, found, "items")
    page.get_by_role("button", name="Edit flower").click()
    check_each_view(page, found, "dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    check_each_view(page, found, "keyboard")
    page.keyboard.press("Escape")
    for view in ("Quality", "Suspects", "History"):
        page.get_by_role("tab", name=view).click()
        expect(page.get_by_role("tabpanel", name=view)).not_to_be_empty(timeout=SLOW)
        check_each_view(page, found, view)
    assert {name: ones for name, ones in found.items() if ones} == {}
    assert len(found) == 7 * 4


def test_the_keyboard_alone_is_enough(page: Any, photos: Photos) -> None:
    add_class(page, "flower", photos["flower"][:3])
    add_class(page, "temple", photos["temple"][:3])
    add_photos(page, [photos["flower"][4], photos["temple"][4], photos["temple"][5]])
    page.get_by_role("button", name="To label").press("Enter")
    page.get_by_role("button", name="Select all").focus()
    page.keyboard.press("Tab")  # into the list: one stop for all its items
    expect(page.get_by_role("option").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("option", selected=True)).to_have_count(2)
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.keyboard.press("Enter")  # both as predicted
    expect_count(page, "temple", 5)
    expect(page.get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("option").first).to_be_focused()  # the next one
    page.keyboard.press("l")
    page.keyboard.type("garden")
    page.keyboard.press("Enter")
    expect_count(page, "garden", 1)
    page.get_by_role("tab", name="Teach").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Quality")).to_contain_text("Confusion", timeout=SLOW)
    page.keyboard.press("Control+z")
    said = page.get_by_role("status")
    expect(said).to_have_text(re.compile("Undone: learn of 1 photo"), timeout=SLOW)

"""The page of `dkvb serve`, used as a person does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.steps import SLOW, add_class, add_photos, expect_count, option

pytestmark = pytest.mark.browser
Photos = dict[str, list[Path]]


@pytest.fixture
def taught(page: Any, photos: Photos) -> Any:
    """The page of a model that has learned four photos of each of two classes."""
    for label, paths in photos.items():
        add_class(page, label, paths[:4])
    return page


def test_teach_predict_correct_undo_and_forget(taught: Any, photos: Photos, url: str) -> None:
    page = taught
    add_photos(page, photos["flower"][4:6])
    first = option(page, photos["flower"][4].name)
    expect(first).to_have_accessible_name(re.compile(r"flower-004.jpg predicted flower 9\d %"))

    first.click()
    page.keyboard.press("2")  # wrong on purpose
    expect(first).to_have_accessible_name(re.compile(r"flower-004.jpg learned as temple"))
    expect_count(page, "temple", 5)

    first.click()
    page.keyboard.press("1")  # corrected: a learned row gets another label
    expect(first).to_have_accessible_name(re.compile(r"flower-004.jpg learned as flower"))
    expect_count(page, "flower", 5)

    page.keyboard.press("u")
    expect(first).to_have_accessible_name(re.compile(r"flower-004.jpg learned as temple"))
    page.get_by_role("button", name="Undo the learn of 1 photo").click()
    expect(first).to_have_accessible_name(
        re.compile(r"flower-004.jpg predicted flower 9\d %"), timeout=SLOW
    )
    expect_count(page, "temple", 4)

    page.get_by_role("button", name="Edit temple").click()
    page.get_by_role("button", name="Forget…").click()
    question = page.get_by_role("dialog", name="Forget temple?")
    expect(question).to_contain_text("This is final: it cannot be undone")
    question.get_by_role("button", name="Cancel").click()
    expect_count(page, "temple", 4)
    page.get_by_role("button", name="Edit temple").click()
    page.get_by_role("button", name="Forget…").click()
    question.get_by_role("button", name="Forget").click()
    expect(page.locator(".class")).to_have_count(1, timeout=SLOW)
    expect(page.get_by_role("button", name="Nothing to undo")).to_be_disabled()
    assert httpx.get(f"{url}/v1/classes").json()["classes"] == [{"label": "flower", "count": 4}]

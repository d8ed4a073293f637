"""Classes on the page: many items at once, rename, merge, undo; suspects, quality, suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.steps import SLOW, add_class, add_photos, expect_count, option

pytestmark = pytest.mark.browser
Photos = dict[str, list[Path]]


def classes(url: str) -> dict[str, int]:
    found = httpx.get(f"{url}/v1/classes").json()["classes"]
    return {one["label"]: one["count"] for one in found}


def test_rename_merge_and_undo(page: Any, photos: Photos, url: str) -> None:
    add_class(page, "flower", photos["flower"][:3])
    add_class(page, "temple", photos["temple"][:3])
    page.get_by_role("button", name="Edit temple").click()
    page.get_by_label("Name", exact=True).fill("palace")
    page.get_by_role("button", name="Rename").click()
    expect_count(page, "palace", 3)
    expect(page.get_by_role("option", name="learned as palace")).to_have_count(3)

    page.get_by_role("button", name="Edit palace").click()
    page.get_by_label("Merge into").select_option("flower")
    page.get_by_role("button", name="Merge").click()
    expect_count(page, "flower", 6)
    assert classes(url) == {"flower": 6}

    page.get_by_role("button", name="Undo the merge").click()
    expect_count(page, "palace", 3)
    page.get_by_role("button", name="Undo the rename").click()
    expect_count(page, "temple", 3)
    expect(page.get_by_role("option", name="learned as temple")).to_have_count(3)
    assert classes(url) == {"flower": 3, "temple": 3}


def test_forget_some_of_many_that_were_taught_at_once(page: Any, photos: Photos, url: str) -> None:
    add_class(page, "flower", photos["flower"][:2])
    add_photos(page, photos["temple"][:4])
    page.get_by_role("button", name="To label").click()
    page.get_by_role("button", name="Select all").click()
    page.get_by_label("Label the selection as").fill("temple")
    page.keyboard.press("Enter")
    expect_count(page, "temple", 4)
    page.get_by_role("button", name="Learned").click()
    option(page, photos["temple"][0].name).click()
    option(page, photos["temple"][1].name).click(modifiers=["Control"])
    page.get_by_role("group", name="Label the selection").get_by_text("Forget…").click()
    question = page.get_by_role("dialog", name="Forget 2 photos?")
    question.get_by_role("button", name="Forget").click()
    expect_count(page, "temple", 2)
    assert classes(url) == {"flower": 2, "temple": 2}
    expect(option(page, photos["temple"][0].name)).to_have_count(0)


def test_suspects_quality_and_what_to_label_next(page: Any, photos: Photos, url: str) -> None:
    add_class(page, "flower", photos["flower"][:4])
    add_class(page, "temple", [*photos["temple"][:4], photos["flower"][4]])  # one is wrong
    page.get_by_role("tab", name="Quality").click()
    quality = page.get_by_role("tabpanel", name="Quality")
    expect(quality.get_by_role("table").last).to_contain_text("temple", timeout=SLOW)
    expect(quality).to_contain_text("temple taken for flower: 1")
    page.get_by_role("tab", name="Suspects").click()
    page.get_by_role("button", name="Relabel as flower").first.click()
    expect(page.get_by_text("No label of a learned example is")).to_be_visible(timeout=SLOW)
    assert classes(url) == {"flower": 5, "temple": 4}

    page.get_by_role("tab", name="Teach").click()
    add_photos(page, [*photos["flower"][5:7], *photos["temple"][5:7]])
    page.get_by_role("button", name="To label").click()
    ids = [one["row"] for one in httpx.get(f"{url}/v1/suggestions").json()["suggestions"]]
    names = [path.name for path in (*photos["flower"][5:7], *photos["temple"][5:7])]
    page.get_by_role("button", name="Most useful first").click()
    shown = page.get_by_role("option").locator("img")
    expect(shown.first).to_have_attribute("alt", names[ids[0]])
    assert [one.get_attribute("alt") for one in shown.all()] == [names[i] for i in ids]

    page.get_by_role("option").first.click()
    page.keyboard.press("Enter")
    expect(page.locator("#numbers")).to_contain_text("prequential", timeout=SLOW)
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_role("tabpanel", name="History")).to_contain_text("relabel", timeout=SLOW)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export safetensors").click()
    assert download.value.suggested_filename == "pets.safetensors"


def test_what_another_client_teaches_is_seen(page: Any, photos: Photos, url: str) -> None:
    add_class(page, "flower", photos["flower"][:2])
    sent = {"image": photos["temple"][0].read_bytes()}
    httpx.post(f"{url}/v1/learn", files=sent, data={"label": "temple"}, timeout=60)
    expect_count(page, "temple", 1)


def test_labels_are_text_and_never_markup(page: Any, photos: Photos) -> None:
    label = '<img src=x onerror="alert(1)">'
    page.get_by_label("Name of a new class").fill(label)
    page.keyboard.press("Enter")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=f"Add photos to {label}").click()
    chooser.value.set_files(photos["flower"][:1])
    expect(page.get_by_text("1 example", exact=True)).to_be_visible(timeout=SLOW)
    add_photos(page, photos["flower"][1:2])
    expect(page.locator("img[src=x]")).to_have_count(0)


def with_pictures(_: Path) -> tuple[str, ...]:
    return ("--encoder", "efficientnet_lite0", "--keep-images")


@pytest.mark.parametrize("url", [with_pictures], indirect=True)
def test_what_was_learned_before_is_shown_corrected_and_forgotten(
    page: Any, photos: Photos, url: str
) -> None:
    for label, paths in (("flower", photos["flower"][:2]), ("temple", photos["temple"][:3])):
        sent = [("image", path.read_bytes()) for path in paths]
        httpx.post(f"{url}/v1/learn", files=sent, data={"label": label}, timeout=60)
    page.reload()
    page.get_by_role("button", name="Edit temple").click()
    page.get_by_role("button", name="Show examples").click()
    stored = page.get_by_role("option", name="learned as temple")
    expect(stored).to_have_count(3)
    expect(stored.first.locator("img")).to_have_js_property("naturalWidth", 160)
    stored.first.click()
    page.keyboard.press("1")
    expect_count(page, "flower", 3)
    page.keyboard.press("u")
    expect_count(page, "temple", 3)
    stored.last.click()
    page.get_by_role("group", name="Label the selection").get_by_text("Forget…").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect_count(page, "temple", 2)
    expect(stored).to_have_count(2)

"""How items come in: texts, embeddings, the camera, files that are dropped; what is not taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.steps import SLOW, add_class, add_photos, expect_count, option
from tests.embedding.test_encoders import write_sentence_folder

pytestmark = pytest.mark.browser
Photos = dict[str, list[Path]]

# What a browser logs of an answer that is an error, which these tests provoke.
EXPECTED = "Failed to load resource: the server responded with a status of 4"


def test_the_camera_teaches_frame_by_frame(page: Any, photos: Photos) -> None:
    add_class(page, "flower", photos["flower"][:2])
    page.get_by_role("button", name="Camera").click()
    answer = page.locator("#camera-answer")
    expect(answer).to_contain_text("flower", timeout=SLOW)  # the one class there is
    page.get_by_role("button", name="Take photo").click()
    expect(page.get_by_role("option", name="camera 1 predicted flower")).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Close", exact=True).click()

    page.get_by_label("Name of a new class").fill("screen")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Camera").click()
    expect(page.get_by_role("button", name="Take photo")).to_be_focused(timeout=SLOW)
    page.keyboard.press("2")
    expect_count(page, "screen", 1)
    held = page.get_by_role("group", name="Camera").get_by_role("button", name="screen")
    held.hover()
    page.mouse.down()
    learned = page.get_by_role("option", name="learned as screen")
    expect(learned.nth(2)).to_be_visible(timeout=SLOW)  # frames go on coming: at least three
    page.mouse.up()
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("#camera")).to_be_hidden()


def test_a_photo_that_is_dropped_on_a_class_is_learned(page: Any, photos: Photos) -> None:
    add_class(page, "flower", photos["flower"][:2])
    page.get_by_label("Name of a new class").fill("temple")
    page.keyboard.press("Enter")
    content = list(photos["temple"][0].read_bytes())
    transfer = page.evaluate_handle(
        """(bytes) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], "t.jpg", { type: "image/jpeg" }));
          return transfer;
        }""",
        content,
    )
    page.dispatch_event('.class[data-label="temple"]', "drop", {"dataTransfer": transfer})
    expect_count(page, "temple", 1)
    expect(option(page, "t.jpg learned as temple")).to_be_visible()


@pytest.mark.parametrize("allowed", [EXPECTED], indirect=True)
def test_a_file_that_is_not_an_image_is_refused_alone(
    page: Any, photos: Photos, tmp_path: Path
) -> None:
    add_class(page, "flower", photos["flower"][:2])
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(photos["temple"][0].read_bytes()[:200])
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose photos").click()
    chooser.value.set_files([broken, photos["flower"][3]])
    expect(option(page, "flower-003.jpg predicted flower")).to_be_visible(timeout=SLOW)
    refused = option(page, "broken.jpg not taken")
    expect(refused).to_contain_text("expected a whole image", timeout=SLOW)
    note = tmp_path / "note.pdf"
    note.write_bytes(b"%PDF-")
    page.locator("#files").set_input_files([note])
    expect(page.get_by_role("alert")).to_contain_text("note.pdf: expected images")
    expect_count(page, "flower", 2)


def with_token(folder: Path) -> tuple[str, ...]:
    (folder / "token").write_text("correct-horse-battery")
    return ("--width", "4", "--token-file", str(folder / "token"))


@pytest.mark.parametrize("allowed", [EXPECTED], indirect=True)
@pytest.mark.parametrize("url", [with_token], indirect=True)
def test_a_token_is_asked_for_once(page: Any) -> None:
    dialog = page.get_by_role("dialog", name="Token")
    dialog.get_by_label("Token", exact=True).fill("wrong-horse-battery")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("That is not the token")
    dialog.get_by_label("Token", exact=True).fill("correct-horse-battery")
    page.keyboard.press("Enter")
    expect(page.get_by_text("0 classes · 0 examples")).to_be_visible(timeout=SLOW)
    page.reload()
    expect(page.get_by_text("0 classes · 0 examples")).to_be_visible(timeout=SLOW)
    expect(dialog).to_have_count(0)


@pytest.mark.parametrize("url", [lambda _: ("--width", "4")], indirect=True)
def test_embeddings_come_from_npy_files(page: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label, centre in (("a", 3.0), ("b", -3.0)):
        np.save(tmp_path / f"{label}.npy", rng.normal(centre, size=(3, 4)).astype(np.float32))
        page.get_by_label("Name of a new class").fill(label)
        page.keyboard.press("Enter")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=f"Add items to {label}").click()
        chooser.value.set_files(tmp_path / f"{label}.npy")
        expect_count(page, label, 3)
    np.save(tmp_path / "new.npy", np.full((2, 4), [[2.5], [-2.5]]))
    page.locator("#files").set_input_files(tmp_path / "new.npy")
    expect(option(page, "new.npy, row 1 predicted a")).to_be_visible(timeout=SLOW)
    expect(option(page, "new.npy, row 2 predicted b")).to_be_visible()


def with_sentences(folder: Path) -> tuple[str, ...]:
    (folder / "bert").mkdir()
    return ("--encoder", f"sentence-transformers:{write_sentence_folder(folder / 'bert')}")


@pytest.mark.parametrize("url", [with_sentences], indirect=True)
def test_texts_are_pasted_line_by_line(page: Any) -> None:
    page.get_by_label("Texts, one per line").fill("a cat\ncats\n\na dog sat\ndogs sat\n")
    page.get_by_role("button", name="Add texts", exact=True).click()
    expect(page.get_by_role("option")).to_have_count(4, timeout=SLOW)
    for label, names in (("feline", ["a cat", "cats"]), ("canine", ["a dog sat", "dogs sat"])):
        option(page, names[0]).click()
        option(page, names[1]).click(modifiers=["Control"])
        page.get_by_label("Label the selection as").fill(label)
        page.keyboard.press("Enter")
        expect_count(page, label, 2)
    page.get_by_label("Texts, one per line").fill("a cat cats")
    page.get_by_role("button", name="Add texts", exact=True).click()
    expect(option(page, "a cat cats predicted")).to_be_visible(timeout=SLOW)
    option(page, "a cat cats predicted").click()
    why = page.get_by_role("region", name="Predicted:")
    expect(why).to_contain_text("Learned examples that decided", timeout=SLOW)
    expect(why.get_by_role("figure").first).to_contain_text("line")  # feline or canine


def test_the_page_asks_nothing_of_other_hosts(page: Any, photos: Photos, url: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    add_class(page, "flower", photos["flower"][:1])
    add_photos(page, photos["flower"][1:2])
    assert len(asked) > 10
    assert [one for one in asked if not one.startswith((url, "blob:"))] == []

"""Draw the page of `dkvb serve`: python -m scripts.serve_screenshots docs/images

Teaches five classes from an empty model in headless Chromium, and says how long that took.
`make screenshots` installs what it needs.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.chromium import ARGUMENTS, environment, executable
from tests.browser.photos import cut
from tests.browser.service import serving
from tests.browser.steps import SLOW, add_class, add_photos, option

SAMPLES = {
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "flower": "flower.jpg",
    "temple": "china.jpg",
}
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


def save(page: Any, path: Path) -> None:
    """Write what the page shows, in 256 colours: a fifth of the size."""
    page.wait_for_timeout(500)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} kB")


def look(page: Any, size: dict[str, int], scheme: str) -> None:
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")


def draw(page: Any, url: str, photos: Path, out: Path) -> None:
    look(page, DESKTOP, "light")
    page.goto(url)
    expect(page.get_by_text("Teach the first classes")).to_be_visible(timeout=SLOW)
    start = time.perf_counter()
    for label, sample in SAMPLES.items():
        add_class(page, label, cut(sample, photos, label, 5))
    print(f"five classes taught in {time.perf_counter() - start:.0f} s")
    new = {label: cut(sample, photos, label, 4, seed=1) for label, sample in SAMPLES.items()}
    for i in range(2):
        add_photos(page, [paths[i] for paths in new.values()])
        page.get_by_role("button", name="To label").click()
        page.get_by_role("button", name="Select all").click()
        page.get_by_role("button", name="Accept predictions").click()
        expect(page.get_by_role("option")).to_have_count(0, timeout=SLOW)
    page.get_by_role("button", name=re.compile("^All")).click()
    add_photos(page, [path for paths in new.values() for path in paths[2:]])
    option(page, new["cat"][2].name).click()
    expect(page.get_by_text("Learned examples that decided")).to_be_visible(timeout=SLOW)
    save(page, out / "serve-teach.png")
    look(page, PHONE, "dark")
    page.get_by_role("button", name="To label").click()
    page.locator("#items-heading").scroll_into_view_if_needed()
    save(page, out / "serve-phone.png")
    look(page, DESKTOP, "light")
    option(page, new["coffee"][2].name).click()
    page.keyboard.press("1")  # a wrong label, which will be suspected
    page.get_by_role("tab", name="Suspects").click()
    expect(page.get_by_role("button", name="Relabel as coffee")).to_be_visible(timeout=SLOW)
    page.get_by_role("tab", name="Quality").click()
    look(page, DESKTOP, "dark")
    save(page, out / "serve-quality.png")


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        options = ("--encoder", "efficientnet_lite0", "--keep-images")
        with serving(Path(folder) / "pets", *options) as url:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=ARGUMENTS, env=environment()
            )
            page = browser.new_page()
            page.on("console", lambda message: print(message.type, message.text))
            draw(page, url, Path(folder), out)
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

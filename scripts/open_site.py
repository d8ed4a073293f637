"""Open every page of the built site in headless Chromium: python -m scripts.open_site SITE OUT

Each page is opened light and dark, on a desktop and on a phone. Errors in the console, requests
that leave the site or fail, and pages wider than the phone are errors. OUT gets screenshots.
`make docs-browser` installs what it needs.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.chromium import ARGUMENTS, environment, executable

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
_TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"


class Quiet(SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def visit(browser: Any, url: str, names: list[str], out: Path) -> list[str]:
    """Open the pages, write screenshots, and return what went wrong."""
    errors: list[str] = []
    for (size, viewport), scheme in product(SIZES.items(), ("light", "dark")):
        context = browser.new_context(
            viewport=viewport, color_scheme=scheme, reduced_motion="reduce"
        )
        page = context.new_page()
        where = ""

        def add(text: str) -> None:
            errors.append(f"{where}: {text}")  # noqa: B023  # of the page that is open

        def requested(request: Any) -> None:
            if not request.url.startswith((url, "data:", "blob:")):
                add(f"asks for {request.url}")

        page.on("console", lambda m: add(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: add(str(error)))
        page.on("request", requested)
        page.on("requestfailed", lambda request: add(f"failed: {request.url}"))
        for name in names:
            where = f"{name}, {size}, {scheme}"
            page.goto(f"{url}/{name}", wait_until="load")
            if page.evaluate(_TOO_WIDE):
                add("wider than the screen")
            stem = name.removesuffix(".html").replace("/", "-")
            page.screenshot(path=out / f"{stem}-{size}-{scheme}.png")
        context.close()
    return errors


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python -m scripts.open_site SITE OUT")
    site, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    names = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=ARGUMENTS, env=environment()
        )
        errors = visit(browser, f"http://127.0.0.1:{server.server_port}", names, out)
        browser.close()
    server.shutdown()
    if errors:
        sys.exit("\n".join(errors))
    print(f"{len(names)} pages, light and dark, on desktop and phone: no error; pictures in {out}")


if __name__ == "__main__":
    main()

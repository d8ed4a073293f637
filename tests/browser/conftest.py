"""A service, a browser, and a page in which no error may come up."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import ARGUMENTS, environment, executable
from tests.browser.photos import cut
from tests.browser.service import serving

ENCODER = ("--encoder", "efficientnet_lite0")


# Playwright comes with `make test-browser`; the rest of the tests does without.
collect_ignore_glob = [] if find_spec("playwright") else ["*.py"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=ARGUMENTS, env=environment()
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Eight photos of each of two classes."""
    folder = tmp_path_factory.mktemp("photos")
    return {
        "flower": cut("flower.jpg", folder, "flower", 8),
        "temple": cut("china.jpg", folder, "temple", 8),
    }


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A service of a new model; indirect=True gives a function of a folder to other options."""
    options = request.param(tmp_path) if hasattr(request, "param") else ENCODER
    with serving(tmp_path / "pets", *options) as address:
        yield address


@pytest.fixture
def allowed(request: pytest.FixtureRequest) -> str | None:
    """How errors begin that a test provokes, by indirect=True."""
    return getattr(request, "param", None)


@pytest.fixture
def page(chromium: Any, url: str, allowed: str | None) -> Iterator[Any]:
    """The page of the service; the test fails for any error in its console."""
    context = chromium.new_context(permissions=["camera"], viewport={"width": 1280, "height": 900})
    one = context.new_page()
    errors: list[str] = []
    one.on("console", lambda message: message.type == "error" and errors.append(message.text))
    one.on("pageerror", lambda error: errors.append(str(error)))
    one.goto(url)
    yield one
    context.close()
    assert [text for text in errors if not (allowed and text.startswith(allowed))] == []

"""Headless Chromium: one that is installed, or npm's @sparticuz/chromium, which needs no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# What `make test-browser` installed from npm.
MODULES = Path(sys.prefix) / "browser" / "node_modules"
_INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INFLATE = (
    "import('@sparticuz/chromium').then(async (m) => console.log(await m.default.executablePath()))"
)

ARGUMENTS = [
    "--no-sandbox",  # which root has not
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]


def executable() -> str:
    """Return the path of the browser; one from npm is inflated beside its package."""
    found = next(filter(None, map(shutil.which, _INSTALLED)), None)
    if found is not None:
        return found
    assert (MODULES / "@sparticuz").is_dir(), "no Chromium: run make test-browser"
    where = {**os.environ, "TMPDIR": str(MODULES.parent)}
    command = ["node", "-e", _INFLATE]
    done = subprocess.run(
        command, cwd=MODULES.parent, env=where, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Return the environment of the browser, with the fonts that came with it."""
    fonts = MODULES.parent / "fonts"
    return {"FONTCONFIG_PATH": str(fonts)} if fonts.is_dir() else {}


def axe() -> str:
    """Return the source of axe."""
    path = MODULES / "axe-core" / "axe.min.js"
    assert path.is_file(), "no axe-core: run make test-browser"
    return path.read_text(encoding="utf-8")

"""Packages that are extras: a test that compares with one is skipped where it is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest


def needs(module: str) -> Any:
    """The module, or the test is skipped with the reason."""
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # compiled for another torch
        pytest.skip(f"compares with {module.partition('.')[0]}, which is not here: {error}")

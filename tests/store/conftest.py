"""What tests of models on disk share."""

import os

import pytest

from dkvb.store import folder


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """A journal is compacted where a test wants it, never because the machine is busy."""
    monkeypatch.setattr(folder, "MOST_SECONDS", float("inf"))


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A name for a model's folder."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nobody pulls the plug here
    return tmp_path / "model"

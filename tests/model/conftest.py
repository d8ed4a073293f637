"""What tests of models on disk share."""

import os

import pytest


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A name for a model's folder."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nobody pulls the plug here
    return tmp_path / "model"

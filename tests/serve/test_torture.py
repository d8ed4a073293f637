"""A tenth of `make torture`: kills under load, a full disk."""

import os

import pytest

from .torture import full_disk, kills


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_what_was_acknowledged_is_there_once_after_kills(tmp_path):
    report = kills(tmp_path, 5, 0.7)
    assert report["acknowledged"] > 5


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs the right to mount")
def test_a_disk_that_is_really_full_gives_507(tmp_path):
    report = full_disk(tmp_path)
    if "refused with 507" not in report:
        pytest.skip("may not mount")
    assert report["refused with 507"] == 3

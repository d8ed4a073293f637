"""Folders that a command needs while it runs go with it, or with the next one after a kill."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from dkvb.cli._scratch import scratch_folder


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_scratch_folder_goes_at_the_end(base):
    with scratch_folder() as folder:
        (folder / "entry").mkdir()
        (folder / "entry" / "embeddings").write_bytes(b"secret")
        assert folder.stat().st_mode & 0o77 == 0
    assert list(base.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        raise KeyboardInterrupt
    assert list(base.iterdir()) == []


def test_leftovers_of_a_killed_command_go_with_the_next_one_and_those_of_a_live_one_stay(base):
    program = (
        "import time; from dkvb.cli._scratch import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    (folder / 'embeddings').write_bytes(b'secret')\n"
        "    print(folder, flush=True); time.sleep(900)"
    )
    environment = {**os.environ, "TMPDIR": str(base)}
    command = [sys.executable, "-c", program]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        left = other.stdout.readline().strip()
        with scratch_folder() as mine:
            assert sorted(map(str, base.iterdir())) == sorted([left, str(mine)])
        assert [str(path) for path in base.iterdir()] == [left]  # it is in use
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        with scratch_folder():
            pass
        assert list(base.iterdir()) == []
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_folders_of_others_stay(base):
    (base / "dkvb-scratch-notes").mkdir()
    (base / "dkvb-scratch-notes" / "mine").write_text("precious")
    (base / "folder").mkdir()
    (base / "folder" / "lock").write_text("")
    (base / "dkvb-scratch-link").symlink_to(base / "folder")
    with scratch_folder():
        pass
    assert (base / "dkvb-scratch-notes" / "mine").exists()
    assert (base / "folder" / "lock").exists()

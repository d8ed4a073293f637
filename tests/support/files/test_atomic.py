"""A file is replaced as a whole or not at all, whichever step fails."""

import errno
import os
import signal

import pytest

from dkvb._support.files import atomic

STEPS = ("write_all", "sync", "rename", "sync_folder")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail_at(monkeypatch, number, error=None, after=False):
    """Let the number-th step on the disk fail; returns a list that counts the steps."""
    done = []

    def counted(real):
        def step(*arguments):
            done.append(real.__name__)
            if len(done) == number and after:
                real(*arguments)
            if len(done) == number:
                raise error or OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        return step

    for name in STEPS:
        monkeypatch.setattr(atomic, name, counted(getattr(atomic, name)))
    return done


def test_replaces_and_creates(tmp_path):
    path = tmp_path / "file"
    atomic.replace_file(path, [b"one", memoryview(b"two")])
    assert path.read_bytes() == b"onetwo"
    atomic.replace_file(path, [b"three"])
    assert path.read_bytes() == b"three"
    assert names(tmp_path) == ["file"]


def test_a_failure_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    outcomes = []
    for number in range(1, 6):
        for after in (False, True):
            path.write_bytes(b"old")
            with monkeypatch.context() as context:
                fail_at(context, number, after=after)
                with pytest.raises(OSError, match="No space"):
                    atomic.replace_file(path, [b"new", b"er"])
            outcomes.append(path.read_bytes())
            assert names(tmp_path) == ["file"]  # nothing half-written is left behind
    assert set(outcomes) == {b"old", b"newer"}
    assert outcomes == sorted(outcomes, key=[b"old", b"newer"].index)


def test_half_a_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, chunk: real(handle, chunk[:3]))
    atomic.replace_file(tmp_path / "file", [b"0123456789"])
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_links_stay_links(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    atomic.replace_file(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("number", range(1, 6))
def test_death_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch, number):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        real = os.kill
        steps = iter(range(1, 100))

        def dying(step):
            def wrapped(*arguments):
                if next(steps) == number:
                    real(os.getpid(), signal.SIGKILL)
                return step(*arguments)

            return wrapped

        try:
            for name in STEPS:
                setattr(atomic, name, dying(getattr(atomic, name)))
            atomic.replace_file(path, [b"new", b"er"])
        finally:
            os._exit(0)  # also after an error: only one process may go on with the tests
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert path.read_bytes() == (b"newer" if number == 5 else b"old")
    left = [name for name in names(tmp_path) if name != "file"]
    assert all(name.endswith(atomic.UNFINISHED) for name in left)

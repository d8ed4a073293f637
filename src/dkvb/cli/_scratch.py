"""A folder for what a command needs only while it runs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "dkvb-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a private folder, which is removed at the end.

    What a killed process left is removed by the next command that calls this: its lock is free.
    """
    from filelock import FileLock  # most commands, and --help, need none

    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*"):
        _remove_if_dead(left)
    new = Path(tempfile.mkdtemp(prefix=".dkvb-", dir=base))
    with FileLock(new / "lock", timeout=0):
        # Not under its final name before the lock is held: it would look like one that is dead.
        folder = new.rename(base / (_PREFIX + new.name.removeprefix(".dkvb-")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_dead(folder: Path) -> None:
    from filelock import FileLock, Timeout

    with suppress(OSError, Timeout):
        status = folder.lstat()
        own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        # A link is no folder. Without a lock it is none of ours.
        if not own or not stat.S_ISDIR(status.st_mode) or not (folder / "lock").is_file():
            return
        with FileLock(folder / "lock", timeout=0):
            shutil.rmtree(folder)

"""`dkvb serve` in a process of its own, on a free port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(model: Path, *options: str) -> Iterator[str]:
    """Yield the address of a service."""
    command = [sys.executable, "-m", "dkvb", "serve", str(model), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the service did not start"
            yield found.group()
        finally:
            process.terminate()

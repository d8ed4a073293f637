"""How much memory there is, and how much of it is free."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dkvb._support.optional import require_torch

SMALL = 1 << 28  # bytes that are not worth a look at what is free


def free_memory(device: Any = "cpu") -> int | None:
    """Return how many bytes can be allocated on a device; None where the system does not tell."""
    if str(device).startswith("cuda"):
        return _gpu_memory(device)[0]
    known = [
        limit for limit in (total_memory(), _available(), _address_space()) if limit is not None
    ]
    return min(known, default=None)


def total_memory(device: Any = "cpu") -> int | None:
    """Return the bytes that the machine, the container or the GPU has; None where nothing tells."""
    if str(device).startswith("cuda"):
        return _gpu_memory(device)[1]
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    with suppress(OSError, ValueError):  # no limit, or not Linux
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def _gpu_memory(device: Any) -> tuple[int, int]:
    """The free bytes of a GPU, and all of them."""
    free, total = require_torch(f"device {str(device)!r}").cuda.mem_get_info(device)
    return int(free), int(total)


def _available() -> int | None:
    """What Linux says is available, swap included; None elsewhere."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kept = [line for line in lines if line.startswith(("MemAvailable:", "SwapFree:"))]
        return sum(int(line.split()[1]) << 10 for line in kept)
    return None


def _address_space() -> int | None:
    """What a limit on the process (ulimit -v) leaves; None without one."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return max(0, most - pages * resource.getpagesize())
    return None

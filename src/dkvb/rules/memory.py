"""Whether what a rule is about to keep fits into memory."""

from __future__ import annotations

import os
from functools import cache

import torch
from rich.filesize import decimal


@cache
def total_bytes(device: torch.device) -> int | None:
    """The memory of a device; None where it cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_fits(rule: str, size: int, device: torch.device, what: str) -> None:
    """Raise, before anything is allocated, for more bytes than the device has."""
    total = total_bytes(device)
    if total is not None and size > total:
        raise ValueError(
            f"keys: rule={rule!r} would keep {what}, {decimal(size)}; this machine has "
            f"{decimal(total)}; use smaller keys, such as fit_keys(X, preset={_PRESET[rule]!r}), "
            "or keys=None, which fits keys of the rule's own size"
        )


_PRESET = {"sgd": "paper", "counts": "counts", "least_squares": "least_squares"}

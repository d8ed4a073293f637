"""`dkvb serve`: teach a classifier over HTTP."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkvb.serve.client import Client
    from dkvb.serve.server import serve
    from dkvb.serve.settings import Limits, Settings

__all__ = ["Client", "Limits", "Settings", "serve"]

# A client needs neither the server's packages nor torch.
_HOMES = {"Client": "client", "Limits": "settings", "Settings": "settings", "serve": "server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

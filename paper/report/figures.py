"""The style of the report's figures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

PALETTE = (
    *("#2f6db3", "#e07b10", "#35903b", "#cf3b3b", "#7c50b4"),
    *("#12918a", "#c3478f", "#b79a00", "#7b8794", "#8c5a3c"),
)
_INK, _PAPER = "#1f2933", "#fefefe"
_INKED = (
    *("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor"),
    *("xtick.color", "ytick.color"),
)


def figure_style() -> AbstractContextManager[None]:
    """Return a context with the style of the report's figures."""
    import matplotlib as mpl
    from cycler import cycler

    style: Any = {
        "axes.prop_cycle": cycler(color=PALETTE),
        "figure.facecolor": _PAPER,
        "axes.facecolor": _PAPER,
        "savefig.facecolor": _PAPER,
        "axes.linewidth": 0.7,
        "axes.axisbelow": True,
        "axes.titlesize": "medium",
        **dict.fromkeys(_INKED, _INK),
    }
    return mpl.rc_context(style)

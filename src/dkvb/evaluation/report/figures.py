"""Figures inside an HTML page: SVG with the page's colours, or PNG."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from markupsafe import Markup, escape

PALETTE = (
    *("#2f6db3", "#e07b10", "#35903b", "#cf3b3b", "#7c50b4"),
    *("#12918a", "#c3478f", "#b79a00", "#7b8794", "#8c5a3c"),
)
_INK, _PAPER = "#1f2933", "#fefefe"  # replaced by the page's text colour, and by transparency
_INKED = (
    *("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor"),
    *("xtick.color", "ytick.color"),
)
_SCALE = 1.25  # pixels per point: text of 10 points matches the page's
_LARGEST_SVG = 400_000  # characters; larger figures are smaller as PNG


class Image(NamedTuple):
    """A figure as HTML, and its width in pixels."""

    html: Markup
    width: float


def figure(draw: Callable[[Path], Any], label: str, number: int) -> Image:
    """Return the figure that `draw` writes to a path; `number` makes its ids unique."""
    with TemporaryDirectory() as folder:
        content = _drawn(draw, Path(folder) / "figure.svg")
        if len(content) > _LARGEST_SVG and not content.startswith(b"\x89PNG"):
            content = _drawn(draw, Path(folder) / "figure.png")
    if content.startswith(b"\x89PNG"):
        data, width = b64encode(content).decode(), int.from_bytes(content[16:20])
        return Image(
            Markup(f'<img alt="{escape(label)}" src="data:image/png;base64,{data}">'), width
        )
    return _inline(content.decode(), label, number)


def _drawn(draw: Callable[[Path], Any], path: Path) -> bytes:
    with figure_style():
        draw(path)
    return path.read_bytes()


def figure_style() -> AbstractContextManager[None]:
    """Return a context with the style of the report's figures."""
    import matplotlib as mpl
    from cycler import cycler

    style: Any = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "dkvb",  # equal figures have equal bytes
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


def _inline(svg: str, label: str, number: int) -> Image:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)  # has the time of day
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)  # page.css has it
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    box = re.findall(r'viewBox="([^"]+)"', svg)[0]
    width = round(_SCALE * float(box.split()[2]))
    opening = (
        f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}" style="max-width:{width}px">'
    )
    svg = opening + svg[svg.index(">") + 1 :]
    svg = svg.replace(_PAPER, "none")
    svg = re.sub(f"{_INK}|#000000", "currentColor", svg)
    return Image(Markup(_with_own_ids(svg, f"f{number}-").strip()), width)


def _with_own_ids(svg: str, start: str) -> str:
    """Keep only ids that are referred to, with a prefix that is unique to the figure.

    >>> _with_own_ids('<g id="a"><path id="b"/><use href="#b"/></g>', "f1-")
    '<g><path id="f1-b"/><use href="#f1-b"/></g>'
    """
    wanted = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{start}{m[1]}"' if m[1] in wanted else "", svg)
    return re.sub(r'((?:href="|url\()#)', rf"\g<1>{start}", svg)

"""Examples in docstrings are code on the site, also outside of a section named Examples."""

import re
from typing import Any

from griffe import Extension, Object

# From a prompt to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class FencedDoctests(Extension):
    """Put doctests of every docstring between fences."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value
            )

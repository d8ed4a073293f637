"""A classifier on disk: a snapshot, a journal of what was learned since, one writer.

>>> import tempfile
>>> import numpy as np
>>> from dkvb.store import create, open_folder, read_folder
>>> from dkvb.estimators.registry import make_classifier
>>> X, y = np.eye(4).repeat(20, axis=0), np.repeat(["ant", "bee", "cat", "dog"], 20)
>>> classifier = make_classifier("kernel")
>>> folder = tempfile.mkdtemp() + "/model"
>>> create(folder, classifier.fit(X, y)).close()
>>> with open_folder(folder) as model:
...     model.learn(X[:5] + 2, ["elk"] * 5)
...     model.forget("cat")
5
20
>>> read_folder(folder).classifier.classes_
array(['ant', 'bee', 'dog', 'elk'], dtype='<U3')
>>> [(entry.operation, entry.count) for entry in read_folder(folder).history]
[('fit', 80), ('learn', 5), ('forget', 20)]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkvb.store.folder import (
        AppliedError,
        Learnable,
        ModelFolder,
        RepeatedIdError,
        create,
        open_folder,
    )
    from dkvb.store.history import Entry, read_history
    from dkvb.store.layout import check_target
    from dkvb.store.opening import load, load_keys, read_model
    from dkvb.store.reading import Following, Model, read_folder
    from dkvb.store.summary import read_summary, summarise

__all__ = [
    "AppliedError",
    "Entry",
    "Following",
    "Learnable",
    "Model",
    "ModelFolder",
    "RepeatedIdError",
    "check_target",
    "create",
    "load",
    "load_keys",
    "open_folder",
    "read_folder",
    "read_history",
    "read_model",
    "read_summary",
    "summarise",
]

# A history and a summary are read without torch: the rest is imported on first use.
_HOMES = {
    **dict.fromkeys(
        ("AppliedError", "Learnable", "ModelFolder", "RepeatedIdError", "create", "open_folder"),
        "folder",
    ),
    **dict.fromkeys(("Entry", "read_history"), "history"),
    **dict.fromkeys(("load", "load_keys", "read_model"), "opening"),
    **dict.fromkeys(("Following", "Model", "read_folder"), "reading"),
    **dict.fromkeys(("read_summary", "summarise"), "summary"),
    "check_target": "layout",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Open a model for reading, whether it is a folder or a single file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkvb._support import files
from dkvb._support.files import FileError
from dkvb._support.optional import require_torch
from dkvb.estimators.serialisation import estimator_from
from dkvb.store.journal import read_journal
from dkvb.store.layout import JOURNAL, SNAPSHOT
from dkvb.store.reading import Model, model_of, read_folder

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys


def load(path: str | Path, device: str = "cpu") -> Any:
    """Return the fitted classifier in a model folder or a file.

    Parameters
    ----------
    path : str or Path
        A folder that `dkvb fit` made, or a file that `save` wrote. The snapshot in a model folder,
        `model.safetensors`, stands for its folder, so that what was learned since is not missed.
    device : str
        Where to compute: "cpu" or "cuda".

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import dkvb
    >>> X, y = np.eye(4).repeat(20, axis=0), np.repeat(["ant", "bee", "cat", "dog"], 20)
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> dkvb.KernelClassifier().fit(X, y).save(path)
    >>> dkvb.load(path).predict(X[:1])
    array(['ant'], dtype='<U3')
    """
    return read_model(path, device).classifier


def read_model(path: str | Path, device: str = "cpu") -> Model:
    """Return the model in a folder or a file, with its encoder and history where it has them."""
    path = Path(path)
    if not path.is_file():
        return read_folder(path, device)
    contents = files.read(path, "estimator")
    if not contents.state.part("folder").facts:
        return Model(estimator_from(contents.state, device), None, snapshot=contents.digest)
    if path.name == SNAPSHOT:
        return read_folder(path.parent, device)
    journal = read_journal(path.parent / JOURNAL)
    if journal is not None and journal.snapshot == contents.digest:
        raise FileError(
            "foreign",
            f"{path}: expected a whole model; got the snapshot of a model folder under another "
            f"name, which lacks what {path.parent / JOURNAL} holds; name it {SNAPSHOT} again and "
            "give the folder",
        )
    return model_of(contents, device)


def load_keys(path: str | Path, device: str = "cpu") -> Keys:
    """Return the keys in a file of keys, in a model folder or in a model's file."""
    path = Path(path)
    require_torch("keys")
    from dkvb.bottleneck import Keys

    if path.is_file() and files.read(path, "keys", "estimator").kind == "keys":
        return Keys.load(path, device)
    model = load(path, device)
    keys: Keys | None = getattr(model, "keys_", None)  # of a bottleneck, fitted if not given
    if keys is None:
        keys = model.get_params(deep=False).get("keys")
    if keys is None:
        raise ValueError(
            f"keys: expected a file of keys or a model that has keys; {path} is a "
            f"{type(model).__name__}, which has no keys; give a model that was fitted with "
            "keys, or rows to fit keys to"
        )
    return keys

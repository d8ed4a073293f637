"""Estimators over keys are saved with them, or beside a file of keys that many share."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray

from dkvb._support import files
from dkvb._support.files import FileError, State
from dkvb._support.optional import require_torch
from dkvb.estimators.serialisation import Saved, are_keys

if TYPE_CHECKING:
    from dkvb.bottleneck import Keys


class SavedWithKeys(Saved):
    """An estimator over frozen keys, which stand in its file or in another."""

    keys: Any  # Keys, a mapping, or None

    def save(
        self, path: str | Path, *, keys: str | Path | None = None, dtype: str | None = None
    ) -> None:
        """Write parameters and all that was learned to a file, safetensors.

        `keys` names a file of keys that many classifiers share: it is written if it is new, and
        only named from here. With dtype "float16" or "int8" the values of a
        `BottleneckClassifier` are rounded, which makes the file smaller and predictions a little
        different.
        """
        path = Path(path)
        shared = None if keys is None else Path(keys)
        files.write(path, "estimator", self._file_state(path.parent, shared, dtype))

    @abstractmethod
    def _known_keys(self) -> list[Keys]:
        """All keys that were learned with, the oldest first."""

    @abstractmethod
    def _recall(self, state: State, keys: dict[str, Keys]) -> None:
        """Know what `_to_state` said, with keys by their fingerprints."""

    def _file_state(
        self, folder: Path = Path(), shared: Path | None = None, dtype: str | None = None
    ) -> State:
        keys = self._known_keys() if self._begun() else []
        given = self.keys
        if are_keys(given) and given.fingerprint not in [k.fingerprint for k in keys]:
            keys.append(given)
        return self._described(dtype).with_part("keys", _keys_part(keys, shared, folder))

    @classmethod
    def _from_file_state(cls, state: State, device: str) -> Self:
        found = _keys_by_fingerprint(state.part("keys"), device)
        named = state.fact("params", dict).get("keys")
        given = {}
        if isinstance(named, str):
            if named not in found:
                raise state.damaged("keys: expected those that the file holds or names")
            given = {"keys": found[named]}
        estimator = cls._made(state, device, **given)
        if estimator._begun_with(state):
            estimator._recall(state.part("learned"), found)
        return estimator


def _keys_part(keys: list[Keys], shared: Path | None, folder: Path) -> State:
    """Keys for an estimator's file; those in the file `shared` are only named."""
    facts: dict[str, Any] = {"fingerprints": [k.fingerprint for k in keys], "file": None}
    elsewhere = None
    if not keys:
        return State(facts=facts)
    from dkvb.bottleneck.serialisation import keys_state

    if shared is not None:
        elsewhere = _share(shared, keys)
        facts["file"] = os.path.relpath(shared.resolve(), folder.resolve())
    state = State(facts=facts)
    first: State | None = None
    for number, version in enumerate(keys):
        if version.fingerprint == elsewhere:
            continue
        own = keys_state(version)
        # Versions share all but a few tensors, and say those once.
        borrowed = [n for n, a in own.arrays.items() if first and _same(a, first.arrays.get(n))]
        arrays = {n: a for n, a in own.arrays.items() if n not in borrowed}
        first = first or own
        state = state.with_part(str(number), State(arrays, {**own.facts, "borrowed": borrowed}))
    return state


def _same(array: NDArray[Any], other: NDArray[Any] | None) -> bool:
    """Whether both have the same bytes: 0.0 and −0.0 differ, as they do in a fingerprint."""
    if other is None or (array.dtype, array.shape) != (other.dtype, other.shape):
        return False
    return array.tobytes() == other.tobytes()


def _share(path: Path, keys: list[Keys]) -> str:
    """The fingerprint of those among the keys that stand in the file, which is written if new."""
    if not path.exists():
        keys[0].save(path)
        return keys[0].fingerprint
    held = type(keys[0]).load(path).fingerprint
    if held not in [k.fingerprint for k in keys]:
        raise ValueError(
            f"keys: expected a file with the keys {keys[0].fingerprint[:8]}, or a new name; "
            f"got {path}, which holds {held[:8]}"
        )
    return held


def _keys_by_fingerprint(state: State, device: str) -> dict[str, Keys]:
    """All keys that `_keys_part` wrote or named."""
    found: dict[str, Keys] = {}
    shared = state.fact("file", (str, type(None)))
    if shared is not None:
        keys = _shared_keys(state, shared, device)
        found[keys.fingerprint] = keys
    first: State | None = None
    for number, fingerprint in enumerate(state.fact("fingerprints", list)):
        part = state.part(str(number))
        if part.facts:
            first = first or part
            for name in part.fact("borrowed", list):
                if not isinstance(name, str) or name not in first.arrays:
                    raise state.damaged("borrowed: expected tensors of the first keys")
                part.arrays[name] = first.arrays[name]
            keys = _keys_from(part, device)
            found[keys.fingerprint] = keys
        if not isinstance(fingerprint, str) or fingerprint not in found:
            raise state.damaged(f"keys: expected those named {fingerprint!r:.12}; found others")
    return found


def _keys_from(state: State, device: str) -> Keys:
    require_torch("a file that holds keys")
    from dkvb.bottleneck.serialisation import keys_from

    return keys_from(state, device)


def _shared_keys(state: State, name: str, device: str) -> Keys:
    if Path(name).is_absolute() or "\0" in name or state.path is None:
        raise state.damaged("keys: expected the name of a file beside this one")
    path = state.path.parent / name
    require_torch("a file of keys")
    from dkvb.bottleneck import Keys

    try:
        return Keys.load(path, device)
    except (FileError, OSError) as error:
        reason = error.reason if isinstance(error, FileError) else "missing"
        raise FileError(
            reason, f"{state.path}: its keys cannot be read from {path}: {error}"
        ) from error

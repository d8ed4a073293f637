"""How estimators are saved: parameters and labels the same for all; each says what it learned.

An estimator says `_to_state`, the arrays and facts that it has learned, and `_recall`, which asks
for them again with the dtype and shape that they must have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dkvb._support import files
from dkvb._support.files import FileError, State
from dkvb._support.optional import MissingPackageError
from dkvb.estimators.labels import LabelIndex

_KINDS = {"string": str, "number": int, "boolean": bool}
_SURPRISES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Saved(BaseEstimator, ABC):
    """An estimator that can be written to a file, and read from it."""

    n_features_in_: int

    def save(self, path: str | Path) -> None:
        """Write parameters and all that was learned to a file, safetensors."""
        state = self._file_state()
        try:
            self._from_file_state(state, "cpu")
        except _SURPRISES as error:
            raise ValueError(
                "save: expected parameters as they were when this was fitted; got others, with "
                f"which no file could be loaded ({error}); set them back, or fit again"
            ) from error
        files.write(path, "estimator", state)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """The estimator in a file: it predicts and goes on learning as the one that was saved."""
        found = load(path, device)
        if not isinstance(found, cls):
            raise FileError(
                "foreign",
                f"{path}: expected a {cls.__name__}; got a {type(found).__name__}; "
                f"use {type(found).__name__}.load",
            )
        return found

    @abstractmethod
    def _check_settings(self) -> None:
        """Raise for a parameter that cannot be used."""

    @abstractmethod
    def _begun(self) -> bool:
        """Whether anything was learned."""

    @abstractmethod
    def _to_state(self, dtype: str | None = None) -> State:
        """What was learned."""

    @classmethod
    @abstractmethod
    def _from_file_state(cls, state: State, device: str) -> Self:
        """The estimator that `_file_state` describes; an error where it contradicts itself."""

    def _file_state(self) -> State:
        return self._described()

    def _described(self, dtype: str | None = None) -> State:
        """Parameters, and what was learned; a parameter that `load` would refuse is an error."""
        self._check_settings()
        begun = self._begun()
        facts = {
            "estimator": _name_of(self),
            "params": self._saved_params(),
            "n_features": self.n_features_in_ if begun else None,
        }
        if begun and hasattr(self, "feature_names_in_"):
            facts["feature_names"] = self.feature_names_in_.tolist()
        state = State(facts=facts)
        return state.with_part("learned", self._to_state(dtype)) if begun else state

    def _saved_params(self) -> dict[str, Any]:
        """Parameters as JSON can hold them."""
        return {name: _plain(p) for name, p in self.get_params(deep=False).items()}

    @classmethod
    def _params_from(cls, saved: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters that `_saved_params` gave."""
        return {name: _from_plain(p) for name, p in saved.items()}

    @classmethod
    def _made(cls, state: State, device: str, **given: Any) -> Self:
        """An estimator with a file's parameters, that has learned nothing."""
        params = cls._params_from(state.fact("params", dict)) | given
        if "device" in params:
            params["device"] = device
        estimator = cls(**params)
        estimator._check_settings()
        return estimator

    def _begun_with(self, state: State) -> bool:
        """Whether a file's estimator had learned; if so, remember the features of its rows."""
        if state.fact("n_features", (int, type(None))) is None:
            return False
        self.n_features_in_ = state.whole_number("n_features", low=1)
        if "feature_names" in state.facts:
            names = state.fact("feature_names", list)
            if [type(name) for name in names] != [str] * self.n_features_in_:
                raise state.damaged("feature_names: expected a string a feature")
            self.feature_names_in_ = np.array(names, dtype=object)
        return True


def load(path: str | Path, device: str = "cpu") -> Any:
    """The estimator in a file, whichever it is."""
    state = files.read(path, "estimator").state
    if state.part("folder").facts and (Path(path).parent / "journal").is_file():
        raise FileError(
            "foreign",
            f"{path}: expected a whole model; got the snapshot of a model folder, which lacks what "
            f"the journal beside it holds; use dkvb.load({str(Path(path).parent)!r})",
        )
    return estimator_from(state, device)


def estimator_from(state: State, device: str = "cpu") -> Any:
    """The estimator that `_file_state` describes."""
    from dkvb.estimators.registry import estimator_class, estimator_names

    name = state.fact("estimator", str)
    if name not in estimator_names():
        raise state.damaged(f"estimator: expected one that dkvb has; got {name!r:.40}")
    cls = estimator_class(name)
    try:
        return cls._from_file_state(state, device)
    except (FileError, MissingPackageError):
        raise
    except _SURPRISES as error:  # from checks that know nothing of files
        raise state.damaged(f"{type(error).__name__}: {error}") from error


def _name_of(estimator: BaseEstimator) -> str:
    """Return the name that a file gives to an estimator's class."""
    from dkvb.estimators.registry import registered_name

    cls = type(estimator)
    name = registered_name(cls)
    if name is None:
        raise TypeError(
            f"save: expected an estimator of dkvb; got {cls.__name__} of {cls.__module__}, "
            "which no file could be read back as"
        )
    return name


# ---------------------------------------------------------------------------------------- labels
_LABEL_CHARACTERS = 1 << 27  # 512 MB in an array: 2**17 classes of 1,000 characters each


def labels_state(labels: LabelIndex) -> State:
    """Labels in the order of their columns, and the dtype that they came in."""
    dtype = labels.classes_.dtype.str if labels.kind == "number" else None
    return State(facts={"kind": labels.kind, "dtype": dtype, "labels": labels.plain()})


def labels_from(state: State) -> LabelIndex:
    """The labels that `labels_state` describes."""
    kind, listed = state.fact("kind", (str, type(None))), state.fact("labels", list)
    alike = all(type(label) is _KINDS.get(kind) for label in listed)
    if not alike or (kind is None) != (not listed) or len(set(listed)) < len(listed):
        raise state.damaged("labels: expected distinct ones of one kind")
    dtype = np.dtype({"boolean": np.bool_, "string": np.str_}.get(kind, np.int64))
    if kind == "string" and len(listed) * max(map(len, listed)) > _LABEL_CHARACTERS:
        raise state.damaged(  # an array of labels is as wide as its longest
            f"labels: expected at most {_LABEL_CHARACTERS:,} characters, {len(listed)} times the "
            f"longest; got labels of up to {max(map(len, listed)):,}"
        )
    if kind == "number":
        text = state.fact("dtype", str)
        try:
            dtype = np.dtype(text)
            fit = dtype.kind in "iuf" and np.array_equal(np.array(listed, dtype=dtype), listed)
        except (TypeError, ValueError, OverflowError):
            fit = False
        if not fit:
            raise state.damaged(f"labels: expected numbers that dtype {text!r:.20} can hold")
    return LabelIndex.of(listed, kind, dtype)


# ------------------------------------------------------------------------------------ parameters
def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.random.RandomState):
        return {"RandomState": [np.asarray(item).tolist() for item in value.get_state(legacy=True)]}
    if are_keys(value):
        return value.fingerprint
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"save: expected plain parameters; got {value!r:.60}")


def are_keys(value: Any) -> bool:
    """Whether a parameter is Keys, whose class needs torch: others do without it."""
    return hasattr(value, "fingerprint")


def _from_plain(value: Any) -> Any:
    """The parameter that `_plain` wrote."""
    if isinstance(value, dict) and value.keys() == {"RandomState"}:
        generator = np.random.RandomState(0)
        try:
            generator.set_state(tuple(value["RandomState"]))
        except (TypeError, ValueError, OverflowError) as error:
            raise FileError("damaged", f"random_state: no state of a generator: {error}") from error
        return generator
    return value

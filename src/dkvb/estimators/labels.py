"""Labels and their class indices: the columns of a model's scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from dkvb._support.label_text import MAX_CHARACTERS, check_texts
from dkvb._support.validation import is_tensor

Label: TypeAlias = int | float | str | bool

MOST_CLASSES = 1 << 20  # of one model
TOO_MANY_CLASSES = (
    "y: expected at most {} classes in a model; got {}; nothing was changed; learn the rest in "
    "another model"
)

_KIND_OF_TYPE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "boolean"),  # before the integers: a bool is an int to Python
    ((int, float, np.integer, np.floating), "number"),
    (str, "string"),
)


def label_array(labels: Any) -> NDArray[Any]:
    """Labels as an array that still shows the kind of each of them.

    NumPy would turn the list `[1, "a"]` into two strings, and `[True, 2]` into two integers, and
    would drop NULs at the end of a string.

    >>> label_array([1, "a"]).tolist()
    [1, 'a']
    """
    if hasattr(labels, "dtype") or not isinstance(labels, Iterable) or isinstance(labels, str):
        return np.asarray(labels)
    mixed = np.array(list(labels), dtype=object)
    kinds = {_kind_of(label) for label in mixed.flat}
    kept = len(kinds) == 1 and None not in kinds
    if kinds == {"string"}:
        kept = not any(label.endswith("\0") for label in mixed.flat)
    return np.array(mixed.tolist()) if kept else mixed


def check_labels(y: Any, n: int, estimator: Any) -> NDArray[Any]:
    """Labels (n,), one for each row, or an error that says what is wrong with them."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, "
            "but the target y is None."
        )
    if is_tensor(y):
        y = y.detach().cpu().numpy()
    if hasattr(y, "to_pylist"):  # a pyarrow column, whose scalars are no labels
        y = y.to_pylist()
    labels: NDArray[Any] = column_or_1d(label_array(y), warn=True)
    if len(labels) != n:
        raise ValueError(f"y: expected {n} labels, one for each row of X; got {len(labels)}")
    return labels


def check_merged(labels: Any, known: LabelIndex) -> list[Any]:
    """Labels of classes to make one of, each once, or an error that says what is wrong."""
    given = list(dict.fromkeys(labels))
    if not given:
        raise ValueError("labels: expected at least one class to merge; got none")
    known.indices(given, "labels")
    return given


def _kind_of(label: object) -> str | None:
    return next((kind for types, kind in _KIND_OF_TYPE if isinstance(label, types)), None)


def _plain(labels: Any, name: str, known: str | None) -> tuple[NDArray[Any], str]:
    """Labels as an array of booleans, numbers or strings, and their kind, which must be the known
    one if any is; else an error."""
    array = label_array(labels)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected a 1-d sequence of labels; got shape {array.shape}")
    if array.dtype.kind not in "biufU":
        array = _typed(array.astype(object), name)
    kind = {"b": "boolean", "U": "string"}.get(array.dtype.kind, "number")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: expected labels; got NaN or infinity; drop those rows")
        if (array != np.floor(array)).any():
            raise ValueError(
                f"Unknown label type: {name} expects classes (integers, strings or booleans); "
                "got continuous numbers; round or bin them first"
            )
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: expected integers below 2**63; got {int(array.max())}")
    if array.size and known not in (None, kind):
        raise TypeError(
            f"{name}: expected {known} labels like those before; got {kind} labels; "
            "a model takes labels of one kind"
        )
    return array, kind


def _typed(objects: NDArray[Any], name: str) -> NDArray[Any]:
    """An array of objects of one kind as an array of that kind."""
    kinds = {_kind_of(label) for label in objects}
    if None in kinds:
        alien = next(label for label in objects if _kind_of(label) is None)
        missing = alien is None or alien != alien or type(alien).__name__ in ("NAType", "NaTType")
        if missing:
            raise ValueError(f"{name}: expected labels; got {alien!r}; drop the rows without label")
        raise TypeError(
            f"{name}: expected integers, strings or booleans; got {alien!r} of type "
            f"{type(alien).__name__}"
        )
    if len(kinds) > 1:
        raise TypeError(
            f"{name}: expected labels of one kind; got a mixture of "
            f"{' and '.join(sorted(str(kind) for kind in kinds))} labels; convert them to one"
        )
    check_texts(objects, name)
    array = np.array(objects.tolist())
    if array.dtype.kind == "O":
        raise ValueError(f"{name}: expected integers that fit in 64 bits; got larger ones")
    return array


class LabelIndex:
    """Labels of one kind, each with a class index, in order of appearance.

    Kinds are "number" (integers, and floats without a fraction, as in scikit-learn), "string" and
    "boolean". `classes_` has them sorted; `scores[:, order]` has their scores in that order.

    >>> index = LabelIndex()
    >>> index.add(["cat", "ant"])
    >>> index.add(["bee", "cat"])
    >>> index.classes_.tolist(), index.order.tolist()
    (['ant', 'bee', 'cat'], [1, 2, 0])
    >>> index.indices(["bee", "cat"]).tolist()
    [2, 0]
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self._index: dict[Any, int] = {}
        self._dtype = np.dtype(np.int64)
        self.classes_: NDArray[Any] = np.zeros(0, np.int64)  # all labels, sorted, in their dtype
        self.order: NDArray[np.int64] = np.zeros(0, np.int64)  # the index of each of `classes_`

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, label: object) -> bool:
        return label in self._index and _kind_of(label) == self.kind

    def add(self, labels: Any, name: str = "y") -> None:
        """Give every label that has none yet the next index; a wrong label changes nothing."""
        array, kind = _plain(labels, name, self.kind)
        if array.size == 0:
            return
        n_known, before = len(self._index), self._dtype
        # A 64-bit unsigned and a signed integer would meet in a float, which cannot hold either.
        own = np.dtype(np.int64) if array.dtype == np.uint64 else array.dtype
        dtype = np.result_type(self._dtype, own) if self._index else own
        values, first = np.unique(array, return_index=True)
        distinct = values[np.argsort(first)].tolist()  # in order of appearance
        if array.dtype.kind == "f":  # whole, so that 1.0 is 1
            distinct = [int(value) for value in distinct]
        if dtype.kind == "f":
            _check_exact([*self._index, *distinct], dtype, name)
        self._dtype, self.kind = dtype, kind
        for label in distinct:
            self._index.setdefault(label, len(self._index))
        if len(self._index) > n_known or self._dtype != before:
            self._sort()

    def after_call(self, classes: Any, *targets: Any, name: str = "y") -> LabelIndex:
        """The index of a model that has learned these labels too; this one stays as it is.

        Where `classes` are declared, a label that is none of them and was not known before is a
        slip, and refused.

        >>> LabelIndex().after_call(["ant", "bee"], ["bee"]).to_list()
        ['ant', 'bee']
        >>> LabelIndex().after_call(None, ["bee"]).after_call(["cat"], ["cat", "bee"]).to_list()
        ['bee', 'cat']
        """
        later = copy(self)
        later._index = dict(self._index)
        if classes is not None:
            later.add(classes, "classes")
        n_known = len(later._index)
        for y in targets:
            later.add(y, name)
        if later.kind == "string":
            new = list(later._index)[len(self._index) :]
            unusual = [t for t in new if not t.isprintable() or len(t) > MAX_CHARACTERS]
            if unusual:
                check_texts(unusual, name)
        if classes is not None and len(later._index) > n_known:
            raise ValueError(
                "y: expected labels that classes declares in this call, or that were known before; "
                f"got {_shown(later.plain()[n_known:])}; add them to classes, or leave classes "
                "out: new labels are learned without being declared"
            )
        return later

    def indices(self, labels: Any, name: str = "y") -> NDArray[np.int64]:
        """The class index of each label (n,); labels never added are an error that names them."""
        array, _ = _plain(labels, name, self.kind)
        distinct, inverse = np.unique(array, return_inverse=True)
        known = [self._index.get(label, -1) for label in distinct.tolist()]
        unknown = [
            label for label, column in zip(distinct.tolist(), known, strict=True) if column < 0
        ]
        if unknown:
            raise ValueError(f"{name}: expected labels learned before; got {_shown(unknown)}")
        return np.asarray(known, dtype=np.int64)[inverse.reshape(-1)]

    def renamed(self, label: Any, new_label: Any) -> LabelIndex:
        """An index in which a label has another name, of the same kind and not known before.

        >>> LabelIndex.from_list(["cat", "ant"]).renamed("cat", "bee").to_list()
        ['bee', 'ant']
        """
        place = int(self.indices([label], "label")[0])
        later = self.after_call(None, [new_label], name="new_label")
        if len(later) == len(self):
            raise ValueError(
                f"new_label: expected a label that no class has; got {new_label!r}, which one has; "
                "merge the two classes instead"
            )
        names = later.plain()
        names[place] = names.pop()
        return LabelIndex.of(names, later.kind, later._dtype)

    def remove(self, label: Any) -> int:
        """Take one label out; later indices become one smaller. Returns the index it had."""
        column = int(self.indices([label], "label")[0])
        remaining = [kept for kept in self._index if self._index[kept] != column]
        self._index = {kept: position for position, kept in enumerate(remaining)}
        if not remaining:
            self.kind = None
        self._sort()
        return column

    def copy(self) -> LabelIndex:
        """An index with the same indices that can grow on its own."""
        return self.after_call(None)

    def in_order_of_appearance(self) -> NDArray[Any]:
        """The labels in the order of their indices, in their own dtype."""
        labels = np.empty_like(self.classes_)
        labels[self.order] = self.classes_
        return labels

    def to_list(self) -> list[Label]:
        """The labels in order of their indices, as plain Python values."""
        labels = list(self._index)
        return [float(label) for label in labels] if self._dtype.kind == "f" else labels

    def plain(self) -> list[Any]:
        """The labels in order of their indices as `of` takes them: whole floats as integers."""
        return list(self._index)

    @classmethod
    def of(cls, labels: Sequence[Any], kind: str | None, dtype: np.dtype[Any]) -> LabelIndex:
        """The index of labels that are known to be distinct and of one kind."""
        index = cls()
        index.kind, index._dtype = kind, dtype
        index._index = {label: number for number, label in enumerate(labels)}
        index._sort()
        return index

    @classmethod
    def from_list(cls, labels: Any) -> LabelIndex:
        """The index that `to_list` describes."""
        index = cls()
        index.add(labels, "labels")
        return index

    def _sort(self) -> None:
        dtype = np.dtype(np.str_) if self.kind == "string" else self._dtype
        array = np.array(list(self._index), dtype=dtype)  # (Y,) strings as wide as the longest
        self.order = np.argsort(array, kind="stable").astype(np.int64)
        self.classes_ = array[self.order]


def _check_exact(labels: list[int], dtype: np.dtype[Any], name: str) -> None:
    """Raise where integers and floats meet and an integer from 2**53 on would become another."""
    lost = next((label for label in labels if int(dtype.type(label)) != label), None)
    if lost is not None:
        raise ValueError(
            f"{name}: expected integers below 2**53 beside labels that are floats; got {lost}, "
            "which no float holds; convert all labels to integers or to strings"
        )


def _shown(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:10])) + (", …" if len(labels) > 10 else "")

"""What `dkvb inspect` shows: computed when a model is written, and read without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from dkvb._support.files import FileError
from dkvb._support.files.metadata import Metadata, check_tensors, read_metadata
from dkvb.store.classifiers import keeps_ids
from dkvb.store.framing import read_raw, records
from dkvb.store.layout import JOURNAL, SNAPSHOT, is_keys_name
from dkvb.store.settled import read_settled

MOST_CLASSES = 10_000  # of a model whose summary is kept: it names each of them
MOST_SUSPECTS = 20
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ModelSummary:
    """What the headers of a model folder say."""

    facts: dict[str, Any]  # as `summarise` returned them
    encoder: str | None
    encoder_fingerprint: str | None
    operations: int
    pending: int  # operations in the journal


# ---------------------------------------------------------------------------------------- computed
def summarise(classifier: Any) -> dict[str, Any]:
    """Return classes, rows and what is kept of them, use of keys, accuracy and suspect labels, as
    JSON can hold them."""
    params = _unusual(classifier.get_params(deep=False), type(classifier)().get_params())
    facts: dict[str, Any] = {
        "classifier": type(classifier).__name__,
        "settings": {key: value for key, value in params.items() if _is_plain(value)},
        "width": classifier.n_features_in_,
        "classes": len(classifier.classes_),
    }
    if hasattr(classifier, "keys_"):
        keys, usage = classifier.keys_, classifier.usage_
        facts["keys"] = {
            "codebooks": keys.n_codebooks,
            "pairs": keys.n_pairs,
            "key_dim": keys.key_dim,
            "fingerprint": keys.fingerprint,
            "selected": round(float((usage > 0).mean()), 4),
            "held_out_novelty": quantiles(keys.novelty.double().numpy()),
        }
    if hasattr(classifier, "single_row_share_"):
        facts["keep"] = classifier.keep
        facts["single_row_share"] = round(float(classifier.single_row_share_), 4)
    if hasattr(classifier, "class_count_"):
        facts["examples"] = {str(label): n for label, n in classifier.class_count_.items()}
    if hasattr(classifier, "class_accuracy"):
        facts |= _accuracy(classifier)
    return facts


def _accuracy(classifier: Any) -> dict[str, Any]:
    """What a classifier measures of itself; nothing where no row is left."""
    if not any(getattr(classifier, "class_count_", {}).values()):
        return {}
    found = classifier.class_accuracy() or {}
    per_class = {str(k): float(v) for k, v in found.items() if math.isfinite(v)}
    if not per_class:
        return {}
    n = classifier.class_count_
    total = sum(n[label] for label in found)
    suspects = classifier.suspects(MOST_SUSPECTS) if keeps_ids(classifier) else []
    return {
        "accuracy": {
            "kind": getattr(classifier, "loo_kind_", "leave-one-out"),
            "mean": float(sum(n[label] * value for label, value in found.items()) / total),
            "per_class": per_class,
        },
        "suspects": [
            {"id": one.id, "label": str(one.label), "predicted": str(one.predicted)}
            for one in suspects
        ],
    }


def quantiles(values: Any) -> dict[str, float]:
    """Return the 50th, 90th and 99th percentile."""
    found = np.quantile(values, QUANTILES)
    return {f"{q:g}": round(float(value), 4) for q, value in zip(QUANTILES, found, strict=True)}


def _unusual(params: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are not what they are by default."""
    return {k: v for k, v in params.items() if k not in usual or v != usual[k]}


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


# --------------------------------------------------------------------------------------------- read
def read_summary(path: str | Path) -> ModelSummary | None:
    """Return the summary of the model in a folder; None where its last change has none.

    Headers are read, and tensors only to compare them with their checksums.
    """
    path = Path(path)
    if path.is_file():
        if path.name != SNAPSHOT:
            return None
        path = path.parent
    return read_settled(path, _read_once)[0]


def _read_once(path: Path) -> tuple[ModelSummary | None, bool]:
    snapshot = _checked(path / SNAPSHOT)
    facts = snapshot.facts
    keys = facts.get("keys/file")
    if is_keys_name(keys):
        _checked(path / keys)
    raw = read_raw(path / JOURNAL) or b""
    found = list(records(raw, path / JOURNAL))
    journal = [one for one, _, _ in found]
    continued = bool(journal) and journal[0].facts.get("snapshot") == snapshot.digest
    pending = journal[1:] if continued else []
    last = pending[-1].facts.get("summary") if pending else facts.get("folder/summary")
    history = facts.get("folder/history")
    cut = continued and found[-1][2] < len(raw)
    if last is None or cut or not isinstance(history, list):  # loading it says what is wrong
        return None, continued
    summary = ModelSummary(
        _valid(path / (JOURNAL if pending else SNAPSHOT), last),
        _text_or_none(facts.get("folder/encoder")),
        _text_or_none(facts.get("folder/encoder_fingerprint")),
        len(history) + len(pending),
        len(pending),
    )
    return summary, continued


def _checked(path: Path) -> Metadata:
    with path.open("rb") as file:
        metadata = read_metadata(file, path.stat().st_size, str(path))
        check_tensors(file, metadata, str(path))
    return metadata


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _Each:
    """A dictionary of any names whose values are all of one kind."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


_KEYS = {
    "codebooks": int, "pairs": int, "key_dim": int, "fingerprint": str,
    "selected": float, "held_out_novelty": dict.fromkeys(map("{:g}".format, QUANTILES), float),
}  # fmt: skip
_REQUIRED = {"classifier": str, "settings": _Each(bool | int | float | str), "width": int,
             "classes": int}  # fmt: skip
_OPTIONAL = {
    "keys": _KEYS,
    "keep": str,
    "single_row_share": float,
    "examples": _Each(int),
    "accuracy": {"kind": str, "mean": float, "per_class": _Each(float)},
    "suspects": [{"id": str | int | None, "label": str, "predicted": str}],
}


def _valid(path: Path, facts: Any) -> dict[str, Any]:
    """The facts, if they are such as `summarise` returns."""
    kinds: dict[str, Any] = _REQUIRED
    if isinstance(facts, dict):
        kinds = _REQUIRED | {name: kind for name, kind in _OPTIONAL.items() if name in facts}
    if not _fits(facts, kinds) or ("accuracy" in facts) != ("suspects" in facts):
        raise FileError("damaged", f"{path}: the content is damaged: summary: expected as written")
    checked: dict[str, Any] = facts
    return checked


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, _Each):
        return isinstance(value, dict) and all(_fits(one, kind.kind) for one in value.values())
    if isinstance(kind, dict):
        return (
            isinstance(value, dict)
            and value.keys() == kind.keys()
            and all(_fits(value[name], kind[name]) for name in kind)
        )
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if isinstance(kind, UnionType):
        return isinstance(value, kind)
    return type(value) is kind and (kind is not float or math.isfinite(value))

"""`dkvb evaluate --data`: cross-validation, or the accuracy of a model on labelled data."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import typer

from dkvb.cli._items import ItemOptions
from dkvb.cli._rows import LabelledRows, read_rows
from dkvb.cli._shared import Device, available, note, plural, show, to_json
from dkvb.cli._working import working

_MAX_CLASSES_SHOWN = 20
_REFERENCE = "prototypes"


def evaluate_data(
    data: str,
    options: ItemOptions,
    *,
    model: Path | None,
    classifiers: list[str],
    n_folds: int,
    seed: int,
    device: Device,
    allow_download: bool,
    as_json: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Print and return the accuracies of classifiers, or of a model, on labelled data."""
    if model is None:
        rows = read_rows(data, options, labelled=True, device=available(device), quiet=quiet)
        names = classifiers or list(dict.fromkeys([_default_classifier(), _REFERENCE]))
        scores = {}
        for name in names:
            with working(f"cross-validating {name}", quiet):
                scores[name] = _cross_validate(name, rows, n_folds, seed, device)
        first = next(iter(scores.values()))
        title = f"{plural(first.n_folds, 'fold')} of stratified cross-validation: mean ± std (%)"
        reason = "alone in their class are"
    else:
        scores = {str(model): _score_model(model, data, options, device, allow_download, quiet)}
        first = scores[str(model)]
        title = "Accuracy on data that should be new to the model (%)"
        reason = "of labels that the model does not know are"
    summary: dict[str, Any] = {
        "scores": {name: one.summarise() for name, one in scores.items()},
        "per_class": first.per_class(),
        "left_out": {str(label): count for label, count in first.left_out.items()},
        "folds": first.n_folds if model is None else None,
    }
    if as_json:
        typer.echo(to_json(summary, indent=2))
    elif not quiet:
        show(summary["scores"], as_json=False, title=title)
        _show_classes(summary["per_class"], next(iter(scores)))
    if first.left_out and not quiet:
        n_left = sum(first.left_out.values())
        labels = list(summary["left_out"])
        named = ", ".join(labels[:5]) + (", …" if labels[5:] else "")
        note(f"{plural(n_left, 'sample')} {reason} not counted: {named}")
    return summary


def _cross_validate(text: str, rows: LabelledRows, n_folds: int, seed: int, device: Device) -> Any:
    from dkvb.evaluation.cross_validation import cross_validate
    from dkvb.evaluation.grid import make_from_spec, parse_spec

    spec = parse_spec(text)

    def make() -> Any:  # as `dkvb fit` does
        return make_from_spec(spec, seed=seed, device=available(device))

    try:
        return cross_validate(make, rows.x, rows.y, n_folds, seed)
    except (ValueError, TypeError) as error:
        raise ValueError(f"classifier {text}: {error}") from error


def _score_model(
    model: Path,
    data: str,
    options: ItemOptions,
    device: Device,
    allow_download: bool,
    quiet: bool,
) -> Any:
    from dkvb.cli.model import read_model
    from dkvb.evaluation.cross_validation import score_classifier

    found = read_model(model, device)
    rows = read_rows(
        data, options, labelled=True, device=available(device), like=found, quiet=quiet,
        allow_download=allow_download,
    )  # fmt: skip
    with working(f"predicting {plural(len(rows.y), 'item')}", quiet):
        return score_classifier(found.classifier, rows.x, rows.y)


def _default_classifier() -> str:
    """The classifier that `dkvb fit` trains unless another is named."""
    from dkvb.cli.model import fit

    return str(signature(fit).parameters["classifier"].default)


def _show_classes(per_class: dict[str, dict[str, Any]], name: str) -> None:
    shown = {
        label: {**row, "accuracy": f"{row['accuracy']:.1f} %"}
        for label, row in list(per_class.items())[:_MAX_CLASSES_SHOWN]
    }
    more = f", the lowest {len(shown)} of {len(per_class)}" if len(per_class) > len(shown) else ""
    show(shown, as_json=False, title=f"{name}: accuracy per class{more}", first="class")

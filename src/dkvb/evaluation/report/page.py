"""The report: a page made from a folder of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from dkvb.evaluation.paper import EXPERIMENTS, load_experiment
from dkvb.evaluation.paper.encoders import find_encoder
from dkvb.evaluation.paper.kinds import KINDS, get_epochs
from dkvb.evaluation.paper.tables import get_encoder
from dkvb.evaluation.paper.thresholds import thresholds
from dkvb.evaluation.records import RunRecord
from dkvb.evaluation.report import heat_maps
from dkvb.evaluation.report.captions import CAPTIONS, CONFUSION, MAPS, OVER_TIME
from dkvb.evaluation.report.choices import CHOICES
from dkvb.evaluation.report.collect import Collection, Group, collect
from dkvb.evaluation.report.figures import Image, figure, figure_style
from dkvb.evaluation.report.formatting import duration, listed, ranges, shown
from dkvb.evaluation.report.sentences import make_sentences
from dkvb.evaluation.report.status import make_status
from dkvb.evaluation.report.verdicts import (
    StatementVerdict,
    TargetComparison,
    compare_targets,
    count_verdicts,
    evaluate_all,
)

_BY_CLASS = ("cifar10", "cifar100")  # experiments with heat maps per class
_BY_DATA_SET = "all-methods"  # its rows are named "CLASSIFIER, DATA SET"


class Picture(NamedTuple):
    """A figure of the page with its caption."""

    image: Image
    caption: str


class Table(NamedTuple):
    """Headings, and the rows of each part; the title of a part may be empty."""

    headings: Sequence[str]
    parts: Mapping[str, Sequence[Sequence[str]]]


class Part(NamedTuple):
    """One group of records in the section of its experiment."""

    group: Group
    about: Mapping[str, str]
    table: Table


@dataclass(frozen=True)
class Report:
    """The report on a folder of records. Equal records give equal pages."""

    folder: str
    collection: Collection
    comparisons: Sequence[TargetComparison]
    verdicts: Sequence[StatementVerdict]
    parts: Mapping[str, Sequence[Part]]  # by experiment

    @cached_property
    def html(self) -> str:
        """The HTML page, with styles and figures inside."""
        numbers = count(1)
        pictures = {
            name: [_pictures(group, numbers) for group in _figure_groups(sections)]
            for name, sections in self.parts.items()
        }
        css = Markup((files(__package__) / "page.css").read_text(encoding="utf-8"))
        return self._rendered("page.html", pictures=pictures, css=css)

    def markdown(self, images: Path) -> str:
        """Return the page as Markdown and write the experiments' own figures to `images`.

        The page belongs beside that folder, with its name and the suffix .md.
        """
        drawn = {
            name: _drawn_to(_figure_groups(sections), images)
            for name, sections in self.parts.items()
        }
        own_name = images.with_suffix(".md").name
        return self._rendered("page.md", pictures=drawn, captions=CAPTIONS, own_name=own_name)

    def _rendered(self, template: str, **more: Any) -> str:
        text: str = _template(template).render(
            collection=self.collection,
            comparisons=self.comparisons,
            verdicts=self.verdicts,
            parts=self.parts,
            titles={name: load_experiment(name).TITLE for name in self.parts},
            described=EXPERIMENTS,
            versions=_versions(self.collection),
            folder=self.folder,
            encoders=list(dict.fromkeys(g.encoder for g in self.collection.groups if g.encoder)),
            quick_note=KINDS["quick"].partition(": ")[2],
            kinds=sorted({group.kind for group in self.collection.groups}),
            counts=self.counts,
            sentences=self.sentences,
            choices=CHOICES,
            thresholds=thresholds(),
            encoder_notes=_encoder_notes(self.collection),
            **more,
        )
        return text

    @property
    def sentences(self) -> str:
        """The sentences on the reproduction, as in the README."""
        return make_sentences(self.collection, self.comparisons, self.verdicts)

    @property
    def counts(self) -> dict[str, int]:
        """How many statements have each verdict."""
        return count_verdicts(self.verdicts)

    def summary(self) -> dict[str, Any]:
        """Return the report as plain types."""
        return {
            "experiments": list(self.parts),
            "missing": self.collection.missing,
            "notes": list(self.collection.notes),
            "numbers": [
                {
                    **line.target._asdict(),
                    "classifier": line.classifier,
                    "ours": line.mean,
                    "std": line.std,
                    "mark": line.verdict,
                }
                for line in self.comparisons
            ],
            "statements": [{**asdict(v), "mark": v.mark} for v in self.verdicts],
            "verdicts": self.counts,
            "status": make_status(self.collection, self.verdicts),
        }


def build(folder: Path) -> Report:
    """Read a folder of records and return the report."""
    collection = collect(folder)
    parts = {
        name: [Part(group, _about(group), _table(group)) for group in groups]
        for name in EXPERIMENTS
        if (groups := collection.of(name))
    }
    comparisons, verdicts = compare_targets(collection), evaluate_all(collection)
    return Report(folder.resolve().name, collection, comparisons, verdicts, parts)


def _template(name: str) -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    source = (files(__package__) / name).read_text(encoding="utf-8")
    return environment.from_string(source)


def _figure_groups(sections: Sequence[Part]) -> list[Group | None]:
    """Return the group that each part draws.

    Experiments with `PANELS` draw the encoders of full runs in the figure of the first; the other
    parts draw none.
    """
    groups: list[Group | None] = [part.group for part in sections]
    full = [part.group for part in sections if part.group.kind == "full"]
    if len(full) > 1 and getattr(load_experiment(full[0].experiment), "PANELS", False):
        every = [record for group in full for record in group.records]
        groups = [None if group in full else group for group in groups]
        groups[0] = replace(full[0], records=every)
    return groups


def _encoder_notes(collection: Collection) -> dict[str, str]:
    """Return what is special about the embeddings of each encoder."""
    found = [find_encoder(group.encoder) for group in collection.groups if group.kind == "full"]
    return {encoder.name: encoder.note for encoder in found if encoder and encoder.note}


def _pictures(group: Group | None, numbers: Iterator[int]) -> list[Picture]:
    if group is None:
        return []
    return [
        picture
        for draw, caption in _drawings(group)
        if (picture := _picture(draw, caption, next(numbers)))
    ]


def _drawn_to(groups: Sequence[Group | None], images: Path) -> list[str]:
    """Draw the figures of an experiment into the folder and return their names; "" without one."""
    names: list[str] = []
    for group in groups:
        if group is None:
            names.append("")
            continue
        stem = _file_stem(group)
        same = sum(name.startswith(f"{images.name}/{stem}.") for name in names)
        name = f"{stem}.{same + 1}.png" if same else f"{stem}.png"
        images.mkdir(parents=True, exist_ok=True)
        with figure_style():
            load_experiment(group.experiment).plot(
                _with_plain_streams(group.records), images / name, title=""
            )
        names.append(f"{images.name}/{name}")
    return names


def _file_stem(group: Group) -> str:
    """Return experiment, encoder and kind; what is usual is left out, and so are settings."""
    known = find_encoder(group.encoder)
    words = (group.experiment, known.name if known else "", group.kind)
    return "-".join(word for word in words if word not in ("", "resnet50", "full"))


def _drawings(group: Group) -> Iterator[tuple[Callable[[Path], Any], str]]:
    """Yield the experiment's own figure, and heat maps per class for some experiments."""
    module, records = load_experiment(group.experiment), _with_plain_streams(group.records)
    if group.experiment == "codes" and any("map" in record.extra for record in records):
        yield partial(module.plot_maps, records, title=""), MAPS
        records = [replace(record, extra=_without_map(record.extra)) for record in records]
    yield partial(module.plot, records, title=""), CAPTIONS[group.experiment]
    if group.experiment in _BY_CLASS:
        chosen = heat_maps.shown([r for r in group.records if get_encoder([r]) == group.encoder])
        confused = [record for record in chosen if "confusion" in record.extra]
        if confused:
            yield partial(heat_maps.confusion, confused), CONFUSION
        tested = [record for record in chosen if len(record.curve) > 1]
        if tested:
            yield partial(heat_maps.over_time, tested), OVER_TIME


def _without_map(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name != "map"}


def _with_plain_streams(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records with streams named by order or, if there are several, by their tasks."""
    orders = {r.stream: r.config.get("order", "") for r in records if r.config.get("order")}
    several = sum(order != "iid" for order in orders.values()) > 1

    def plain(record: RunRecord) -> str:
        if several and record.tasks[1:]:
            return f"{len(record.tasks)} × {len(record.tasks[0])} classes"
        return str(orders.get(record.stream, record.stream))

    return [replace(record, stream=plain(record)) for record in records]


def _picture(draw: Callable[[Path], Any], caption: str, number: int) -> Picture | None:
    try:
        return Picture(figure(draw, caption, number), caption)
    except ValueError:  # only records of the first seed have decision regions
        return None


def _table(group: Group) -> Table:
    """Return the experiment's rows; of `all-methods`, one part per data set, best first."""
    parts: dict[str, dict[str, Mapping[str, Any]]] = {}
    by_data_set = group.experiment == _BY_DATA_SET
    for name, row in group.rows.items():
        short, _, data = name.rpartition(", ") if by_data_set else (name, "", "")
        parts.setdefault(data, {})[short] = _columns(row)
    headings = list(
        dict.fromkeys(h for rows in parts.values() for row in rows.values() for h in row)
    )
    cells = {}
    for data, rows in parts.items():
        names = list(rows)
        if by_data_set:
            names.sort(key=lambda name: -(rows[name]["final accuracy"]["mean"] or 0))
        cells[data] = [[name, *(shown(rows[name].get(h)) for h in headings)] for name in names]
    return Table(headings, cells)


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with one column per number; a list has one per task."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        several = value if isinstance(value, list) else []
        tasks = {f"{name}, task {i}": f"{v:.3f}" for i, v in enumerate(several, 1)}
        columns |= tasks or {name: value}
    return columns


def _about(group: Group) -> dict[str, str]:
    """Describe the runs of a group."""
    records = group.records
    data = [record.config.get("data", {}) for record in records]
    learned = sum(sum(record.times.values()) for record in records)
    epochs = get_epochs(records)
    return {
        "data": listed(str(d.get("train", "points in the plane")) for d in data),
        "keys from": listed(str(d.get("keys", "")) for d in data),
        "encoder": group.encoder or "–",
        "seeds": ranges(r.seed for r in records if r.seed is not None),
        "epochs": listed(f"{number:,}" for number in sorted(epochs)),
        "runs": str(len(records)),
        "time": duration(learned),
        "device": listed(r.versions.get("device", "") for r in records),
    }


def _versions(collection: Collection) -> list[str]:
    """Return the distinct sets of versions of the runs."""
    every: list[RunRecord] = [record for group in collection.groups for record in group.records]
    sets = ({k: v for k, v in record.versions.items() if k != "device"} for record in every)
    texts = (", ".join(f"{name} {version}" for name, version in one.items()) for one in sets)
    return sorted(set(texts))

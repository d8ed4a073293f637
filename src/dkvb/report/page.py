"""From a folder of records to the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from dkvb.paper import EXPERIMENTS
from dkvb.paper._experiment import QUICK_NOTE, module_of
from dkvb.records import RunRecord
from dkvb.report import heat_maps
from dkvb.report.captions import CAPTIONS, CONFUSION, MAPS, OVER_TIME
from dkvb.report.collect import Collection, Group, collect, epochs_of
from dkvb.report.figures import Image, figure
from dkvb.report.judgements import Comparison, Judgement, compare, judge_all
from dkvb.report.words import duration, listed, ranges, shown

_BY_CLASS = ("cifar10", "cifar100")  # experiments whose single classes are looked at


@dataclass(frozen=True)
class Report:
    """The page, and what it says in short."""

    html: str
    collection: Collection
    comparisons: Sequence[Comparison]
    judgements: Sequence[Judgement]

    def summary(self) -> dict[str, Any]:
        """The same as plain types."""
        return {
            "experiments": list(
                dict.fromkeys(group.experiment for group in self.collection.groups)
            ),
            "missing": self.collection.missing,
            "notes": list(self.collection.notes),
            "numbers": [
                {**line.target._asdict(), "ours": line.mean, "std": line.std, "mark": line.verdict}
                for line in self.comparisons
            ],
            "statements": [{**asdict(own), "mark": own.mark} for own in self.judgements],
        }


class Picture(NamedTuple):
    """A figure of the page, with what to see in it."""

    image: Image
    caption: str


class Table(NamedTuple):
    """Headings, and rows of cells under a title each, which may be empty."""

    headings: Sequence[str]
    parts: Mapping[str, Sequence[Sequence[str]]]


class Part(NamedTuple):
    """One group of records in its experiment's section."""

    group: Group
    about: Mapping[str, str]
    pictures: Sequence[Picture]
    table: Table


def build(folder: Path) -> Report:
    """Read what is in the folder and make the page; the same records make the same page."""
    collection = collect(folder)
    comparisons, judgements = compare(collection), judge_all(collection)
    numbers = count(1)
    parts = {
        name: [_part(group, numbers) for group in collection.of(name)]
        for name in EXPERIMENTS
        if collection.of(name)
    }
    html = _template().render(
        collection=collection,
        comparisons=comparisons,
        judgements=judgements,
        parts=parts,
        titles={name: module_of(name).TITLE for name in parts},
        described=EXPERIMENTS,
        versions=_versions(collection),
        folder=folder.resolve().name,
        quick_note=QUICK_NOTE.partition(": ")[2],
        kinds=sorted({group.kind for group in collection.groups}),
        css=Markup((files(__package__) / "page.css").read_text(encoding="utf-8")),
    )
    return Report(html, collection, comparisons, judgements)


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    source = (files(__package__) / "page.html").read_text(encoding="utf-8")
    return environment.from_string(source)


def _part(group: Group, numbers: Iterator[int]) -> Part:
    pictures = [
        picture
        for draw, caption in _drawings(group)
        if (picture := _picture(draw, caption, next(numbers)))
    ]
    return Part(group, _about(group), pictures, _table(group))


def _drawings(group: Group) -> Iterator[tuple[Callable[[Path], Any], str]]:
    """The experiment's own figure, and heat maps where single classes are of interest."""
    module, records = module_of(group.experiment), _with_plain_streams(group.records)
    if group.experiment == "codes" and any("map" in record.extra for record in records):
        yield partial(module.draw_maps, records, title=""), MAPS
        records = [replace(record, extra=_without_map(record.extra)) for record in records]
    yield partial(module.draw, records, title=""), CAPTIONS[group.experiment]
    if group.experiment in _BY_CLASS:
        chosen = heat_maps.shown(group.records)
        confused = [record for record in chosen if "confusion" in record.extra]
        if confused:
            yield partial(heat_maps.confusion, confused), CONFUSION
        tested = [record for record in chosen if len(record.curve) > 1]
        if tested:
            yield partial(heat_maps.over_time, tested), OVER_TIME


def _without_map(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name != "map"}


def _with_plain_streams(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records with streams named in words: the order or, of several, how many stages."""
    orders = {r.stream: r.config.get("order", "") for r in records if r.config.get("order")}
    several = sum(order != "iid" for order in orders.values()) > 1

    def plain(record: RunRecord) -> str:
        if several and record.stages[1:]:
            return f"{len(record.stages)} × {len(record.stages[0])} classes"
        return str(orders.get(record.stream, record.stream))

    return [replace(record, stream=plain(record)) for record in records]


def _picture(draw: Callable[[Path], Any], caption: str, number: int) -> Picture | None:
    try:
        return Picture(figure(draw, caption, number), caption)
    except ValueError:  # such as decision regions, which only the first seed's records have
        return None


def _table(group: Group) -> Table:
    """The experiment's rows; of `field`, a part a data set, the most accurate first."""
    parts: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, row in group.rows.items():
        short, comma, data = name.rpartition(", ") if group.experiment == "field" else ("", "", "")
        parts.setdefault(data, {})[short if comma else name] = _columns(row)
    headings = list(dict.fromkeys(h for own in parts.values() for row in own.values() for h in row))
    cells, seeds = {}, len({record.seed for record in group.records})
    for data, own in parts.items():
        names = list(own)
        if group.experiment == "field":
            names.sort(key=lambda name: -(own[name]["final accuracy"]["mean"] or 0))
        cells[data] = [
            [name, *(shown(own[name].get(h), seeds) for h in headings)] for name in names
        ]
    return Table(headings, cells)


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a column for each number: a list has one for each stage."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        several = value if isinstance(value, list) else []
        stages = {f"{name}, stage {i}": f"{v:.3f}" for i, v in enumerate(several, 1)}
        columns |= stages or {name: value}
    return columns


def _about(group: Group) -> dict[str, str]:
    """What was run: a line of facts for a group."""
    records = group.records
    data = [record.config.get("data", {}) for record in records]
    learned = sum(sum(record.times.values()) for record in records)
    epochs = epochs_of(records)
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
    """Each set of versions that runs had, once."""
    every: list[RunRecord] = [record for group in collection.groups for record in group.records]
    sets = ({k: v for k, v in record.versions.items() if k != "device"} for record in every)
    texts = (", ".join(f"{name} {version}" for name, version in own.items()) for own in sets)
    return sorted(set(texts))

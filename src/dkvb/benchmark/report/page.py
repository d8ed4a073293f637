"""From a folder of records to the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from dkvb.benchmark.paper import EXPERIMENTS, module_of
from dkvb.benchmark.paper._kinds import KINDS, epochs_of
from dkvb.benchmark.records import RunRecord
from dkvb.benchmark.report import heat_maps
from dkvb.benchmark.report.captions import CAPTIONS, CONFUSION, MAPS, OVER_TIME
from dkvb.benchmark.report.collect import Collection, Group, collect
from dkvb.benchmark.report.figures import Image, figure, figure_style
from dkvb.benchmark.report.judgements import Comparison, Judgement, compare, judge_all
from dkvb.benchmark.report.words import duration, listed, ranges, shown

_BY_CLASS = ("cifar10", "cifar100")  # experiments whose single classes are looked at


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
    table: Table


@dataclass(frozen=True)
class Report:
    """What a folder of records says, as a page or in short; the same records, the same page."""

    folder: str
    collection: Collection
    comparisons: Sequence[Comparison]
    judgements: Sequence[Judgement]
    parts: Mapping[str, Sequence[Part]]  # by experiment

    @cached_property
    def html(self) -> str:
        """One page with everything in it."""
        numbers = count(1)
        pictures = {
            name: [_pictures(part.group, numbers) for part in own]
            for name, own in self.parts.items()
        }
        css = Markup((files(__package__) / "page.css").read_text(encoding="utf-8"))
        return self._rendered("page.html", pictures=pictures, css=css)

    def markdown(self, images: Path) -> str:
        """The same, with the experiments' own figures alone, for a file of the name of the folder
        `images`, beside it, that they are drawn into."""
        drawn = {
            name: [_drawn_to(part.group, images) for part in own]
            for name, own in self.parts.items()
        }
        own_name = images.with_suffix(".md").name
        return self._rendered("page.md", pictures=drawn, captions=CAPTIONS, own_name=own_name)

    def _rendered(self, template: str, **more: Any) -> str:
        text: str = _template(template).render(
            collection=self.collection,
            comparisons=self.comparisons,
            judgements=self.judgements,
            parts=self.parts,
            titles={name: module_of(name).TITLE for name in self.parts},
            described=EXPERIMENTS,
            versions=_versions(self.collection),
            folder=self.folder,
            quick_note=KINDS["quick"].partition(": ")[2],
            kinds=sorted({group.kind for group in self.collection.groups}),
            **more,
        )
        return text

    def summary(self) -> dict[str, Any]:
        """The same as plain types."""
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
            "statements": [{**asdict(own), "mark": own.mark} for own in self.judgements],
        }


def build(folder: Path) -> Report:
    """Read what is in the folder."""
    collection = collect(folder)
    parts = {
        name: [Part(group, _about(group), _table(group)) for group in own]
        for name in EXPERIMENTS
        if (own := collection.of(name))
    }
    comparisons, judgements = compare(collection), judge_all(collection)
    return Report(folder.resolve().name, collection, comparisons, judgements, parts)


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


def _pictures(group: Group, numbers: Iterator[int]) -> list[Picture]:
    return [
        picture
        for draw, caption in _drawings(group)
        if (picture := _picture(draw, caption, next(numbers)))
    ]


def _drawn_to(group: Group, images: Path) -> str:
    """The name of the experiment's own figure, drawn into the folder."""
    variant = "".join(f"-{word}" for word in group.variant if word not in ("", "resnet50", "full"))
    name = re.sub(r"[^\w.-]+", "-", group.experiment + variant) + ".png"
    images.mkdir(parents=True, exist_ok=True)
    with figure_style():
        module_of(group.experiment).draw(
            _with_plain_streams(group.records), images / name, title=""
        )
    return f"{images.name}/{name}"


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
    cells = {}
    for data, own in parts.items():
        names = list(own)
        if group.experiment == "field":
            names.sort(key=lambda name: -(own[name]["final accuracy"]["mean"] or 0))
        cells[data] = [[name, *(shown(own[name].get(h)) for h in headings)] for name in names]
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

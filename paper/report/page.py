"""The page of results, made from a folder of records. Nothing here trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dkvb import __version__
from dkvb.evaluation.records import RunRecord
from paper.encoders import find_encoder
from paper.experiments import EXPERIMENTS, load_experiment
from paper.kinds import KINDS, get_epochs
from paper.report.captions import CAPTIONS
from paper.report.choices import CHOICES
from paper.report.collect import Collection, Group, collect
from paper.report.figures import figure_style
from paper.report.formatting import duration, listed, ranges, shown
from paper.report.sentences import make_sentences
from paper.report.status import make_status
from paper.report.verdicts import Comparison, Verdict, compare, judge
from paper.thresholds import THRESHOLDS

_BY_DATA_SET = "all-methods"  # its rows are named "CLASSIFIER, DATA SET"


@dataclass(frozen=True)
class Report:
    """The report on a folder of records. Equal records give equal pages."""

    folder: str
    collection: Collection

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The paper's numbers and ours."""
        return compare(self.collection)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """A verdict on every claim."""
        return judge(self.collection)

    @property
    def sentences(self) -> str:
        """README's paragraph on the paper."""
        return make_sentences(self.collection, self.comparisons, self.verdicts)

    @property
    def status(self) -> dict[str, str]:
        """Where each experiment was measured."""
        return make_status(self.collection)

    def markdown(self, images: Path) -> str:
        """Return the page, and draw the experiments' figures into the folder `images`.

        The page belongs beside that folder, with its name and the suffix .md.
        """
        own_name = images.with_suffix(".md").name
        return "\n".join([*_head(self, own_name), *_tables(self), *_experiments(self, images)])

    def summary(self) -> dict[str, Any]:
        """Return verdicts, numbers and status as plain types."""
        return {
            "claims": [
                {
                    "claim": verdict.claim.name,
                    "quote": verdict.claim.quote,
                    "verdict": verdict.verdict,
                    "evidence": [
                        {"encoder": e.encoder, "kind": e.kind, **e.finding._asdict()}
                        for e in verdict.evidence
                    ],
                }
                for verdict in self.verdicts
            ],
            "numbers": [
                {**line.target._asdict(), "ours": line.mean, "std": line.std, "mark": line.verdict}
                for line in self.comparisons
            ],
            "status": self.status,
            "notes": list(self.collection.notes),
        }


def build(folder: Path) -> Report:
    """Read a folder of records and return the report."""
    return Report(folder.resolve().name, collect(folder))


# ---------------------------------------------------------------------------------- the page
def _head(report: Report, own_name: str) -> Iterator[str]:
    groups = report.collection.groups
    kinds = {group.kind for group in groups}
    yield "# Results: the paper's experiments"
    yield ""
    yield (
        "Experiments of Träuble et al. (ICML 2023), and baselines on the same embeddings. "
        f"Encoders: {listed(group.encoder for group in groups)}. Drawn from records by `python "
        f"-m paper report {report.folder} --out {own_name}`."
    )
    yield ""
    yield report.sentences
    yield ""
    yield (
        "A verdict is *holds*, *fails*, *depends on (…)*, *not shown*, *not attempted* or "
        "*cannot be measured here*. The paper's own encoders decide; an encoder that is not in "
        "the paper and disagrees makes it *depends on (encoder)*. What only a definition of ours "
        "contradicts is *not shown*. Tolerances are [ours](#thresholds)."
    )
    versions = sorted({r.versions.get("dkvb", "?") for g in groups for r in g.records})
    if versions != [__version__]:
        yield ""
        yield (
            f"The records are of dkvb {listed(versions)}. What has changed since, such as how "
            "keys are fitted and how they expire, is not in them."
        )
    if "full" not in kinds:
        yield from ("", "No run here has the paper's settings, so that none decides.")
    if "quick" in kinds:
        yield from (
            "",
            f"Runs marked quick are not the paper's: {KINDS['quick'].partition(': ')[2]}.",
        )
    if report.collection.notes:
        yield ""
        yield from (f"- {note}" for note in report.collection.notes)


def _tables(report: Report) -> Iterator[str]:
    yield from _section("The paper's claims")
    yield from _table(
        ["claim", "the paper's words", "compared", "rule", "verdict", "numbers"],
        [
            [
                verdict.claim.name,
                f"“{verdict.claim.quote}” ({verdict.claim.section})",
                verdict.claim.compared,
                verdict.claim.rule,
                f"**{verdict.verdict}**",
                _evidence(verdict),
            ]
            for verdict in report.verdicts
        ],
    )
    yield from _section("The paper's numbers and ours")
    yield from _table(
        [
            "experiment",
            "model",
            "encoder",
            "measure",
            "paper",
            "ours",
            "difference",
            "tolerance",
            "",
        ],
        [_compared(line) for line in report.comparisons],
    )
    yield from _section("Thresholds and tolerances", "thresholds")
    yield from _table(
        ["name", "value", "", "chosen"],
        [[one.name, f"{one.value:g}", one.unit, one.chosen] for one in THRESHOLDS],
    )
    yield from _section("What was measured")
    headings = ["data", "keys from", "encoder", "seeds", "epochs", "runs", "time", "device"]
    yield from _table(
        ["experiment", *headings],
        [
            [f"[{g.experiment}](#{g.experiment}){_kind(g.kind)}", *_about(g)]
            for g in report.collection.groups
        ],
    )
    yield ""
    yield (
        "Epochs are epochs per task of bottlenecks. Times are the sum of key fitting, training and "
        "evaluation over all runs. Values are means ± one standard deviation over seeds."
    )
    for encoder in dict.fromkeys(g.encoder for g in report.collection.groups if g.kind == "full"):
        known = find_encoder(encoder)
        if known and known.note:
            yield from ("", f"`{known.name}`: {known.note}")
    for versions in _versions(report.collection):
        yield from ("", f"{versions}.")


def _experiments(report: Report, images: Path) -> Iterator[str]:
    yield from ("", f"{CHOICES['all on embeddings']}")
    for name in EXPERIMENTS:
        groups = report.collection.of(name)
        if not groups:
            continue
        yield from _section(load_experiment(name).TITLE, name)
        yield CAPTIONS[name]
        if CHOICES.get(name, "–") != "–":
            yield from ("", f"Ours to choose: {CHOICES[name]}")
        drawn: set[str] = set()
        for group, shows in zip(groups, _figure_groups(groups), strict=True):
            if groups[1:]:
                yield from ("", f"Encoder {group.encoder}{_kind(group.kind)}:")
            if shows is not None:
                picture = _draw(shows, images, drawn)
                yield from ("", f"![{load_experiment(name).TITLE}{_kind(group.kind)}]({picture})")
            yield from _rows(group)
    if report.collection.missing:
        yield from _section("Not run yet")
        for name in report.collection.missing:
            command = f"python -m paper run {name} --data embeddings --out {report.folder}/{name}"
            yield f"- `{name}`: {EXPERIMENTS[name]}: `{command}`"
    yield ""


def _section(title: str, anchor: str = "") -> Iterator[str]:
    yield ""
    if anchor:
        yield f'<a id="{anchor}"></a>'
    yield f"## {title}"
    yield ""


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False
) -> list[str]:
    lines = [list(headings), ["---", *["--:" if numbers else "---"] * (len(headings) - 1)]]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [*lines, *cells]]


def _kind(kind: str) -> str:
    return "" if kind == "full" else f" ({kind})"


def _evidence(verdict: Verdict) -> str:
    """Return the numbers of a claim, each encoder's behind its name if there are several."""
    lines = verdict.evidence
    several = len({line.finding.verdict for line in lines}) > 1
    texts = [
        f"{line.encoder}{_kind(line.kind)}: " * (len(lines) > 1 or bool(_kind(line.kind)))
        + f"{line.finding.verdict}: " * several
        + line.finding.numbers
        for line in lines
    ]
    claim = verdict.claim
    return "; ".join([*texts, *filter(None, (claim.without, claim.note))]) or "–"


def _compared(line: Comparison) -> list[str]:
    target = line.target
    ours = ["–", "–"]
    if line.mean is not None:
        difference = f"{line.mean - target.value:+.2f}".replace("-", "−")
        ours = [shown({"mean": line.mean, "std": line.std}), difference]
    return [
        target.experiment,
        line.classifier or target.row,
        target.encoder,
        target.measure,
        shown(target.value),
        *ours,
        f"± {target.tolerance:g}",
        line.verdict,
    ]


def _about(group: Group) -> list[str]:
    records = group.records
    data = [record.config.get("data", {}) for record in records]
    return [
        listed(str(d.get("train", "points in the plane")) for d in data),
        listed(str(d.get("keys", "")) for d in data),
        group.encoder or "–",
        ranges(r.seed for r in records if r.seed is not None),
        listed(f"{number:,}" for number in sorted(get_epochs(records))),
        str(len(records)),
        duration(sum(sum(record.times.values()) for record in records)),
        listed(r.versions.get("device", "") for r in records),
    ]


def _versions(collection: Collection) -> list[str]:
    """Return the distinct sets of versions of the runs."""
    every: list[RunRecord] = [record for group in collection.groups for record in group.records]
    sets = ({k: v for k, v in record.versions.items() if k != "device"} for record in every)
    texts = (", ".join(f"{name} {version}" for name, version in one.items()) for one in sets)
    return sorted(set(texts))


def _rows(group: Group) -> Iterator[str]:
    """Yield the experiment's table; of `all-methods`, one per data set, best first."""
    parts: dict[str, dict[str, Mapping[str, Any]]] = {}
    by_data_set = group.experiment == _BY_DATA_SET
    for name, row in group.rows.items():
        short, _, data = name.rpartition(", ") if by_data_set else (name, "", "")
        parts.setdefault(data, {})[short] = _columns(row)
    headings = list(
        dict.fromkeys(h for rows in parts.values() for row in rows.values() for h in row)
    )
    for data, rows in parts.items():
        names = list(rows)
        if by_data_set:
            names.sort(key=lambda name: -(rows[name]["final accuracy"]["mean"] or 0))
        cells = [[name, *(shown(rows[name].get(h)) for h in headings)] for name in names]
        yield ""
        yield from _table([data, *headings], cells, numbers=True)


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with one column per number; a list has one per task."""
    columns: dict[str, Any] = {}
    for name, value in row.items():
        several = value if isinstance(value, list) else []
        tasks = {f"{name}, task {i}": f"{v:.3f}" for i, v in enumerate(several, 1)}
        columns |= tasks or {name: value}
    return columns


# ---------------------------------------------------------------------------------- figures
def _figure_groups(groups: Sequence[Group]) -> list[Group | None]:
    """Return the group that each part draws.

    Experiments with `PANELS` draw the encoders of full runs in the figure of the first; the other
    parts draw none.
    """
    full = [group for group in groups if group.kind == "full"]
    if len(full) < 2 or not getattr(load_experiment(full[0].experiment), "PANELS", False):
        return list(groups)
    every = replace(full[0], records=[record for group in full for record in group.records])
    return [every, *(None if group in full else group for group in groups[1:])]


def _draw(group: Group, images: Path, drawn: set[str]) -> str:
    """Draw the figure of a group and return its name, relative to the page."""
    known = find_encoder(group.encoder)
    words = (group.experiment, known.name if known else "", group.kind)
    stem = "-".join(word for word in words if word not in ("", "resnet50", "full"))
    while stem in drawn:
        stem += "-more"
    drawn.add(stem)
    images.mkdir(parents=True, exist_ok=True)
    with figure_style():
        records = _with_plain_streams(group.records)
        load_experiment(group.experiment).plot(records, images / f"{stem}.png", title="")
    return f"{images.name}/{stem}.png"


def _with_plain_streams(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records with streams named by order or, if there are several, by their tasks."""
    orders = {r.stream: r.config.get("order", "") for r in records if r.config.get("order")}
    several = sum(order != "iid" for order in orders.values()) > 1

    def plain(record: RunRecord) -> str:
        if several and record.tasks[1:]:
            return f"{len(record.tasks)} × {len(record.tasks[0])} classes"
        return str(orders.get(record.stream, record.stream))

    return [replace(record, stream=plain(record)) for record in records]

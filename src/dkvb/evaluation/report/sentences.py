"""Sentences on the reproduction, drawn from records: the same in the README and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from dkvb.evaluation.paper.encoders import find_encoder
from dkvb.evaluation.paper.tables import mean_final_accuracy, only
from dkvb.evaluation.paper.thresholds import thresholds
from dkvb.evaluation.report.collect import Collection
from dkvb.evaluation.report.formatting import listed
from dkvb.evaluation.report.verdicts import (
    StatementVerdict,
    TargetComparison,
    count_verdicts,
)

BEGIN = "<!-- reproduction: dkvb report results --out docs/results/paper.md --readme README.md -->"
END = "<!-- end of reproduction -->"


def make_sentences(
    collection: Collection,
    comparisons: Sequence[TargetComparison],
    verdicts: Sequence[StatementVerdict],
) -> str:
    """Return the sentences as Markdown, one paragraph each."""
    return "\n\n".join(
        part
        for part in (
            _counted(verdicts),
            _numbers(comparisons),
            _backbones(collection),
            _contradicted(verdicts),
            _changed_thresholds(),
            _unmeasured(verdicts),
        )
        if part
    )


def _counted(verdicts: Sequence[StatementVerdict]) -> str:
    n = count_verdicts(verdicts)
    measured = n["holds"] + n["contradicted"]
    rest = f", {n['not measured']} not measured yet" if n["not measured"] else ""
    smaller = [
        v.statement
        for v in verdicts
        if v.verdict in ("holds", "contradicted") and v.rests_on != "full"
    ]
    small = (
        f" {len(smaller)} of the {measured} rest on smaller runs than the experiment's own: "
        f"{'; '.join(f'“{text}”' for text in smaller)}."
        if smaller and len(smaller) < measured
        else ""
    )
    return (
        f"Of {len(verdicts)} statements of the paper, {n['holds']} of {measured} that were "
        f"measured hold, {n['contradicted']} are contradicted, {n['tautology']} are tautologies, "
        f"{n['not measurable here']} are not measurable here{rest}.{small}"
    )


def _numbers(comparisons: Sequence[TargetComparison]) -> str:
    known = [line for line in comparisons if line.verdict in ("✓", "✗")]
    if not known:
        return "No number of the paper was measured with its settings."
    inside = sum(line.verdict == "✓" for line in known)
    outside = [
        f"{line.target.experiment}, {line.classifier}: {line.mean:.2f} instead of "
        f"{line.target.value:g}"
        for line in known
        if line.verdict == "✗"
    ]
    text = (
        f"{inside} of {len(known)} numbers that were compared are within our tolerance of the "
        "paper's"
    )
    return text + (f"; outside: {'; '.join(outside)}." if outside else ".")


def _backbones(collection: Collection) -> str:
    parts = []
    for group in collection.of("cifar10"):
        if group.kind != "full":
            continue
        ends = [
            mean_final_accuracy(only(group.records, order=order, classifier="bottleneck"))
            for order in ("class-incremental", "iid")
        ]
        if ends[0] is None or ends[1] is None:
            continue
        known = find_encoder(group.encoder)
        name = known.title if known else group.encoder
        parts.append(f"{name} {ends[0]:.2f} and {ends[1]:.2f}")
    if not parts:
        return ""
    return (
        "Final accuracy of the paper's rule on CIFAR-10, class-incremental and i.i.d.: "
        f"{', '.join(parts)}."
    )


def _contradicted(verdicts: Sequence[StatementVerdict]) -> str:
    found = [f"- “{v.statement}” ({v.place})" for v in verdicts if v.verdict == "contradicted"]
    if not found:
        return ""
    return "\n".join(["Contradicted by these records, with thresholds of ours:", "", *found])


def _changed_thresholds() -> str:
    changed = listed(f"`{one.name}`" for one in thresholds().values() if "Changed" in one.history)
    return f"Thresholds that were changed after seeing data, with their history: {changed}."


def _unmeasured(verdicts: Sequence[StatementVerdict]) -> str:
    reasons = listed(v.reason for v in verdicts if v.verdict == "not measurable here")
    return "" if reasons == "–" else f"Not measurable with the data at hand: {reasons}."


def replace_block(text: str, sentences: str) -> str:
    """Return a text whose block between the two marks is replaced by the sentences."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"--readme: expected the lines {BEGIN} and {END}, each once; got others")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    return f"{head}{BEGIN}\n{sentences}\n{END}{tail}"

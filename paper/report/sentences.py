"""The paragraph on the paper in README, drawn from records."""

from __future__ import annotations

from collections.abc import Sequence

from paper.claims import DEPENDS, FAILS, HOLDS, NOT_ATTEMPTED, NOT_SHOWN, UNMEASURABLE
from paper.encoders import find_encoder
from paper.report.collect import Collection
from paper.report.verdicts import Comparison, Verdict
from paper.tables import group_by, mean_final_accuracy, only

BEGIN = (
    "<!-- paper: python -m paper report results --out docs/results/paper.md --readme README.md -->"
)
END = "<!-- end of paper -->"


_PLURAL = {
    HOLDS: "hold",
    FAILS: "fail",
    DEPENDS: "depend on the case",
    NOT_SHOWN: "are not shown",
    UNMEASURABLE: "cannot be measured here",
    NOT_ATTEMPTED: "are not attempted",
}


def make_sentences(
    collection: Collection, comparisons: Sequence[Comparison], verdicts: Sequence[Verdict]
) -> str:
    """Return the counts of verdicts, the claims that do not hold, and the accuracies."""
    by = group_by(verdicts, lambda verdict: verdict.verdict.partition(" (")[0])
    parts = []
    for name, plural in _PLURAL.items():
        names = ", ".join(verdict.claim.name for verdict in by.get(name, []))
        shown = f" ({names})" if names and name in (FAILS, DEPENDS, NOT_SHOWN) else ""
        parts.append(f"{len(by.get(name, []))} {plural}{shown}")
    counts = f"Of {len(verdicts)} claims of the paper, {'; '.join(parts)}."
    return " ".join([counts, *_numbers(comparisons), *_encoders(collection)])


def _numbers(comparisons: Sequence[Comparison]) -> list[str]:
    known = [line for line in comparisons if line.verdict in ("✓", "✗")]
    if not known:
        return ["No number of the paper was measured with its settings."]
    inside = sum(line.verdict == "✓" for line in known)
    outside = [
        f"{line.target.experiment} {line.mean:.2f} instead of {line.target.value:g}"
        for line in known
        if line.verdict == "✗"
    ]
    text = (
        f"{inside} of {len(known)} numbers that were measured are within our tolerances, which were"
        " chosen after data"
    )
    return [f"{text}; outside: {', '.join(outside)}." if outside else f"{text}."]


def _encoders(collection: Collection) -> list[str]:
    parts = []
    for group in collection.of("cifar10"):
        ends = [
            mean_final_accuracy(only(group.records, order=order, classifier="bottleneck"))
            for order in ("class-incremental", "iid")
        ]
        if group.kind == "full" and ends[0] is not None and ends[1] is not None:
            known = find_encoder(group.encoder)
            parts.append(
                f"{known.title if known else group.encoder} {ends[0]:.2f} and {ends[1]:.2f}"
            )
    if not parts:
        return []
    return [f"Final accuracy on CIFAR-10, class-incremental and i.i.d.: {', '.join(parts)}."]


def replace_block(text: str, sentences: str) -> str:
    """Return a text whose block between the two marks is replaced by the sentences."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"--readme: expected the lines {BEGIN} and {END}, each once; got others")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    return f"{head}{BEGIN}\n{sentences}\n{END}{tail}"

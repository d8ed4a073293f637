"""The paragraph on the paper in README, drawn from records."""

from __future__ import annotations

from collections.abc import Sequence

from paper.claims import FAILS, NOT_SHOWN
from paper.encoders import find_encoder
from paper.report.collect import Collection
from paper.report.verdicts import Comparison, Verdict, count
from paper.tables import mean_final_accuracy, only

BEGIN = (
    "<!-- paper: python -m paper report results --out docs/results/paper.md --readme README.md -->"
)
END = "<!-- end of paper -->"


def make_sentences(
    collection: Collection, comparisons: Sequence[Comparison], verdicts: Sequence[Verdict]
) -> str:
    """Return the counts of verdicts, the claims that fail or are not shown, and the accuracies."""
    counts = ", ".join(f"{n} {name}" for name, n in count(verdicts).items())
    parts = [f"Verdicts on {len(verdicts)} claims of the paper: {counts}."]
    for name in (FAILS, NOT_SHOWN):
        found = [verdict.claim.name for verdict in verdicts if verdict.verdict == name]
        if found:
            parts.append(f"{name.capitalize()}: {', '.join(found)}.")
    parts += [*_numbers(comparisons), *_encoders(collection)]
    return " ".join(parts)


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
    text = f"{inside} of {len(known)} numbers that were measured are within our tolerance"
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

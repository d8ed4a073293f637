"""Statements of section 5.3, on the ResNet50 backbone in the paper."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

from dkvb.evaluation.paper.statements.base import (
    ORDERS,
    Records,
    Result,
    Statement,
    listed,
    means_by,
    sweep,
    threshold,
)
from dkvb.evaluation.paper.tables import group_by, only, setting
from dkvb.evaluation.records import RunRecord


def _best_key_dim(records: Records) -> Result:
    by = sweep(records, "key_dim")
    if len(by) < 3:
        return None
    best = max(by, key=lambda dim: by[dim])
    return best in (8, 12), f"best {best}; {listed(by)}"


def _more_is_better(name: str) -> Callable[[Records], Result]:
    def evaluate(records: Records) -> Result:
        by = sweep(records, name)
        if len(by) < 3:
            return None
        return all(a < b for a, b in pairwise(by.values())), listed(by)

    return evaluate


def _fewer_pairs(records: Records) -> Result:
    by = sweep(records, "n_pairs")
    most = max(by, default=0)
    if most // 4 not in by:
        return None
    lost = by[most] - by[most // 4]
    return lost <= threshold("fewer_pairs"), f"{most} → {most // 4} pairs: {-lost:+.2f} points"


def _still_improving(records: Records) -> Result:
    by = sweep(records, "n_pairs")
    most = max(by, default=0)
    if most // 2 not in by:
        return None
    gain = by[most] - by[most // 2]
    text = f"{most // 2} → {most} pairs: {gain:+.2f} points"
    return gain >= threshold("still_improving"), text


def _parting(records: Records) -> Result:
    ci, iid = (sweep(records, "n_pairs", order) for order in ORDERS)
    gaps = {k: iid[k] - ci[k] for k in sorted(ci.keys() & iid.keys())}
    few = [k for k in gaps if k <= 256]
    if not few or max(gaps) <= 256:
        return None
    apart = gaps[max(few)] - gaps[max(gaps)]
    return apart >= threshold("parting"), "iid − class-incremental: " + listed(gaps)


def _books_over_pairs(books: Records, pairs: Records) -> Result:
    by_books, by_pairs = sweep(books, "n_codebooks"), sweep(pairs, "n_pairs")
    for factor in (16, 8, 4):
        both = [by for by in (by_books, by_pairs) if max(by, default=0) // factor in by]
        lost = [by[max(by)] - by[max(by) // factor] for by in both]
        if len(lost) == 2:
            text = f"{factor} times fewer: codebooks {-lost[0]:+.2f}, pairs {-lost[1]:+.2f} points"
            return lost[0] > lost[1], text
    return None


def _lower_training_loss(records: Records) -> Result:
    groups = group_by(only(records, order="iid"), setting("n_codebooks"))
    by = {
        books: fmean(losses)
        for books, group in sorted(groups.items())
        if (losses := [v for r in group if r.curve and (v := r.curve[-1].train_loss) is not None])
    }
    if len(by) < 2:
        return None
    return by[max(by)] < by[min(by)], f"training cross entropy, i.i.d.: {listed(by)}"


def _constant_not_observed(records: Records) -> Result:
    terms: dict[int, list[float]] = {}
    for record in records:
        for point in record.extra.get("growth", ()):
            terms.setdefault(point["codebooks"], []).append(point["term"])
    by = {books: fmean(values) for books, values in sorted(terms.items())}
    if len(by) < 2:
        return None
    few, many = min(by), max(by)
    text = (
        f"{by[few]:.1f} with {few} codebook, {by[many]:.0f} with {many}; the loss is at most 1, so "
        "the bound is vacuous at every size"
    )
    return by[many] <= by[few], text


def _key_data(records: Records) -> Result:
    by = means_by(only(records, order="class-incremental"), _key_set)
    if len(by) < 2 or "cifar10" not in by:
        return None
    others = [value for name, value in by.items() if name != "cifar10"]
    little = max(by.values()) - min(by.values()) <= threshold("key_data")
    return little and by["cifar10"] >= max(others), listed(by)


def _other_key_data(records: Records) -> Result:
    by = means_by(only(records, order="class-incremental"), _key_set)
    others = {name: by[name] for name in ("stl10", "imagenet") if name in by}
    if "cifar10" not in by or not others:
        return None
    return by["cifar10"] - min(others.values()) <= threshold("key_data"), listed(by)


def _key_set(record: RunRecord) -> str:
    return str(record.config["data"]["keys"])


ABLATIONS: tuple[Statement, ...] = (
    Statement(
        "the best key dimension is 8 to 12",
        "section 5.3, Figure 5a",
        ("key-dim",),
        "final accuracy by key dimension",
        "the best of those measured is 8 or 12",
        _best_key_dim,
    ),
    Statement(
        "more pairs are better",
        "section 5.3, Figure 5b",
        ("pairs",),
        "final accuracy by pairs",
        "rises with every doubling",
        _more_is_better("n_pairs"),
    ),
    Statement(
        "four times fewer pairs cost little",
        "section 5.3, Figure 5b",
        ("pairs",),
        "points lost",
        f"at most {threshold('fewer_pairs'):g} points",
        _fewer_pairs,
    ),
    Statement(
        "more pairs than 4,096 would still help",
        "section 5.3, Figure 5b",
        ("pairs",),
        "points gained by the last doubling",
        f"at least {threshold('still_improving'):g} points",
        _still_improving,
    ),
    Statement(
        "i.i.d. and class-incremental accuracy differ at 256 pairs or fewer",
        "section 5.3, Figure 5b",
        ("pairs",),
        "i.i.d. minus class-incremental accuracy",
        f"by {threshold('parting'):g} points more than with most pairs",
        _parting,
    ),
    Statement(
        "more codebooks are better",
        "section 5.3, Figure 5c",
        ("codebooks",),
        "final accuracy by codebooks",
        "rises with every doubling",
        _more_is_better("n_codebooks"),
    ),
    Statement(
        "codebooks matter slightly more than pairs",
        "section 5.3, Figure 5c",
        ("codebooks", "pairs"),
        "points lost for equal factors",
        "more for codebooks",
        _books_over_pairs,
    ),
    Statement(
        "more codebooks lower the training loss",
        "section 5.3; appendix B",
        ("codebooks",),
        "training cross entropy after i.i.d. training",
        "lower with most codebooks than with fewest",
        _lower_training_loss,
    ),
    Statement(
        "codebooks do not yet increase the constant c of Theorem 1",
        "section 5.3",
        ("theorem",),
        "the constant's term of the bound, as in the proof (equation 3), δ = 0.05",
        "no larger with most codebooks than with one",
        _constant_not_observed,
    ),
    Statement(
        "key data matters little, the oracle slightly better",
        "section 5.3, Figure 5d",
        ("key-data",),
        "final accuracy by key data",
        f"at most {threshold('key_data'):g} points apart, and CIFAR-10 is best",
        _key_data,
    ),
    Statement(
        "keys from STL-10 or ImageNet do as well",
        "section 5.3, Figure 5d",
        ("key-data",),
        "final accuracy by key data",
        f"at most {threshold('key_data'):g} points below CIFAR-10",
        _other_key_data,
        unavailable="no STL-10 or ImageNet embeddings",
    ),
)

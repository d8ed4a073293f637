"""Statements of the paper, evaluated from records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from dkvb.benchmark.paper.tables import (
    final_accuracies,
    group_by,
    mean_final_accuracy,
    only,
    setting,
)
from dkvb.benchmark.records import RunRecord

Records = Sequence[RunRecord]


@dataclass(frozen=True)
class Verdict:
    """A statement, whether the records agree (✓, ✗ or "not measured"), and the evidence."""

    statement: str
    experiment: str
    mark: str
    evidence: str


class Statement(NamedTuple):
    """A statement of the paper, the experiments that test it, and how."""

    text: str
    experiments: tuple[str, ...]
    evaluate: Callable[..., tuple[bool, str] | None]  # records of each experiment → holds, evidence


def evaluate_statements(records: Mapping[str, Records]) -> list[Verdict]:
    """Return a verdict on every statement of the paper from records by experiment."""
    verdicts = []
    for statement in STATEMENTS:
        inputs = [records.get(name, ()) for name in statement.experiments]
        result = statement.evaluate(*inputs) if all(inputs) else None
        mark = "not measured" if result is None else "✓" if result[0] else "✗"
        evidence = "" if result is None else result[1]
        names = ", ".join(statement.experiments)
        verdicts.append(Verdict(statement.text, names, mark, evidence))
    return verdicts


def _same_at_the_end(records: Records) -> tuple[bool, str] | None:
    ci, iid = (_mean(records, "bottleneck", order) for order in ("class-incremental", "iid"))
    if ci is None or iid is None:
        return None
    return abs(ci - iid) <= 1, f"class-incremental {ci:.2f}, iid {iid:.2f}"


def _any_split(records: Records) -> tuple[bool, str] | None:
    """A seed decides class split, projections and keys. The i.i.d. run has the same projections and
    keys, so that the difference of the two is the effect of the split."""
    ends = [
        {r.seed: r for r in only(records, order=order, classifier="bottleneck")}
        for order in ("class-incremental", "iid")
    ]
    differences = [
        abs(one - other)
        for seed in ends[0].keys() & ends[1].keys()
        for one, other in [final_accuracies([ends[0][seed], ends[1][seed]])]
    ]
    if len(differences) < 2:
        return None
    worst = max(differences)
    return (
        worst <= 1,
        f"{len(differences)} class splits are within {worst:.2f} of i.i.d. with equal keys",
    )


def _baselines_forget(records: Records) -> tuple[bool, str] | None:
    baselines = [r for r in only(records, order="class-incremental") if _is_probe(r)]
    ends = {name: mean_final_accuracy(group) for name, group in group_by(baselines, _name).items()}
    known = {name: end for name, end in ends.items() if end is not None}
    if not known:
        return None
    return max(known.values()) < 30, ", ".join(f"{n} {end:.1f}" for n, end in known.items())


def _best_key_dim(records: Records) -> tuple[bool, str] | None:
    by = _sweep(records, "key_dim")
    if len(by) < 3:
        return None
    best = max(by, key=lambda dim: by[dim])
    return best in (8, 12), f"best {best}; {_listed(by)}"


def _fewer_pairs(records: Records) -> tuple[bool, str] | None:
    by = _sweep(records, "n_pairs")
    most = max(by, default=0)
    if most // 4 not in by:
        return None
    lost = by[most] - by[most // 4]
    return lost <= 2, f"{most} → {most // 4} pairs: {-lost:+.2f} points"


def _parting(records: Records) -> tuple[bool, str] | None:
    ci, iid = (_sweep(records, "n_pairs", order) for order in ("class-incremental", "iid"))
    gaps = {k: iid[k] - ci[k] for k in sorted(ci.keys() & iid.keys())}
    few = [k for k in gaps if k <= 256]
    if not few or max(gaps) <= 256:
        return None
    apart = gaps[max(few)] - gaps[max(gaps)]
    return apart >= 0.5, "iid − class-incremental: " + _listed(gaps)


def _books_over_pairs(books: Records, pairs: Records) -> tuple[bool, str] | None:
    by_books, by_pairs = _sweep(books, "n_codebooks"), _sweep(pairs, "n_pairs")
    for factor in (16, 8, 4):
        both = [by for by in (by_books, by_pairs) if max(by, default=0) // factor in by]
        lost = [by[max(by)] - by[max(by) // factor] for by in both]
        if len(lost) == 2:
            text = f"{factor} times fewer: codebooks {-lost[0]:+.2f}, pairs {-lost[1]:+.2f} points"
            return lost[0] > lost[1], text
    return None


def _key_data(records: Records) -> tuple[bool, str] | None:
    groups = group_by(only(records, order="class-incremental"), _key_set)
    by = {
        name: mean
        for name, group in groups.items()
        if (mean := mean_final_accuracy(group)) is not None
    }
    if len(by) < 2 or "cifar10" not in by:
        return None
    others = [value for name, value in by.items() if name != "cifar10"]
    little = max(by.values()) - min(by.values()) <= 3
    return little and by["cifar10"] >= max(others), _listed(by)


def _insensitive(name: str, most: float) -> Callable[[Records], tuple[bool, str] | None]:
    def evaluate(records: Records) -> tuple[bool, str] | None:
        by = _sweep(records, name)
        if len(by) < 2:
            return None
        return max(by.values()) - min(by.values()) <= most, _listed(by)

    return evaluate


def _granularity(records: Records) -> tuple[bool, str] | None:
    groups = group_by(only(records, order="class-incremental"), lambda r: len(r.tasks))
    by = {
        f"{n} tasks": mean
        for n, group in groups.items()
        if (mean := mean_final_accuracy(group)) is not None
    }
    if len(by) < 2:
        return None
    return max(by.values()) - min(by.values()) <= 1, _listed(by)


def _steady_loss(records: Records) -> tuple[bool, str] | None:
    ends = {}
    for name in ("bottleneck", "linear"):
        for order in ("class-incremental", "iid"):
            group = only(records, order=order, classifier=name)
            losses = [r.metrics["test_loss"] for r in group if r.metrics["test_loss"] is not None]
            if not losses:
                return None
            ends[name, order] = fmean(losses)
    gap, baseline = (
        abs(ends[name, "class-incremental"] - ends[name, "iid"])
        for name in ("bottleneck", "linear")
    )
    text = f"test loss apart by {gap:.3f} (bottleneck) and {baseline:.3f} (linear probe)"
    return gap <= 0.1 and gap < baseline, text


def _fly_collapses(records: Records) -> tuple[bool, str] | None:
    records = [record for record in records if "epochs" in record.config["settings"]]
    by = {
        epochs: mean_final_accuracy(group) for epochs, group in group_by(records, _epochs).items()
    }
    known = {epochs: value for epochs, value in sorted(by.items()) if value is not None}
    if len(known) < 2:
        return None
    first, last = known[min(known)], known[max(known)]
    return last <= first - 20, "; ".join(f"{e} epochs {v:.1f}" for e, v in known.items())


def _noise(records: Records) -> tuple[bool, str] | None:
    group = [r for r in records if r.classifier == "bottleneck"]
    by: dict[float, list[float]] = {}
    for record in group:
        for point in record.extra.get("embeddings", ()):
            by.setdefault(point["alpha"], []).append(100 * point["accuracy"])
    if not by:
        return None
    mean = {alpha: fmean(values) for alpha, values in sorted(by.items())}
    clean = mean.get(0.0, max(mean.values()))
    small = [value for alpha, value in mean.items() if alpha <= 0.1]
    large = [value for alpha, value in mean.items() if alpha > 0.1]
    if not large:
        return None
    return clean - min(small) <= 2 and clean - min(large) > 5, "accuracy at α: " + _listed(mean)


def _fetched(records: Records) -> tuple[bool, str] | None:
    return _evaluate_metric(
        records, "fetched_10k_to_150k", lambda share: share > 50, "of all pairs"
    )


def _never(records: Records) -> tuple[bool, str] | None:
    return _evaluate_metric(records, "never_used", lambda share: 20 <= share <= 34, "never used")


def _evaluate_metric(
    records: Records, name: str, fits: Callable[[float], bool], what: str
) -> tuple[bool, str] | None:
    by = {}
    for method, group in group_by(records, _name).items():
        values = [100 * v for r in group if (v := r.metrics.get(name)) is not None]
        if values:
            by[method] = fmean(values)
    if not by:
        return None
    text = ", ".join(f"{method} {share:.1f} %" for method, share in by.items())
    # The paper's numbers come from its own expiry of keys.
    share = by.get("ema-reference", by[next(iter(by))])
    return fits(share), f"{text} {what}"


def _values(records: Records) -> tuple[bool, str] | None:
    known = [v for r in records if (v := r.metrics.get("relative_difference")) is not None]
    if not known:
        return None
    share = 100 * fmean(known)
    return 1 <= share <= 4, f"{share:.2f} %"


def _shift_vanishes(records: Records) -> tuple[bool, str] | None:
    group = [r for r in records if r.classifier == "bottleneck"]
    changes = [abs(v) for r in group if (v := r.metrics.get("unchanged_shift")) is not None]
    kept = max((p["unchanged_rows"] for r in group for p in r.extra.get("shift", ())), default=None)
    if not changes or kept == 0:
        return None
    text = f"largest change of the loss where no code changed: {max(changes):g}"
    at_most = "" if kept is None else f" (up to {100 * kept:.1f} % of rows, by the size of noise)"
    return max(changes) == 0, text + at_most


def _is_probe(record: RunRecord) -> bool:
    return record.classifier.split(":")[0] in ("linear", "mlp")


def _name(record: RunRecord) -> str:
    return record.classifier


def _key_set(record: RunRecord) -> str:
    return str(record.config["data"]["keys"])


def _epochs(record: RunRecord) -> int:
    return int(record.config["settings"]["epochs"])


def _mean(records: Records, classifier: str, order: str) -> float | None:
    return mean_final_accuracy(only(records, order=order, classifier=classifier))


def _sweep(records: Records, name: str, order: str = "class-incremental") -> dict[Any, float]:
    groups = group_by(only(records, order=order), setting(name))
    by = {
        value: mean
        for value, group in groups.items()
        if (mean := mean_final_accuracy(group)) is not None
    }
    return dict(sorted(by.items()))


def _listed(by: Mapping[Any, float]) -> str:
    return ", ".join(f"{key}: {value:.2f}" for key, value in by.items())


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "i.i.d. and class-incremental accuracy agree within one point",
        ("cifar10",),
        _same_at_the_end,
    ),
    Statement("the final accuracy does not depend on the class split", ("cifar10",), _any_split),
    Statement("linear probe and MLP forget", ("cifar10",), _baselines_forget),
    Statement("i.i.d. and class-incremental loss agree", ("loss",), _steady_loss),
    Statement("the best key dimension is 8 to 12", ("key-dim",), _best_key_dim),
    Statement("four times fewer pairs cost little", ("pairs",), _fewer_pairs),
    Statement(
        "i.i.d. and class-incremental accuracy differ at 256 pairs or fewer", ("pairs",), _parting
    ),
    Statement(
        "codebooks matter slightly more than pairs", ("codebooks", "pairs"), _books_over_pairs
    ),
    Statement("key data matters little, the oracle slightly better", ("key-data",), _key_data),
    Statement(
        "label smoothing does not matter", ("label-smoothing",), _insensitive("label_smoothing", 1)
    ),
    Statement("the number of classes per task does not matter", ("granularity",), _granularity),
    Statement("the FlyModel collapses over epochs", ("fly",), _fly_collapses),
    Statement("weight decay does not prevent forgetting", ("weight-decay",), _baselines_forget),
    Statement("noise is harmless until α = 0.1", ("noise",), _noise),
    Statement("most pairs are fetched 10,000 to 150,000 times", ("codes",), _fetched),
    Statement("about 28 % of pairs are never used", ("codes",), _never),
    Statement(
        "values learned i.i.d. and class-incrementally differ by about 2 %", ("values",), _values
    ),
    Statement(
        "a shift that changes no code changes nothing (Theorem 1)", ("theorem",), _shift_vanishes
    ),
)

"""Statements of sections 5.1 and 5.2."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from dkvb.evaluation.paper.statements.base import (
    ORDERS,
    Records,
    Result,
    Statement,
    listed,
    mean_metric,
    mean_of,
    name_of,
    number,
    threshold,
    values_within,
)
from dkvb.evaluation.paper.tables import (
    final_accuracies,
    group_by,
    mean_final_accuracy,
    only,
)

_NO_EMBEDDINGS = "no {} embeddings"


# ---------------------------------------------------------------------------------- section 5.1
def _toy(records: Records) -> dict[str, tuple[list[float], list[float]]]:
    """Return the final accuracies per task in percent, before and after pruning, by model."""
    return {
        name: (
            [100 * fmean(v) for v in zip(*(r.accuracy_matrix[-1] for r in group), strict=True)],
            [
                100 * fmean(v)
                for v in zip(*(r.extra["pruned_accuracy"] for r in group), strict=True)
            ],
        )
        for name, group in group_by(records, name_of).items()
    }


def _toy_forgets(records: Records) -> Result:
    found = _toy(records)
    if not {"linear", "mlp"} <= found.keys():
        return None
    worst = max(max(found[name][0][:-1]) for name in ("linear", "mlp"))
    return worst <= threshold("toy_forgotten"), f"tasks 1 to 3: at most {worst:.1f} %"


def _toy_keeps(records: Records) -> Result:
    found = _toy(records).get("bottleneck-1x400")
    if found is None:
        return None
    text = f"lowest of the tasks: {min(found[0]):.1f} %, after pruning {min(found[1]):.1f} %"
    return min(found[0]) >= threshold("toy_kept"), text


def _toy_projected(records: Records) -> Result:
    found = _toy(records)
    if not {"bottleneck-1x400", "bottleneck-20x20"} <= found.keys():
        return None
    one, many = (fmean(found[f"bottleneck-{size}"][0]) for size in ("1x400", "20x20"))
    text = f"mean of the tasks: one codebook {one:.1f} %, twenty {many:.1f} %"
    return many >= one - threshold("toy_equal"), text


# ---------------------------------------------------------------------------------- section 5.2
def _ends_of_tasks(records: Records, classifier: str) -> list[float]:
    """Return the mean accuracy on all classes after each task, in percent."""
    by: dict[int, list[float]] = {}
    for record in only(records, order="class-incremental", classifier=classifier):
        last = {point.task: point.accuracy for point in record.curve}
        for task, value in last.items():
            if value is not None:
                by.setdefault(task, []).append(100 * value)
    return [fmean(values) for _, values in sorted(by.items())]


def _integrates(records: Records) -> Result:
    ends = _ends_of_tasks(records, "bottleneck")
    if len(ends) < 2:
        return None
    rises = all(after > before for before, after in pairwise(ends))
    return rises, "after each task: " + ", ".join(f"{end:.1f}" for end in ends)


def _reduces_forgetting(records: Records) -> Result:
    found = {
        name: mean_metric(
            only(records, order="class-incremental", classifier=name), "forgetting", 100
        )
        for name in ("bottleneck", "linear", "mlp")
    }
    known = {name: value for name, value in found.items() if value is not None}
    if set(known) != set(found):
        return None
    limit = threshold("less_forgetting") * min(known["linear"], known["mlp"])
    return known["bottleneck"] <= limit, listed(known)


def _same_at_the_end(records: Records) -> Result:
    ci, iid = (mean_of(records, "bottleneck", order) for order in ORDERS)
    if ci is None or iid is None:
        return None
    text = f"class-incremental {ci:.2f}, iid {iid:.2f}"
    return abs(ci - iid) <= threshold("equal_accuracy"), text


def _any_split(records: Records) -> Result:
    """A seed decides class split, projections and keys. The i.i.d. run has the same projections and
    keys, so that the difference of the two is the effect of the split."""
    ends = [
        {r.seed: r for r in only(records, order=order, classifier="bottleneck")} for order in ORDERS
    ]
    differences = [
        abs(one - other)
        for seed in ends[0].keys() & ends[1].keys()
        for one, other in [final_accuracies([ends[0][seed], ends[1][seed]])]
    ]
    if len(differences) < 2:
        return None
    worst, finals = max(differences), final_accuracies(list(ends[0].values()))
    text = (
        f"{len(differences)} class splits are within {worst:.2f} of i.i.d. with equal keys; range "
        f"over seeds, with other keys: {max(finals) - min(finals):.2f}"
    )
    return worst <= threshold("equal_split"), text


def baselines_forget(records: Records) -> Result:
    """Compare the final accuracy of linear probes and MLPs with the share of one task."""
    group = [
        r
        for r in only(records, order="class-incremental")
        if r.classifier.split(":")[0] in ("linear", "mlp")
    ]
    ends = {name: mean_final_accuracy(same) for name, same in group_by(group, name_of).items()}
    known = {name: end for name, end in ends.items() if end is not None}
    if not known:
        return None
    text = ", ".join(f"{name} {end:.1f}" for name, end in known.items())
    return max(known.values()) <= threshold("forgotten"), text


def _smooth(records: Records) -> Result:
    drops = {}
    for name in ("bottleneck", "linear"):
        group = only(records, order="class-incremental", classifier=name)
        falls = [
            100 * ((before.accuracy or 0) - (after.accuracy or 0))
            for record in group
            for before, after in pairwise(record.curve)
        ]
        if not falls:
            return None
        drops[name] = max(0.0, *falls)
    text = f"largest drop between evaluations in points: {listed(drops)}"
    return drops["bottleneck"] <= threshold("smooth_drop"), text


def _linear_is_better_iid(records: Records) -> Result:
    ours, linear = (mean_of(records, name, "iid") for name in ("bottleneck", "linear"))
    if ours is None or linear is None:
        return None
    return linear > ours, f"i.i.d.: linear probe {linear:.2f}, bottleneck {ours:.2f}"


def _steady_loss(records: Records) -> Result:
    gaps = {}
    for name in ("bottleneck", "linear"):
        ends = [
            mean_metric(only(records, order=order, classifier=name), "test_loss")
            for order in ORDERS
        ]
        if ends[0] is None or ends[1] is None:
            return None
        gaps[name] = abs(ends[0] - ends[1])
    text = (
        f"test loss apart by {gaps['bottleneck']:.3f} (bottleneck) and {gaps['linear']:.3f} "
        "(linear probe)"
    )
    limit = threshold("equal_loss")
    return gaps["bottleneck"] <= limit and gaps["bottleneck"] < gaps["linear"], text


def _no_gap(records: Records) -> Result:
    gaps = {}
    for name in ("bottleneck", "linear"):
        group = only(records, order="class-incremental", classifier=name)
        ends = [
            (r.curve[-1].test_loss, r.curve[-1].train_loss)
            for r in group
            if r.curve and r.curve[-1].test_loss is not None and r.curve[-1].train_loss is not None
        ]
        if not ends:
            return None
        gaps[name] = fmean((test or 0) - (train or 0) for test, train in ends)
    text = f"test − training cross entropy after the last task: {listed(gaps)}"
    limit = threshold("equal_loss")
    return gaps["bottleneck"] <= limit and gaps["bottleneck"] < gaps["linear"], text


def _number(encoder: str, value: str, panel: str, title: str) -> Statement:
    return number(
        "cifar10",
        "bottleneck",
        encoder,
        f"final accuracy of {value} % on CIFAR-10 with {title}",
        f"section 5.2, Figure 3{panel}",
        "" if encoder == "resnet50" else _NO_EMBEDDINGS.format(title),
    )


MAIN: tuple[Statement, ...] = (
    Statement(
        "linear probe and MLP over-fit on the most recent data",
        "section 5.1, Figure 2 a, b",
        ("toy",),
        "final accuracy on tasks 1 to 3",
        f"at most {threshold('toy_forgotten'):g} %",
        _toy_forgets,
    ),
    Statement(
        "a bottleneck with one codebook minimises interference",
        "section 5.1, Figure 2 c; section 3 (local values reduce the training loss)",
        ("toy",),
        "final accuracy on every task, before pruning",
        f"at least {threshold('toy_kept'):g} %",
        _toy_keeps,
    ),
    Statement(
        "twenty codebooks with random projections work just as well",
        "section 5.1, Figure 2 d",
        ("toy",),
        "mean final accuracy over tasks, before pruning",
        f"at most {threshold('toy_equal'):g} points lower",
        _toy_projected,
    ),
    Statement(
        "it is essential to have two separate sets of codes",
        "section 5.1",
        (),
        "–",
        "–",
        unavailable="the paper describes no experiment with one set of codes",
    ),
    Statement(
        "the bottleneck learns and integrates new information",
        "section 5.2, Figure 3",
        ("cifar10",),
        "accuracy on all classes after each task",
        "rises with every task",
        _integrates,
    ),
    Statement(
        "the bottleneck substantially reduces forgetting",
        "section 5.2, Figure 3",
        ("cifar10",),
        "forgetting in points",
        "at most half of linear probe's and MLP's",
        _reduces_forgetting,
    ),
    Statement(
        "linear probe and MLP forget",
        "section 5.2, Figure 3",
        ("cifar10",),
        "final accuracy, class-incremental",
        f"at most {threshold('forgotten'):g} %",
        baselines_forget,
    ),
    Statement(
        "class-incremental and i.i.d. training end at the same accuracy, across all backbones",
        "section 5.2, Figure 3",
        ("cifar10",),
        "difference of final accuracies",
        f"at most {threshold('equal_accuracy'):g} points on every backbone",
        _same_at_the_end,
    ),
    Statement(
        "the final accuracy does not depend on the class split",
        "section 5.2, Figure 3",
        ("cifar10",),
        "difference from the i.i.d. run with equal keys, per seed",
        f"at most {threshold('equal_split'):g} point",
        _any_split,
    ),
    Statement(
        "a value receives about the same gradients over the whole training",
        "section 5.2",
        ("values",),
        "relative difference of values learned class-incrementally and i.i.d.",
        f"at most {threshold('values_high'):g} %",
        values_within(None, "values_high"),
    ),
    Statement(
        "learning curves are smooth",
        "section 5.2, Figure 3",
        ("cifar10",),
        "largest drop of the accuracy on all classes between two evaluations",
        f"at most {threshold('smooth_drop'):g} point",
        _smooth,
    ),
    _number("resnet50", "81.5", "b", "ResNet50"),
    _number("clip", "91.3", "c", "CLIP"),
    _number("swav", "66.3", "d", "SwAV"),
    _number("dino", "62.5", "e", "DINO"),
    _number("convmixer", "77.3", "a", "ConvMixer"),
    number(
        "cifar10",
        "sdmlp",
        "convmixer",
        "SDMLP reaches 71 % on ConvMixer",
        "section 5.2, Figure 3a",
        _NO_EMBEDDINGS.format("ConvMixer"),
    ),
    Statement(
        "a linear probe may perform better on i.i.d. data",
        "section 5.2",
        ("cifar10",),
        "final accuracy, i.i.d.",
        "above the bottleneck's",
        _linear_is_better_iid,
    ),
    Statement(
        "i.i.d. and class-incremental loss agree",
        "section 5.2, Figure 4",
        ("loss",),
        "difference of the final test cross entropy",
        f"at most {threshold('equal_loss'):g}, and below the linear probe's",
        _steady_loss,
    ),
    Statement(
        "the bottleneck does not over-fit like other approaches",
        "section 5.2, Figure 4",
        ("loss",),
        "test minus training cross entropy after the last task",
        f"at most {threshold('equal_loss'):g}, and below the linear probe's",
        _no_gap,
    ),
)

"""Statements of section 6."""

from __future__ import annotations

from statistics import fmean

from dkvb.evaluation.paper.statements.base import (
    Records,
    Result,
    Statement,
    listed,
    mean_metric,
    mean_of,
    means_by,
    name_of,
    threshold,
)
from dkvb.evaluation.paper.tables import get_order, group_by, only


def _slightly_lower(records: Records) -> Result:
    ours = mean_of(records, "bottleneck", "class-incremental")
    linear = mean_of(records, "linear", "iid")
    if ours is None or linear is None:
        return None
    text = f"bottleneck {ours:.2f}, linear probe on i.i.d. data {linear:.2f}"
    return linear - ours <= threshold("slightly_lower"), text


def _signals_shift(records: Records) -> Result:
    group = [r for r in records if r.classifier == "keys from cifar10"]
    points = [p for r in group for p in r.extra["shifts"] if p["shift"] == "CIFAR-100"]
    alarms = mean_metric(group, "false_alarms", 100)
    if not points or alarms is None:
        return None
    auroc, detected = fmean(p["auroc"] for p in points), fmean(p["detected"] for p in points)
    text = (
        f"CIFAR-100 rows against CIFAR-10, keys from CIFAR-10: AUROC {auroc:.3f}, "
        f"{100 * detected:.0f} % of batches detected, {alarms:.0f} % false alarms"
    )
    holds = (
        auroc >= threshold("auroc")
        and 100 * detected >= threshold("detected")
        and alarms <= threshold("false_alarms")
    )
    return holds, text


def _growth_helps(records: Records) -> Result:
    by = means_by(records, name_of)
    fixed, grown = by.get("sgd, keys fixed"), by.get("sgd, keys grown")
    if fixed is None or grown is None:
        return None
    return grown > fixed, listed(by)


def _refit_helps(records: Records) -> Result:
    by = means_by(only(records, order="class-incremental"), name_of)
    if "keys fixed" not in by or len(by) < 2:
        return None
    others = [value for name, value in by.items() if name != "keys fixed"]
    return max(others) > by["keys fixed"], f"class-incremental: {listed(by)}"


def _decoder_helps_iid(records: Records) -> Result:
    by = means_by(only(records, order="iid"), name_of)
    free = {name: value for name, value in by.items() if name.endswith("free")}
    if "mean" not in by or not free:
        return None
    return max(free.values()) > by["mean"], f"i.i.d.: {listed({'mean': by['mean'], **free})}"


def _decoder_needs_care(records: Records) -> Result:
    by = means_by(only(records, order="class-incremental"), name_of)
    free = {name: value for name, value in by.items() if name.endswith("free")}
    held = {name: value for name, value in by.items() if name.endswith(("fixed", "regularised"))}
    if not free or not held:
        return None
    better = all(
        max(v for n, v in held.items() if n.split(",")[0] == name.split(",")[0]) > value
        for name, value in free.items()
    )
    return better, f"class-incremental: {listed(by)}"


def _gradients_help(records: Records) -> Result:
    by = means_by(only(records, order="iid"), name_of)
    if "values alone" not in by or len(by) < 2:
        return None
    others = [value for name, value in by.items() if name != "values alone"]
    ci = means_by(only(records, order="class-incremental"), name_of)
    text = f"i.i.d.: {listed(by)}; class-incremental: {listed(ci)}"
    return max(others) > by["values alone"], text


def _generates(records: Records) -> Result:
    group = [r for r in records if r.classifier == "decoder fixed"]
    by = {
        order: value
        for order, same in group_by(group, get_order).items()
        if (value := mean_metric(same, "explained_variance", 100)) is not None
    }
    if len(by) < 2:
        return None
    holds = by["class-incremental"] >= threshold("generation_kept") * by["iid"]
    return holds and by["iid"] > 0, f"explained variance in percent: {listed(by)}"


EXTENSIONS: tuple[Statement, ...] = (
    Statement(
        "fine-tuning the encoder would distort features",
        "section 6, pre-trained encoders",
        (),
        "–",
        "–",
        unavailable="encoders are frozen here",
    ),
    Statement(
        "the distance from keys estimates the level of distribution shift",
        "section 6, key codes",
        ("shift-signal",),
        "AUROC of single rows; share of batches of 100 rows that the test of drift detects",
        f"AUROC at least {threshold('auroc'):g}, at least {threshold('detected'):g} % detected, at "
        f"most {threshold('false_alarms'):g} % false alarms",
        _signals_shift,
    ),
    Statement(
        "pairs can be added when the distribution shifts",
        "section 6, key codes",
        ("growth",),
        "final accuracy after a shift of classes",
        "higher with grown keys than with fixed keys (rule sgd)",
        _growth_helps,
    ),
    Statement(
        "keys can be fine-tuned asynchronously without labels",
        "section 6, key codes",
        ("refit",),
        "final accuracy, class-incremental",
        "higher than with fixed keys",
        _refit_helps,
    ),
    Statement(
        "a parametric decoder improves i.i.d. performance",
        "section 6, decoder",
        ("decoders",),
        "final accuracy, i.i.d.",
        "a trained decoder above the mean",
        _decoder_helps_iid,
    ),
    Statement(
        "in incremental learning a decoder must be regularised or fixed",
        "section 6, decoder",
        ("decoders",),
        "final accuracy, class-incremental",
        "regularised or fixed above free, for each decoder",
        _decoder_needs_care,
    ),
    Statement(
        "pre-trained generative decoders are promising",
        "section 6, decoder",
        ("generation",),
        "explained variance of decoded test embeddings",
        f"class-incremental at least {threshold('generation_kept'):g} of i.i.d.",
        _generates,
    ),
    Statement(
        "the price of the bottleneck is a slightly lower performance",
        "section 6, trade-offs",
        ("cifar10",),
        "final accuracy against a linear probe on i.i.d. data",
        f"at most {threshold('slightly_lower'):g} points lower",
        _slightly_lower,
    ),
    Statement(
        "gradients into keys and projection can improve performance",
        "section 6, trade-offs",
        ("straight-through",),
        "final accuracy, i.i.d.",
        "straight-through or sampled above values alone",
        _gradients_help,
    ),
)

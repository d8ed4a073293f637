"""Statements of appendices C to E."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from dkvb.evaluation.paper._fly_curve import curve_within, get_epochs, split_records
from dkvb.evaluation.paper.statements.base import (
    Records,
    Result,
    Statement,
    listed,
    mean_metric,
    means_by,
    name_of,
    nearly_equal,
    number,
    sweep,
    threshold,
    values_within,
)
from dkvb.evaluation.paper.statements.main import baselines_forget
from dkvb.evaluation.paper.statements.theory import SDMLP_100
from dkvb.evaluation.paper.tables import accuracy_by_alpha, get_order, group_by, only

_NOISE_LIMIT = 0.1  # α of the statement


def _insensitive(name: str) -> Callable[[Records], Result]:
    return lambda records: nearly_equal(sweep(records, name))


def _granularity(records: Records) -> Result:
    by = means_by(only(records, order="class-incremental"), lambda r: len(r.tasks))
    return nearly_equal({f"{n} tasks": value for n, value in by.items()})


def _fly_drops_within(records: Records) -> Result:
    by = curve_within(split_records(records)[1])
    tasks = sorted({task for task, _ in by})
    if len(tasks) < 2:
        return None
    drops = {}
    for task in tasks[1:]:  # the first has no classes to confuse it with
        values = [value for (own, _), value in sorted(by.items()) if own == task]
        drops[f"task {task + 1}"] = max(values) - values[-1]
    falling = sum(drop > 0 for drop in drops.values())
    text = (
        f"the accuracy drops within {falling} of {len(drops)} tasks; points lost from the highest "
        f"to the last epoch: {listed(drops)}"
    )
    return min(drops.values()) >= threshold("fly_within"), text


def _fly_collapses(records: Records) -> Result:
    known = means_by(split_records(records)[0], get_epochs)
    if len(known) < 2:
        return None
    first, last = known[min(known)], known[max(known)]
    text = "; ".join(f"{epochs} epochs {value:.1f}" for epochs, value in known.items())
    return last <= first - threshold("fly_drop"), text


def _noise_by_alpha(records: Records, classifier: str, where: str) -> dict[float, float]:
    own = [record for record in records if record.classifier == classifier]
    by = accuracy_by_alpha(own, where)
    return {alpha: fmean(values) for alpha, values in sorted(by.items())}


def _noise(where: str) -> Callable[[Records], Result]:
    def evaluate(records: Records) -> Result:
        mean = _noise_by_alpha(records, "bottleneck", where)
        if len(mean) < 2:
            return None
        clean = mean.get(0.0, max(mean.values()))
        small = [value for alpha, value in mean.items() if alpha <= _NOISE_LIMIT]
        large = [value for alpha, value in mean.items() if alpha > _NOISE_LIMIT]
        harmless = clean - min(small) <= threshold("noise_harmless")
        harmful = not large or clean - min(large) > threshold("noise_harmful")
        return harmless and harmful, "accuracy at α: " + listed(mean)

    return evaluate


def _more_robust(where: str) -> Callable[[Records], Result]:
    def evaluate(records: Records) -> Result:
        lost: dict[str, dict[float, float]] = {}
        for name in ("bottleneck", "linear", "prototypes"):
            mean = _noise_by_alpha(records, name, where)
            if 0.0 in mean:
                lost[name] = {a: mean[0.0] - value for a, value in mean.items() if a > 0}
        if not {"bottleneck", "linear"} <= lost.keys():
            return None
        # Where the linear probe loses something that can be reduced.
        limit = threshold("noise_harmless")
        hurt = [alpha for alpha, value in lost["linear"].items() if value > limit]
        if not hurt:
            return None
        text = "; ".join(
            f"α {alpha:g}: " + ", ".join(f"{name} {by[alpha]:.1f}" for name, by in lost.items())
            for alpha in hurt
        )
        holds = all(lost["bottleneck"][alpha] < lost["linear"][alpha] for alpha in hurt)
        return holds, f"points lost: {text}"

    return evaluate


def _share(name: str, holds: Callable[[float], bool], what: str) -> Callable[[Records], Result]:
    def evaluate(records: Records) -> Result:
        by = {
            method: share
            for method, group in group_by(records, name_of).items()
            if (share := mean_metric(group, name, 100)) is not None
        }
        if not by:
            return None
        text = ", ".join(f"{method} {share:.1f} %" for method, share in by.items())
        # The paper's numbers come from its own expiry of keys.
        share = by.get("ema-reference", by[next(iter(by))])
        return holds(share), f"{text} {what}"

    return evaluate


def _covers(records: Records) -> Result:
    by = {}
    for method, group in group_by(records, name_of).items():
        used, distinct = (mean_metric(group, n) for n in ("used_on_key_data", "distinct_keys"))
        if used is not None and distinct:
            by[method] = 100 * min(1.0, used / distinct)
    if not by:
        return None
    return min(by.values()) >= threshold("covered"), f"in percent: {listed(by)}"


def _shared_pairs(records: Records) -> Result:
    samples = mean_metric(records, "samples_per_used_pair")
    alone = mean_metric(records, "pairs_of_one_class", 100)
    classes = mean_metric(records, "classes_per_used_pair")
    if samples is None or alone is None or classes is None:
        return None
    text = (
        f"{samples:.1f} samples and {classes:.1f} classes per used pair; {alone:.1f} % of used "
        "pairs have one class only"
    )
    return samples > 1 and alone < 50, text


def _sparser(records: Records) -> Result:
    never = mean_metric(records, "never_used", 100)
    used = mean_metric(records, "used_on_key_data", 100)
    if never is None or used is None:
        return None
    text = f"unused on the target {never:.1f} %, on the key data {100 - used:.2f} %"
    return never > 100 - used, text


def _same_on_imagenet(records: Records) -> Result:
    """Compare the orders, also on synthetic embeddings."""
    group = [r for r in records if "counts" not in r.classifier]
    return nearly_equal(means_by(group, get_order))


APPENDIX: tuple[Statement, ...] = (
    Statement(
        "label smoothing does not matter",
        "appendix C",
        ("label-smoothing",),
        "final accuracy by label smoothing",
        f"at most {threshold('insensitive'):g} point apart",
        _insensitive("label_smoothing"),
    ),
    Statement(
        "the number of classes per task does not matter",
        "appendix D.1, Figure 6 (ConvMixer in the paper)",
        ("granularity",),
        "final accuracy by number of tasks",
        f"at most {threshold('insensitive'):g} point apart",
        _granularity,
    ),
    Statement(
        "the FlyModel learns at the beginning of a task and drops within it",
        "appendix D.2, Figure 7 (ConvMixer in the paper)",
        ("fly",),
        "accuracy on the classes seen so far, within each task after the first",
        f"at least {threshold('fly_within'):g} point lost in every task (5 before data)",
        _fly_drops_within,
    ),
    Statement(
        "the FlyModel collapses over epochs",
        "appendix D.2, Figure 7 (ConvMixer in the paper)",
        ("fly",),
        "final accuracy after 1 and 2,000 epochs per task",
        f"at least {threshold('fly_drop'):g} points lower",
        _fly_collapses,
    ),
    Statement(
        "weight decay does not prevent forgetting",
        "appendix D.3, Figures 8 and 9",
        ("weight-decay",),
        "final accuracy, class-incremental",
        f"at most {threshold('forgotten'):g} %",
        baselines_forget,
    ),
    number(
        "cifar100",
        "bottleneck",
        "resnet50",
        "final accuracy of 54.7 % on CIFAR-100 with ResNet50",
        "appendix D.4, Figure 10",
    ),
    number(
        "cifar100",
        "bottleneck",
        "clip",
        "final accuracy of 64 % on CIFAR-100 with CLIP",
        "appendix D.4, Figure 10",
        "no CLIP embeddings",
    ),
    SDMLP_100,
    number(
        "imagenet",
        "bottleneck",
        "clip",
        "final accuracy of 49.0 % on ImageNet with CLIP",
        "appendix D.4, Figure 11",
        "no ImageNet embeddings",
    ),
    number(
        "imagenet",
        "bottleneck (iid)",
        "clip",
        "final accuracy of 49.9 % on ImageNet with CLIP, i.i.d.",
        "appendix D.4, Figure 11",
        "no ImageNet embeddings",
    ),
    Statement(
        "with 1,000 classes in 500 tasks, both orders end within a point",
        "appendix D.4, Figure 11",
        ("imagenet",),
        "difference of final accuracies (synthetic embeddings here)",
        f"at most {threshold('insensitive'):g} point",
        _same_on_imagenet,
        unavailable="no ImageNet embeddings",
    ),
    Statement(
        "noise on embeddings is harmless until α = 0.1",
        "appendix E.1, Figure 12 right",
        ("noise",),
        "accuracy; α in standard deviations of embeddings",
        f"at most {threshold('noise_harmless'):g} points lost up to α = 0.1, more than "
        f"{threshold('noise_harmful'):g} beyond",
        _noise("embeddings"),
    ),
    Statement(
        "noise on pixels is harmless until α = 0.1",
        "appendix E.1, Figure 12 left",
        ("noise",),
        "accuracy; α on original pixels in [0, 1]",
        f"at most {threshold('noise_harmless'):g} points lost up to α = 0.1",
        _noise("pixels"),
    ),
    Statement(
        "noise on normalised inputs is harmless until α = 0.1",
        "appendix E.1, Figure 12 left (the paper does not name the unit)",
        ("noise",),
        "accuracy; α on the resized, normalised input",
        f"at most {threshold('noise_harmless'):g} points lost up to α = 0.1",
        _noise("inputs"),
    ),
    *(
        Statement(
            f"the discrete bottleneck confers additional robustness to noise on {where}",
            "appendix E.1",
            ("noise",),
            f"points lost by noise on {where}, against a linear probe on the same embeddings",
            "fewer wherever the linear probe loses more than "
            f"{threshold('noise_harmless'):g} points",
            _more_robust(where),
        )
        for where in ("embeddings", "pixels")
    ),
    Statement(
        "values learned i.i.d. and class-incrementally differ by about 2 %",
        "appendix E.2, Table 1",
        ("values",),
        "Σ|CI − i.i.d.| / Σ|CI|",
        f"{threshold('values_low'):g} to {threshold('values_high'):g} %",
        values_within("values_low", "values_high"),
    ),
    Statement(
        "keys broadly cover the key data",
        "appendix E.3, Figures 13 to 17 left",
        ("codes",),
        "share of distinct keys that are nearest to some row of the key data",
        f"at least {threshold('covered'):g} %",
        _covers,
    ),
    Statement(
        "on the target, coverage is sparser than on the key data",
        "appendix E.3, Figures 13 to 17 middle",
        ("codes",),
        "share of pairs never used",
        "larger on the target",
        _sparser,
    ),
    Statement(
        "most pairs are fetched 10,000 to 150,000 times",
        "appendix E.3, Figure 13 right",
        ("codes",),
        "share of all pairs over 2,000 epochs",
        f"more than {threshold('fetched'):g} %, with the reference expiry of keys",
        _share("fetched_10k_to_150k", lambda share: share > threshold("fetched"), "of all pairs"),
    ),
    Statement(
        "about 28 % of pairs are never used",
        "appendix E.3, Figure 13 right",
        ("codes",),
        "share of all pairs",
        f"{threshold('never_used_low'):g} to {threshold('never_used_high'):g} %, with the "
        "reference expiry of keys",
        _share(
            "never_used",
            lambda share: threshold("never_used_low") <= share <= threshold("never_used_high"),
            "never used",
        ),
    ),
    Statement(
        "most keys are shared among many samples and classes",
        "appendix E.3, Figure 13 right",
        ("codes",),
        "samples and classes per used pair",
        "more than one sample, and fewer than half of the pairs with one class only",
        _shared_pairs,
    ),
)

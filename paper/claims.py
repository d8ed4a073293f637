"""The paper's claims, each quoted with its hedges, and what decides it from records.

A verdict is *holds*, *fails*, *depends on (…)*, *not shown*, *not attempted* or *cannot be measured
here*. The rules:

- The paper's own encoders decide. Another encoder that disagrees makes the verdict "depends on
  (encoder)".
- A claim that only a definition of ours contradicts, such as a size that the paper does not name,
  is "not shown".
- What is true by construction is no claim, and no threshold is wider than the measured number can
  move.
- Only runs with the paper's settings on real embeddings decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import fmean, stdev
from typing import Any, NamedTuple

from dkvb.evaluation.records import RunRecord
from paper.fly_curve import curve_within, get_epochs, split_records
from paper.tables import (
    accuracy_by_alpha,
    final_accuracies,
    get_encoder,
    group_by,
    mean_final_accuracy,
    only,
    setting,
)
from paper.targets import target
from paper.thresholds import threshold

Records = Sequence[RunRecord]
ORDERS = ("class-incremental", "iid")

HOLDS, FAILS, DEPENDS, NOT_SHOWN = "holds", "fails", "depends on", "not shown"
NOT_ATTEMPTED, UNMEASURABLE = "not attempted", "cannot be measured here"


def depends_on(what: str) -> str:
    """Return the verdict of a claim that some cases confirm and others contradict."""
    return f"{DEPENDS} ({what})"


class Finding(NamedTuple):
    """A verdict from the records of one encoder, and the numbers behind it."""

    verdict: str
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the rule that decides it."""

    name: str
    quote: str
    section: str
    compared: str
    rule: str
    experiments: tuple[str, ...]  # whose records decide
    judge: Callable[..., Finding | None] | None = None  # given the records of each experiment
    without: str = ""  # why nothing decides it
    note: str = ""


def judge_records(records: Mapping[str, Records]) -> Iterator[tuple[Claim, Finding]]:
    """Yield the claims that the records of one encoder, by experiment, say something of."""
    for claim in CLAIMS:
        inputs = [records.get(name, ()) for name in claim.experiments]
        if claim.judge is not None and all(inputs):
            finding = claim.judge(*inputs)
            if finding is not None:
                yield claim, finding


def decide(claim: Claim, of_paper: Sequence[Finding], others: Sequence[Finding] = ()) -> str:
    """Return the verdict from findings on the paper's encoders, and on others.

    >>> decide(CLAIMS[0], [Finding(HOLDS, "")]), decide(CLAIMS[0], [])
    ('holds', 'not attempted')
    >>> decide(CLAIMS[0], [Finding(HOLDS, "")], [Finding(FAILS, "")])
    'depends on (encoder)'
    """
    verdicts = {finding.verdict for finding in (*of_paper, *others)}
    if not of_paper:
        return UNMEASURABLE if claim.without and claim.experiments else NOT_ATTEMPTED
    return verdicts.pop() if len(verdicts) == 1 else depends_on("encoder")


# ------------------------------------------------------------------------- numbers from records
def _verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def _mean(records: Records, classifier: str, order: str) -> float | None:
    """Return the mean final accuracy in percent of one classifier in one order."""
    return mean_final_accuracy(only(records, order=order, classifier=classifier))


def _metric(records: Records, name: str, scale: float = 1.0) -> float | None:
    known = [scale * value for r in records if (value := r.metrics.get(name)) is not None]
    return fmean(known) if known else None


def _means_by(records: Records, key: Callable[[RunRecord], Any]) -> dict[Any, float]:
    """Return mean final accuracies in percent by a key, sorted by it."""
    means = {value: mean_final_accuracy(group) for value, group in group_by(records, key).items()}
    return {value: mean for value in sorted(means) if (mean := means[value]) is not None}


def _sweep(records: Records, name: str) -> dict[Any, float]:
    return _means_by(only(records, order="class-incremental"), setting(name))


def _name(record: RunRecord) -> str:
    return record.classifier


def _listed(by: Mapping[Any, float], digits: int = 2) -> str:
    return ", ".join(f"{key}: {value:.{digits}f}" for key, value in by.items())


# ------------------------------------------------------------------------------------ judges
def _toy(records: Records) -> Finding | None:
    lowest = {
        name: [
            100 * fmean(task) for task in zip(*(r.accuracy_matrix[-1] for r in group), strict=True)
        ]
        for name, group in group_by(records, _name).items()
    }
    one, many = lowest.get("bottleneck-1x400"), lowest.get("bottleneck-20x20")
    if one is None or many is None or not {"linear", "mlp"} <= lowest.keys():
        return None
    forgotten = max(max(lowest[name][:-1]) for name in ("linear", "mlp"))
    holds = (
        forgotten <= threshold("toy_forgotten")
        and min(one) >= threshold("toy_kept")
        and fmean(many) >= fmean(one) - threshold("toy_same")
    )
    return Finding(
        _verdict(holds),
        f"linear probe and MLP on tasks 1 to 3 at most {forgotten:.1f} %; one codebook on every "
        f"task at least {min(one):.1f} %; mean of the tasks: one codebook {fmean(one):.1f} %, "
        f"twenty {fmean(many):.1f} %",
    )


def _forgets_less(records: Records) -> Finding | None:
    ci = only(records, order="class-incremental")
    means = {
        name: _metric(only(ci, classifier=name), "forgetting", 100)
        for name in ("bottleneck", "linear", "mlp")
    }
    known = {name: value for name, value in means.items() if value is not None}
    if known.keys() != means.keys():
        return None
    least = min(known["linear"], known["mlp"])
    holds = known["bottleneck"] <= threshold("less_forgetting") * least
    return Finding(_verdict(holds), f"points forgotten: {_listed(known)}")


def _same_as_iid(records: Records) -> Finding | None:
    """Compare each class split with the i.i.d. run of its seed.

    A seed decides class split, projections and keys. The i.i.d. run has the same projections and
    keys, so that the difference is the effect of the order.
    """
    runs = [
        {r.seed: r for r in only(records, order=order, classifier="bottleneck")} for order in ORDERS
    ]
    seeds = sorted(runs[0].keys() & runs[1].keys(), key=str)
    pairs = [final_accuracies([by[seed] for by in runs]) for seed in seeds]
    if len(pairs) < 2:
        return None
    ci, iid = (fmean(column) for column in zip(*pairs, strict=True))
    worst = max(abs(one - other) for one, other in pairs)
    holds = max(worst, abs(ci - iid)) <= threshold("same")
    return Finding(
        _verdict(holds),
        f"class-incremental {ci:.2f}, i.i.d. {iid:.2f}; {len(pairs)} class splits, each within "
        f"{worst:.2f} points of the i.i.d. run with equal keys",
    )


def _values(records: Records) -> Finding | None:
    share = _metric(records, "relative_difference", 100)
    known = target("values", "bottleneck", get_encoder(records))
    if share is None or known is None:
        return None
    return Finding(
        _verdict(known.is_met_by(share)),
        f"paper {known.value:g} %, ours {share:.2f} %; tolerance {known.tolerance:g}",
    )


def _reaches(experiment: str, row: str = "bottleneck") -> Callable[[Records], Finding | None]:
    """Return a judge of a final accuracy; keys that expire as in the paper's code are preferred."""

    def judge(records: Records) -> Finding | None:
        known = target(experiment, row, get_encoder(records))
        ci = only(records, order="class-incremental")
        by = group_by([r for r in ci if r.classifier.split(":")[0] == row], _name)
        if known is None or not by:
            return None
        name = next((n for n in by if "ema-reference" in n), next(iter(by)))
        finals = final_accuracies(by[name])
        ours, text = fmean(finals), f"{len(finals)} seeds"
        if finals[1:] and (spread := stdev(finals)):
            apart = abs(ours - known.value)
            text = f"± {spread:.2f} over {text}; {apart / spread:.1f} standard deviations apart"
        return Finding(
            _verdict(known.is_met_by(ours)), f"paper {known.value:g}, ours {ours:.2f} ({text})"
        )

    return judge


def _slightly_lower(records: Records) -> Finding | None:
    ours, linear = (
        _mean(records, "bottleneck", "class-incremental"),
        _mean(records, "linear", "iid"),
    )
    if ours is None or linear is None:
        return None
    text = f"bottleneck {ours:.2f}, linear probe on i.i.d. data {linear:.2f}"
    # The paper names no size of "slightly": a lower number confirms no more than its direction.
    return Finding(FAILS if ours > linear else NOT_SHOWN, text)


def _constant_loss(records: Records) -> Finding | None:
    ends = [
        _metric(only(records, order=order, classifier="bottleneck"), "test_loss")
        for order in ORDERS
    ]
    if ends[0] is None or ends[1] is None:
        return None
    moved = log(len(records[0].classes)) - ends[1]
    apart = abs(ends[0] - ends[1])
    return Finding(
        _verdict(apart <= threshold("same_loss") * moved),
        f"test cross entropy apart by {apart:.4f}; i.i.d. training lowers it by {moved:.3f}",
    )


def _gaps(
    records: Records, train: Callable[[RunRecord], float | None], test: str, scale: float
) -> dict[str, float] | None:
    gaps = {}
    for name in ("bottleneck", "linear"):
        pairs = [
            (seen, held)
            for r in records
            if r.classifier == name
            and (seen := train(r)) is not None
            and (held := r.metrics.get(test)) is not None
        ]
        if not pairs:
            return None
        gaps[name] = scale * fmean(held - seen for seen, held in pairs)
    return gaps


def _overfits_less(losses: Records, terms: Records) -> Finding | None:
    ci = only(losses, order="class-incremental")
    entropy = _gaps(ci, lambda r: r.curve[-1].train_loss, "test_loss", 1)
    error = _gaps(terms, lambda r: r.metrics.get("training_loss"), "test_loss", 100)
    if entropy is None or error is None:
        return None
    smaller = [gaps["bottleneck"] < gaps["linear"] for gaps in (entropy, error)]
    return Finding(
        _verdict(smaller[0]) if smaller[0] == smaller[1] else depends_on("loss, order"),
        f"test minus training: cross entropy, class-incremental, {_listed(entropy)}; error in "
        f"points, i.i.d., {_listed(error)}",
    )


def _best_key_dim(records: Records) -> Finding | None:
    by = _sweep(records, "key_dim")
    if len(by) < 3:
        return None
    best = max(by, key=lambda dim: by[dim])
    return Finding(_verdict(best in (8, 12)), f"best {best}; {_listed(by)}")


def _more_pairs(records: Records) -> Finding | None:
    by = _sweep(records, "n_pairs")
    most, fewest = max(by, default=0), min(by, default=0)
    if most // 4 not in by or most // 4 == fewest:
        return None
    rises = all(few < many for few, many in pairwise(by.values()))
    little = by[most] - by[most // 4] < (by[most] - by[fewest]) / 2
    return Finding(_verdict(rises and little), _listed(by))


def _more_codebooks(books: Records, pairs: Records) -> Finding | None:
    by_books, by_pairs = _sweep(books, "n_codebooks"), _sweep(pairs, "n_pairs")
    for factor in (16, 8, 4):
        both = [by for by in (by_books, by_pairs) if max(by, default=0) // factor in by]
        if len(both) == 2:
            lost = [by[max(by)] - by[max(by) // factor] for by in both]
            rises = all(few < many for few, many in pairwise(by_books.values()))
            return Finding(
                _verdict(rises and lost[0] > lost[1]),
                f"{_listed(by_books)}; points lost with {factor} times fewer: codebooks "
                f"{lost[0]:.2f}, pairs {lost[1]:.2f}",
            )
    return None


def _training_loss(records: Records) -> Finding | None:
    by = {
        books: fmean(losses)
        for books, group in sorted(
            group_by(only(records, order="iid"), setting("n_codebooks")).items()
        )
        if (losses := [v for r in group if r.curve and (v := r.curve[-1].train_loss) is not None])
    }
    if len(by) < 2:
        return None
    falls = by[max(by)] < by[min(by)]
    return Finding(
        HOLDS if falls else NOT_SHOWN,
        f"training cross entropy, i.i.d.: {_listed(by)}"
        + "; it rises since the rate of a logit is the learning rate / codebooks; the training "
        "error was not recorded" * (not falls),
    )


def _key_data(records: Records) -> Finding | None:
    by = _means_by(
        only(records, order="class-incremental"), lambda r: str(r.config["data"]["keys"])
    )
    others = {name: value for name, value in by.items() if name != "cifar10"}
    if "cifar10" not in by or not others:
        return None
    lost = [by["cifar10"] - value for value in others.values()]
    return Finding(_verdict(min(lost) >= 0 and max(lost) <= threshold("key_data")), _listed(by))


def _shift_signal(records: Records) -> Finding | None:
    by_keys = {}
    for name, group in group_by(records, _name).items():
        by_keys[name] = fmean(
            p["auroc"] for r in group for p in r.extra["shifts"] if p["shift"] == "CIFAR-100"
        )
    if len(by_keys) < 2:
        return None
    holds = {value >= threshold("auroc") for value in by_keys.values()}
    verdict = _verdict(holds.pop()) if len(holds) == 1 else depends_on("key data")
    return Finding(verdict, f"AUROC of CIFAR-100 rows against CIFAR-10: {_listed(by_keys, 3)}")


def _above(base: str, *others: str) -> Callable[[Records], Finding | None]:
    """Return a judge of whether any of several variants ends above another, class-incrementally."""

    def judge(records: Records) -> Finding | None:
        ci = [r for r in records if r.config.get("order", ORDERS[0]) == ORDERS[0]]
        by = _means_by(ci, _name)
        if base not in by or not any(name in by for name in others):
            return None
        best = max(by[name] for name in others if name in by)
        return Finding(_verdict(best > by[base]), _listed(by))

    return judge


def _decoders(records: Records) -> Finding | None:
    ci, iid = (_means_by(only(records, order=order), _name) for order in ORDERS)
    names = [name for name in ("linear", "mlp") if f"{name}, free" in ci.keys() & iid.keys()]
    if "mean" not in iid or not names:
        return None
    helps = all(iid[f"{name}, free"] > iid["mean"] for name in names)
    care = all(
        max(value for variant, value in ci.items() if variant.split(",")[0] == name)
        > ci[f"{name}, free"]
        for name in names
    )
    return Finding(
        _verdict(helps and care), f"i.i.d.: {_listed(iid)}; class-incremental: {_listed(ci)}"
    )


def _gradients(records: Records) -> Finding | None:
    base, better, texts = "values alone", [], []
    for order in ORDERS:
        by = _means_by(only(records, order=order), _name)
        if base not in by or len(by) < 2:
            return None
        better.append(max(value for name, value in by.items() if name != base) > by[base])
        texts.append(f"{order}: {_listed(by)}")
    verdict = _verdict(better[0]) if better[0] == better[1] else depends_on("order of the data")
    return Finding(verdict, "; ".join(texts))


def _same(by: Mapping[Any, float]) -> Finding | None:
    if len(by) < 2:
        return None
    apart = max(by.values()) - min(by.values())
    return Finding(_verdict(apart <= threshold("same")), _listed(by))


def _granularity(records: Records) -> Finding | None:
    by = _means_by(only(records, order="class-incremental"), lambda r: len(r.tasks))
    return _same({f"{n} tasks": value for n, value in by.items()})


def _fly(records: Records) -> Finding | None:
    finals, within = split_records(records)
    by_epochs, curve = _means_by(finals, get_epochs), curve_within(within)
    tasks = sorted({task for task, _ in curve})[1:]  # the first has no classes to confuse it with
    if len(by_epochs) < 2 or not tasks:
        return None
    drops = {}
    for task in tasks:
        values = [value for (number, _), value in sorted(curve.items()) if number == task]
        drops[f"task {task + 1}"] = max(values) - values[-1]
    lost = by_epochs[min(by_epochs)] - by_epochs[max(by_epochs)]
    return Finding(
        _verdict(lost >= threshold("fly_drop") and min(drops.values()) > 0),
        f"final accuracy by epochs per task: {_listed(by_epochs, 1)}; points lost within a task, "
        f"from the highest to the last epoch: {_listed(drops)}",
    )


def _weight_decay(records: Records) -> Finding | None:
    by = _means_by(only(records, order="class-incremental"), _name)
    if not by:
        return None
    return Finding(_verdict(max(by.values()) <= threshold("forgotten")), _listed(by, 1))


def _noise_by_alpha(records: Records, classifier: str, where: str) -> dict[float, float]:
    by = accuracy_by_alpha([r for r in records if r.classifier == classifier], where)
    return {alpha: fmean(values) for alpha, values in sorted(by.items())}


_UNITS = ("embeddings", "pixels", "inputs")


def _noise_is_harmless(records: Records) -> Finding | None:
    holds, texts = [], []
    for where in _UNITS:
        by = _noise_by_alpha(records, "bottleneck", where)
        if 0.0 not in by or len(by) < 2:
            continue
        lost = {alpha: by[0.0] - value for alpha, value in by.items() if alpha > 0}
        small = [value for alpha, value in lost.items() if alpha <= 0.1]
        large = [value for alpha, value in lost.items() if alpha > 0.1]
        harmful = not large or max(large) > threshold("noise_harmful")
        holds.append(max(small, default=0.0) <= threshold("noise_harmless") and harmful)
        texts.append(f"on {where}, α: {_listed(by, 1)}")
    if not holds:
        return None
    verdict = _verdict(holds[0]) if len(set(holds)) == 1 else depends_on("unit")
    return Finding(verdict, "; ".join(texts))


def _noise_against_linear(records: Records) -> Finding | None:
    holds, texts = [], []
    for where in _UNITS:
        lost = {}
        for name in ("bottleneck", "linear"):
            by = _noise_by_alpha(records, name, where)
            lost[name] = {alpha: by[0.0] - value for alpha, value in by.items() if 0.0 in by}
        # Only where the linear probe loses something that can be reduced.
        hurt = [a for a, value in lost["linear"].items() if value > threshold("noise_harmless")]
        for alpha in hurt:
            ours, other = lost["bottleneck"][alpha], lost["linear"][alpha]
            holds.append(ours < other)
            texts.append(f"{where}, α {alpha:g}: {ours:.1f} against {other:.1f}")
    if not holds:
        return None
    verdict = _verdict(holds[0]) if len(set(holds)) == 1 else depends_on("unit")
    return Finding(verdict, f"points lost by bottleneck and linear probe: {'; '.join(texts)}")


def _usage(records: Records) -> Finding | None:
    group = [r for r in records if r.classifier == "ema-reference"]
    fetched, unused = _metric(group, "fetched_10k_to_150k", 100), _metric(group, "never_used", 100)
    known = target("codes", "ema-reference", get_encoder(records))
    if fetched is None or unused is None or known is None:
        return None
    return Finding(
        _verdict(fetched > 50 and known.is_met_by(unused)),
        f"fetched 10,000 to 150,000 times: {fetched:.1f} % of pairs; never: paper "
        f"{known.value:g} %, ours {unused:.1f} %; tolerance {known.tolerance:g}",
    )


def _bound(records: Records) -> Finding | None:
    names, sums, shift = ("bottleneck", "linear", "mlp"), {}, {}
    for name in names:
        group = [r for r in records if r.classifier == name]
        terms = [_metric(group, term) for term in ("training_loss", "shift", "complexity")]
        if None in terms:
            return None
        sums[name], shift[name] = sum(term or 0.0 for term in terms), terms[1] or 0.0
    constant = [
        point["term"]
        for r in records
        for point in sorted(r.extra.get("growth", ()), key=lambda p: p["codebooks"])[-1:]
    ]
    if not constant:
        return None
    smaller = sums["bottleneck"] < min(sums["linear"], sums["mlp"])
    # The error rate is at most 1: a bound above it says nothing of either model.
    vacuous = fmean(constant) > 1
    verdict = NOT_SHOWN if vacuous else _verdict(smaller)
    return Finding(
        verdict,
        f"training error + shift + complexity: {_listed(sums)}; of it the shift term: "
        f"{_listed(shift, 3)}; the constant's term, which all have, is {fmean(constant):.0f} "
        "with all codebooks, and the error rate is at most 1",
    )


_OTHERS = "no CLIP, SwAV, DINO or ConvMixer embeddings"
_SAME = f"at most {threshold('same'):g} points apart"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "bound",
        "… the proposed model achieves an architecture-dependent generalization bound that is "
        "better than that of models without the discrete bottleneck.",
        "section 1; section 3, Theorem 1",
        "the terms of the bound on the error rate, of bottleneck, linear probe and MLP, i.i.d.",
        "smaller than both; not shown if the constant's term alone exceeds the largest error",
        ("theorem",),
        _bound,
    ),
    Claim(
        "toy",
        "This enables the model to incrementally update its predictions on unseen input domains "
        "and minimize interference. … This configuration, which uses multiple codebooks …, works "
        "just as well …",
        "section 5.1, Figure 2",
        "final accuracy on each task, before pruning",
        f"linear probe and MLP at most {threshold('toy_forgotten'):g} % on tasks 1 to 3, one "
        f"codebook at least {threshold('toy_kept'):g} % on each, twenty at most "
        f"{threshold('toy_same'):g} points lower",
        ("toy",),
        _toy,
    ),
    Claim(
        "two-codes",
        "In the above example, it is essential to have two separate sets of codes compared to a "
        "single set of discrete codes.",
        "section 5.1",
        "keys and values that share one set of codes",
        "–",
        (),
        without="the paper describes no experiment with one set of codes, and none is built here",
    ),
    Claim(
        "forgetting",
        "… the key-value bottleneck substantially reduces the severe catastrophic forgetting "
        "over the standard adaptation approaches …",
        "section 5.2, Figure 3",
        "forgetting in points, class-incremental",
        "at most half of the lower of linear probe's and MLP's",
        ("cifar10",),
        _forgets_less,
    ),
    Claim(
        "order",
        "… we observe across all encoder backbones the appealing learning property that the "
        "bottleneck yields the same performance at the end of training compared to the benign "
        "i.i.d. setting … the final performance is almost identical, irrespective of the sampled "
        "class split.",
        "section 5.2, Figure 3",
        "final accuracy of each class split and of the i.i.d. run with equal keys",
        _SAME,
        ("cifar10",),
        _same_as_iid,
        note=f"one of the paper's five encoders: {_OTHERS}",
    ),
    Claim(
        "values",
        "… the learned values are indeed fairly similar, albeit not identical, explaining the "
        "almost identical final performance. [2.19 %]",
        "appendix E.2, Table 1; section 5.2",
        "Σ|CI − i.i.d.| / Σ|CI|",
        "within a tenth of the paper's number",
        ("values",),
        _values,
    ),
    Claim(
        "cifar10-resnet50",
        "… the supervised pre-trained ResNet50 backbone with 81.5% final performance …",
        "section 5.2, Figure 3b",
        "final accuracy, class-incremental",
        f"within {threshold('accuracy'):g} point",
        ("cifar10",),
        _reaches("cifar10"),
        note="Keras' weights and preprocessing, stored in 8 bits; the paper's are torchvision's",
    ),
    Claim(
        "other-encoders",
        "The best results are achieved with a CLIP-encoder with 91.3% … up to 66.3% in the case of "
        "SwAV and 62.5% in the case of DINO … [ConvMixer 77.3, CIFAR-100 with CLIP 64, ImageNet "
        "with CLIP 49.0 and i.i.d. 49.9]",
        "section 5.2, Figure 3; appendix D.4",
        "final accuracy, class-incremental",
        f"within {threshold('accuracy'):g} point",
        ("cifar10",),
        without=f"{_OTHERS}, and no ImageNet embeddings",
    ),
    Claim(
        "sdmlp",
        "The key-value bottleneck method achieves a final accuracy of 77.3% compared to 71% for "
        "the best final accuracy with SDMLP. [CIFAR-100: 54.7 and 64 compared to 43]",
        "section 5.2, Figure 3a; appendix D.4",
        "final accuracy, class-incremental, on ConvMixer embeddings",
        "SDMLP must first reach what its authors report",
        ("cifar10",),
        without="no ConvMixer embeddings; SDMLP on other embeddings decides nothing",
    ),
    Claim(
        "slightly-lower",
        "This allows for training under strong distribution shifts without forgetting, but with "
        "slightly lower performance.",
        "section 6, trade-offs",
        "final accuracy, against a linear probe on i.i.d. data",
        "fails if higher; the paper names no size of “slightly”",
        ("cifar10",),
        _slightly_lower,
    ),
    Claim(
        "constant-loss",
        "… the key-value bottleneck maintains a constant loss measure over both, i.i.d. and "
        "class-incremental settings …",
        "section 5.2, Figure 4",
        "final test cross entropy in both orders",
        "apart by at most a tenth of what i.i.d. training lowers it by",
        ("loss",),
        _constant_loss,
    ),
    Claim(
        "over-fitting",
        "… a key-value bottleneck does not over-fit like other standard approaches.",
        "section 5.2, Figure 4; section 3",
        "test minus training loss, against the linear probe",
        "smaller, for cross entropy (class-incremental) and for the error (i.i.d.)",
        ("loss", "theorem"),
        _overfits_less,
    ),
    Claim(
        "key-dim",
        "… there is an optimal number of dimensions for the keys, around 8 to 12 …",
        "section 5.3, Figure 5a",
        "final accuracy by key dimension",
        "the best of those measured is 8 or 12",
        ("key-dim",),
        _best_key_dim,
    ),
    Claim(
        "pairs",
        "… increasing the number of key-value pairs leads to better performance, with only a small "
        "decrease in performance when using four times fewer pairs.",
        "section 5.3, Figure 5b",
        "final accuracy by pairs per codebook",
        "rises with every doubling; four times fewer lose less than half of what sixteen times "
        "fewer lose",
        ("pairs",),
        _more_pairs,
        note="“will continue to improve asymptotically” beyond 4,096 pairs is not attempted",
    ),
    Claim(
        "codebooks",
        "… using more codebooks leads to better performance, with a slightly more pronounced "
        "effect compared to the number of pairs.",
        "section 5.3, Figure 5c",
        "final accuracy by codebooks; points lost for equal factors",
        "rises with every doubling, and more is lost for codebooks than for pairs",
        ("codebooks", "pairs"),
        _more_codebooks,
    ),
    Claim(
        "training-loss",
        "… increasing the number of codebooks also decreases the training loss term.",
        "section 5.3; appendix B",
        "training cross entropy by codebooks, i.i.d.",
        "lower with most codebooks than with fewest; the paper does not name the loss",
        ("codebooks",),
        _training_loss,
    ),
    Claim(
        "key-data",
        "While there is a slight decrease in performance compared to the oracle, the "
        "architecture is robust to different datasets …",
        "section 5.3, Figure 5d",
        "final accuracy by key data; the oracle is CIFAR-10 without labels",
        f"0 to {threshold('key_data'):g} points below the oracle",
        ("key-data",),
        _key_data,
        note="CIFAR-100 only: no STL-10 or ImageNet embeddings",
    ),
    Claim(
        "shift-signal",
        "… information about the distance between the codebook input heads and their closest "
        "keys can be used to estimate the level of distribution shift …",
        "section 6, key codes",
        "AUROC of the distance of single rows, by the data that keys are fitted to",
        f"at least {threshold('auroc'):g}",
        ("shift-signal",),
        _shift_signal,
    ),
    Claim(
        "growth",
        "… and adapt, add, or reinitialize key-value pairs as needed.",
        "section 6, key codes",
        "final accuracy after a shift of classes",
        "higher with added pairs than with fixed keys",
        ("growth",),
        _above("keys fixed", "keys grown"),
    ),
    Claim(
        "refit",
        "… the encoder, projection, and keys can be fine-tuned asynchronously with auxiliary "
        "unsupervised tasks to handle distribution shifts.",
        "section 6, key codes",
        "final accuracy, class-incremental; keys alone move",
        "higher than with fixed keys",
        ("refit",),
        _above("keys fixed", "keys task", "keys target"),
    ),
    Claim(
        "decoders",
        "When training the model under i.i.d. conditions, we can adjust the decoder weights to "
        "improve performance. However, when the training conditions change, e.g. in incremental "
        "learning, we need to be more careful.",
        "section 6, decoder",
        "final accuracy of linear and MLP decoders: free, regularised or fixed, beside the mean",
        "i.i.d.: free above the mean; class-incremental: regularised or fixed above free",
        ("decoders",),
        _decoders,
    ),
    Claim(
        "gradients",
        "… there are also other ways to potentially improve further such as … allowing "
        "back-propagation into the projection weights and keys …",
        "section 6, trade-offs",
        "final accuracy in both orders",
        "straight-through or sampled above values alone",
        ("straight-through",),
        _gradients,
    ),
    Claim(
        "granularity",
        "… across all possible class-split sizes … the bottleneck yields the same performance at "
        "the end of training.",
        "appendix D.1, Figure 6",
        "final accuracy with 10, 5 and 2 tasks",
        _SAME,
        ("granularity",),
        _granularity,
        note="ConvMixer in the paper",
    ),
    Claim(
        "fly",
        "… the model learns new classes at the beginning of a new split but quickly drops to some "
        "lower-level performance … Eventually, the model cannot integrate any new information and "
        "remains at a very low level …",
        "appendix D.2, Figure 7",
        "the FlyModel's accuracy within tasks, and final accuracy by epochs per task",
        f"lower at the end of every task after the first than before; at least "
        f"{threshold('fly_drop'):g} points lost from 1 to 2,000 epochs",
        ("fly",),
        _fly,
        note="ConvMixer in the paper; 32 inputs per Kenyon cell, of 2,048 dimensions, not 256",
    ),
    Claim(
        "weight-decay",
        "… the learned networks were unable to effectively integrate novel class information using "
        "this additional form of ridge regularization.",
        "appendix D.3, Figures 8 and 9",
        "final accuracy of linear probe and MLP, class-incremental",
        f"at most {threshold('forgotten'):g} %",
        ("weight-decay",),
        _weight_decay,
    ),
    Claim(
        "cifar100-resnet50",
        "Our model achieved final accuracies of 54.7% … [ResNet50]",
        "appendix D.4, Figure 10",
        "final accuracy, class-incremental",
        f"within {threshold('accuracy'):g} point",
        ("cifar100",),
        _reaches("cifar100"),
        note="Keras' weights and preprocessing, stored in 8 bits; the paper's are torchvision's",
    ),
    Claim(
        "noise",
        "… the model's performance remains largely unaffected by the noise and only starts to "
        "deteriorate substantially when the noise level exceeds α=0.1 …",
        "appendix E.1, Figure 12",
        "accuracy by α: in standard deviations of embeddings, on pixels in [0, 1], on normalised "
        "inputs; the paper does not name the unit",
        f"at most {threshold('noise_harmless'):g} points lost up to 0.1, more than "
        f"{threshold('noise_harmful'):g} beyond",
        ("noise",),
        _noise_is_harmless,
    ),
    Claim(
        "robustness",
        "The discretization of the bottleneck confers additional robustness, which is a "
        "significant attribute of our model.",
        "appendix E.1",
        "points lost by noise, against a linear probe on the same embeddings",
        f"fewer wherever the linear probe loses more than {threshold('noise_harmless'):g}",
        ("noise",),
        _noise_against_linear,
    ),
    Claim(
        "usage",
        "… the majority of key-value pairs were fetched between 10,000 and 150,000 times … and "
        "about 28% of keys that are never used …",
        "appendix E.3, Figure 13",
        "share of all pairs over 2,000 epochs, with keys that expire as in the paper's code",
        "more than half; within a tenth of the paper's number",
        ("codes",),
        _usage,
    ),
)

"""Statements of the paper, evaluated on records made to agree or to disagree."""

import csv
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from dkvb.evaluation.paper import EXPERIMENTS

from dkvb.evaluation.records import Evaluation, RunRecord
from paper.claims import STATEMENTS, decide, evaluate_statements
from paper.source import Bundled, Prepared
from paper.targets import beside, target, targets
from paper.thresholds import thresholds


def record(classifier="bottleneck", final=0.8, order="class-incremental", seed=1, **more):
    settings, keys = more.pop("settings", {}), more.pop("keys", "cifar100")
    metrics = {"final_accuracy": final, "test_loss": more.pop("loss", None)}
    return RunRecord(
        classifier=classifier,
        stream=order,
        seed=seed,
        classes=[],
        tasks=[[0]] * more.pop("tasks", 5),
        config={
            "order": order,
            "settings": settings,
            "data": {"keys": keys, "encoder": "resnet50"},
        },
        versions={},
        curve=[],
        accuracy_matrix=[],
        metrics=metrics | more.pop("metrics", {}),
        times={},
        extra=more.pop("extra", {}),
    )


def both(ci, iid, **more):
    return [record(final=ci, **more), record(final=iid, order="iid", **more)]


def sweep(setting, final_accuracies, **more):
    return [record(final=v, settings={setting: k}, **more) for k, v in final_accuracies.items()]


def noise(by_alpha, where="embeddings", classifier="bottleneck"):
    points = [{"alpha": a, "accuracy": v} for a, v in by_alpha.items()]
    return [record(classifier, extra={where: points})]


def along(accuracies, classifier="bottleneck", order="class-incremental", **losses):
    """A record with one evaluation per task."""
    curve = [
        Evaluation(task, 1, value, [], losses.get("test"), losses.get("train"), value)
        for task, value in enumerate(accuracies)
    ]
    settings = losses.get("settings", {})
    return replace(record(classifier, accuracies[-1], order, settings=settings), curve=curve)


def terms(**by_model):
    """Records of `theorem`: of each model its training loss, shift, complexity and test loss."""
    return [
        record(
            name,
            metrics=dict(
                zip(("training_loss", "shift", "complexity", "test_loss"), values, strict=True)
            ),
            extra={"shift": [{"alpha": 0.1, "shift": values[1], "unchanged_rows": 0.1}]},
        )
        for name, values in by_model.items()
    ]


def keys_of_theorem(growth=(1, 2), null=0, changed=0.0):
    points = [{"codebooks": n + 1, "term": term} for n, term in enumerate(growth)]
    metrics = {
        "null_dimension_of_all": null,
        "null_dimension": 5,
        "codes_changed_from_null_space": changed,
        "codes_changed_by_any": 0.9,
    }
    return [record("keys", metrics=metrics, extra={"growth": points})]


def sdmlp(final, epochs=2000):
    return record("sdmlp:n_neurons=9", final, settings={"epochs": epochs})


def toy(linear, one, many):
    """Records of `toy`: accuracies per task before pruning."""
    by = {"linear": linear, "mlp": linear, "bottleneck-1x400": one, "bottleneck-20x20": many}
    return [
        replace(record(name, extra={"pruned_accuracy": values}), accuracy_matrix=[values])
        for name, values in by.items()
    ]


def fly_within(*tasks):
    curve = [
        Evaluation(task, epoch + 1, value, [], None, None, value)
        for task, values in enumerate(tasks)
        for epoch, value in enumerate(values)
    ]
    return [replace(record("fly, within tasks"), curve=curve)]


def shifts(auroc, detected=1.0, alarms=0.04):
    points = [{"shift": "CIFAR-100", "auroc": auroc, "detected": detected}]
    metrics = {"false_alarms": alarms}
    return [record("keys from cifar10", metrics=metrics, extra={"shifts": points})]


def named(order="class-incremental", **finals):
    return [record(name.replace("_", " "), value, order) for name, value in finals.items()]


def decoders(mean, free, fixed, order):
    names = {"mean": mean, "mlp, free": free, "mlp, fixed": fixed}
    return [record(name, value, order) for name, value in names.items()]


def encoded(encoder, records):
    return [
        replace(r, config={**r.config, "data": {**r.config["data"], "encoder": encoder}})
        for r in records
    ]


GOOD = terms(
    bottleneck=(0.1, 0.0, 0.0, 0.11), linear=(0.1, 0.1, 0.5, 0.2), mlp=(0.1, 0.1, 0.5, 0.2)
)
BAD = terms(bottleneck=(0.9, 0.2, 0.1, 1.0), linear=(0.1, 0.1, 0.1, 0.1), mlp=(0.1, 0.1, 0.1, 0.1))

CASES = {
    "class-incremental and i.i.d. training end at the same accuracy, across all backbones": (
        {"cifar10": both(0.816, 0.82)},
        {"cifar10": both(0.814, 0.82)},
    ),
    "the final accuracy does not depend on the class split": (
        {"cifar10": both(0.81, 0.815) + both(0.83, 0.829, seed=2)},  # keys may differ
        {"cifar10": both(0.81, 0.815) + both(0.81, 0.83, seed=2)},
    ),
    "linear probe and MLP forget": (
        {"cifar10": [record("linear", 0.2), record("linear:bias=false", 0.21), record("mlp", 0.2)]},
        {"cifar10": [record("linear", 0.2), record("mlp", 0.5)]},
    ),
    "i.i.d. and class-incremental loss agree": (
        {"loss": both(0, 0, loss=2.2) + both(0, 0, loss=2.0, classifier="linear")[:1]
         + [record("linear", order="iid", loss=0.5)]},
        {"loss": [record(loss=2.2), record(order="iid", loss=1.0), record("linear", loss=1.0),
                  record("linear", order="iid", loss=1.0)]},
    ),
    "the best key dimension is 8 to 12": (
        {"key-dim": sweep("key_dim", {4: 0.7, 8: 0.82, 16: 0.81})},
        {"key-dim": sweep("key_dim", {4: 0.7, 8: 0.80, 16: 0.81})},
    ),
    "four times fewer pairs cost little": (
        {"pairs": sweep("n_pairs", {1024: 0.80, 4096: 0.81})},
        {"pairs": sweep("n_pairs", {1024: 0.70, 4096: 0.81})},
    ),
    "i.i.d. and class-incremental accuracy differ at 256 pairs or fewer": (
        {"pairs": sweep("n_pairs", {256: 0.70, 4096: 0.81})
         + sweep("n_pairs", {256: 0.75, 4096: 0.81}, order="iid")},
        {"pairs": sweep("n_pairs", {256: 0.75, 4096: 0.81})
         + sweep("n_pairs", {256: 0.75, 4096: 0.81}, order="iid")},
    ),
    "codebooks matter slightly more than pairs": (
        {"codebooks": sweep("n_codebooks", {16: 0.70, 256: 0.81}),
         "pairs": sweep("n_pairs", {256: 0.75, 4096: 0.81})},
        {"codebooks": sweep("n_codebooks", {16: 0.80, 256: 0.81}),
         "pairs": sweep("n_pairs", {256: 0.75, 4096: 0.81})},
    ),
    "key data matters little, the oracle slightly better": (
        {"key-data": [record(final=0.82, keys="cifar10"), record(final=0.81)]},
        {"key-data": [record(final=0.80, keys="cifar10"), record(final=0.81)]},
    ),
    "label smoothing does not matter": (
        {"label-smoothing": sweep("label_smoothing", {0.0: 0.81, 0.1: 0.812})},
        {"label-smoothing": sweep("label_smoothing", {0.0: 0.81, 0.1: 0.83})},
    ),
    "the number of classes per task does not matter": (
        {"granularity": [record(tasks=2, final=0.81), record(tasks=10, final=0.812)]},
        {"granularity": [record(tasks=2, final=0.81), record(tasks=10, final=0.7)]},
    ),
    "the FlyModel collapses over epochs": (
        {"fly": sweep("epochs", {1: 0.7, 2000: 0.2})},
        {"fly": sweep("epochs", {1: 0.7, 2000: 0.7})},
    ),
    "weight decay does not prevent forgetting": (
        {"weight-decay": [record("linear:weight_decay=0.01", 0.2),
                          record("mlp:weight_decay=0.01", 0.2)]},
        {"weight-decay": [record("linear:weight_decay=0.01", 0.6)]},
    ),
    "noise on embeddings is harmless until α = 0.1": (
        {"noise": noise({0.0: 0.81, 0.1: 0.80, 1.0: 0.5})},
        {"noise": noise({0.0: 0.81, 0.1: 0.60, 1.0: 0.5})},
    ),
    "most pairs are fetched 10,000 to 150,000 times": (
        {"codes": [record("ema", metrics={"fetched_10k_to_150k": 0.6})]},
        {"codes": [record("ema", metrics={"fetched_10k_to_150k": 0.4})]},
    ),
    "about 28 % of pairs are never used": (
        {"codes": [record("ema", metrics={"never_used": 0.1}),
                   record("ema-reference", metrics={"never_used": 0.27})]},
        {"codes": [record("ema", metrics={"never_used": 0.1})]},
    ),
    "values learned i.i.d. and class-incrementally differ by about 2 %": (
        {"values": [record(metrics={"relative_difference": 0.02})]},
        {"values": [record(metrics={"relative_difference": 0.2})]},
    ),
    "a shift that changes no code changes nothing (Theorem 1)": (
        {"theorem": [record(metrics={"unchanged_shift": 0.0})]},
        {"theorem": [record(metrics={"unchanged_shift": 0.01})]},
    ),
    "discretisation and random projection reduce the shift term": (
        {"theorem": GOOD}, {"theorem": BAD},
    ),
    "the complexity term vanishes for the bottleneck": ({"theorem": GOOD}, {"theorem": BAD}),
    "the bottleneck has a smaller bound than models without it": (
        {"theorem": GOOD}, {"theorem": BAD},
    ),
    "the bottleneck prevents over-fitting": ({"theorem": GOOD}, {"theorem": BAD}),
    "a perturbation in the null space of the projections has no effect": (
        {"theorem": keys_of_theorem()}, {"theorem": keys_of_theorem(changed=0.1)},
    ),
    "there is a large null space": (
        {"theorem": keys_of_theorem(null=3)}, {"theorem": keys_of_theorem(null=0)},
    ),
    "the bottleneck outperforms SDMLP on the same backbone": (
        {"cifar10": [record(final=0.8), sdmlp(0.7)]},
        {"cifar10": [record(final=0.8), sdmlp(0.9)]},
    ),
    "the bottleneck outperforms SDMLP on CIFAR-100": (
        {"cifar100": [record(final=0.5), sdmlp(0.4)]},
        {"cifar100": [record(final=0.5), sdmlp(0.6)]},
    ),
    "linear probe and MLP over-fit on the most recent data": (
        {"toy": toy([0.0, 0.0, 1.0], [1.0] * 3, [1.0] * 3)},
        {"toy": toy([0.0, 0.5, 1.0], [1.0] * 3, [1.0] * 3)},
    ),
    "a bottleneck with one codebook minimises interference": (
        {"toy": toy([0.0] * 3, [0.95] * 3, [1.0] * 3)},
        {"toy": toy([0.0] * 3, [0.95, 0.5, 1.0], [1.0] * 3)},
    ),
    "twenty codebooks with random projections work just as well": (
        {"toy": toy([0.0] * 3, [0.95] * 3, [0.94] * 3)},
        {"toy": toy([0.0] * 3, [0.95] * 3, [0.5] * 3)},
    ),
    "the bottleneck learns and integrates new information": (
        {"cifar10": [along([0.2, 0.4])]}, {"cifar10": [along([0.4, 0.3])]},
    ),
    "the bottleneck substantially reduces forgetting": (
        {"cifar10": [record(n, metrics={"forgetting": v})
                     for n, v in (("bottleneck", 0.1), ("linear", 0.9), ("mlp", 0.9))]},
        {"cifar10": [record(n, metrics={"forgetting": v})
                     for n, v in (("bottleneck", 0.6), ("linear", 0.9), ("mlp", 0.9))]},
    ),
    "a value receives about the same gradients over the whole training": (
        {"values": [record(metrics={"relative_difference": 0.0})]},
        {"values": [record(metrics={"relative_difference": 0.2})]},
    ),
    "learning curves are smooth": (
        {"cifar10": [along([0.2, 0.4]), along([0.5, 0.2], "linear")]},
        {"cifar10": [along([0.4, 0.2]), along([0.5, 0.2], "linear")]},
    ),
    "a linear probe may perform better on i.i.d. data": (
        {"cifar10": [record(final=0.8, order="iid"), record("linear", 0.9, "iid")]},
        {"cifar10": [record(final=0.8, order="iid"), record("linear", 0.7, "iid")]},
    ),
    "the bottleneck does not over-fit like other approaches": (
        {"loss": [along([0.8], test=2.2, train=2.2), along([0.2], "linear", test=3.0, train=0.1)]},
        {"loss": [along([0.8], test=2.9, train=2.2), along([0.2], "linear", test=3.0, train=0.1)]},
    ),
    "more pairs are better": (
        {"pairs": sweep("n_pairs", {1: 0.1, 2: 0.2, 4: 0.3})},
        {"pairs": sweep("n_pairs", {1: 0.1, 2: 0.4, 4: 0.3})},
    ),
    "more pairs than 4,096 would still help": (
        {"pairs": sweep("n_pairs", {2048: 0.80, 4096: 0.81})},
        {"pairs": sweep("n_pairs", {2048: 0.81, 4096: 0.81})},
    ),
    "more codebooks are better": (
        {"codebooks": sweep("n_codebooks", {1: 0.1, 2: 0.2, 4: 0.3})},
        {"codebooks": sweep("n_codebooks", {1: 0.1, 2: 0.2, 4: 0.1})},
    ),
    "more codebooks lower the training loss": (
        {"codebooks": [along([0.5], order="iid", train=t, settings={"n_codebooks": n})
                       for n, t in ((16, 2.0), (256, 1.0))]},
        {"codebooks": [along([0.5], order="iid", train=t, settings={"n_codebooks": n})
                       for n, t in ((16, 1.0), (256, 2.0))]},
    ),
    "codebooks do not yet increase the constant c of Theorem 1": (
        {"theorem": keys_of_theorem(growth=(2, 2))}, {"theorem": keys_of_theorem(growth=(2, 9))},
    ),
    "keys from STL-10 or ImageNet do as well": (
        {"key-data": [record(final=0.82, keys="cifar10"), record(final=0.81, keys="stl10")]},
        {"key-data": [record(final=0.82, keys="cifar10"), record(final=0.71, keys="stl10")]},
    ),
    "the distance from keys estimates the level of distribution shift": (
        {"shift-signal": shifts(0.8)}, {"shift-signal": shifts(0.8, alarms=0.3)},
    ),
    "pairs can be added when the distribution shifts": (
        {"growth": [record("sgd, keys fixed", 0.7), record("sgd, keys grown", 0.8)]},
        {"growth": [record("sgd, keys fixed", 0.8), record("sgd, keys grown", 0.7)]},
    ),
    "keys can be fine-tuned asynchronously without labels": (
        {"refit": named(keys_fixed=0.7, keys_task=0.8)},
        {"refit": named(keys_fixed=0.7, keys_task=0.6)},
    ),
    "a parametric decoder improves i.i.d. performance": (
        {"decoders": decoders(0.8, 0.9, 0.8, "iid")}, {"decoders": decoders(0.8, 0.7, 0.8, "iid")},
    ),
    "in incremental learning a decoder must be regularised or fixed": (
        {"decoders": decoders(0.8, 0.2, 0.7, "class-incremental")},
        {"decoders": decoders(0.8, 0.9, 0.7, "class-incremental")},
    ),
    "pre-trained generative decoders are promising": (
        {"generation": [record("decoder fixed", order=o, metrics={"explained_variance": v})
                        for o, v in (("class-incremental", 0.30), ("iid", 0.31))]},
        {"generation": [record("decoder fixed", order=o, metrics={"explained_variance": v})
                        for o, v in (("class-incremental", 0.10), ("iid", 0.31))]},
    ),
    "the price of the bottleneck is a slightly lower performance": (
        {"cifar10": [record(final=0.8), record("linear", 0.82, "iid")]},
        {"cifar10": [record(final=0.8), record("linear", 0.92, "iid")]},
    ),
    "gradients into keys and projection can improve performance": (
        {"straight-through": named("iid", values_alone=0.7, sampled=0.8)},
        {"straight-through": named("iid", values_alone=0.7, sampled=0.6)},
    ),
    "the FlyModel learns at the beginning of a task and drops within it": (
        {"fly": fly_within([0.9, 0.9], [0.8, 0.5])}, {"fly": fly_within([0.9, 0.9], [0.5, 0.8])},
    ),
    "with 1,000 classes in 500 tasks, both orders end within a point": (
        {"imagenet": both(0.49, 0.495)}, {"imagenet": both(0.40, 0.49)},
    ),
    "noise on pixels is harmless until α = 0.1": (
        {"noise": noise({0.0: 0.81, 0.1: 0.80}, "pixels")},
        {"noise": noise({0.0: 0.81, 0.1: 0.15}, "pixels")},
    ),
    "noise on normalised inputs is harmless until α = 0.1": (
        {"noise": noise({0.0: 0.81, 0.1: 0.80, 1.0: 0.2}, "inputs")},
        {"noise": noise({0.0: 0.81, 0.1: 0.15, 1.0: 0.2}, "inputs")},
    ),
    **{
        f"the discrete bottleneck confers additional robustness to noise on {where}": (
            {"noise": noise({0.0: 0.8, 0.1: 0.7}, where)
             + noise({0.0: 0.9, 0.1: 0.5}, where, "linear")},
            {"noise": noise({0.0: 0.8, 0.1: 0.2}, where)
             + noise({0.0: 0.9, 0.1: 0.5}, where, "linear")},
        )
        for where in ("embeddings", "pixels")
    },
    "keys broadly cover the key data": (
        {"codes": [record("ema", metrics={"used_on_key_data": 0.75, "distinct_keys": 0.75})]},
        {"codes": [record("ema", metrics={"used_on_key_data": 0.5, "distinct_keys": 0.75})]},
    ),
    "on the target, coverage is sparser than on the key data": (
        {"codes": [record("ema", metrics={"used_on_key_data": 0.99, "never_used": 0.1})]},
        {"codes": [record("ema", metrics={"used_on_key_data": 0.5, "never_used": 0.1})]},
    ),
    "most keys are shared among many samples and classes": (
        {"codes": [record("ema", metrics={"samples_per_used_pair": 9, "pairs_of_one_class": 0.1,
                                          "classes_per_used_pair": 3})]},
        {"codes": [record("ema", metrics={"samples_per_used_pair": 9, "pairs_of_one_class": 0.9,
                                          "classes_per_used_pair": 1})]},
    ),
    **{
        text: (
            {experiment: encoded(encoder, [record(row, value / 100, order)])},
            {experiment: encoded(encoder, [record(row, value / 100 - 0.1, order)])},
        )
        for text, experiment, encoder, row, order, value in (
            ("final accuracy of 81.5 % on CIFAR-10 with ResNet50",
             "cifar10", "resnet50", "bottleneck", "class-incremental", 81.5),
            ("final accuracy of 91.3 % on CIFAR-10 with CLIP",
             "cifar10", "clip_vit_b32", "bottleneck", "class-incremental", 91.3),
            ("final accuracy of 66.3 % on CIFAR-10 with SwAV",
             "cifar10", "swav_resnet50w2", "bottleneck", "class-incremental", 66.3),
            ("final accuracy of 62.5 % on CIFAR-10 with DINO",
             "cifar10", "dino", "bottleneck", "class-incremental", 62.5),
            ("final accuracy of 77.3 % on CIFAR-10 with ConvMixer",
             "cifar10", "convmixer", "bottleneck", "class-incremental", 77.3),
            ("SDMLP reaches 71 % on ConvMixer",
             "cifar10", "convmixer", "sdmlp:n_neurons=10000", "class-incremental", 71),
            ("final accuracy of 54.7 % on CIFAR-100 with ResNet50",
             "cifar100", "resnet50", "bottleneck", "class-incremental", 54.7),
            ("final accuracy of 64 % on CIFAR-100 with CLIP",
             "cifar100", "clip", "bottleneck", "class-incremental", 64),
            ("final accuracy of 49.0 % on ImageNet with CLIP",
             "imagenet", "clip_vit_b32", "bottleneck", "class-incremental", 49),
            ("final accuracy of 49.9 % on ImageNet with CLIP, i.i.d.",
             "imagenet", "clip_vit_b32", "bottleneck", "iid", 49.9),
        )
    },
}  # fmt: skip


def verdict(records, text):
    return next(v for v in evaluate_statements(records) if v.statement == text)


@pytest.mark.parametrize("text", CASES)
def test_a_statement_agrees_or_not(text):
    agreeing, disagreeing = CASES[text]
    yes, no = verdict(agreeing, text), verdict(disagreeing, text)
    assert (yes.mark, no.mark) == ("✓", "✗"), (yes, no)
    assert yes.evidence
    assert no.evidence


# Nothing could contradict it, or nothing can measure it.
WITHOUT_CASE = {
    "no task boundaries are needed",
    "it is essential to have two separate sets of codes",
    "fine-tuning the encoder would distort features",
}


def test_every_statement_has_a_case_and_an_experiment():
    assert {s.text for s in STATEMENTS} == set(CASES) | WITHOUT_CASE
    assert len(STATEMENTS) == len({s.text for s in STATEMENTS})
    assert all(set(s.experiments) <= set(EXPERIMENTS) for s in STATEMENTS)
    assert all(s.place and s.measure and s.threshold for s in STATEMENTS)
    assert all(s.unavailable for s in STATEMENTS if s.evaluate is None)


def test_a_verdict_needs_every_encoder_and_a_tautology_is_no_finding():
    plain = next(s for s in STATEMENTS if not s.is_tautology and not s.unavailable)
    tautology = next(s for s in STATEMENTS if s.is_tautology)
    unavailable = next(s for s in STATEMENTS if s.unavailable)
    assert [decide(plain, h) for h in ([True, True], [True, False], [])] == [
        "holds", "contradicted", "not measured",
    ]  # fmt: skip
    assert decide(tautology, [True]) == "tautology"
    assert decide(tautology, [False]) == "contradicted"  # then the implementation is wrong
    assert decide(unavailable, []) == "not measurable here"


def test_a_short_sdmlp_decides_nothing():
    short = {"cifar10": [record(final=0.8), sdmlp(0.3, epochs=200)]}
    assert verdict(short, "the bottleneck outperforms SDMLP on the same backbone").mark == (
        "not measured"
    )


def test_every_threshold_is_used_and_has_a_history():
    import inspect

    from dkvb.evaluation.paper import statements as package

    modules = (package.ablations, package.appendix, package.base, package.extensions)
    text = "".join(map(inspect.getsource, (*modules, package.main, package.theory)))
    for name, known in thresholds().items():
        assert f'"{name}"' in text or f"'{name}'" in text
        assert re.search(r"0\.[12]", known.history) or "as above" in known.history


def test_what_has_no_records_is_not_measured():
    assert {v.mark for v in evaluate_statements({})} == {"not measured"}
    assert {v.verdict for v in evaluate_statements({})} == {"not measured", "not measurable here"}
    few = {"pairs": sweep("n_pairs", {4096: 0.8}), "values": [record()], "key-dim": [], "fly": []}
    assert {v.mark for v in evaluate_statements(few)} == {"not measured"}


def test_targets_hold_the_papers_numbers():
    values = {(t.experiment, t.row, t.encoder): t.value for t in targets()}
    assert len(values) == len(targets())
    assert {values["cifar10", "bottleneck", e] for e in ("resnet50", "clip", "swav", "dino")} == {
        81.5, 91.3, 66.3, 62.5,
    }  # fmt: skip
    assert values["cifar10", "bottleneck", "convmixer"] == 77.3
    assert values["cifar10", "sdmlp", "convmixer"] == 71
    assert values["cifar100", "bottleneck", "resnet50"] == 54.7
    assert values["imagenet", "bottleneck", "clip"] == 49.0
    assert values["imagenet", "bottleneck (iid)", "clip"] == 49.9
    assert {t.experiment for t in targets()} <= set(EXPERIMENTS)
    assert all(t.tolerance > 0 and t.source for t in targets())
    with (files("dkvb.evaluation.paper") / "targets.csv").open(encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == len(targets()) + 1


def test_the_papers_number_stands_beside_ours():
    columns = beside("cifar10", "bottleneck", "resnet50", {"mean": 81.0, "std": 0.1})
    assert columns == {"paper": 81.5, "within": "±1 ✓"}
    assert beside("cifar10", "bottleneck", "resnet50", {"mean": 80.0})["within"] == "±1 ✗"
    assert beside("cifar10", "linear", "resnet50", {"mean": 80.0}) == {}
    assert target("cifar10", "bottleneck", "abacus") is None


def test_missing_files_are_named_with_the_way_to_make_them(tmp_path):
    source = Prepared(tmp_path, "clip")
    np.savez(tmp_path / "cifar10-clip-train.npz", x=np.ones((3, 2), np.float32), y=np.arange(3))
    with pytest.raises(ValueError, match="cifar10-clip-test") as error:
        source.require("cifar10", "cifar100")
    assert "cifar10-clip-test.npz, cifar100-clip-train.npz" in str(error.value)
    assert f"dkvb embed --encoder clip_vit_b32 --data cifar100 --out {tmp_path}" in str(error.value)
    x, y = source.rows("cifar10", "train")
    assert (x.shape, y.tolist()) == ((3, 2), [0, 1, 2])
    assert source.has("cifar10", "train")
    assert source.path("stl10", "train") == Path(tmp_path) / "stl10-clip-train.npz"


def test_the_box_has_two_data_sets():
    source = Bundled()
    assert source.rows("cifar10", "test")[1].max() == 9
    assert not source.has("stl10", "train")
    with pytest.raises(ValueError, match=r"--quick: .*needs imagenet"):
        source.require("cifar10", "imagenet")


def test_files_are_found_by_the_encoders_name_or_the_papers(tmp_path):
    np.savez(tmp_path / "cifar10-clip-train.npz", x=np.ones((3, 2), np.float32), y=np.arange(3))
    np.savez(tmp_path / "cifar10-dino_resnet50-train.npz", x=np.ones((3, 2)), y=np.arange(3))
    assert all(Prepared(tmp_path, name).has("cifar10", "train") for name in ("clip", "dino"))
    assert all(
        Prepared(tmp_path, name).has("cifar10", "train")
        for name in ("clip_vit_b32", "dino_resnet50")
    )


def test_what_no_command_can_embed_is_said(tmp_path):
    with pytest.raises(ValueError, match="imagenet32 under convmixer cannot be embedded"):
        Prepared(tmp_path, "convmixer").require("cifar10", "imagenet32")
    with pytest.raises(ValueError, match="--data imagenet:FOLDER --out"):
        Prepared(tmp_path, "clip_vit_b32").require("imagenet", "cifar100")

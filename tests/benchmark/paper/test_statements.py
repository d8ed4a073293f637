"""Statements of the paper, evaluated on records made to agree or to disagree."""

import csv
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from dkvb.benchmark.paper import EXPERIMENTS
from dkvb.benchmark.paper.source import Bundled, Prepared
from dkvb.benchmark.paper.statements import STATEMENTS, evaluate_statements
from dkvb.benchmark.paper.targets import beside, target, targets
from dkvb.benchmark.records import RunRecord


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


def noise(by_alpha):
    points = [{"alpha": a, "accuracy": v} for a, v in by_alpha.items()]
    return [record(extra={"embeddings": points})]


CASES = {
    "i.i.d. and class-incremental accuracy agree within one point": (
        {"cifar10": both(0.815, 0.82)},
        {"cifar10": both(0.80, 0.82)},
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
    "noise is harmless until α = 0.1": (
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


def test_every_statement_has_a_case_and_an_experiment():
    assert {s.text for s in STATEMENTS} == set(CASES)
    assert all(set(s.experiments) <= set(EXPERIMENTS) for s in STATEMENTS)


def test_what_has_no_records_is_not_measured():
    assert {v.mark for v in evaluate_statements({})} == {"not measured"}
    few = {"pairs": sweep("n_pairs", {4096: 0.8}), "cifar10": [record()], "key-dim": [], "fly": []}
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
    with (files("dkvb.benchmark.paper") / "targets.csv").open(encoding="utf-8") as file:
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

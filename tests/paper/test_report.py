"""The page from records: what is on it, and what it says of odd folders."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode knows no sibling modules
from tiny import run

from dkvb.evaluation.records import RunRecord, append_record, read_records
from paper import experiment
from paper.claims import CLAIMS, NOT_ATTEMPTED, UNMEASURABLE
from paper.encoders import canonical_name
from paper.experiments import EXPERIMENTS, toy
from paper.kinds import classify_records
from paper.report import build
from paper.report.collect import collect
from paper.report.verdicts import compare
from paper.source import Bundled
from paper.targets import ACCURACY, DIFFERENCE, TARGETS, UNUSED

sys.path.pop(0)

NAMES = ["toy", "cifar10", "granularity", "codes", "values", "all-methods"]
SMALL_TOY = toy.Toy(points=10, test_points=10, steps=2, key_batches=40, key_batch_size=20, grid=8)

pytestmark = pytest.mark.filterwarnings("ignore:n_pairs")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder of records at tiny sizes."""
    folder = tmp_path_factory.mktemp("runs")
    for name in NAMES[1:]:
        run(name, folder / name, seeds=(1, 2) if name == "cifar10" else (1,))
    (folder / "toy").mkdir()
    jobs = toy.make_jobs(experiment.Setup(None, (1,), SMALL_TOY))
    experiment.run_experiment("toy", jobs, folder / "toy")
    return folder


@pytest.fixture(scope="module")
def report(runs):
    return build(runs)


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return report.markdown(tmp_path_factory.mktemp("page") / "page")


def rewritten(source, folder, **about):
    """Return a copy of a folder of records, of other data or with other changes."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in read_records(source / "records.jsonl").records:
        config = json.loads(json.dumps(record.config))
        config["data"]["encoder"] = about.get("encoder", "resnet50")
        config["changes"] = about.get("changes", {})
        append_record(folder / "records.jsonl", replace(record, config=config))
    return folder


def verdicts(folder):
    return {verdict.claim.name: verdict for verdict in build(folder).verdicts}


def test_every_claim_and_every_number_of_the_paper_is_there(report, page):
    for claim in CLAIMS:
        assert f"| {claim.name} | “{claim.quote}” ({claim.section}) |" in page
    for line in report.comparisons:
        start = f"| {line.target.experiment} | {line.classifier or line.target.row} |"
        assert f"{start} {line.target.encoder} | {line.target.measure} |" in page
    assert {line.target for line in report.comparisons} == set(TARGETS)


def test_every_experiment_has_its_figures_and_its_table(page, report, tmp_path):
    text = report.markdown(tmp_path / "page")
    images = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(images) == len(set(images)) == len(report.collection.groups)
    assert all((tmp_path / image).read_bytes().startswith(b"\x89PNG") for image in images)
    for name in NAMES:
        assert f'<a id="{name}"></a>' in page
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links == {*NAMES, "thresholds"}
    widths = {}  # every row of a table has as many cells as its heading
    for number, line in enumerate(text.splitlines()):
        if line.startswith("|"):
            widths[number] = line.count("|") - line.count("\\|")
            assert widths[number] == widths.get(number - 1, widths[number]), line
    # The most accurate method first, one table per data set.
    for data in ("cifar10", "cifar100"):
        rows = text.split(f"\n| {data} | final accuracy")[1].split("\n\n")[0].splitlines()[2:]
        finals = [row.split("|")[2] for row in rows]
        assert len(finals) == 11
        assert finals == sorted(finals, key=float, reverse=True)


def test_the_published_records_decide_every_claim_that_has_a_rule():
    report = build(Path(__file__).parents[2] / "results")
    assert not report.collection.notes
    assert not report.collection.missing
    for verdict in report.verdicts:
        decided = verdict.verdict not in (NOT_ATTEMPTED, UNMEASURABLE)
        assert decided == bool(verdict.claim.judge), verdict.claim.name


def test_the_same_records_make_the_same_page(runs, page, tmp_path):
    assert build(runs).markdown(tmp_path / "page") == page


def test_what_was_not_run_has_its_command(runs, report, page):
    assert set(report.collection.missing) == set(EXPERIMENTS) - set(NAMES)
    for name in report.collection.missing:
        command = f"python -m paper run {name} --data embeddings --out {runs.name}/{name}"
        assert command in page
        assert report.status[name] == "not measured"


def test_damaged_lines_are_mentioned_and_left_out(runs, tmp_path):
    shutil.copytree(runs / "values", tmp_path / "values")
    with (tmp_path / "values" / "records.jsonl").open("a") as file:
        file.write('{"classifier": "bottle\n')
    before = (tmp_path / "values" / "records.jsonl").read_bytes()
    report = build(tmp_path)
    note = "- values/records.jsonl: line 2 is damaged and left out."
    assert note in report.markdown(tmp_path / "page").splitlines()
    assert len(report.collection.groups[0].records) == 1
    assert (tmp_path / "values" / "records.jsonl").read_bytes() == before  # a report only reads


def test_full_runs_decide_and_quick_ones_do_not(runs, tmp_path):
    rewritten(runs / "cifar10", tmp_path / "quick" / "cifar10", encoder=Bundled.encoder)
    quick = build(tmp_path / "quick")
    compared = next(line for line in quick.comparisons if line.mean is not None)
    assert (compared.target.experiment, compared.verdict) == ("cifar10", "quick")
    assert verdicts(tmp_path / "quick")["order"].verdict == "not attempted"
    assert "No run here has the paper's settings" in quick.markdown(tmp_path / "page")

    rewritten(runs / "cifar10", tmp_path / "both" / "cifar10")
    shutil.copytree(tmp_path / "quick" / "cifar10", tmp_path / "both" / "again" / "cifar10")
    both = build(tmp_path / "both")
    compared = next(line for line in both.comparisons if line.mean is not None)
    finals = [
        100 * record.metrics["final_accuracy"]
        for record in read_records(tmp_path / "both" / "cifar10" / "records.jsonl").records
        if "ema-reference" in record.classifier and record.config["order"] == "class-incremental"
    ]
    assert compared.classifier == "bottleneck:key_method=ema-reference"
    assert compared.mean == pytest.approx(np.mean(finals))
    assert compared.verdict == ("✓" if abs(np.mean(finals) - 81.5) <= 1 else "✗")
    verdict = verdicts(tmp_path / "both")["order"]
    assert [line.kind for line in verdict.evidence] == ["full", "quick"]
    assert verdict.verdict == verdict.evidence[0].finding.verdict


def test_kinds(runs, tmp_path):
    def kind(name, **about):
        folder = rewritten(runs / name, tmp_path / f"{len(list(tmp_path.iterdir()))}", **about)
        return classify_records(name, read_records(folder / "records.jsonl").records)

    assert kind("cifar10") == "full"
    assert kind("cifar10", changes={"epochs": "100"}) == "changed"
    assert kind("cifar10", encoder="synthetic") == "synthetic"
    assert kind("cifar10", encoder=Bundled.encoder) == "quick"
    records = read_records(runs / "toy" / "records.jsonl").records
    assert classify_records("toy", records) == "changed"
    for name, config in (("full", toy.PAPER), ("quick", toy.QUICK)):
        changed = [replace(record, config=record.config | vars(config)) for record in records]
        assert classify_records("toy", changed) == name


def test_other_settings_are_no_further_seeds(runs, tmp_path):
    rewritten(runs / "values", tmp_path / "values")
    rewritten(runs / "values", tmp_path / "values", changes={"n_pairs": "8"})
    full, changed = collect(tmp_path).of("values")
    assert (full.kind, full.encoder) == ("full", "resnet50")
    assert (changed.kind, changed.encoder) == ("changed", "resnet50 (n_pairs=8)")
    assert len(full.records) == len(changed.records)
    said = []
    experiment.plot_only("values", tmp_path / "values", said.append)
    path = tmp_path / "values" / "records.jsonl"
    assert said == [f"{path}: left out {len(changed.records)} of other settings"]


def test_one_folder_alone_and_runs_measured_twice(runs, tmp_path):
    alone = collect(runs / "values")
    assert [group.experiment for group in alone.groups] == ["values"]
    shutil.copytree(runs / "values", tmp_path / "a" / "values")
    shutil.copytree(runs / "values", tmp_path / "b" / "any-name")  # its summary knows better
    later = tmp_path / "b" / "any-name" / "records.jsonl"
    (record,) = read_records(later).records
    later.unlink()
    # Of another version: another run id, but not another seed.
    metrics = record.metrics | {"relative_difference": 0.5}
    append_record(later, replace(record, run_id="other", metrics=metrics))
    (group,) = collect(tmp_path).groups
    assert [r.metrics["relative_difference"] for r in group.records] == [0.5]


def test_records_of_no_experiment_are_noted(runs, tmp_path):
    shutil.copytree(runs / "values", tmp_path / "values")
    (tmp_path / "other").mkdir()
    shutil.copy(runs / "values" / "records.jsonl", tmp_path / "other")
    (tmp_path / "fly").mkdir()  # a name that does not fit what is in it
    shutil.copy(runs / "values" / "records.jsonl", tmp_path / "fly")
    collection = collect(tmp_path)
    assert [group.experiment for group in collection.groups] == ["values"]
    assert len(collection.notes) == 2
    assert "fly: 1 records that do not fit are left out" in collection.notes[1]
    assert collection.notes[0].startswith("other/records.jsonl is left out")


@pytest.mark.parametrize("case", ["nothing", "benchmarks", "a file", "no folder"])
def test_folders_without_records_are_refused(case, tmp_path):
    if case == "benchmarks":
        (tmp_path / "cpu.jsonl").write_text("{}\n")
    path = {"a file": tmp_path / "file", "no folder": tmp_path / "gone"}.get(case, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"FOLDER: expected .*(records\.jsonl|a folder)"):
        build(path)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.experiment}-{t.row}-{t.encoder}")
def test_records_of_every_encoder_are_compared_with_its_number(target, tmp_path):
    """By the encoder's name in the paper and by its name in `dkvb embed`."""
    name, _, order = target.row.partition(" (")
    metrics = {
        ACCURACY: "final_accuracy",
        DIFFERENCE: "relative_difference",
        UNUSED: "never_used",
    }
    for number, encoder in enumerate((target.encoder, canonical_name(target.encoder))):
        record = RunRecord(
            classifier=name, stream="", seed=1, classes=[0], tasks=[[0]],
            config={
                "order": order.rstrip(")") or "class-incremental", "settings": {}, "changes": {},
                "data": {"train": target.experiment, "keys": "cifar100", "encoder": encoder},
            },
            versions={}, curve=[], accuracy_matrix=[],
            metrics={metrics[target.measure]: target.value / 100 + 0.001, "test_loss": None},
            times={"learn": 1.0}, extra={"fetched": [], "classes_sharing": []},
        )  # fmt: skip
        folder = tmp_path / str(number) / target.experiment
        folder.mkdir(parents=True)
        append_record(folder / "records.jsonl", record)
        comparisons = compare(collect(tmp_path / str(number)))
        line = next(line for line in comparisons if line.target == target)
        assert line.verdict == "✓"
        assert line.mean == pytest.approx(target.value + 0.1)


def test_one_figure_has_a_panel_for_each_encoder(runs, tmp_path):
    rewritten(runs / "cifar10", tmp_path / "runs" / "a" / "cifar10")
    rewritten(runs / "cifar10", tmp_path / "runs" / "b" / "cifar10", encoder="efficientnet_lite0")
    report = build(tmp_path / "runs")
    text = report.markdown(tmp_path / "page")
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", text) == ["page/cifar10.png"]
    assert "EfficientNet-Lite0" in report.sentences
    evidence = verdicts(tmp_path / "runs")["order"].evidence
    assert [line.encoder for line in evidence] == ["resnet50", "efficientnet_lite0"]

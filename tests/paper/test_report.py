"""The page from records: what is on it, that it stands alone, and what it says of odd folders."""

import json
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))  # importlib mode knows no siblings
from dkvb.evaluation.paper import EXPERIMENTS, experiment, toy
from tiny import run

from dkvb.cli import app
from dkvb.evaluation.plots import make_axes, save_figure
from dkvb.evaluation.records import RunRecord, append_record, read_records
from paper.claims import STATEMENTS, evaluate_statements
from paper.encoders import canonical_name
from paper.kinds import classify_records
from paper.report import build, figures, heat_maps
from paper.report.collect import collect
from paper.report.sentences import BEGIN, END
from paper.report.verdicts import compare_targets, evaluate_all
from paper.source import Bundled
from paper.targets import targets

sys.path.pop(0)

NAMES = ["toy", "cifar10", "granularity", "codes", "values", "all-methods"]
SMALL_TOY = toy.Toy(points=10, test_points=10, steps=2, key_batches=40, key_batch_size=20, grid=8)

pytestmark = pytest.mark.filterwarnings("ignore:n_pairs")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What `dkvb reproduce` leaves, at tiny sizes."""
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
def page(report):
    return report.html


def rewritten(source, folder, **about):
    """A copy of a folder of records, about other data or of another length."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in read_records(source / "records.jsonl").records:
        config = json.loads(json.dumps(record.config))
        config["data"]["encoder"] = about.get("encoder", "resnet50")
        for place in (config, config.get("params", {})):
            if "epochs" in place:
                place["epochs"] = about.get("epochs", 2000)
        if "changes" in about:
            config["changes"] = about["changes"]
        elif "epochs" in about:  # as records were before they said what was changed
            del config["changes"]
        append_record(folder / "records.jsonl", replace(record, config=config))
    return folder


class Reader(HTMLParser):
    """Every start has its end, in the right order."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.text, self.tags = [], [], [], Counter()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        if not {"style", "svg"} & set(self.open):
            self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    reader.words = " ".join(" ".join(reader.text).split())
    return reader


def test_the_page_is_well_formed_and_its_links_lead_somewhere(page):
    reader = read(page)
    assert reader.open == []
    ids = Counter(value for name, value in reader.attributes if name == "id")
    assert max(ids.values()) == 1
    links = [v for name, v in reader.attributes if name == "href" and v.startswith("#")]
    links += [f"#{own}" for own in re.findall(r"url\(#([^)]+)\)", page)]
    assert {link[1:] for link in links} <= ids.keys()
    assert ids.keys() >= set(NAMES)


def test_the_page_loads_nothing(page):
    # Among the letters that pixels are written in, any four may stand side by side.
    written = re.sub(r"data:image/png;base64,[\w+/=]+", "", page)
    assert "http" not in written  # not even the names of SVG's own vocabulary
    reader = read(page)
    sources = [v for name, v in reader.attributes if name in ("src", "href", "data", "srcset")]
    assert all(v.startswith(("#", "data:")) for v in sources)
    assert reader.tags["script"] == 0
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}


def test_every_statement_and_every_number_of_the_paper_is_there(runs, report, page):
    reader = read(page)
    for statement in STATEMENTS:
        assert reader.words.count(statement.text) >= 1
    rows = re.findall(r"<tr[^>]*title=\"([^\"]*)\">", page)
    assert Counter(rows) >= Counter(target.source for target in targets())

    records = read_records(runs / "cifar10" / "records.jsonl").records
    shown = {own.statement: own for own in report.verdicts}
    for verdict in evaluate_statements({"cifar10": records}):
        if verdict.experiment == "cifar10":
            assert shown[verdict.statement].mark == verdict.mark
            assert verdict.evidence in reader.words


def test_every_experiment_has_its_figures_and_its_table(page):
    sections = dict(re.findall(r'<section id="([^"]+)">(.*?)</section>', page, flags=re.DOTALL))
    figures_of = {name: sections[name].count("<figure") for name in NAMES}
    assert figures_of == {
        "toy": 1, "cifar10": 3, "granularity": 1, "codes": 2, "values": 1, "all-methods": 1,
    }  # fmt: skip
    assert all("<table>" in sections[name] for name in NAMES)
    assert "data:image/png;base64" in sections["toy"]
    assert "Final confusion matrices" in sections["cifar10"]
    assert "class-incremental" in sections["cifar10"]
    assert "B0-Inc" not in page  # streams are named in words
    assert "2 × 2 classes" in sections["granularity"]
    # The most accurate method first, one part per data set.
    parts = re.findall(r"<tbody>.*?</tbody>", sections["all-methods"], flags=re.DOTALL)
    assert [("cifar10<" in part, "cifar100<" in part) for part in parts] == [(1, 0), (0, 1)]
    for part in parts:
        rows = re.findall(r'<tr><td>[^<]+</td><td class="n">([\d.]+)', part)
        assert len(rows) == 13
        assert rows == sorted(rows, key=float, reverse=True)


def test_the_same_records_make_the_same_page(runs, page):
    assert build(runs).html == page


def test_the_same_as_markdown_with_figures_beside_it(runs, report, tmp_path):
    path = tmp_path / "page.md"
    found = CliRunner().invoke(app, ["report", str(runs), "--out", str(path)])
    assert found.exit_code == 0, found.output
    text = path.read_text(encoding="utf-8")
    for verdict in report.verdicts:
        assert verdict.statement in text
    for part in (part for own in report.parts.values() for part in own):
        for row in (row for rows in part.table.parts.values() for row in rows):
            assert f"| {' | '.join(row)} |" in text
    images = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(images) == len(set(images)) == sum(map(len, report.parts.values()))
    assert all((tmp_path / image).read_bytes().startswith(b"\x89PNG") for image in images)
    widths = {}  # every row of a table has as many cells as its heading
    for number, line in enumerate(text.splitlines()):
        if line.startswith("|"):
            widths[number] = line.rstrip().count("|") - line.count("\\|")
            assert widths[number] == widths.get(number - 1, widths[number]), line


def test_what_was_not_run_has_its_command(runs, report, page):
    assert set(report.collection.missing) == set(EXPERIMENTS) - set(NAMES)
    for name in report.collection.missing:
        assert f"dkvb reproduce {name} --data embeddings --out {runs.name}/{name}" in page


def test_damaged_lines_are_mentioned_and_left_out(runs, tmp_path):
    shutil.copytree(runs / "values", tmp_path / "values")
    with (tmp_path / "values" / "records.jsonl").open("a") as file:
        file.write('{"classifier": "bottle\n')
    before = (tmp_path / "values" / "records.jsonl").read_bytes()
    report = build(tmp_path)
    assert "values/records.jsonl: line 2 is damaged and left out." in read(report.html).words
    assert len(report.collection.groups[0].records) == 1
    assert (tmp_path / "values" / "records.jsonl").read_bytes() == before  # a report only reads


def test_full_runs_are_judged_and_quick_ones_are_not(runs, tmp_path):
    def lines(folder):
        report = build(folder)
        found = [line for line in report.comparisons if line.target.encoder == "resnet50"]
        first = {line.target.experiment: line for line in reversed(found)}
        return first, read(report.html)

    rewritten(runs / "cifar10", tmp_path / "quick" / "cifar10", encoder=Bundled.encoder)
    compared, reader = lines(tmp_path / "quick")
    assert compared["cifar10"].verdict == "quick"
    assert compared["cifar10"].mean is not None
    assert "Everything here comes from quick runs" in reader.words

    rewritten(runs / "cifar10", tmp_path / "full" / "cifar10")
    compared, reader = lines(tmp_path / "full")
    final_accuracies = [
        100 * record.metrics["final_accuracy"]
        for record in read_records(tmp_path / "full" / "cifar10" / "records.jsonl").records
        if record.classifier == "bottleneck" and record.config["order"] == "class-incremental"
    ]
    assert compared["cifar10"].mean == pytest.approx(np.mean(final_accuracies))
    assert compared["cifar10"].seeds == 2
    within = abs(np.mean(final_accuracies) - 81.5) <= 1
    assert compared["cifar10"].verdict == ("✓" if within else "✗")
    assert compared["values"].verdict == "not measured"
    assert "quick runs" not in reader.words

    # Both in one folder: the full run answers, and both are shown.
    shutil.copytree(tmp_path / "quick" / "cifar10", tmp_path / "full" / "again" / "cifar10")
    compared, reader = lines(tmp_path / "full")
    assert compared["cifar10"].group.kind == "full"
    assert "What is marked quick comes from quick runs" in reader.words
    verdicts = evaluate_all(collect(tmp_path / "full"))
    statement = next(v for v in verdicts if v.statement.startswith("class-incremental and"))
    assert [own.kind for own in statement.evidence] == ["full", "quick"]


def test_kinds(runs, tmp_path):
    def kind(name, **about):
        folder = rewritten(runs / name, tmp_path / f"{len(list(tmp_path.iterdir()))}", **about)
        return classify_records(name, read_records(folder / "records.jsonl").records)

    assert kind("cifar10") == "full"
    assert kind("cifar10", epochs=100) == "changed"
    assert kind("values", epochs=100) == "changed"
    assert kind("codes", epochs=100) == "full"  # keys know no epochs of learning
    assert kind("codes", changes={"n_pairs": "8"}) == "changed"
    assert kind("cifar10", encoder="synthetic") == "synthetic"
    assert kind("cifar10", encoder=Bundled.encoder) == "quick"
    records = read_records(runs / "toy" / "records.jsonl").records
    assert classify_records("toy", records) == "changed"
    for name, config in (("full", toy.PAPER), ("quick", toy.QUICK)):
        told = [replace(record, config=record.config | vars(config)) for record in records]
        assert classify_records("toy", told) == name


def test_other_settings_are_no_further_seeds(runs, tmp_path):
    rewritten(runs / "values", tmp_path / "values")
    rewritten(runs / "values", tmp_path / "values", changes={"n_pairs": "8"})
    full, changed = collect(tmp_path).of("values")
    assert (full.kind, full.encoder) == ("full", "resnet50")
    assert (changed.kind, changed.encoder) == ("changed", "resnet50 (n_pairs=8)")
    assert len(full.records) == len(changed.records)
    said = []
    experiment.plot_only("values", tmp_path / "values", said.append)
    assert said == [
        f"{tmp_path / 'values' / 'records.jsonl'}: "
        f"left out {len(changed.records)} of other settings"
    ]


def test_one_folder_alone_and_runs_found_twice(runs, tmp_path):
    alone = collect(runs / "values")
    assert [group.experiment for group in alone.groups] == ["values"]
    shutil.copytree(runs / "values", tmp_path / "a" / "values")
    shutil.copytree(runs / "values", tmp_path / "b" / "any-name")  # its summary knows better
    twice = collect(tmp_path)
    assert [len(group.records) for group in twice.groups] == [1]
    assert not twice.notes


def test_records_of_no_experiment_are_noted(runs, tmp_path):
    shutil.copytree(runs / "values", tmp_path / "values")
    (tmp_path / "other").mkdir()
    shutil.copy(runs / "values" / "records.jsonl", tmp_path / "other")
    (tmp_path / "fly").mkdir()  # a name that does not fit what is in it
    shutil.copy(runs / "values" / "records.jsonl", tmp_path / "fly")
    collection = collect(tmp_path)
    assert [group.experiment for group in collection.groups] == ["values"]
    assert len(collection.notes) == 2
    assert "fly: 1 records of another version are left out" in collection.notes[1]
    assert collection.notes[0].startswith("other/records.jsonl is left out")


@pytest.mark.parametrize("case", ["nothing", "benchmarks", "a file", "no folder"])
def test_folders_without_records_are_refused(case, tmp_path):
    if case == "benchmarks":
        (tmp_path / "cpu.jsonl").write_text("{}\n")
    path = {"a file": tmp_path / "file", "no folder": tmp_path / "gone"}.get(case, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"DIR: expected .*(records\.jsonl|a folder)"):
        build(path)


def test_the_command(runs, tmp_path, page):
    def dkvb(*arguments):
        return CliRunner().invoke(app, ["report", *map(str, arguments)])

    out = tmp_path / "new" / "page.html"
    result = dkvb(runs, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8") == page
    assert "6 experiments" in result.stdout
    assert f"page: {out}" in result.stdout
    alone = dkvb(runs / "values", "--out", tmp_path / "alone.html").stdout
    assert alone.startswith("1 experiment, statements of the paper: ")
    assert not re.search(r"\b([02-9]|\d\d+) (holds|tautology)\b", result.stdout + alone)
    told = json.loads(dkvb(runs / "values", "--out", out, "--json").stdout)
    assert len(told["statements"]) == len(STATEMENTS)
    assert len(told["numbers"]) == len(targets())
    assert dkvb(runs / "values", "--quiet").stdout == ""
    assert (runs / "values" / "report.html").exists()
    for wrong in ([tmp_path], [runs, "--out", tmp_path]):
        refused = dkvb(*wrong)
        assert refused.exit_code == 2
        assert "expected" in refused.stderr


def learned(tasks, **content):
    return RunRecord(
        classifier="bottleneck", stream="", seed=1, classes=[0, 1, 2], tasks=tasks,
        config={"order": "class-incremental", "data": {"train": "cifar10"}},
        versions={}, curve=[], accuracy_matrix=[], metrics={}, times={}, **content,
    )  # fmt: skip


def test_confusion_is_in_the_order_learned(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(heat_maps, "_heat", lambda axes, table, extent: seen.append(table))
    counts = [[3, 1, 0], [0, 4, 0], [2, 0, 2]]  # true class × predicted class
    record = learned([[2], [0, 1]], extra={"confusion": counts})
    heat_maps.confusion([record], tmp_path / "confusion.svg")
    np.testing.assert_array_equal(seen[0], [[0.5, 0.5, 0], [0, 0.75, 0.25], [0, 0, 1]])


def test_heat_maps_show_one_order_of_classes():
    records = [learned([[2], [0, 1]]), learned([[0], [1, 2]]), learned([[0, 1, 2]])]
    other = replace(records[0], classifier="linear")
    assert heat_maps.shown([*records, other]) == [records[0], other]
    assert heat_maps.shown(records[2:]) == []


def test_figures_are_svg_in_the_colours_of_the_page_or_pixels(monkeypatch):
    def draw(path):
        figure, (axes,) = make_axes()
        axes.plot([0, 1], label="a < b")
        axes.set_title("a < b")
        return save_figure(figure, path)

    first, second = (figures.figure(draw, 'what "to" see', number) for number in (1, 2))
    assert first.html.startswith("<svg viewBox=")
    assert "&#34;to&#34;" in first.html
    assert "a &lt; b</text>" in first.html
    assert "currentColor" in first.html
    assert not re.search("#000000|#fefefe|<metadata|<style", first.html)
    ids = [set(re.findall(' id="([^"]+)"', image.html)) for image in (first, second)]
    assert not ids[0] & ids[1]
    monkeypatch.setattr(figures, "_LARGEST_SVG", 100)
    assert figures.figure(draw, "", 1).html.startswith('<img alt="" src="data:image/png;base64,')


@pytest.mark.parametrize("target", targets(), ids=lambda t: f"{t.experiment}-{t.row}-{t.encoder}")
def test_records_of_every_encoder_are_compared_with_its_number(target, tmp_path):
    """By the encoder's name in the paper and by its name in `dkvb embed`."""
    name, _, order = target.row.partition(" (")
    metric = {"final": "final_accuracy", "relative": "relative_difference", "never": "never_used"}
    measured = metric[target.measure.split()[0]]
    for number, encoder in enumerate((target.encoder, canonical_name(target.encoder))):
        record = RunRecord(
            classifier=name, stream="", seed=1, classes=[0], tasks=[[0]],
            config={
                "order": order.rstrip(")") or "class-incremental", "settings": {}, "changes": {},
                "data": {"train": target.experiment, "keys": "cifar100", "encoder": encoder},
            },
            versions={}, curve=[], accuracy_matrix=[],
            metrics={measured: target.value / 100 + 0.001, "test_loss": None},
            times={"learn": 1.0}, extra={"fetched": [], "classes_sharing": []},
        )  # fmt: skip
        folder = tmp_path / str(number) / target.experiment
        folder.mkdir(parents=True)
        append_record(folder / "records.jsonl", record)
        found = compare_targets(collect(tmp_path / str(number)))
        line = next(line for line in found if line.target == target)
        assert line.verdict == "✓"
        assert line.mean == pytest.approx(target.value + 0.1)


def test_one_figure_has_a_panel_for_each_encoder(runs, tmp_path):
    rewritten(runs / "cifar10", tmp_path / "runs" / "a" / "cifar10")
    rewritten(runs / "cifar10", tmp_path / "runs" / "b" / "cifar10", encoder="efficientnet_lite0")
    report = build(tmp_path / "runs")
    text = report.markdown(tmp_path / "page")
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", text) == ["page/cifar10.png"]
    assert "EfficientNet-Lite0" in report.html
    statement = next(v for v in report.verdicts if v.statement.startswith("class-incremental and"))
    assert [line.encoder for line in statement.evidence] == ["resnet50", "efficientnet_lite0"]
    assert statement.measured_on == "resnet50, efficientnet_lite0"


def test_sentences_and_status_are_written_from_the_records(runs, tmp_path):
    readme, status = tmp_path / "README.md", tmp_path / "status.csv"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n", encoding="utf-8")
    page = ["--out", str(tmp_path / "page.md"), "--readme", str(readme), "--status", str(status)]
    found = CliRunner().invoke(app, ["report", str(runs), *page])
    assert found.exit_code == 0, found.output
    text = readme.read_text(encoding="utf-8")
    sentences = build(runs).sentences
    assert text == f"# Title\n\n{BEGIN}\n{sentences}\n{END}\n\nThe end.\n"
    assert sentences in (tmp_path / "page.md").read_text(encoding="utf-8")
    lines = status.read_text(encoding="utf-8").splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == list(EXPERIMENTS)
    assert "growth,not measured" in lines
    readme.write_text("no marks")
    found = CliRunner().invoke(app, ["report", str(runs), *page])
    assert found.exit_code == 2
    assert "--readme: expected the lines" in found.stderr

"""The benchmarks do the same work for every contender, refuse wrong kernels, and leave records."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dkvb.embedding import CallableEncoder, ImageTransform
from dkvb.kernels.sgd import descend

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # benchmarks is no part of the package
main = import_module("benchmarks.__main__").main
checks, contenders, cpu, gpu, growth, limits, memory, peak, problem, records, views = (
    import_module(f"benchmarks.{name}")
    for name in (
        *("checks", "contenders", "cpu", "gpu", "growth", "limits", "memory", "peak", "problem"),
        *("records", "views"),
    )
)
memory_accuracy, memory_latency, memory_size, rows = (
    import_module(f"benchmarks.{name}")
    for name in ("memory_accuracy", "memory_latency", "memory_size", "rows")
)

PEER = pytest.param(
    contenders.Peer,
    marks=pytest.mark.skipif(
        find_spec(contenders.PEER) is None,
        reason="the package on PyPI is not installed; `make bench` installs it",
    ),
)
LINUX = pytest.mark.skipif(not peak.STATUS.exists(), reason="memory is measured on Linux only")


@pytest.fixture
def tiny():
    return problem.make_problem(problem.TINY)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_cpu(out):
    options = ["--sizes", "tiny", "--repeats", "1", "--no-memory", "--anyway", "--out", str(out)]
    return main(["cpu", *options])


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    """What the machine can do takes seconds to measure; here it is given."""
    machine = limits.Machine(float32=2e11, float64=1e11, copied=3e10, random_lines=7e-9)
    monkeypatch.setattr(cpu, "measure_machine", lambda size: machine)


def test_every_operation_and_contender_leaves_a_json_line(tmp_path, capsys):
    out = tmp_path / "new" / "results.jsonl"
    assert run_cpu(out) == 0
    rows = lines(out)
    names = [kind.name for kind in contenders.contenders()]
    assert [(row["op"], row["contender"]) for row in rows] == [
        (op, name) for op in contenders.OPERATIONS for name in names
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert row["ratio"] > 0
        assert (row["ratio"] == 1) or row["contender"] != "dkvb"
        assert {"size", "peak_bytes", "versions", "cpu", "threads", "load"} <= row.keys()
        assert row["share"] == pytest.approx(row["limit"]["seconds"] / row["seconds"])
        assert row["machine"]["float32"] == 2e11
    assert "refused" not in capsys.readouterr().out
    run_cpu(out)
    assert len(lines(out)) == 2 * len(rows)


def wrong_codes(monkeypatch):
    right = contenders.Ours.nearest
    monkeypatch.setattr(contenders.Ours, "nearest", lambda self: (right(self).int() + 1) % 32)
    return {"nearest", "20-epochs"}


def wrong_values(monkeypatch):
    right = checks.descend

    def wrong(values, *arguments):
        right(values, *arguments)
        if arguments[-1] is None:
            values[1, 2] += 1

    monkeypatch.setattr(checks, "descend", wrong)
    return {"sgd-step", "20-epochs"}


def wrong_keys(monkeypatch):
    right = checks.ema

    def wrong(heads, keys, *arguments, backend, **options):
        right(heads, keys, *arguments, backend=backend, **options)
        if backend is None:
            keys[0, 3] += 1

    monkeypatch.setattr(checks, "ema", wrong)
    return {"key-init"}


@pytest.mark.parametrize("break_it", [wrong_codes, wrong_values, wrong_keys])
def test_a_wrong_kernel_has_no_speed(break_it, tmp_path, monkeypatch, capsys):
    expected = break_it(monkeypatch)
    assert run_cpu(tmp_path / "results.jsonl") == 1
    rows = lines(tmp_path / "results.jsonl")
    refused = {row["op"] for row in rows if row["contender"] == "dkvb" and row["seconds"] is None}
    assert refused == expected
    assert {row["op"] for row in rows if row["ratio"] is None} == expected
    assert "refused" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [contenders.Plain, PEER])
def test_contenders_do_the_same_work(kind, tiny):
    size, other = tiny.size, kind(tiny)
    codes = contenders.Ours(tiny).nearest().int()
    assert torch.equal(other.nearest(), codes.long())
    values = torch.zeros(size.n_codebooks, size.n_pairs, size.n_classes)
    order = torch.arange(size.batch).expand(3, -1)  # three times the same batch
    rate, smoothing = problem.LEARNING_RATE, problem.SMOOTHING
    descend(values, codes, tiny.y[: size.batch], order, size.batch, rate, smoothing)
    for _ in range(3):
        other.sgd_step()
    theirs = (other.model if kind is contenders.Peer else other).values.detach()
    torch.testing.assert_close(theirs, values, rtol=1e-4, atol=1e-8)
    other.key_init()


def test_limits_from_given_numbers():
    machine = limits.Machine(float32=1e9, float64=5e8, copied=1e6, random_lines=1e-6)
    size = problem.Size("s", 2, 8, key_dim=5, width=10, n_classes=3, batch=4, rows=12, epochs=2)
    found = {op: limit.seconds for op, limit in limits.limits(size, machine).items()}
    search, projection = 2 * 4 * 2 * 8 * 5, 2 * 4 * 10 * 2 * 5
    step = 2 * 64 * 4 * 2 / 1e6
    assert found == pytest.approx(
        {
            "nearest": (search + projection) / 1e9,
            "sgd-step": step,
            "20-epochs": 3 * (search + projection) / 1e9 + 6 * step,
            "key-init": search / 1e9,
        }
    )
    wide = problem.replace(size, n_classes=17)  # two cache lines a value
    assert limits.lines_of_a_step(wide) == 2 * limits.lines_of_a_step(size) == 16
    assert cpu.share(limits.Limit(0.2, "products"), 0.5) == pytest.approx(0.4)


def test_a_machine_is_measured():
    machine = limits.measure(problem.TINY, n=64, numbers=1 << 12)
    assert min(vars(machine).values()) > 0
    assert machine.random_lines < 1e-3


def test_repetitions_follow_the_budget(monkeypatch):
    clock, asked = [0.0], []

    def call(name, seconds):
        def work():
            asked.append(name)
            clock[0] += seconds

        return work

    monkeypatch.setattr(cpu.time, "perf_counter", lambda: clock[0])
    taken = cpu.alternate([call("quick", 0.5), call("long", 4.0), call("very", 9.0)], 8, 6.0)
    assert [len(own) for own in taken] == [8, 3, 3]
    # The first turn warms up, unless it is as long as the budget.
    assert [asked.count(name) for name in ("quick", "long", "very")] == [9, 4, 3]
    assert asked[:6] == ["quick", "long", "very"] * 2


@pytest.mark.parametrize("mode", ["cpu", "growth"])
def test_no_ratios_on_a_busy_machine_unless_asked(mode, tmp_path, monkeypatch, capsys):
    cores = len(records.os.sched_getaffinity(0))
    monkeypatch.setattr(records.os, "getloadavg", lambda: (3.0 * cores, 0.0, 0.0))
    monkeypatch.setattr(records.time, "sleep", lambda seconds: None)
    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(records.time, "monotonic", lambda: next(clock))
    out = tmp_path / "results.jsonl"
    assert main([mode, "--out", str(out)]) == 1
    told = capsys.readouterr().out
    assert f"load average {3.0 * cores:.1f} on {cores} cores" in told
    assert "--anyway" in told
    assert not out.exists()


def test_ratios_are_kept_back_if_others_begin_to_work(tmp_path, monkeypatch, capsys):
    loads = iter([0.0])  # quiet at the start
    cores = len(records.os.sched_getaffinity(0))
    monkeypatch.setattr(records.os, "getloadavg", lambda: (next(loads, 5.0 * cores), 0.0, 0.0))
    out = tmp_path / "results.jsonl"
    assert main(["--sizes", "tiny", "--repeats", "1", "--no-memory", "--out", str(out)]) == 1
    assert "No ratios: load average" in capsys.readouterr().out
    rows = lines(out)
    assert all(row["ratio"] is None and row["share"] is None for row in rows)
    assert all(row["seconds"] > 0 for row in rows)


@LINUX
def test_peak_memory_of_operations():
    # Not the tiny size: what it needs may lie in pages that the process has already.
    size = problem.SMALL
    rows = size.rows * size.width * 4  # bytes
    found = peak.peak_bytes("dkvb", size.name, ["nearest"])
    assert list(found) == ["nearest"]
    assert rows < found["nearest"] < rows + 300e6


def test_tasks_are_those_of_the_paper():
    y = torch.arange(10).repeat(3)
    tasks = gpu._tasks(1, y, gpu.Settings())
    assert [sorted(set(y[rows].tolist())) for rows in tasks] == [
        sorted(pair) for pair in ([6, 8], [9, 7], [5, 3], [0, 4], [1, 2])
    ]
    assert sorted(torch.cat(tasks).tolist()) == list(range(30))


def test_the_experiment_runs_small_without_a_card(tmp_path, rng):
    centres = 4 * rng.normal(size=(4, 12))
    files = []
    for name, n in (("train", 40), ("test", 12), ("keys", 40)):
        y = np.arange(4 * n) % 4
        x = (centres[y] + rng.normal(size=(4 * n, 12))).astype(np.float32)
        files.append(tmp_path / f"{name}.npz")
        np.savez(files[-1], x=x, y=np.array(["a", "b", "c", "d"])[y])
    settings = gpu.Settings(
        "cpu", seeds=(1, 2), n_codebooks=8, n_pairs=16, key_dim=3, key_epochs=2, epochs=30, batch=16
    )
    assert gpu.run(settings, *files, tmp_path / "results.jsonl", quick=False) == 0
    rows = {row["op"]: row for row in lines(tmp_path / "results.jsonl")}
    assert rows["class-incremental"]["steps"] == 2 * 30 * 5  # tasks, epochs, batches of 80 rows
    assert rows["class-incremental × 2"]["steps"] == 2 * 2 * 30 * 5
    assert rows["iid × 2"]["steps"] == 2 * 30 * 10
    accuracies = rows["class-incremental × 2"]["accuracies"] + rows["iid × 2"]["accuracies"]
    assert len(accuracies) == 4
    assert min(accuracies) > 0.7
    assert rows["class-incremental"]["accuracies"] == accuracies[:1]
    assert 0 <= rows["snapping"]["decided_again"] < 0.1
    assert all(row["seconds"] > 0 for row in rows.values())


def test_growth_leaves_factors_and_a_plot(tmp_path):
    bases = {name: problem.replace(problem.TINY, name=name) for name in ("tiny", "other")}
    plot = tmp_path / "plots" / "growth.png"
    options = {"anyway": True, "at_least": 0.0, "bases": bases, "repeats": 1}
    growth.run(tmp_path / "results.jsonl", plot, ["tiny", "other"], **options)
    rows = lines(tmp_path / "results.jsonl")
    axes = [(row["op"], row["axis"]) for row in rows]
    assert ("SGD", "classes") in axes
    assert len(axes) == 2 * 11
    for row in rows:
        doublings = growth.OPERATIONS[row["op"]].doublings
        assert len(row["factors"]) == doublings == len(row["seconds"]) - 1
        assert row["factors"][0] == row["seconds"][1] / row["seconds"][0]
    assert {row["size"]["name"] for row in rows} == {"tiny", "other"}
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_a_doubling_of_the_plain_loop_is_not_judged():
    assert growth._missed({"op": "SGD"}, 2.3)
    assert not growth._missed({"op": "SGD"}, 2.1)
    assert not growth._missed({"op": "lines"}, 2.3)


@LINUX
def test_a_memory_map_is_snapped_into_another(tmp_path):
    out = tmp_path / "results.jsonl"
    options = ["--rows", "500", "--sizes", "tiny", "--folder", str(tmp_path), "--out", str(out)]
    # A process of its own: this one may hold much already.
    command = [sys.executable, "-m", "benchmarks", "memory", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = lines(out)
    assert row["rows"] == 500
    assert row["import_bytes"] <= row["peak_bytes"] < memory.LIMIT
    assert list(tmp_path.iterdir()) == [out]


def test_views_leave_one_record_per_variant(tmp_path, monkeypatch, rng):
    asked = []

    def load(name, **settings):
        asked.append(settings)
        return CallableEncoder(
            lambda batch: torch.stack(list(batch)).flatten(1),
            name=name,
            dimension=48,
            fingerprint=str(settings),
            transform=ImageTransform(4),
        )

    monkeypatch.setattr(views, "load_encoder", load)
    for split in ("train", "test"):
        for label, level in (("dark", 0), ("light", 150)):
            folder = tmp_path / "data" / split / label
            folder.mkdir(parents=True)
            for i in range(6):
                pixels = rng.integers(level, level + 60, size=(4, 4, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    out = tmp_path / "out.jsonl"
    arguments = ["--data", str(tmp_path / "data"), "--train", "10", "--test", "8"]
    arguments += ["--variants", "plain", "both", "--cache", str(tmp_path / "cache")]
    assert main(["views", *arguments, "--out", str(out)]) == 0
    plain, both = map(json.loads, out.read_text().splitlines())
    assert (plain["variant"], both["variant"]) == ("plain", "both")
    assert (plain["train_rows"], plain["test_rows"], plain["kernel"]) == (10, 8, 1.0)
    assert both["views"] == "flip"
    assert [sorted(one) for one in asked] == [["device"], ["device", "layers", "views"]]


def embeddings_file(path, rng, classes=4, width=24, n=160):
    y = np.arange(n) % classes
    x = np.maximum(3 * np.eye(classes, width)[y] + rng.normal(size=(n, width)), 0)
    np.savez(path, x=x.astype(np.float32), y=np.array(["a", "b", "c", "d"])[y])
    return path


@pytest.mark.parametrize("given", [True, False])
def test_rows_go_on_beyond_those_given(tmp_path, rng, given):
    path = embeddings_file(tmp_path / "train.npz", rng)
    source = rows.Source(rows.read(tmp_path) if given else None, 24, 4)
    y = source.write(tmp_path / "X.npy", 400)
    X = np.load(tmp_path / "X.npy")
    assert X.shape == (400, 24)
    assert X.min() >= 0
    assert len(np.unique(y)) == 4
    if given:
        np.testing.assert_array_equal(X[:160], np.load(path)["x"])
        means = [X[:160][y[:160] == c].mean(axis=0) for c in np.unique(y)]
        nearest = np.argmin([((X[160:] - mean) ** 2).sum(axis=1) for mean in means], axis=0)
        assert (np.unique(y)[nearest] == y[160:]).mean() > 0.7  # like those of their class
    np.testing.assert_array_equal(source.block(0, 400).X, X)


@LINUX
def test_sizes_of_memory_leave_records(tmp_path, monkeypatch, rng):
    path = embeddings_file(tmp_path / "train.npz", rng)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    out = tmp_path / "out.jsonl"
    options = ["--data", str(path), "--sizes", "80,200", "--keep", "sums", "--folder"]
    assert main(["memory-size", *options, str(tmp_path), "--out", str(out)]) in (0, 1)
    few, more = lines(out)
    assert (few["rows"], few["given_rows"], more["given_rows"]) == (80, 80, 160)
    assert 0 < few["learn_median"] <= few["learn_most"]
    assert few["peak_bytes"] > few["file_bytes"] > 0
    assert memory_size.slopes([few, more])[0]["rows"] == [80, 200]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.jsonl", "train.npz"]


def test_limits_of_memory_are_judged():
    within = {"rows": 50_000, "open_and_predict": 1.9, "first_learn": 0.9, "learn_most": 0.2}
    within |= {"fit": 59.0, "peak_bytes": 2e9}
    assert memory_size.misses(within) == []
    assert memory_size.misses(within | {"fit": 61.0, "learn_most": 0.4}) == ["learn_most", "fit"]
    assert memory_size.misses(within | {"rows": 5, "fit": 61.0}) == []


def test_predictions_while_a_classifier_is_taught(tmp_path, monkeypatch, rng):
    path = embeddings_file(tmp_path / "train.npz", rng)
    monkeypatch.setattr(memory_latency, "PAUSE", 0.05)
    monkeypatch.setattr(memory_latency, "WAYS", ("library",))
    out = tmp_path / "out.jsonl"
    options = ["--data", str(path), "--rows", "100", "--seconds", "0.2", "--out", str(out)]
    assert main(["memory-latency", *options]) in (0, 1)
    (row,) = lines(out)
    assert row["taught"] == 4
    assert row["reflected"] <= 4  # so few rows are not believed against all others
    assert 0 < row["median"] <= row["worst"]


def test_accuracy_of_examples_and_sums(tmp_path, monkeypatch, rng):
    for split in ("train", "test"):
        (tmp_path / "made-up").mkdir(exist_ok=True)
        embeddings_file(tmp_path / "made-up" / f"{split}.npz", rng)
    keys = {**memory_accuracy.SIDES, "n_codebooks": 2, "conditioning": "centre"}
    problems = (
        memory_accuracy.Problem("all", "made-up", at_least=50.0),
        memory_accuracy.Problem("few", "made-up", "sums", ("made-up", "train"), keys,
                                rows=lambda place: 10 - place, at_least=101.0, most_cells=1),
        memory_accuracy.Problem("other", "nowhere"),
    )  # fmt: skip
    monkeypatch.setattr(memory_accuracy, "PROBLEMS", problems)
    out = tmp_path / "out.jsonl"
    assert main(["memory-accuracy", "--data", str(tmp_path), "--out", str(out)]) == 1
    every, few = lines(out)
    assert (every["missed"], every["entries"], every["rows"]) == ([], 160, 160)
    assert (few["missed"], few["rows"]) == (["accuracy", "entries"], 10 + 9 + 8 + 7)
    assert few["state_bytes"] < every["state_bytes"]


def test_a_long_tail_has_500_rows_to_5():
    assert [memory_accuracy.long_tail(place) for place in (0, 50, 99)] == [500, 49, 5]


def test_sets_of_labels_are_compared_with_logistic_regression(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    y = (X[:, :3] ** 2 > 0.8).astype(int)  # which no line tells apart
    np.savez(tmp_path / "train.npz", x=X[:200], y=y[:200])
    np.savez(tmp_path / "test.npz", x=X[200:], y=y[200:])
    given = ["--train", str(tmp_path / "train.npz"), "--test", str(tmp_path / "test.npz")]
    assert main(["multi-label", *given, "--out", str(tmp_path / "out")]) == 0
    by_method = {line["method"]: line["macro_f1"] for line in lines(tmp_path / "out")}
    assert by_method["kernel"] > 0.7 > by_method["logistic regression"]
    assert "at least level" in capsys.readouterr().out
    np.savez(tmp_path / "test.npz", x=X[200:], y=y[200:, 0])
    with pytest.raises(SystemExit, match="expected y of 0 and 1"):
        main(["multi-label", *given, "--out", str(tmp_path / "out")])

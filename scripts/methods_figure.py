"""Accuracy of every method against bytes kept and against seconds, drawn from records.

    python scripts/methods_figure.py docs/images/methods.svg
    python scripts/methods_figure.py --table       # of docs/explanation/which-classifier.md
    python scripts/methods_figure.py --measure results/methods-cpu.jsonl   # some minutes

`--measure` trains every method on the bundled CIFAR-10 embeddings, two classes at a time, on the
CPU; keys are fitted to CIFAR-100. The picture has these runs, and those of the experiment
`all-methods` on full CIFAR-10 (one H200). Records of several seeds are averaged.
"""

from __future__ import annotations

import argparse
import pickle
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from dkvb.embedding.datasets.bundled import load
from dkvb.evaluation.grid import ClassifierSpec, make_from_spec, parse_spec
from dkvb.evaluation.plots import make_axes, spread_labels
from dkvb.evaluation.records import RunRecord, append_record, read_records
from dkvb.evaluation.runner import evaluate
from dkvb.evaluation.streams import class_incremental

RESULTS = Path(__file__).parents[1] / "results"
MEASURED = RESULTS / "methods-cpu.jsonl"
SOURCES = {
    "bundled CIFAR-10, 5,000 examples of 256 dimensions, one CPU thread": MEASURED,
    "CIFAR-10, 50,000 examples of 2,048 dimensions, one H200": RESULTS
    / "all-methods"
    / "records.jsonl",
}
KEYS = "n_codebooks=128,n_pairs=512,key_dim=8"
RATE = "learning_rate=0.4"  # as in the demo: rate × steps is the paper's
METHODS = (
    "kernel",
    f"bottleneck:{KEYS}",
    "ranpac:n_features=2000",
    "slda",
    "prototypes",
    "neighbours",
    "fly",
    f"linear:{RATE}",
    f"mlp:{RATE}",
    f"ewc:{RATE}",
    "sdmlp",
)
NAMES = {
    "kernel": "KernelClassifier",
    "bottleneck": "BottleneckClassifier (the paper's)",
    "ranpac": "RanPAC",
    "slda": "streaming LDA",
    "prototypes": "nearest class mean",
    "neighbours": "k nearest neighbours",
    "fly": "FlyModel",
    "linear": "linear probe",
    "mlp": "MLP",
    "ewc": "EWC",
    "sdmlp": "SDMLP",
}
KEEPS = {
    "KernelClassifier": "embeddings",
    "BottleneckClassifier (the paper's)": "values",
    "RanPAC": "sums",
    "streaming LDA": "sums",
    "nearest class mean": "class sums",
    "k nearest neighbours": "embeddings",
    "FlyModel": "sums",
    "linear probe": "weights",
    "MLP": "weights",
    "EWC": "weights, Fisher information",
    "SDMLP": "weights",
}
OURS = ("KernelClassifier", "BottleneckClassifier (the paper's)")


def measure(path: Path) -> None:
    """Train every method and append its record, with the bytes that it keeps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    train, test, key_rows = load("cifar10"), load("cifar10", "test"), load("cifar100")[0]
    stream = class_incremental(train[1], classes_per_task=2, seed=1)
    for spec in map(parse_spec, METHODS):
        trained: list[Any] = []

        def make(spec: ClassifierSpec = spec, trained: list[Any] = trained) -> Any:
            trained.append(make_from_spec(spec, seed=1, epochs=20, key_data=key_rows))
            return trained[0]

        record = evaluate(make, stream, train, test, final_only=True, name=spec.text, seed=1)
        record.extra["kept_bytes"] = kept_bytes(trained[0])
        append_record(path, record)
        print(f"{spec.text}: {record.metrics['final_accuracy']:.4f}", flush=True)


def kept_bytes(classifier: Any) -> int:
    """Return the size of the saved model, or of the pickled one where it cannot be saved."""
    if not hasattr(classifier, "save"):
        return len(pickle.dumps(classifier))
    with TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "model.safetensors")
        return sum(path.stat().st_size for path in Path(folder).iterdir())


def name_of(record: RunRecord) -> str:
    """Return the name of a record's method."""
    return NAMES[record.classifier.partition(":")[0]]


def averages(path: Path) -> dict[str, dict[str, float]]:
    """Return accuracy (%), bytes and seconds by method, of CIFAR-10 class-incrementally."""
    found: dict[str, list[RunRecord]] = defaultdict(list)
    for record in read_records(path).records:
        # Records of the paper's experiments hold further values of `rule` than the paper's.
        other = "rule=" in record.classifier and "rule=sgd" not in record.classifier
        if len(record.classes) == 10 and record.tasks[1:] and not other:
            found[name_of(record)].append(record)
    return {
        name: {
            "accuracy": 100 * fmean(float(r.metrics["final_accuracy"] or 0) for r in records),
            "bytes": fmean(
                float(r.extra.get("kept_bytes") or r.metrics["memory_bytes"] or 0) for r in records
            ),
            "seconds": fmean(
                sum(r.times[s] for s in ("keys", "prepare", "learn")) for r in records
            ),
        }
        for name, records in found.items()
    }


def make_table() -> str:
    """Return the table as Markdown, the most accurate method on the bundled data first."""
    small, large = (averages(source) for source in SOURCES.values())
    lines = [
        "| | keeps | accuracy | memory | seconds | accuracy, all rows | memory | seconds |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in sorted(small, key=lambda name: -small[name]["accuracy"]):
        shown = f"**{name}**" if name in OURS else name
        cells = [*_cells(small[name]), *_cells(large.get(name))]
        lines.append(f"| {shown} | {KEEPS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(method: dict[str, float] | None) -> tuple[str, str, str]:
    if method is None:
        return "–", "–", "–"
    size = f"{method['bytes'] / 1e6:.2g} MB" if method["bytes"] < 1e7 else _megabytes(method)
    return f"{method['accuracy']:.1f} %", size, f"{method['seconds']:.1f}"


def _megabytes(method: dict[str, float]) -> str:
    return f"{method['bytes'] / 1e6:,.0f} MB"


def draw(path: Path) -> None:
    """Draw one row of panels per source: accuracy against bytes kept, and against seconds."""
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "dkvb"  # equal records give equal files
    rows = [(title, averages(source)) for title, source in SOURCES.items() if source.is_file()]
    figure, _ = make_axes(0, width=11, height=5.2 * len(rows))
    panels = figure.subplots(len(rows), 2, squeeze=False)
    for (left, right), (title, methods) in zip(panels, rows, strict=True):
        for axes, measure, scale, label in (
            (left, "bytes", 1e6, "megabytes kept"),
            (right, "seconds", 1, "seconds to learn, keys included"),
        ):
            _panel(axes, methods, measure, scale)
            axes.set(xlabel=label, ylabel="final accuracy (%)", ylim=(0, 100))
        left.set_title(title, loc="left", fontsize="medium")
    figure.savefig(path, metadata={"Date": None})


def _panel(axes: Any, methods: dict[str, dict[str, float]], measure: str, scale: float) -> None:
    names = sorted(methods, key=lambda name: methods[name]["accuracy"])
    heights = spread_labels([methods[name]["accuracy"] for name in names], gap=4.4)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    values = [method[measure] / scale for method in methods.values()]
    if max(values) < 100 * min(values):  # few powers of ten
        axes.set_xticks([t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if t >= min(values) / 2])
    for name, height in zip(names, heights, strict=True):
        x, y = methods[name][measure] / scale, methods[name]["accuracy"]
        colour = "C0" if name in OURS else "0.45"
        axes.plot(x, y, "o", color=colour, markersize=6)
        axes.annotate(
            name,
            (x, y),
            xytext=(1.02, height),
            textcoords=axes.get_yaxis_transform(),
            color=colour,
            fontsize="small",
            va="center",
            weight="bold" if name in OURS else "normal",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "alpha": 0.5},
            annotation_clip=False,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("picture", type=Path, nargs="?", help="picture to draw, .svg or .png")
    parser.add_argument("--measure", type=Path, help="file of records to append to")
    parser.add_argument("--table", action="store_true", help="print the table")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
    if given.table:
        print(make_table())
    if given.picture:
        draw(given.picture)


if __name__ == "__main__":
    main()

"""Print the README's table of results from the records in results/.

    python scripts/results_table.py

A record is one run of `dkvb evaluate`; the README's table is this script's output, and a test
compares the two.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from statistics import fmean, stdev

from dkvb.evaluation.records import read_records

ROOT = Path(__file__).parent.parent
COLUMNS = {
    "CIFAR-10": ("cifar10-resnet50.jsonl", "cifar10/records.jsonl"),
    "CIFAR-100": ("cifar100-resnet50.jsonl", "cifar100/records.jsonl"),
    "CIFAR-100, long tail": ("cifar100-long-tail-resnet50.jsonl",),
}
ENCODER = "resnet50"  # of all rows of the table
PAPER = ("81.5", "54.7", "–")
ROWS = {
    "bottleneck": "bottleneck, the paper's schedule",
    "bottleneck:key_method=ema-reference": "… with keys expired as in the paper's code",
    "kernel": "**`KernelClassifier`** (keeps embeddings)",
    "linear": "linear probe",
    "mlp": "MLP",
    "sdmlp:n_neurons=1000,epochs=200": "SDMLP, 1,000 neurons, 200 epochs",
    "sdmlp:n_neurons=10000,epochs=2000,pretrained": (
        "SDMLP, 10,000 neurons, 2,000 epochs, pre-trained"
    ),
    "prototypes": "nearest class mean",
    "slda": "streaming LDA",
    "ranpac:n_features=10240": "RanPAC head, 10,240 features",
    "ranpac:n_features=20480": "RanPAC head, 20,480 features",
}


def make_table() -> str:
    """The table as markdown: final accuracy, class-incremental, mean ± std over seeds."""
    columns = [_accuracies(files) for files in COLUMNS.values()]
    lines = [
        f"| class-incremental, 2 classes per task | {' | '.join(COLUMNS)} |",
        "|---|" + "---|" * len(COLUMNS),
        f"| the paper's bottleneck (its own encoder weights) | {' | '.join(PAPER)} |",
    ]
    for classifier, label in ROWS.items():
        if not any(classifier in column for column in columns):
            continue
        cells = [_cell(column.get(classifier, [])) for column in columns]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _accuracies(files: tuple[str, ...]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in chain.from_iterable(read_records(ROOT / "results" / f).records for f in files):
        accuracy = record.metrics["final_accuracy"]
        encoder = record.config.get("data", {}).get("encoder", ENCODER)
        if record.stream != "iid" and accuracy is not None and encoder == ENCODER:
            found.setdefault(record.classifier, []).append(100 * accuracy)
    return found


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    deviation = f" ± {stdev(values):.2f}" if len(set(values)) > 1 else ""  # else: deterministic
    seeds = "" if len(values) == 3 else f" ({len(values)} seed{'s' * (len(values) > 1)})"
    return f"{fmean(values):.2f}{deviation}{seeds}"


if __name__ == "__main__":
    print(make_table())

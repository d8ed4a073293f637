"""Print the README's table of results from the records in results/.

    python scripts/results_table.py

A record is one run of `dkvb evaluate`; the README's table is this script's output, and a test
compares the two.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

from dkvb.records import read_records

ROOT = Path(__file__).parent.parent
DATA_SETS = {"CIFAR-10": "cifar10-resnet50", "CIFAR-100": "cifar100-resnet50"}
PAPER = {"CIFAR-10": "81.5", "CIFAR-100": "54.7"}
ROWS = {
    "bottleneck": "bottleneck, `sgd`, 20 epochs a stage",
    "bottleneck:rule=counts": "**bottleneck, `counts`**",
    "bottleneck:rule=least_squares": "**bottleneck, `least_squares`**, 10,240 pairs",
    "bottleneck:rule=least_squares,n_codebooks=320,n_pairs=32": ('the same, `prior="empirical"`'),
    "bottleneck:rule=least_squares,n_codebooks=320": (
        '**bottleneck, `least_squares`**, 20,480 pairs (320 × 64), `prior="empirical"`'
    ),
    "prototypes": "nearest class mean",
    "slda": "streaming LDA",
    "ranpac": "RanPAC head, 10,240 features",
    "ranpac:n_features=20480": "RanPAC head, 20,480 features",
}


def table() -> str:
    """The table as markdown: final accuracy, class-incremental, mean ± std over seeds."""
    columns = {
        name: _accuracies(ROOT / f"results/{file}.jsonl") for name, file in DATA_SETS.items()
    }
    lines = [
        f"| class-incremental, 2 classes a stage | {' | '.join(DATA_SETS)} |",
        "|---|---|---|",
        f"| the paper's bottleneck (its own encoder weights) | {' | '.join(PAPER.values())} |",
    ]
    for classifier, label in ROWS.items():
        cells = [_cell(columns[name].get(classifier, [])) for name in DATA_SETS]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _accuracies(path: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in read_records(path).records:
        accuracy = record.metrics["final_accuracy"]
        if record.stream != "iid" and accuracy is not None:
            found.setdefault(record.classifier, []).append(100 * accuracy)
    return found


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    seeds = "" if len(values) == 3 else f" ({len(values)} seed{'s' * (len(values) > 1)})"
    return f"{fmean(values):.2f}{spread}{seeds}"


if __name__ == "__main__":
    print(table())

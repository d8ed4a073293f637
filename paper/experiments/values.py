"""Table 1 of the paper: values learned class-incrementally against values learned iid.

    python -m paper run values --data DIR --seeds 1,2,3,4,5 --out OUT

Σ|values_CI − values_IID| / Σ|values_CI|. The paper reports ResNet50 2.19 %, CLIP 2.09, DINO 2.2,
SwAV 2.2, ConvMixer 3.07.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_bars
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.analysis.values import relative_difference
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.learned import accuracy, learn
from paper.tables import get_encoder, metric
from paper.targets import beside

TITLE = "Values, class-incremental against iid (Table 1)"
PAPER = models.Schedule()
QUICK = models.Schedule(**models.SMALL)


def make_jobs(setup: Setup) -> list[Job]:
    """Return one pair of runs per seed, with the same keys."""
    data = DeviceData(setup.load_data(), setup.device)
    spec = models.bottleneck(setup.config)
    return [
        make_measurement_job(
            setup,
            data,
            "bottleneck",
            {
                "measure": "values",
                "seed": seed,
                "settings": spec.settings,
                "epochs": setup.config.epochs,
            },
            partial(_measure, setup, data, seed),
        )
        for seed in setup.seeds
    ]


def _measure(setup: Setup, data: DeviceData, seed: int) -> Measurement:
    spec = models.bottleneck(setup.config)
    ci, iid = (learn(setup, data, spec, order, seed) for order in ORDERS)
    values = [model.classifier.state_arrays()["values"] for model in (ci, iid)]
    return Measurement(
        {
            "relative_difference": relative_difference(*values),
            "final_accuracy": accuracy(ci.classifier, ci.test, ci.y_test),
            "iid_accuracy": accuracy(iid.classifier, iid.test, iid.y_test),
        }
    )


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return the relative difference, with the paper's number."""
    encoder, ours = get_encoder(records), metric(records, "relative_difference", 100)
    return {
        encoder: {
            "relative difference (%)": ours,
            **beside("values", "bottleneck", encoder, ours),
            "class-incremental": metric(records, "final_accuracy", 100),
            "iid": metric(records, "iid_accuracy", 100),
        }
    }


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot ours and the paper's number."""
    encoder = get_encoder(records)
    bars = {encoder: {"ours": metric(records, "relative_difference", 100)}}
    known = beside("values", "bottleneck", encoder, {"mean": None})
    if known:
        bars[encoder]["paper"] = {"mean": known["paper"], "std": None}
    return plot_bars(bars, path, title, "relative difference (%)")

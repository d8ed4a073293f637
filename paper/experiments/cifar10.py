"""Figure 3 of the paper: CIFAR-10 in five tasks of two classes.

    python -m paper run cifar10 --data DIR --encoder resnet50 --seeds 1,2,3,4,5 --out OUT

The paper reports the same final accuracies for class-incremental and i.i.d. data: ResNet50 81.5,
CLIP 91.3, SwAV 66.3, DINO 62.5, ConvMixer 77.3; SDMLP on ConvMixer 71. Linear probe and MLP forget.
Each encoder is one panel of the figure. SDMLP takes most of the time; `--only bottleneck` leaves it
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkvb.evaluation.grid import ORDERS, DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import plot_accuracy, plot_panels
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.encoders import find_encoder
from paper.experiment import Setup
from paper.sdmlp import make_sdmlp_jobs
from paper.tables import final, get_encoder, get_order, group_by, metric
from paper.targets import beside

PANELS = True  # the report draws all encoders in one figure
TITLE = "CIFAR-10, two classes at a time (Figure 3)"


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model, and the settings of the baseline SDMLP (`_sdmlp`)."""

    evaluate_every: int | None = 200
    sdmlp_neurons: tuple[int, ...] = (10_000,)
    sdmlp_epochs: int = 2000
    sdmlp_pretraining: int = 20  # epochs on the labelled key data


PAPER = Config()
QUICK = Config(
    **models.SMALL,
    evaluate_every=10,
    sdmlp_neurons=(500,),
    sdmlp_epochs=10,
    sdmlp_pretraining=2,
)


def make_jobs(setup: Setup) -> list[Job]:
    """Return the bottleneck and the linear probe in both orders, the others class-incremental."""
    config, data = setup.config, setup.load_data()
    both = [*models.with_both_keys(config), models.linear(config)]
    others = [
        models.linear(config, "linear:bias=false", bias=False),
        models.mlp(config),
    ]
    return [
        *setup.make_stream_jobs(data, both, ORDERS),
        *setup.make_stream_jobs(data, others),
        *make_sdmlp_jobs(setup, DeviceData(data, setup.device)),
    ]


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return final accuracy and forgetting of each model, with the paper's numbers."""
    return stream_table("cifar10", records)


def stream_table(experiment: str, records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per classifier and order."""
    encoder, rows = get_encoder(records), {}
    for (name, order), group in group_by(records, lambda r: (r.classifier, get_order(r))).items():
        ours = final(group)
        row = name.split(":")[0] if order == "class-incremental" else f"{name} (iid)"
        rows[f"{name} ({order})"] = {
            "final accuracy": ours,
            **beside(experiment, row, encoder, ours),
            "average incremental": metric(group, "average_incremental_accuracy", 100),
            "forgetting": metric(group, "forgetting", 100),
        }
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot accuracy over the stream, for our expiry of keys only: the lines coincide.

    Records of several encoders have one panel each.
    """
    shown = [r for r in records if "key_method=" not in r.classifier]
    by_encoder = group_by(shown, lambda r: get_encoder([r]))
    if len(by_encoder) == 1:
        return plot_accuracy(shown, path, title)
    panels = {}
    for name, group in by_encoder.items():
        known = find_encoder(name)
        panels[known.title if known else name] = group
    return plot_panels(panels, path, title)

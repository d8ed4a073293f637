"""Appendix E.3 of the paper (Figures 13 to 17): maps of keys, usage of pairs, who shares them.

    python -m paper run codes --data DIR --seeds 1 --out OUT

The paper reports for ResNet50 that keys cover the key data densely and the target more sparsely;
most pairs are fetched 10,000 to 150,000 times over 2,000 epochs, and about 28 % never. Both
expiries of keys are measured: ours (`ema`) and that of the paper's code (`ema-reference`). The map
uses UMAP if umap-learn is installed, and PCA otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkvb.bottleneck import Keys
from dkvb.evaluation.grid import DeviceData
from dkvb.evaluation.jobs import Job
from dkvb.evaluation.plots import make_axes, save_figure
from dkvb.evaluation.records import RunRecord
from paper import models
from paper.analysis.plane import project_to_plane
from paper.analysis.usage import count_in_bins, count_selections, count_sharing_classes
from paper.experiment import Measurement, Setup, make_measurement_job
from paper.learned import fit_shared_keys
from paper.tables import get_encoder, group_by, metric
from paper.targets import beside

TITLE = "Keys: maps and usage (appendix E.3, Figures 13 to 17)"
EPOCHS = 2000  # the paper's: a sample fetches each of its pairs once per epoch
EDGES = [0, 1, *(EPOCHS * k for k in (2, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 500))]


@dataclass(frozen=True)
class Config(models.Schedule):
    """The base model's keys, both expiries, and the number of points of a map."""

    methods: tuple[str, ...] = ("ema", "ema-reference")
    points: int = 2000


PAPER = Config()
QUICK = Config(**models.SMALL, points=500)


def make_jobs(setup: Setup) -> list[Job]:
    """Return one measurement of keys per seed and method."""
    data = DeviceData(setup.load_data(), setup.device)
    return [
        make_measurement_job(
            setup,
            data,
            method,
            {
                "measure": "codes",
                "seed": seed,
                "settings": models.bottleneck(setup.config, key_method=method).settings,
                "points": _points(setup, seed, method),
            },
            partial(_measure, setup, data, seed, method),
        )
        for seed in setup.seeds
        for method in setup.config.methods
    ]


def _points(setup: Setup, seed: int, method: str) -> int:
    """Return the number of points to map: none but for the first seed and method."""
    first = (setup.seeds[0], setup.config.methods[0])
    return int(setup.config.points) if (seed, method) == first else 0


def _measure(setup: Setup, data: DeviceData, seed: int, method: str) -> Measurement:
    keys = fit_shared_keys(setup, data, seed, key_method=method)
    (x, y), (x_test, y_test) = data.inputs_for(models.bottleneck(setup.config))
    n_classes = int(y.max()) + 1
    codes = keys.codes(x)
    rows = count_selections(codes, keys.n_pairs)  # (C, K) samples per pair
    fetched = EPOCHS * rows
    columns = torch.from_numpy(y).to(codes.device)
    sharing = count_sharing_classes(codes, columns, keys.n_pairs, n_classes)  # (C, K)
    used = rows > 0
    usual = (fetched >= 10_000) & (fetched <= 150_000)
    metrics = {
        "never_used": float((~used).double().mean()),
        "fetched_10k_to_150k": float(usual.double().mean()),
        "samples_per_used_pair": float(rows[used].double().mean()),
        "classes_per_used_pair": float(sharing[used].double().mean()),
        "pairs_of_one_class": float((sharing[used] == 1).double().mean()),
        "distinct_keys": keys.report.distinct,
        "used_on_key_data": keys.report.used,
        "quantisation_error": keys.report.relative_error,
    }
    extra: dict[str, Any] = {
        "edges": EDGES,
        "fetched": count_in_bins(fetched, EDGES),
        "classes_sharing": count_in_bins(sharing, list(range(n_classes + 1))),
        "keys": {"n_codebooks": keys.n_codebooks, "n_pairs": keys.n_pairs, "key_dim": keys.key_dim},
    }
    points = _points(setup, seed, method)
    if points:
        extra["map"] = _maps(keys, data.on_device(data.keys), x_test, y_test, points)
    return Measurement(metrics, extra)


def _maps(keys: Keys, key_rows: Any, rows: Any, y: Any, points: int) -> dict[str, Any]:
    """Return heads and keys of the first codebook in the plane, for key data and target."""
    group = keys.keys[0].double().cpu().numpy()  # (K, d)
    maps: dict[str, Any] = {}
    for name, x in (("key data", key_rows), ("target", rows)):
        chosen = np.linspace(0, len(x) - 1, min(len(x), points)).astype(np.int64)
        heads = keys.heads(x[chosen])[:, 0].cpu().numpy()  # (n, d)
        coordinates, method = project_to_plane(np.concatenate([heads, group]))
        maps[name] = {
            "method": method,
            "heads": np.round(coordinates[: len(heads)], 2).tolist(),
            "keys": np.round(coordinates[len(heads) :], 2).tolist(),
            "classes": y[chosen].tolist() if name == "target" else [],
        }
    return maps


def make_table(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return one row per expiry of keys."""
    encoder, rows = get_encoder(records), {}
    for method, group in group_by(records, lambda r: r.classifier).items():
        ours = metric(group, "never_used", 100)
        rows[method] = {
            "never used (%)": ours,
            **beside("codes", method, encoder, ours),
            "fetched 10k to 150k (%)": metric(group, "fetched_10k_to_150k", 100),
            "samples per used pair": metric(group, "samples_per_used_pair"),
            "classes per used pair": metric(group, "classes_per_used_pair"),
            "of one class only (%)": metric(group, "pairs_of_one_class", 100),
            "distinct keys (%)": metric(group, "distinct_keys", 100),
        }
    return rows


def plot(records: Sequence[RunRecord], path: Path, title: str) -> Path:
    """Plot the two maps, and how often pairs are fetched."""
    mapped = [record for record in records if "map" in record.extra]
    figure, axes = make_axes(4 if mapped else 2, width=17 if mapped else 9, height=4.3)
    for ax, (name, drawn) in zip(
        axes, mapped[0].extra["map"].items() if mapped else (), strict=False
    ):
        _draw_map(ax, name, drawn)
    for number, (method, same) in enumerate(group_by(records, lambda r: r.classifier).items()):
        extra, shift = same[0].extra, 0.4 * number
        for ax, counts in ((axes[-2], extra["fetched"]), (axes[-1], extra["classes_sharing"])):
            shares = 100 * np.array(counts) / sum(counts)
            ax.bar(np.arange(len(counts)) + shift - 0.2, shares, width=0.4, label=method)
    labels = [_thousands(edge) for edge in records[0].extra["edges"]]
    axes[-2].set_xticks(range(len(labels)), labels, rotation=60, fontsize=7)
    axes[-2].set(title="fetched in 2,000 epochs, at least", ylabel="pairs (%)")
    axes[-1].set(title="classes that share a pair", ylabel="pairs (%)")
    axes[-1].legend(frameon=False)
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_map(ax: Any, name: str, drawn: dict[str, Any]) -> None:
    heads, group = np.array(drawn["heads"]), np.array(drawn["keys"])
    colours = drawn["classes"] or "#8ecae6"
    ax.scatter(
        *heads.T, s=4, c=colours, cmap="tab10" if drawn["classes"] else None, alpha=0.7, lw=0
    )
    ax.scatter(*group.T, s=1.6, c="black", lw=0)
    ax.set(title=f"{name}: heads and keys ({drawn['method']})", xticks=[], yticks=[])


def _thousands(edge: int) -> str:
    return f"{edge // 1000}k" if edge >= 1000 else str(edge)

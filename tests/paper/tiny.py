"""Data and sizes so small that every experiment runs in about a second."""

import numpy as np

from paper import experiment
from paper.experiments import load_experiment

SIZES = {
    "n_codebooks": 8,
    "n_pairs": 16,
    "key_dim": 4,
    "key_epochs": 1,
    "epochs": 2,
    "baseline_rate": 0.5,
    "evaluate_every": None,
}
CHANGES = {  # of an experiment's quick configuration, besides
    "cifar10": {
        "sdmlp_neurons": (20,),
        "sdmlp_epochs": 1,
        "sdmlp_pretraining": 1,
        "evaluate_every": 1,
    },
    "cifar100": {"sdmlp_neurons": (20,), "sdmlp_epochs": 1, "sdmlp_pretraining": 1},
    "loss": {"evaluate_every": 1},
    "key-dim": {"values": (2, 4)},
    "pairs": {"values": (4, 16)},
    "codebooks": {"values": (2, 8)},
    "fly": {"fly_epochs": (1, 50), "evaluate_at": (1, 5, 50)},
    "shift-signal": {"batches": 3, "batch_rows": 10},
    "growth": {"n_new": 4, "above": 0.5},
    "generation": {"latent": 3, "hidden": 8, "decoder_epochs": 2},
    "weight-decay": {"values": (1e-2, 1e-4)},
    "codes": {"points": 30},
    "theorem": {
        "ascent_steps": 5,
        "rows": 50,
        "cells": 3,
        "all_rows": 30,
        "books": (1, 4, 8),
        "null_books": 2,
    },
    "straight-through": {"rows": 60},
    "all-methods": {
        "ranpac_features": 30,
        "sdmlp_neurons": 20,
        "baseline_epochs": 1,
        "tasks": (("cifar10", "cifar100", 2), ("cifar100", "cifar10", 2)),
    },
}
NAMES = [
    "cifar10",
    "loss",
    "key-dim",
    "pairs",
    "codebooks",
    "key-data",
    "label-smoothing",
    "granularity",
    "fly",
    "weight-decay",
    "cifar100",
    "noise",
    "values",
    "codes",
    "decoders",
    "straight-through",
    "shift-signal",
    "growth",
    "refit",
    "generation",
    "theorem",
    "all-methods",
]


class Tiny:
    """Four far-apart classes in 16 dimensions under the names of real data sets."""

    encoder = "tiny"

    def rows(self, dataset, split):
        rng = np.random.default_rng([len(dataset), len(split)])
        y = np.repeat(np.arange(4), 40 if split == "train" else 10)
        centres = 4 * np.random.default_rng(len(dataset)).normal(size=(4, 16))
        x = centres[y] + rng.normal(size=(len(y), 16))
        return np.abs(x).astype(np.float32), y

    def has(self, dataset, split):
        return dataset in ("cifar10", "cifar100") and split in ("train", "test", "test-pixels-0.1")

    def require(self, *datasets):
        assert set(datasets) <= {"cifar10", "cifar100"}


def setup(name, seeds=(1,), **more):
    """An experiment at the smallest sizes."""
    quick = experiment.make_config(name, quick=True)
    fields = {k: v for k, v in (SIZES | CHANGES.get(name, {}) | more).items() if hasattr(quick, k)}
    return experiment.Setup(Tiny(), tuple(seeds), type(quick)(**vars(quick) | fields))


def run(name, out, seeds=(1,), **more):
    """Run it, as the command does."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = load_experiment(name).make_jobs(setup(name, seeds))
    return experiment.run_experiment(name, jobs, out, **more)

"""SDMLP as the paper compares it: many neurons, many epochs, neurons pre-trained on other data.

Its authors pre-train on ImageNet-32. Here the labelled key data are used: the same encoder, other
classes than those of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from dkvb.evaluation import streams
from dkvb.evaluation.batched_training import Run, train_batched
from dkvb.evaluation.grid import ClassifierSpec, DeviceData, make_from_spec
from dkvb.evaluation.jobs import Job, RunSpec
from dkvb.evaluation.records import RunRecord
from paper.experiment import Setup


def make_sdmlp_jobs(setup: Setup, data: DeviceData) -> list[Job]:
    """Return one job per size and seed, class-incremental.

    The configuration has `sdmlp_neurons`, `sdmlp_epochs`, `sdmlp_pretraining` (epochs) and
    `evaluate_every`.
    """
    config, jobs = setup.config, []
    for seed in setup.seeds:
        for neurons in config.sdmlp_neurons:
            settings = {
                "n_neurons": neurons,
                "epochs": config.sdmlp_epochs,
                "pretraining_epochs": config.sdmlp_pretraining,
            }
            parameters = {
                "name": "sdmlp",
                "settings": settings,
                "order": "class-incremental",
                "seed": seed,
                "classes_per_task": 2,
                "evaluate_every": config.evaluate_every,
                "matmul": "tf32" if setup.device == "cuda" else "float32",
                "data": data.names,
                "contents": data.contents,
            }
            text = f"sdmlp:n_neurons={neurons},epochs={config.sdmlp_epochs}"
            text += ",pretrained" * bool(config.sdmlp_pretraining)
            jobs.append(Job([RunSpec(text, parameters)], partial(_run, setup, data)))
    return jobs


def _run(
    setup: Setup, data: DeviceData, specs: Sequence[RunSpec], progress: bool
) -> Iterator[tuple[RunSpec, RunRecord]]:
    for spec in specs:
        settings, seed = dict(spec.parameters["settings"]), spec.parameters["seed"]
        pretraining = settings.pop("pretraining_epochs")
        classifier = make_from_spec(
            ClassifierSpec("sdmlp", "sdmlp", settings), seed=seed, device=setup.device
        )
        (x, y), (x_test, y_test) = data.train, data.test
        with tf32(setup.device):
            if pretraining:
                rows, labels = setup.source.rows(data.names["keys"], "train")
                classifier.pretrain(rows, labels, epochs=pretraining)
            kept = ("order", "settings", "data", "matmul")
            run = Run(
                classifier,
                streams.class_incremental(y, 2, seed),
                spec.classifier,
                seed,
                {name: spec.parameters[name] for name in kept},
            )
            records = train_batched(
                [run],
                (data.on_device(x), y),
                (data.on_device(x_test), y_test),
                evaluate_every=setup.config.evaluate_every,
                progress=progress,
            )
        yield spec, records[0]


@contextmanager
def tf32(device: str) -> Iterator[None]:
    """Multiply matrices in TensorFloat-32 on a GPU; elsewhere nothing changes."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

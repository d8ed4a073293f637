"""`torchrun -m dkvb evaluate` writes the records that one process writes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from .jobs import PATIENCE, free_ports

BOTTLENECK = "n_codebooks=8,n_pairs=32,key_dim=4,key_epochs=2"
CLASSIFIERS = (
    f"bottleneck:rule=counts,{BOTTLENECK}",
    f"bottleneck:rule=sgd,{BOTTLENECK}",
    "bottleneck:rule=least_squares,n_codebooks=8,n_pairs=8,key_dim=4,n_components=8",
    "prototypes",
)


def records(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {line["classifier"]: line for line in map(json.loads, lines)}


def test_two_processes_write_what_one_writes(tmp_path):
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(6, 16))
    options = []
    for name, n in (("train", 301), ("test", 103), ("keys", 200)):  # none of them even
        y = rng.integers(6, size=n)
        x = (centres[y] + rng.normal(size=(n, 16))).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.array(list("abcdef"))[y])
        options += [f"--{name}", tmp_path / f"{name}.npz"]
    for classifier in CLASSIFIERS:
        options += ["--classifier", classifier]
    evaluate = ["-m", "dkvb", "evaluate", *options, "--epochs", "2", "--json", "--out"]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--master-port", free_ports(1)[0]]
    commands = {"one": evaluate, "two": [*launch, *evaluate]}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = {
        name: subprocess.Popen(
            list(map(str, [sys.executable, *command, tmp_path / name])),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for name, command in commands.items()
    }  # fmt: skip
    printed = {name: job.communicate(timeout=PATIENCE) for name, job in running.items()}
    for name, job in running.items():
        assert job.returncode == 0, "\n".join(printed[name])
    assert json.loads(printed["two"][0]).keys() == set(CLASSIFIERS)  # printed once
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert one.keys() == two.keys() == set(CLASSIFIERS)
    assert (tmp_path / "two" / "summary.json").exists()
    for name, record in one.items():
        assert two[name]["metrics"] == pytest.approx(record["metrics"], abs=2e-6)  # rounded there
        assert two[name]["tasks"] == record["tasks"]
        for ours, theirs in zip(two[name]["curve"], record["curve"], strict=True):
            assert ours["per_class"] == theirs["per_class"]
            assert ours["test_loss"] == pytest.approx(theirs["test_loss"], abs=2e-6)
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=2e-6)
        assert record["metrics"]["final_accuracy"] > 0.5

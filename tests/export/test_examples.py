"""The examples and pages on exporting run, and do what they say."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from dkvb.baselines.prototypes import PrototypesClassifier

from .problems import NAMES, rows

ROOT = Path(__file__).parents[2]


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_pytorch_training() -> None:
    first, *_, last = example("pytorch_training")["main"]()
    assert first > 0.9
    assert last > 0.72


def test_decode_images() -> None:
    explained = example("decode_images")["main"]()
    assert sorted(explained) == [5, 6, 7, 8, 9]
    assert min(explained.values()) > 0.3  # the first digits too: nothing was forgotten


def test_sklearn_pipeline() -> None:
    validated, tested = example("sklearn_pipeline")["main"]()
    assert validated > 0.7
    assert abs(validated - tested) < 0.05


def test_deploy(tmp_path: Path) -> None:
    friday, monday, tuesday = example("deploy")["main"](tmp_path)
    assert friday > 0.77
    assert monday > 0.75
    assert tuesday > friday  # cats are the hardest


def test_avalanche_strategy_with_a_stand_in_for_experiences() -> None:
    """Not Avalanche itself: objects with the one attribute of its experiences that is read."""
    X, y = rows(400)
    y = np.searchsorted(NAMES, y)
    data = [
        TensorDataset(torch.from_numpy(X[part]), torch.from_numpy(y[part]), torch.zeros(sum(part)))
        for part in (y < 2, y >= 2)
    ]
    stream = [
        SimpleNamespace(dataset=dataset, current_experience=i) for i, dataset in enumerate(data)
    ]
    expected = PrototypesClassifier().fit(X, y)
    strategy = example("avalanche_strategy")["ClassifierStrategy"](
        PrototypesClassifier(), encoder=lambda x: x * 1.0
    )
    assert strategy.train(stream[0]) == {}
    metrics = strategy.train(stream[1:], eval_streams=[stream])
    assert metrics["Top1_Acc_Stream/eval_phase/test_stream"] == expected.score(X, y)
    of_first = metrics["Top1_Acc_Exp/eval_phase/test_stream/Exp000"]
    assert of_first == expected.score(X[y < 2], y[y < 2])
    assert metrics == strategy.eval(stream)

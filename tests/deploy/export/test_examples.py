"""The examples and pages on exporting run, and do what they say."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import dkvb
from dkvb import BottleneckClassifier

from .problems import NAMES, keys, rows

ROOT = Path(__file__).parents[3]


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
    assert validated > 0.77
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
    expected = BottleneckClassifier(keys(), rule="counts").fit(X, y)
    strategy = example("avalanche_strategy")["ClassifierStrategy"](
        BottleneckClassifier(keys(), rule="counts"), encoder=lambda x: x * 1.0
    )
    assert strategy.train(stream[0]) == {}
    metrics = strategy.train(stream[1:], eval_streams=[stream])
    assert metrics["Top1_Acc_Stream/eval_phase/test_stream"] == expected.score(X, y)
    of_first = metrics["Top1_Acc_Exp/eval_phase/test_stream/Exp000"]
    assert of_first == expected.score(X[y < 2], y[y < 2])
    assert metrics == strategy.eval(stream)


def test_api_pages_have_every_public_name(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    script = ROOT / "scripts" / "api_docs.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no name that does not resolve
    page = (tmp_path / "dkvb.html").read_text(encoding="utf-8")
    modules = {"rules": "rules", "client": "deploy/serve/client"}  # with pages of their own
    assert [n for n in dkvb.__all__ if n not in modules and f'id="{n}"' not in page] == []
    assert all((tmp_path / "dkvb" / f"{place}.html").is_file() for place in modules.values())
    assert 'id="check_onnx"' in (tmp_path / "dkvb" / "deploy" / "export.html").read_text(
        encoding="utf-8"
    )


def test_onnx_is_imported_when_it_is_needed() -> None:
    program = "import sys; from dkvb import export_onnx; print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr

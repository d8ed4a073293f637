"""Size, memory, opset, large models, and what is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dkvb.export.onnx_file as onnx_file
from dkvb import BottleneckClassifier, export_onnx, fit_keys
from dkvb.baselines.prototypes import PrototypesClassifier
from dkvb.export import check_onnx

from .problems import keys, made, rows, trained

X, Y = rows(300, seed=3)


def middling() -> BottleneckClassifier:
    x, y = rows(600, width=64)
    own = fit_keys(x, preset="paper", n_codebooks=64, n_pairs=512, key_dim=8, method="sample")
    return BottleneckClassifier(own, candidate_keys="all").fit(x, y)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_file_is_hardly_larger_than_its_tensors(dtype: str, tmp_path: Path) -> None:
    report = export_onnx(middling(), tmp_path / "model.onnx", dtype=dtype)
    assert report.file_bytes == report.path.stat().st_size
    assert 1e5 < report.tensor_bytes < report.file_bytes <= 1.1 * report.tensor_bytes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_that_of_one_codebook(tmp_path: Path) -> None:
    path = export_onnx(middling(), tmp_path / "model.onnx").path
    # Not ru_maxrss, which begins at what the process that started this one had.
    program = f"""
import numpy, onnxruntime
status = lambda: open("/proc/self/status").read()
peak = lambda: int(status().split("VmHWM:")[1].split()[0]) / 1024
session = onnxruntime.InferenceSession({str(path)!r}, providers=["CPUExecutionProvider"])
x = numpy.random.default_rng(0).normal(size=(4000, 64)).astype("float32")
run = lambda x: session.run(["probabilities"], {{"embedding": x}})
run(x[:1])
before = peak()
run(x)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    distances = 4000 * 512 * 8 / 2**20  # of one codebook: 16 MB; of all 64: 1,000 MB
    assert 0 < float(done.stdout) < 6 * distances


def test_large_models_keep_their_tensors_in_a_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "ONE_FILE", 1000)
    for name in ("used", "all"):
        report = export_onnx(trained(name), tmp_path / "model.onnx")
        assert report.external_data == tmp_path / "model.onnx.data"
        sizes = [p.stat().st_size for p in (report.path, report.external_data)]
        assert report.file_bytes == sum(sizes)
        parity = check_onnx(report.path, trained(name), X)
        assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]


@pytest.mark.parametrize("opset", [None, 18, 21])
def test_the_opset_is_the_one_asked_for(opset: Any, tmp_path: Path) -> None:
    report = export_onnx(trained("used"), tmp_path / "model.onnx", opset=opset)
    assert report.opset == (opset or 18)
    model = onnx.load(report.path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", report.opset)]
    assert check_onnx(report.path, trained("used"), X).codes_differ == 0


def test_a_graph_is_as_large_for_many_codebooks_as_for_few(tmp_path: Path) -> None:
    def nodes(C: int) -> int:
        own = fit_keys(X, preset="paper", n_codebooks=C, n_pairs=4, key_dim=2, method="sample")
        classifier = BottleneckClassifier(own).fit(X, Y)
        model = onnx.load(export_onnx(classifier, tmp_path / "model.onnx").path)
        return str(model.graph).count("op_type")

    assert nodes(2) == nodes(40) < 250


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path: Path) -> None:
    path, fitted = tmp_path / "model.onnx", trained("used")
    wrong: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (ValueError, "dtype: expected one of 'float32', 'float16'", fitted, {"dtype": "int8"}),
        (ValueError, "opset: expected None or 18 to", fitted, {"opset": 17}),
        (ValueError, "opset: expected None or 18 to", fitted, {"opset": True}),
        (ValueError, "input_shape: expected None without an encoder", fitted, {"input_shape": [3]}),
        (ValueError, "found none", fitted, {"encoder": tmp_path / "none.onnx"}),
        (TypeError, "encoder: expected a torch module", fitted, {"encoder": 3}),
        (TypeError, "classifier: expected a Bottleneck", PrototypesClassifier().fit(X, Y), {}),
        (ValueError, "not fitted", BottleneckClassifier(keys()), {}),
    ]
    for kind, message, model, settings in wrong:
        with pytest.raises(kind, match=message):
            export_onnx(model, path, **settings)
    with pytest.raises(ValueError, match="path: expected a file in a folder that exists"):
        export_onnx(fitted, tmp_path / "missing" / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_check_sees_another_model(tmp_path: Path) -> None:
    path = export_onnx(trained("used"), tmp_path / "model.onnx").path
    other = made("used", keys()).fit(X, np.roll(Y, 1))
    assert check_onnx(path, other, X).labels_differ > 50
    moved = made("used", keys("centre")).fit(X, Y)
    assert check_onnx(path, moved, X).outside_margin > 100

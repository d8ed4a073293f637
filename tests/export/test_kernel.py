"""Exported kernel classifiers answer as the classifier does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dkvb import KernelClassifier, export_onnx
from dkvb.export import as_module, check_onnx

from .problems import rows

X, Y = rows(300, seed=3)


def trained(signed: bool = True, **settings: Any) -> KernelClassifier:
    return KernelClassifier(**settings).fit(*rows(150, seed=2, signed=signed))


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("keep", ["examples", "sums"])
def test_a_file_answers_alike(keep: str, signed: bool, tmp_path: Path) -> None:
    classifier = trained(signed, keep=keep)
    x = X if signed else np.maximum(X, 0)
    report = export_onnx(classifier, tmp_path / "model.onnx")
    parity = check_onnx(report.path, classifier, x)
    assert (parity.rows, parity.codes, parity.labels_differ) == (300, 0, 0)
    assert parity.probability_difference < 1e-5


def test_half_precision_is_smaller_and_close(tmp_path: Path) -> None:
    classifier = trained()
    whole = export_onnx(classifier, tmp_path / "model.onnx")
    half = export_onnx(classifier, tmp_path / "half.onnx", dtype="float16")
    assert half.tensor_bytes < 0.7 * whole.tensor_bytes
    assert check_onnx(half.path, classifier, X).probability_difference < 0.02


def test_inputs_above_the_novelty_threshold_have_no_label(tmp_path: Path) -> None:
    classifier = trained(novelty_threshold=0.8)
    assert 0 < (classifier.predict(X) == "unknown").sum() < 300
    parity = check_onnx(export_onnx(classifier, tmp_path / "m.onnx").path, classifier, X)
    assert parity.labels_differ == 0


def test_a_module_answers_alike_and_can_be_traced() -> None:
    classifier = trained()
    x, batch = torch.from_numpy(X), {0: torch.export.Dim("batch")}
    program = torch.export.export(as_module(classifier), (x,), dynamic_shapes=(batch,))
    scores, probabilities, label = program.module()(x[:7])
    np.testing.assert_allclose(scores, classifier.decision_function(X[:7]), atol=1e-5)
    np.testing.assert_allclose(probabilities, classifier.predict_proba(X[:7]), atol=1e-5)
    assert (classifier.classes_[label] == classifier.predict(X[:7])).all()


def test_a_class_without_examples_is_never_answered(tmp_path: Path) -> None:
    classifier = KernelClassifier().partial_fit(X[:50], Y[:50], classes=[*sorted(set(Y)), "zebra"])
    _, probabilities, label = as_module(classifier)(torch.from_numpy(X))
    absent = classifier.classes_.tolist().index("zebra")
    assert (probabilities[:, absent] == 0).all()
    assert (label != absent).all()
    parity = check_onnx(export_onnx(classifier, tmp_path / "m.onnx").path, classifier, X)
    assert parity.labels_differ == 0

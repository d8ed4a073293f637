"""An ONNX file answers as the classifier does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from dkvb import BottleneckClassifier, export_onnx, fit_keys
from dkvb.export import check_onnx
from dkvb.export.head import head_of

from .problems import NAMES, SETTINGS, keys, made, rows, trained

X, Y = rows(1000, seed=3)


def answers(path: Path, x: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {session.get_inputs()[0].name: x}), strict=True))


@pytest.mark.parametrize("conditioning", ["centre", "normalised", "whitened"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_answers_alike_on_1000_rows(
    name: str, conditioning: str, tmp_path: Path
) -> None:
    classifier = trained(name, conditioning)
    report = export_onnx(classifier, tmp_path / "model.onnx")
    parity = check_onnx(report.path, classifier, X)
    assert parity.rows == 1000
    assert parity.codes == 6000
    assert parity.codes_differ == 0  # no two keys are that close here
    assert parity.probability_difference < 1e-6
    assert parity.labels_differ == 0
    scores = answers(report.path, X)["scores"]
    assert scores == pytest.approx(classifier.decision_function(X), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("projection", ["partition", "identity"])
def test_every_projection(projection: str, tmp_path: Path) -> None:
    classifier = trained("used", "centre", projection)
    report = export_onnx(classifier, tmp_path / "model.onnx")
    parity = check_onnx(report.path, classifier, X)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert parity.probability_difference < 1e-6


@pytest.mark.parametrize("power", [0.5, 0.7])
def test_powers_of_rows_that_are_never_negative(power: float, tmp_path: Path) -> None:
    x, _ = rows(300, seed=4, signed=False)
    x[0] = 0  # has no direction
    own = fit_keys(x, n_codebooks=3, n_pairs=16, key_dim=2, conditioning="half-whitened", epochs=1)
    own = replace(own, conditioning=replace(own.conditioning, power=power))
    classifier = made("used", own).fit(x, np.arange(300) % 3)
    parity = check_onnx(export_onnx(classifier, tmp_path / "m.onnx").path, classifier, x)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert parity.probability_difference < 1e-6


@pytest.mark.parametrize(("m", "C", "K", "d"), [(1, 1, 1, 1), (3, 2, 65, 1), (11, 3, 31, 13)])
def test_odd_shapes(m: int, C: int, K: int, d: int, tmp_path: Path) -> None:
    x, y = rows(130, width=m, seed=m)
    own = fit_keys(x, preset="paper", n_codebooks=C, n_pairs=K, key_dim=d, method="sample")
    classifier = made("used", own).fit(x[:K], y[:K])
    path = export_onnx(classifier, tmp_path / "model.onnx").path
    parity = check_onnx(path, classifier, x)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert parity.probability_difference < 1e-6


@pytest.mark.parametrize("name", SETTINGS)
def test_any_number_of_rows(name: str, tmp_path: Path) -> None:
    path = export_onnx(trained(name), tmp_path / "model.onnx").path
    whole = answers(path, X)["probabilities"]
    assert answers(path, X[:1])["probabilities"] == pytest.approx(whole[:1], abs=1e-6)
    parts = [answers(path, X[i : i + 300])["probabilities"] for i in range(0, 1000, 300)]
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("labels", [NAMES, np.array([7, 1, -3, 2, 5]), np.array([True, False] * 2)])
def test_labels_are_in_the_file(labels: Any, tmp_path: Path) -> None:
    x, y = rows(200, seed=5)
    y = labels[np.searchsorted(NAMES, y) % len(labels)]
    classifier = made("used", keys()).fit(x, y)
    path = export_onnx(classifier, tmp_path / "model.onnx").path
    facts = {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}
    assert facts["labels"] == classifier.classes_.tolist()
    assert facts["classifier"] == "bottleneck"
    assert facts["keys"] == classifier.keys_.fingerprint
    assert check_onnx(path, classifier, x).labels_differ == 0


def test_a_declared_class_without_rows(tmp_path: Path) -> None:
    x, y = rows(100, seed=6)
    classes = [*np.unique(y), "zebra"]
    classifier = made("used", keys()).partial_fit(x, y, classes=classes)
    path = export_onnx(classifier, tmp_path / "model.onnx").path
    parity = check_onnx(path, classifier, X)
    assert parity.probability_difference < 1e-6
    assert np.isfinite(answers(path, X)["probabilities"]).all()


def test_duplicate_keys_and_ties_go_to_the_first(tmp_path: Path) -> None:
    own = keys("centre", "identity")
    doubled = replace(own, keys=own.keys[:, [0, 1, 2, 1, 0, 3]].round().contiguous())
    x = np.round(X)  # on a grid many distances are equal
    classifier = made("used", doubled).fit(x[:50], Y[:50])
    parity = check_onnx(export_onnx(classifier, tmp_path / "m.onnx").path, classifier, x)
    assert parity.outside_margin == 0


def test_copies_of_keys_are_left_out(tmp_path: Path) -> None:
    own = keys()
    doubled = replace(own, keys=own.keys[:, [0, 1, 2, 1, 0, 3, *range(4, 20)]].contiguous())
    classifier = made("all", doubled).fit(X[:200], Y[:200])
    head = head_of(classifier)
    assert head.keys.tensor.shape == (6 * 20, 3)
    assert len({tuple(key) for key in head.keys.tensor.tolist()}) == 6 * 20
    parity = check_onnx(export_onnx(classifier, tmp_path / "m.onnx").path, classifier, X)
    assert (parity.codes_differ, parity.labels_differ) == (0, 0)
    assert parity.probability_difference < 1e-6


def test_after_growing_and_pruning(tmp_path: Path) -> None:
    classifier = made("used", keys()).fit(*rows(150, seed=2))
    classifier.grow_keys(X[:20] + 5).partial_fit(X[:20] + 5, ["fox"] * 20)
    for model in (classifier, classifier.freeze()):
        parity = check_onnx(export_onnx(model, tmp_path / "model.onnx").path, model, X + 2)
        assert (parity.codes_differ, parity.labels_differ) == (0, 0)


def test_rejected_inputs_are_labelled_minus_one(tmp_path: Path) -> None:
    classifier = made("all", keys(), novelty_threshold=0.8).fit(*rows(150, seed=2))
    path = export_onnx(classifier, tmp_path / "model.onnx").path
    assert check_onnx(path, classifier, X).labels_differ == 0
    found = answers(path, X)
    assert 0 < (found["label"] == -1).mean() < 1
    assert found["novelty"] == pytest.approx(classifier.novelty(X), abs=1e-6)


def test_rejection_by_keys_that_the_file_leaves_out_is_refused(tmp_path: Path) -> None:
    clf = made("used", keys(), novelty_threshold=0.8).fit(X[:20], Y[:20])
    with pytest.raises(ValueError, match="novelty_threshold: expected None"):
        export_onnx(clf, tmp_path / "model.onnx")
    frozen = clf.freeze()
    path = export_onnx(frozen, tmp_path / "model.onnx").path
    assert check_onnx(path, frozen, X).labels_differ == 0


@pytest.mark.parametrize("name", ["used", "all"])
def test_float16_reads_keys_rounded_to_half_precision(name: str, tmp_path: Path) -> None:
    classifier = trained(name, "whitened")
    small = export_onnx(classifier, tmp_path / "half.onnx", dtype="float16")
    full = export_onnx(classifier, tmp_path / "full.onnx")
    assert small.tensor_bytes < 0.6 * full.tensor_bytes
    assert small.dtype == "float16"
    assert full.tie_margin < 1e-12 < small.tie_margin < 0.01
    parity = check_onnx(small.path, classifier, X)
    assert parity.outside_margin == 0
    assert parity.codes_differ < 0.01 * 6000
    assert parity.labels_differ < 10
    assert parity.probability_difference < 0.01
    # The codes are those of the classifier with rounded tensors.
    halved, own = head_of(classifier).halved(), classifier.keys_
    rounded = replace(
        own,
        conditioning=replace(own.conditioning, components=halved.components.double().float()),
        projection=replace(own.projection, matrices=halved.matrices.double().float()),
        keys=_at_their_places(halved, own.keys),
    )
    active = torch.from_numpy(classifier.usage_ > 0) if name == "used" else None
    expected = rounded.codes(X, active=active).numpy()
    assert (answers(small.path, X)["codes"] == expected).all()


def _at_their_places(head: Any, keys_: Any) -> Any:
    """The head's keys at the places that they have in the classifier (C, K, d)."""
    out = keys_.clone()
    for book in range(head.n_codebooks):
        own = slice(int(head.bounds[book]), int(head.bounds[book + 1]))
        places = slice(None) if head.numbers is None else head.numbers[own].long()
        out[book, places] = head.keys.double()[own].float()
    return out


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_float16_holds_numbers_of_any_size(scale: float, tmp_path: Path) -> None:
    x, y = rows(200, seed=7)
    own = fit_keys(scale * x, preset="paper", n_codebooks=3, n_pairs=16, key_dim=3, method="sample")
    classifier = BottleneckClassifier(own, learning_rate=1e-6).fit(scale * x, y)
    report = export_onnx(classifier, tmp_path / "model.onnx", dtype="float16")
    parity = check_onnx(report.path, classifier, scale * x)
    assert parity.codes_differ < 10
    assert parity.probability_difference < 1e-6

"""`dkvb evaluate --data`: how good a classifier or a model is, from one labelled file."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dkvb.cli import app
from dkvb.estimators.registry import PrototypesClassifier
from dkvb.evaluation.cross_validation import cross_validate, score_classifier


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def samples(rng):
    y = np.repeat(["ant", "bee", "cat"], 30)
    x = 4 * np.eye(3, 6)[np.repeat(np.arange(3), 30)] + rng.normal(size=(90, 6))
    x[y == "cat"] += rng.normal(size=(30, 6)) * 3  # one class is harder than the others
    return x.astype(np.float32), y


@pytest.fixture
def file(samples, tmp_path):
    np.savez(tmp_path / "data.npz", x=samples[0], y=samples[1])
    return tmp_path / "data.npz"


def test_data_alone_cross_validates_the_default_classifier_beside_class_means(file):
    result = dkvb("evaluate", "--data", file, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    default, means = found["scores"]
    assert means == "prototypes"
    assert default != means
    assert found["folds"] == 5
    for row in found["scores"].values():
        assert row["accuracy"]["mean"] > 70
        assert row["accuracy"]["std"] is not None
        assert (row["samples"], row["classes"]) == (90, 3)
    accuracies = [row["accuracy"] for row in found["per_class"].values()]
    assert accuracies == sorted(accuracies)
    assert [row["samples"] for row in found["per_class"].values()] == [30, 30, 30]


def test_tables_and_a_summary_are_written(file, tmp_path):
    options = ("--classifier", "prototypes", "--folds", 3, "--out", tmp_path / "out")
    result = dkvb("evaluate", "--data", file, *options)
    assert result.exit_code == 0, result.output
    assert "3 folds of stratified cross-validation" in result.stdout
    _, _, per_class = result.stdout.partition("prototypes: accuracy per class\n")
    assert len(re.findall(r"^\w{3} +\d+\.\d % +30$", per_class, re.MULTILINE)) == 3, result.stdout
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["folds"] == 3
    assert dkvb("evaluate", "--data", file, *options, "--quiet").output == ""


def test_cross_validation_never_tests_on_what_it_learned(samples):
    x, y = samples
    learned = []

    class Watching(PrototypesClassifier):
        def fit(self, X, y):
            learned.append({row.tobytes() for row in X})
            return super().fit(X, y)

        def predict(self, X):
            assert not {row.tobytes() for row in X} & learned[-1]
            return super().predict(X)

    scores = cross_validate(Watching, x, y, n_folds=4, seed=1)
    assert len(learned) == scores.n_folds == 4
    assert len(scores.y_pred) == 90
    assert np.bincount(scores.fold).tolist() == [23, 23, 22, 22]


def test_small_classes_lower_the_folds_and_single_samples_are_reported(samples, tmp_path):
    x, y = samples
    y = y.astype("<U8")
    y[:3], y[3] = "rare", "single"
    scores = cross_validate(PrototypesClassifier, x, y)
    assert scores.n_folds == 3
    assert scores.left_out == {"single": 1}
    np.savez(tmp_path / "data.npz", x=x, y=y)
    result = dkvb("evaluate", "--data", tmp_path / "data.npz", "--classifier", "prototypes")
    assert re.search("1 sample .*not counted: single", " ".join(result.stderr.split()))
    with pytest.raises(ValueError, match="at least two samples of a class"):
        cross_validate(PrototypesClassifier, x[:2], np.array(["a", "b"]))
    with pytest.raises(ValueError, match="n_folds: expected"):
        cross_validate(PrototypesClassifier, x, y, n_folds=1)


def test_a_model_is_scored_and_labels_that_it_does_not_know_are_reported_apart(samples, tmp_path):
    x, y = samples
    known = y != "cat"
    np.savez(tmp_path / "train.npz", x=x[known], y=y[known])
    np.savez(tmp_path / "test.npz", x=x, y=y)
    fit = ("fit", tmp_path / "model", "--data", tmp_path / "train.npz", "--quiet")
    assert dkvb(*fit, "--classifier", "prototypes").exit_code == 0
    result = dkvb("evaluate", "--model", tmp_path / "model", "--data", tmp_path / "test.npz")
    assert result.exit_code == 0, result.output
    message = " ".join(result.stderr.split())
    assert "30 samples of labels that the model does not know are not counted: cat" in message
    scores = score_classifier(PrototypesClassifier().fit(x[known], y[known]), x, y)
    assert scores.left_out == {"cat": 30}
    assert scores.summarise()["samples"] == 60
    with pytest.raises(ValueError, match="labels that the classifier knows"):
        score_classifier(PrototypesClassifier().fit(x[known], y[known]), x[~known], y[~known])


def test_own_classifiers_are_cross_validated(file):
    spec = "sklearn.linear_model:LogisticRegression:C=0.5"
    result = dkvb("evaluate", "--data", file, "--classifier", spec, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scores"][spec]["accuracy"]["mean"] > 70


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected --data, or both --train and --test"),
        (("--data", "FILE", "--train", "FILE"), "--data: expected without --train"),
        (("--data", "FILE", "--model", "m", "--classifier", "slda"), "--classifier: expected"),
        (("--model", "m"), "--model: expected with --data"),
        (("--train", "FILE"), "both --train and --test"),
        (("--train", "FILE", "--test", "FILE"), "--classifier: expected with --train"),
        (("--train", "FILE", "--test", "FILE", "--classifier", "slda"), "--out: expected with"),
        (("--data", "FILE", "--folds", "1"), "n_folds: expected at least 2"),
        (("--data", "FILE", "--classifier", "nonesuch"), "expected one of 'bottleneck'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(file, arguments, message):
    result = dkvb("evaluate", *(file if a == "FILE" else a for a in arguments))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_test_labels_that_the_train_file_lacks_are_not_counted(samples, tmp_path):
    x, y = samples
    np.savez(tmp_path / "train.npz", x=x[y != "cat"], y=y[y != "cat"])
    np.savez(tmp_path / "test.npz", x=x, y=y)
    options = ("--train", tmp_path / "train.npz", "--test", tmp_path / "test.npz")
    result = dkvb(
        "evaluate", *options, "--classifier", "prototypes", "--classes-per-task", 1,
        "--order", "blurry", "--blurry-percent", 20, "--imbalance-factor", 3,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "30 samples of labels that the train file lacks" in " ".join(result.stderr.split())
    record = json.loads((tmp_path / "out" / "records.jsonl").read_text())
    assert record["classes"] == ["ant", "bee"]
    assert record["stream"] == "blurry-20 B0-Inc1 imbalance-3"

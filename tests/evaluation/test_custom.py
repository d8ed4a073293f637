"""Classifiers of other packages, by `module:Class`."""

import numpy as np
import pytest

from dkvb.evaluation.grid import Data, Grid, parse_spec


@pytest.fixture
def data(rng):
    def samples(n):
        y = np.repeat(np.arange(4), n)
        return (8 * np.eye(4, 6)[y] + rng.normal(size=(len(y), 6))).astype(np.float32), y

    return Data(samples(20), samples(5), samples(10)[0])


def test_any_estimator_with_partial_fit_is_trained_on_a_stream(data):
    spec = parse_spec("sklearn.linear_model:Perceptron:alpha=1e-3,shuffle=false")
    grid = Grid((spec,), orders=("class-incremental", "iid"))
    grid.smoke_test(data)
    incremental, iid = grid.run(data)
    assert incremental.metrics["final_accuracy"] > 0.9
    assert iid.metrics["final_accuracy"] > 0.9
    assert incremental.config["params"]["alpha"] == 1e-3
    assert incremental.config["params"]["shuffle"] is False
    assert incremental.classifier == spec.text


def test_seeds_reach_a_random_state(data):
    grid = Grid((parse_spec("sklearn.linear_model:SGDClassifier"),), seeds=(3,), orders=("iid",))
    (record,) = grid.run(data)
    assert record.config["params"]["random_state"] == 3


def test_without_partial_fit_only_iid_data_can_be_learned(data):
    spec = parse_spec("sklearn.tree:DecisionTreeClassifier")
    (record,) = Grid((spec,), orders=("iid",)).run(data)
    assert record.metrics["final_accuracy"] > 0.8
    with pytest.raises(TypeError, match=r"expected one with partial_fit.*DecisionTreeClassifier"):
        list(Grid((spec,)).run(data))


def test_a_module_of_the_working_directory_is_found(data, tmp_path, monkeypatch):
    (tmp_path / "my_methods.py").write_text(
        "from sklearn.linear_model import Perceptron\n\nclass Mine(Perceptron):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    (record,) = Grid((parse_spec("my_methods:Mine"),), orders=("iid",)).run(data)
    assert record.metrics["final_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nonesuch.module:Class", ValueError, "module:Class that can be imported.*nonesuch"),
        ("sklearn.naive_bayes:Missing", ValueError, "module:Class that can be imported.*Missing"),
        ("sklearn.decomposition:PCA", TypeError, "fit or partial_fit, and predict"),
        ("sklearn.naive_bayes:GaussianNB:speed=1", ValueError, "var_smoothing; got speed"),
    ],
)
def test_bad_names_are_explained(data, text, error, message):
    with pytest.raises(error, match=message):
        Grid((parse_spec(text),)).smoke_test(data)

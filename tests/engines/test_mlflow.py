"""MLflow: a model by `loader_module`, without pickle."""

import os

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mlflow")

from dkvb.engines import mlflow as flavour
from dkvb.store import create

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]


def test_a_round_trip_predicts_the_same(expected, rows, tmp_path):
    import mlflow

    X = rows[0][:50]
    create(tmp_path / "folder", expected, encoder="resnet50").close()
    flavour.save_model(tmp_path / "folder", tmp_path / "saved")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    found = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    answers = expected.predict(X)
    assert (found.predict(X) == answers).all()
    assert (found.predict(pd.DataFrame(X)) == answers).all()
    assert (found.predict(pd.DataFrame({"x": list(X)})) == answers).all()
    names = [one.name for one in (tmp_path / "saved").rglob("*")]
    assert not any(name.endswith((".pkl", ".pickle", ".cloudpickle")) for name in names)


def test_a_run_keeps_the_model(expected, rows, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = flavour.log_model(expected)
    found = mlflow.pyfunc.load_model(logged.model_uri)
    assert (found.predict(rows[0][:50]) == expected.predict(rows[0][:50])).all()
    assert isinstance(found.predict(np.asarray(rows[0][:2])), np.ndarray)

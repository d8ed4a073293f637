"""`dkvb tune`: settings for what was learned until now, exactly where asked for."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dkvb import KernelClassifier
from dkvb.cli import app
from dkvb.memory import solve
from dkvb.store import create, read_model

RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=500)
X = (RNG.normal(size=(4, 8))[Y] + 0.8 * RNG.normal(size=(500, 8))).astype(np.float32)


@pytest.fixture
def model(tmp_path):
    with create(tmp_path / "model", KernelClassifier().fit(X[:30], Y[:30])) as folder:
        folder.learn(X[30:300], Y[30:300])
    return tmp_path / "model"


def run(*arguments):
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_settings_are_those_of_a_fit_to_all_rows(model):
    assert "for its 300 rows; accuracy on them" in run("tune", model)
    tuned, fitted = read_model(model).classifier, KernelClassifier().fit(X[:300], Y[:300])
    assert tuned.setting_ == fitted.setting_
    np.testing.assert_allclose(tuned.predict_proba(X), fitted.predict_proba(X), atol=1e-5)
    assert json.loads(run("tune", model, "--json"))["rows"] == 300
    assert run("history", model).count("tune") == 2


def test_exactly_means_every_example(model, monkeypatch):
    monkeypatch.setattr(solve, "MOST_POINTS", 60)
    run("tune", model)
    cells = read_model(model).classifier
    assert (cells._state.solution.counts > 0).sum() <= 60
    run("tune", model, "--exact")
    exact = read_model(model).classifier
    assert (exact._state.solution.counts > 0).sum() == 300
    monkeypatch.undo()
    s = exact._state.solution
    direct = solve.solve(
        exact._state.memory, exact._state.outputs, s.setting, 300, s.by, s.gamma
    ).predict(X)
    assert np.abs(s.predict(X) - direct).max() < 0.02
    assert (s.predict(X).argmax(axis=1) == direct.argmax(axis=1)).mean() > 0.99
    assert exact.loo_kind_ == "leave-one-out, estimated"

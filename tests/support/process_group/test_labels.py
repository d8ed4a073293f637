"""Labels of a job: what one process meets, all of them answer for."""

from pathlib import Path

from .jobs import run

PROGRAM = """
from dkvb import BottleneckClassifier, fit_keys


def work():
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    keys = fit_keys(X, preset="paper", n_codebooks=2, n_pairs=4, key_dim=2)
    model = BottleneckClassifier(keys, rule="counts")
    own = process_group.shard(len(X))
    y = np.array(["ant"] * 10 + ["bee"] * 30)[own]  # the second process has bees only
    try:
        model.partial_fit(X[own], y, classes=["bee"])
        said = None
    except ValueError as error:
        said = str(error)
    model.partial_fit(X[own], y)
    return {"said": said, "classes": model.classes_.tolist()}
"""


def test_an_undeclared_label_in_one_process_is_refused_in_all(tmp_path: Path) -> None:
    first, second = run(PROGRAM, tmp_path, sizes=(2,))[2]
    assert first["said"] == second["said"]
    assert "y: expected labels that classes declares in this call" in first["said"]
    assert "got 'ant'" in first["said"]
    assert first["classes"] == second["classes"] == ["ant", "bee"]

"""Write files in the present format, to be read by all later versions: `python -m
tests.support.files.make_golden`. Once a version is released, its files are never written again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkvb import BottleneckClassifier, BottleneckRegressor, KeyValueBottleneck, fit_keys, rules
from dkvb._support.files import VERSION
from dkvb.estimators.registry import make_classifier
from dkvb.store import create

GOLDEN = Path(__file__).parent / "golden"


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 12)
    centres = np.array([[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 0]])
    return (centres[y] + rng.normal(size=(36, 4))).astype(np.float32).round(3), y


def models() -> dict[str, Any]:
    X, y = rows()
    names = np.array(["ant", "bee", "cat"])[y]
    keys = fit_keys(X, preset="paper", n_codebooks=4, n_pairs=6, key_dim=2, epochs=2)
    storing = rules.LeastSquares(store_samples=True)
    made: dict[str, Any] = {
        "sgd": BottleneckClassifier(keys, rule=rules.SGD(epochs=3)).fit(X, names),
        "counts": BottleneckClassifier(keys, rule="counts").fit(X, names).grow_keys(3 * X),
        "pruned": BottleneckClassifier(keys, rule="counts").fit(X, names).freeze(),
        "least_squares": BottleneckClassifier(keys, storing).fit(X, y),
        "regressor": BottleneckRegressor(keys).fit(X, y.astype(float)),
        "linear": make_classifier("linear", {"optimizer": "adam", "epochs": 9}).fit(X, y > 0),
        "mlp": make_classifier("mlp", {"hidden": 5, "epochs": 3}).fit(X, y.astype(float)),
        "prototypes": make_classifier("prototypes").fit(X, names),
        "slda": make_classifier("slda").fit(X, names),
        "ranpac": make_classifier("ranpac", {"n_features": 16}).fit(X, names),
        "neighbours": make_classifier("neighbours", {"k": 3}).fit(X, names),
    }
    return made


def answers(model: Any, X: Any) -> Any:
    method = "decision_function" if hasattr(model, "decision_function") else "predict"
    return getattr(model, method)(X).tolist()


def main() -> None:
    folder = GOLDEN / f"v{VERSION}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    X, y = rows()
    expected: dict[str, Any] = {"X": X.tolist()}
    for name, model in models().items():
        shared = folder / "keys.safetensors" if name == "sgd" else None
        how = {"keys": shared} if shared else {}
        model.save(folder / f"{name}.safetensors", **how)
        expected[name] = answers(model, X)
    counts = models()["pruned"]
    module = KeyValueBottleneck(counts.keys_, n_outputs=3, decoder="linear").eval()
    with torch.no_grad():
        module.values.copy_(torch.linspace(-1, 1, module.values.numel()).view_as(module.values))
    module.save(folder / "module.safetensors")
    expected["module"] = module(torch.from_numpy(X)).tolist()
    keys = models()["sgd"].keys_
    expected["keys"] = keys.codes(X).tolist()
    fresh = BottleneckClassifier(keys, rule="counts").fit(X, np.array(["ant", "bee", "cat"])[y])
    source = {"encoder": "an encoder", "encoder_fingerprint": "its fingerprint"}
    with create(folder / "folder", fresh, **source) as model:
        model.learn(X[:4] + 1, ["dog"] * 4)
        expected["folder"] = answers(model.classifier, X)
    (folder / "folder" / "lock").unlink()
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()

"""Learn, export to ONNX, answer without this package, add a class, export again.

    python examples/deploy.py [FOLDER]

Needs `pip install "dkvb[export]"`. `answer` is all that a server has to hold: onnxruntime, NumPy,
and the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from dkvb import KernelClassifier, export_onnx
from dkvb.embedding.datasets.bundled import load


def answer(path: Path, X: Any) -> Any:
    """The labels of embeddings X (n, m), by the file alone."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    (index,) = session.run(["label"], {"embedding": X})
    return np.array(labels)[index]


def main(folder: Path) -> list[float]:
    """Accuracies of the exported files, before and after a class is added and one removed."""
    X, y = load("cifar10", "train")
    X_test, y_test = load("cifar10", "test")
    path = folder / "animals.onnx"
    accuracies = []

    def deploy(classifier: KernelClassifier, what: str) -> None:
        report = export_onnx(classifier, path)
        known = np.isin(y_test, classifier.classes_)
        accuracies.append(float((answer(path, X_test[known]) == y_test[known]).mean()))
        size = report.file_bytes / 1e6
        print(f"{what}: {len(classifier.classes_)} classes, {size:.1f} MB, {accuracies[-1]:.1%}")

    friday = np.isin(y, ["bird", "cat", "deer", "dog"])
    classifier = KernelClassifier().fit(X[friday], y[friday])
    deploy(classifier, "Friday")
    deploy(classifier.partial_fit(X[y == "frog"], y[y == "frog"]), "Monday, with frogs")
    deploy(classifier.forget("cat"), "Tuesday, without cats")
    return accuracies


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))

"""Try an installed dkvb: python scripts/smoke_test.py (run by `make release-check`).

Learns, predicts, unlearns, saves and loads in Python and on the command line, with what the
package itself brings; nothing of the repository is imported.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import dkvb
from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
from dkvb.embedding.datasets.bundled import load


def main() -> None:
    assert version("dkvb") == dkvb.__version__
    here = Path(dkvb.__file__).resolve()
    assert here.is_relative_to(Path(sys.prefix).resolve()), f"{here} is not the installed package"
    X, y = load("cifar10", "train")
    X, y = X[:400], y[:400]
    X_test, y_test = (rows[:500] for rows in load("cifar10", "test"))
    kernel = KernelClassifier()
    for label in np.unique(y):
        kernel.partial_fit(X[y == label], y[y == label])
    assert kernel.score(X_test, y_test) > 0.75
    keys = fit_keys(load("cifar100")[0], n_codebooks=16, n_pairs=64, key_dim=8, epochs=2)
    clf = BottleneckClassifier(keys, epochs=20).fit(X, y)
    assert clf.score(X_test, y_test) > 0.5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernel.forget("cat").save(folder / "kernel.safetensors")
        assert "cat" not in dkvb.load(folder / "kernel.safetensors").classes_
        np.savez(folder / "rows.npz", x=X, y=y)

        def run(*arguments: str) -> str:
            command = [str(Path(sys.executable).parent / "dkvb"), *arguments]
            done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            return done.stdout + done.stderr

        assert run("--version").strip() == f"dkvb {dkvb.__version__}"
        run("fit", "model", "--data", "rows.npz")
        run("forget", "model", "--label", "dog")
        assert "accuracy" in run("predict", "model", "--data", "rows.npz", "--out", "answers.csv")
        assert len((folder / "answers.csv").read_text().splitlines()) == 401
    print(f"dkvb {dkvb.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()

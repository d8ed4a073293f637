"""The examples of docs/how-to/engines.md run as they are, one after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("pyspark", "ray", "distributed", "mlflow"):
    pytest.importorskip(package)

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "engines.md"
SOURCE = Path(__file__).parents[2] / "src"


def test_the_examples_run(tmp_path):
    examples = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [kind for kind, _ in examples] == ["python", "sh", *["python"] * 5]
    environment = {**os.environ, "PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = str(SOURCE)
    # What make test-engines installs of MLflow has no database.
    environment |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": "runs"}
    for i, (kind, text) in enumerate(examples):
        if kind == "sh":  # also where the command is not on the path
            text = 'dkvb() { "$PYTHON" -m dkvb "$@"; }\n' + text
        (tmp_path / f"{i}.{kind}").write_text(text)
        program = [sys.executable] if kind == "python" else ["sh", "-e"]
        done = subprocess.run(
            [*program, f"{i}.{kind}"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (text, done.stdout, done.stderr)

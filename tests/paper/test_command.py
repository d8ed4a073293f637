"""`dkvb reproduce`: what it refuses, and what it prints."""

import json

import pytest
from typer.testing import CliRunner

from dkvb.cli import app


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "epochs=1", "--set", "epochs=2"], "--set epochs: expected once; got it 2 times"),
        (["--set", "n_pairs=0"], "n_pairs: expected"),
        (
            ["--plot-only", "--seeds", "2"],
            "expected neither --set nor --seeds nor --keys",
        ),
    ],
)
def test_reproduce_refuses_in_one_line(options, message, tmp_path):
    out = ["--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, ["reproduce", "granularity", "--quick", *options, *out])
    assert found.exit_code == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_json_is_printed_however_quiet(tmp_path):
    out = ["--out", str(tmp_path), "--json", "--quiet"]
    found = CliRunner().invoke(app, ["reproduce", "toy", "--quick", "--set", "steps=2", *out])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["experiment"] == "toy"

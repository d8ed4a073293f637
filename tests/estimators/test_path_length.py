"""How far a reader has to go: functions and files that a call of the public API goes through."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import dkvb
from dkvb import BottleneckClassifier, KernelClassifier, fit_keys

ROOT = str(Path(dkvb.__file__).parent)
X = np.random.default_rng(0).normal(size=(300, 8)).astype("float32")
Y = np.where(X[:, 0] > 0, "a", "b")
KEYS = fit_keys(X, n_codebooks=4, n_pairs=16, key_dim=3, epochs=2)
MOST = {"partial_fit": (55, 14, 40), "predict": (35, 10, 20)}  # functions, files, changes of file


def path_of(call):
    """The functions of the package that a call enters, as (file, name), in order."""
    steps = []

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            steps.append((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return steps


@pytest.mark.parametrize("rule", ["sgd", "counts", "least_squares", "kernel"])
def test_few_functions_and_files_lead_from_a_call_to_its_result(rule):
    def make():
        return KernelClassifier() if rule == "kernel" else BottleneckClassifier(KEYS, rule=rule)

    make().partial_fit(X[:100], Y[:100]).predict(X[:5])  # compiled and cached for these keys
    classifier = make()
    calls = {
        "partial_fit": lambda: classifier.partial_fit(X, Y),
        "predict": lambda: classifier.predict(X[:100]),
    }
    for name, call in calls.items():
        steps = path_of(call)
        files = [file for file, _ in steps]
        changes = 1 + sum(one != other for one, other in pairwise(files))
        found = len(set(steps)), len(set(files)), changes
        assert all(n <= most for n, most in zip(found, MOST[name], strict=True)), (name, found)

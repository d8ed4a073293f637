"""Kernels are compiled once per machine: a second process loads what the first one has kept."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

from dkvb.kernels import _numba

SCRIPT = """
import json
import numpy as np
from numba.core import event

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
X = np.random.default_rng(0).normal(size=(300, 20)).astype(np.float32)
keys = fit_keys(X, n_codebooks=4, n_pairs=16, key_dim=3, epochs=1)
for classifier in (BottleneckClassifier(keys), KernelClassifier()):
    classifier.partial_fit(X, np.arange(300) % 3)
    classifier.partial_fit(X[:40], np.arange(40) % 5)
    classifier.predict(X)
    classifier.predict(X[:2])
print(json.dumps(compiled))
"""


def compiled_in_a_process() -> list[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no word about compiling where nobody asked for logs
    return json.loads(done.stdout)


def test_a_second_process_compiles_nothing():
    compiled_in_a_process()
    assert compiled_in_a_process() == []


def test_the_beginning_of_compilation_is_logged_once(caplog):
    notice = _numba._CompilationNotice()
    theirs = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=json.dumps)})
    ours = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=_numba.run)})
    with caplog.at_level(logging.INFO, "dkvb.kernels"):
        notice.on_start(theirs)
        assert caplog.records == []
        notice.on_start(ours)
        notice.on_start(ours)
    (record,) = caplog.records
    assert "compiling CPU kernels, once per machine" in record.getMessage()

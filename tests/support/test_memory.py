"""What cannot fit in memory is refused before anything is allocated or changed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
from dkvb._support import memory

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 8)).astype(np.float32)
Y = np.arange(60) % 3


@pytest.fixture(scope="module")
def keys():
    return fit_keys(X, n_codebooks=4, n_pairs=8, key_dim=3)


@pytest.fixture
def little(monkeypatch):
    """A machine with a megabyte left."""
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device="cpu": 1 << 20)


def make(name, keys):
    return KernelClassifier() if name == "kernel" else BottleneckClassifier(keys)


@pytest.mark.parametrize("name", ["kernel", "bottleneck"])
def test_more_classes_than_fit_are_refused_and_nothing_changes(keys, little, name):
    model = make(name, keys).fit(X, Y)
    before = {key: tensor.copy() for key, tensor in model.state_arrays().items()}
    with pytest.raises(
        MemoryError, match=r"it takes .* and 1\.0 MB are free; nothing was changed; "
    ):
        model.partial_fit(X[:20], Y[:20], classes=np.arange(50_000))
    assert model.classes_.tolist() == [0, 1, 2]
    assert all(np.array_equal(before[key], model.state_arrays()[key]) for key in before)


@pytest.mark.parametrize("name", ["kernel", "bottleneck"])
def test_scores_of_more_inputs_than_fit_are_refused(keys, little, name):
    model = make(name, keys).fit(X, Y)
    many = np.repeat(X, 6000, axis=0)
    for ask in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(MemoryError, match="ask for fewer inputs at a time"):
            ask(many)


def test_more_keys_than_fit_are_refused(little):
    with pytest.raises(MemoryError, match=r"keys \(64, 50, 64\): .* fit fewer pairs"):
        fit_keys(np.repeat(X, 8, axis=1), n_codebooks=64, n_pairs=50, key_dim=64)


def test_more_classes_than_can_be_numbered_are_refused():
    with pytest.raises(ValueError, match="expected at most 1048576 classes in a model"):
        KernelClassifier().partial_fit(X, Y, classes=np.arange((1 << 20) + 1))


LIMITED = """
import json, resource
from dkvb._support.memory import free_memory
from dkvb._support.validation import check_memory
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    check_memory("a table", 1 << 30, "take less")
except MemoryError as error:
    print(json.dumps([free_memory(), str(error)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_a_limit_on_the_process_counts():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    free, said = json.loads(done.stdout)
    assert 0 < free <= 1 << 29
    assert said.startswith("a table: expected to fit in memory; it takes 1.1 GB, and ")
    assert said.endswith("take less")
    assert memory.free_memory() > 0

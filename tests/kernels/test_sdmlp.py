"""A step of SDMLP: the oracle against autograd, and the Triton kernels against the oracle."""

import numpy as np
import pytest
import torch

from dkvb.baselines import sdmlp as module
from dkvb.estimators.registry import SDMLPClassifier
from dkvb.kernels.sdmlp import step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# R, b, m, N, Y, k
SHAPES = [(1, 1, 1, 2, 1, 1), (2, 3, 5, 9, 3, 4), (1, 17, 12, 67, 20, 10)]
CLIPPED, WHOLE = 0.01, 10.0  # norms of gradients


def start(runs, b, m, n, classes):
    neurons = torch.rand(runs, n, m, device=DEVICE)
    neurons = (neurons / neurons.norm(dim=2, keepdim=True)).transpose(1, 2)
    output = torch.rand(runs, n, classes, device=DEVICE)
    answered = torch.randint(0, 51, (runs, 1, n), device=DEVICE).float()
    return neurons, output, answered


@pytest.mark.parametrize(
    ("shape", "max_norm"), [*((shape, WHOLE) for shape in SHAPES), (SHAPES[1], CLIPPED)]
)
def test_the_kernels_take_the_steps_of_the_oracle(shape, max_norm):
    pytest.importorskip("triton")
    *sizes, k = shape
    runs, b, m, _, classes = sizes
    ours = start(*sizes)
    theirs = [tensor.clone() for tensor in ours]
    rate = torch.linspace(0.5, 1, runs, device=DEVICE)[:, None, None]
    for number in range(2):
        x = torch.rand(runs, b, m, device=DEVICE)
        x = (x - 0.3 * (number == 1)).relu()  # zeros, and inputs of zeros alone
        wanted = torch.eye(classes, device=DEVICE)[torch.randint(classes, (runs, b))]
        for tensors, backend in ((ours, "triton"), (theirs, "oracle")):
            step(*tensors, x, wanted, rate, k, 50, max_norm, backend)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


def test_the_weights_of_a_neuron_lie_side_by_side():
    pytest.importorskip("triton")
    neurons, *others = start(1, 2, 3, 20, 2)
    x, wanted = torch.rand(1, 2, 3, device=DEVICE), torch.rand(1, 2, 2, device=DEVICE)
    rate = torch.ones(1, 1, 1, device=DEVICE)
    with pytest.raises(ValueError, match="neurons: expected the 3 weights of a neuron side by"):
        step(neurons.contiguous(), *others, x, wanted, rate, 2, 50, 1.0, "triton")


@pytest.mark.parametrize("backend", ["oracle", "triton"])
def test_the_classifier_learns_the_same_with_it(backend, monkeypatch):
    if backend == "triton":
        pytest.importorskip("triton")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 6)).astype(np.float32), np.arange(30) % 3
    settings = {"n_neurons": 12, "k": 3, "switch_after": 30, "epochs": 2, "batch_size": 8}

    def learn():
        model = SDMLPClassifier(learning_rate=0.5, device=DEVICE, **settings)
        model.partial_fit(X[:20], y[:20])
        return model.partial_fit(X[20:], y[20:])

    expected, calls = learn(), []

    def counted(*arguments):
        calls.append(1)
        step(*arguments, backend)

    monkeypatch.setattr(SDMLPClassifier, "_has_fused_step", lambda self: True)
    monkeypatch.setattr(module, "step", counted)
    ours = learn()
    assert len(calls) == 2 * (3 + 2)
    np.testing.assert_allclose(ours.decision_function(X), expected.decision_function(X), atol=1e-5)
    assert ours._weights["neurons weight"].stride() == expected._weights["neurons weight"].stride()
    for name in expected._buffers:
        torch.testing.assert_close(ours._buffers[name], expected._buffers[name])

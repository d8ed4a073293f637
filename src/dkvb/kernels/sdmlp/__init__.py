"""One step of gradient descent on SDMLP: the forward pass, all gradients and the projection.

Once its neurons inhibit each other, about k of them are active per input. Then a batch changes few
neurons, and a step need not read the weights of the others a second time.
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from dkvb.kernels import choose

__all__ = ["step"]


def step(
    neurons: Tensor,
    output: Tensor,
    answered: Tensor,
    x: Tensor,
    wanted: Tensor,
    rate: Tensor,
    k: int,
    switch_after: int,
    max_norm: float,
    backend: str | None = None,
) -> None:
    """Change weights and counts of R models in place by one step each.

    neurons (R, m, N), whose memory holds the m weights of a neuron side by side, output (R, N, Y),
    answered (R, 1, N) the number of inputs for which each neuron was active, x (R, b, m) encoded
    inputs, wanted (R, b, Y) the distribution that each should have, rate (R, 1, 1). The gradient of
    the mean cross entropy is clipped to `max_norm` over both layers. Weights become nonnegative and
    those of a neuron have unit norm.
    """
    name = choose(neurons.device, backend)
    # There is no version for numba: on a CPU matrix products dominate.
    module = import_module(f"dkvb.kernels.sdmlp.{'oracle' if name == 'cpu' else name}")
    module.step(neurons, output, answered, x, wanted, rate, k, switch_after, max_norm)

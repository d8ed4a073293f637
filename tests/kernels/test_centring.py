"""Centring gives the same bits by every version, alone and in company."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb.kernels.centring import backend, cpu_tensors, oracle


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    n=st.integers(1, 150),
    width=st.integers(1, 300),
    power=st.sampled_from([0.5, 1.0]),
    normalise=st.booleans(),
    exponent=st.integers(-60, 60),
)
def test_the_compiled_version_has_the_bits_of_the_oracle(
    seed, n, width, power, normalise, exponent
):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, generator=generator) * 2.0**exponent
    x[0] = 0
    x[:, 0] = 0
    centre = torch.randn(width, generator=generator)
    found = cpu_tensors.centred(x, centre, power, normalise)
    assert found.dtype == torch.float64
    assert torch.equal(found, oracle.centred(x, centre, power, normalise))
    assert torch.equal(found[-1:], cpu_tensors.centred(x[-1:], centre, power, normalise))


def test_by_hand():
    x, centre = torch.tensor([[9.0, -16.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0])
    for module in (cpu_tensors, oracle):
        assert module.centred(x, centre, 0.5, False).tolist() == [[2, -4], [-1, 0]]
        assert module.centred(x, centre, 0.5, True).tolist() == [[0.6 - 1, -0.8], [-1, 0]]
        assert module.centred(x, centre, 1.0, False).tolist() == [[8, -16], [-1, 0]]
        assert module.centred(x, centre, 2.0, False).tolist() == [[80, -256], [-1, 0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bits_on_a_gpu_are_those_on_a_cpu():
    x, centre = torch.randn(300, 257), torch.randn(257)
    for power in (0.5, 1.0):
        found = backend("cuda").centred(x.cuda(), centre.cuda(), power, True)
        assert torch.equal(found.cpu(), cpu_tensors.centred(x, centre, power, True))

"""From fetched values to outputs."""

import pytest
import torch
from torch import nn

from dkvb.bottleneck.decoder import MeanPool, make_decoder


def test_the_mean_has_no_weights():
    decoder = make_decoder("mean", n_codebooks=3, value_dim=2, n_outputs=2)
    assert isinstance(decoder, MeanPool)
    assert not list(decoder.parameters())
    fetched = torch.arange(12.0).view(2, 3, 2)
    assert decoder(fetched).tolist() == [[2, 3], [8, 9]]


@pytest.mark.parametrize(("kind", "layers"), [("linear", 1), ("mlp", 2)])
def test_learned_decoders(kind, layers):
    settings = {"n_codebooks": 3, "value_dim": 4, "n_outputs": 5}
    before = torch.random.get_rng_state()
    decoder, same, other = (make_decoder(kind, **settings, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)  # nobody else's numbers change
    fetched = torch.randn(7, 3, 4)
    assert decoder(fetched).shape == (7, 5)
    assert torch.equal(decoder(fetched), same(fetched))
    assert not torch.equal(decoder(fetched), other(fetched))
    assert sum(isinstance(module, nn.Linear) for module in decoder) == layers


def test_any_module_is_taken_as_it_is():
    own = nn.Flatten()
    assert make_decoder(own, n_codebooks=3, value_dim=4, n_outputs=12) is own


def test_settings_that_do_not_fit():
    with pytest.raises(
        ValueError, match="decoder: expected one of 'mean', 'linear', 'mlp'; got 'max'"
    ):
        make_decoder("max", n_codebooks=3, value_dim=4, n_outputs=4)
    with pytest.raises(ValueError, match=r"value_dim: expected 5, one a class, .* got 4"):
        make_decoder("mean", n_codebooks=3, value_dim=4, n_outputs=5)

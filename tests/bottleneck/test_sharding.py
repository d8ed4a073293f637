"""Some codebooks of keys give rows the codes that all of them give."""

import numpy as np
import pytest
import torch

from dkvb import fit_keys
from dkvb.bottleneck.sharding import local_codebooks, some_codebooks

KINDS = {
    "gaussian": {"n_codebooks": 6, "key_dim": 3},
    "partition": {"n_codebooks": 6, "key_dim": None},
    "identity": {"n_codebooks": 6, "key_dim": None},
}


@pytest.fixture(params=KINDS)
def keys(request, rng):
    X = rng.normal(size=(200, 12)).astype(np.float32)
    return fit_keys(
        X, preset="paper", n_pairs=15, projection=request.param, epochs=1, **KINDS[request.param]
    )


@pytest.mark.parametrize("books", [slice(0, 6), slice(0, 1), slice(2, 5), slice(5, 6)])
def test_codes_are_the_same(keys, books, rng):
    X = rng.normal(size=(100, 12)).astype(np.float32)
    X[:10] = np.round(X[:10])  # some ties
    part = some_codebooks(keys, books)
    assert torch.equal(part.codes(X, top=3), keys.codes(X, top=3)[:, books])
    torch.testing.assert_close(part.heads(X), keys.heads(X)[:, books], rtol=1e-12, atol=1e-12)
    assert part.n_codebooks == len(range(6)[books])
    assert part.quantization_error.shape == (part.n_codebooks,)


def test_no_codebooks_are_refused(keys):
    with pytest.raises(ValueError, match=r"codebooks: expected at least one .* got 6 in all"):
        some_codebooks(keys, slice(6, 6))


def test_outside_of_a_job_all_are_ones_own(keys):
    assert local_codebooks(keys) is keys

"""Values and how they are fetched."""

import pytest
import torch

from dkvb.bottleneck.values import count_usage, fetch, flat_codes, mean_of_fetched, start_values


def test_starts():
    assert not start_values(2, 3, 4).any()
    normal = start_values(20, 30, 4, start="normal", scale=0.5, seed=1)
    assert normal.shape == (20, 30, 4)
    assert 0.45 < float(normal.std()) < 0.55
    assert torch.equal(normal, start_values(20, 30, 4, start="normal", scale=0.5, seed=1))
    assert not torch.equal(normal, start_values(20, 30, 4, start="normal", scale=0.5, seed=2))
    with pytest.raises(
        ValueError, match="value_start: expected one of 'zero', 'normal'; got 'one'"
    ):
        start_values(2, 3, 4, start="one")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.int32, torch.int64])
def test_fetching_by_hand(dtype):
    torch.manual_seed(0)
    values, codes = torch.randn(3, 5, 2), torch.tensor([[4, 0, 1], [4, 4, 4]]).to(dtype)
    assert flat_codes(codes, 5).tolist() == [[4, 5, 11], [4, 9, 14]]
    fetched = fetch(values, codes)
    assert torch.equal(fetched[0], torch.stack([values[0, 4], values[1, 0], values[2, 1]]))
    assert torch.equal(fetched[1], values[:, 4])
    torch.testing.assert_close(mean_of_fetched(values, codes), fetched.mean(dim=1))


def test_usage_counts_every_selection():
    usage = torch.zeros(2, 3, dtype=torch.int64)
    count_usage(usage, torch.tensor([[0, 2], [0, 1], [2, 1]], dtype=torch.int32))
    count_usage(usage, torch.tensor([[0, 0]], dtype=torch.int32))
    assert usage.tolist() == [[3, 0, 1], [1, 2, 1]]

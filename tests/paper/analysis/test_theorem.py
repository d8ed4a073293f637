import math

import pytest
import torch

from paper.analysis.theorem import (
    estimate_constant,
    estimate_rademacher,
    find_common_null_space,
    number_cells,
)


def test_cells_tell_apart_codes_and_classes():
    codes = torch.tensor([[0, 1], [0, 1], [0, 2], [0, 1]], dtype=torch.int32)
    found = number_cells(codes, torch.tensor([0, 1, 0, 0]))
    assert found[0] == found[3]
    assert len(set(found.tolist())) == 3


def test_the_constant_grows_with_codebooks_until_every_row_is_alone():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 4, (200, 8), generator=generator)
    columns = torch.randint(0, 2, (200,), generator=generator)
    found = [estimate_constant(codes[:, :books], columns, 4, 2) for books in (1, 2, 4, 8)]
    assert [f.occupied for f in found] == sorted(f.occupied for f in found)
    assert [f.estimate_constant for f in found] == sorted(f.estimate_constant for f in found)
    assert found[-1].occupied <= 200
    one_cell = estimate_constant(codes[:, :1] * 0, columns * 0, n_pairs=1, n_classes=1)
    assert one_cell.estimate_constant == 1  # one cell with every row, and ln 1 counts as 1
    assert one_cell.term == pytest.approx(math.sqrt(2 * math.log(2 * math.e / 0.05) / 200))


def test_the_null_space_is_what_every_projection_ignores():
    matrices = torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(1))  # (C, m, d)
    null = find_common_null_space(matrices)
    assert null.shape == (20, 8)
    torch.testing.assert_close(null.T @ null, torch.eye(8, dtype=torch.float64))
    heads = torch.einsum("mq,cmd->cqd", null, matrices.double())
    assert heads.abs().max() < 1e-6
    assert find_common_null_space(matrices[:, :10]).shape == (10, 0)


@pytest.mark.parametrize("hidden", [None, 16])
def test_a_free_class_follows_any_signs_and_a_held_one_does_not(hidden):
    x = torch.randn(8, 6, 32, generator=torch.Generator().manual_seed(0))
    y, mask = torch.zeros(8, 6, dtype=torch.int64), torch.ones(8, 6)
    mask[:, 4:] = 0  # only four rows are there
    shared = {"n_classes": 3, "hidden": hidden, "steps": 200}
    free = estimate_rademacher(x, y, mask, radius=1e3, **shared)
    held = estimate_rademacher(x, y, mask, radius=1e-6, **shared)
    assert (free <= 4).all()
    # All rows with sign +1 wrong and the others right: half of four on average.
    assert free.mean() > 1.2
    assert held.mean() <= free.mean()


def _every_direction(x, y, signs):
    """The largest Σ ξ · loss of two-class linear probes in the plane, over all directions."""
    angles = torch.arange(20_000) / 20_000 * 2 * math.pi
    margins = x @ torch.stack([angles.cos(), angles.sin()])  # (J, r, angles), of class 1 over 0
    wrong = torch.where(y[:, :, None] == 1, margins < 0, margins > 0).double()
    return (signs[:, :, None] * wrong).sum(dim=1).max(dim=1).values


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_on_a_tiny_class_the_estimate_is_the_brute_force_maximum(scale):
    generator = torch.Generator().manual_seed(3)
    x = scale * torch.randn(50, 6, 2, generator=generator)
    y = torch.randint(0, 2, (50, 6), generator=generator)
    signs = torch.randint(0, 2, (50, 6), generator=generator) * 2 - 1
    shared = {"n_classes": 2, "radius": 10.0, "steps": 100, "signs": signs}
    found = estimate_rademacher(x, y, torch.ones(50, 6), **shared)
    # With weights of zero no class has a higher score than the right one: the loss is 0.
    assert torch.equal(found, _every_direction(x, y, signs).clamp(min=0))


@pytest.mark.parametrize("hidden", [None, 4])
@pytest.mark.parametrize("seed", [0, 1, 1000])
def test_the_estimate_is_never_negative(hidden, seed):
    x = torch.ones(3, 40, 2)  # one input with both labels: no function follows the signs
    y = torch.arange(40).remainder(2).expand(3, 40)
    shared = {"n_classes": 2, "radius": 1.0, "steps": 20, "hidden": hidden, "seed": seed}
    assert (estimate_rademacher(x, y, torch.ones(3, 40), **shared) >= 0).all()

"""Rows before the projection: centred, optionally normalised and whitened."""

import numpy as np
import pytest
import torch

from dkvb.bottleneck.conditioning import fit_conditioning
from dkvb.bottleneck.heads import Conditioning


def test_centring_changes_no_distance():
    torch.manual_seed(0)
    x = torch.randn(20, 7)
    z = Conditioning(torch.randn(7))(x)
    assert z.dtype == torch.float64
    torch.testing.assert_close(torch.cdist(z, z), torch.cdist(x.double(), x.double()))


def test_each_step_by_hand():
    x = torch.tensor([[4.0, -9.0], [0.0, 0.0]])
    centre, components = torch.tensor([1.0, 2.0]), torch.tensor([[2.0], [1.0]])
    assert Conditioning(centre)(x).tolist() == [[3, -11], [-1, -2]]
    assert Conditioning(centre, power=0.5)(x).tolist() == [[1, -5], [-1, -2]]
    assert Conditioning(centre, components)(x).tolist() == [[-5], [-4]]
    zero = torch.zeros(2)
    torch.testing.assert_close(
        Conditioning(zero, power=2.0)(x)[0], torch.tensor([16.0, -81]).double()
    )
    unit = Conditioning(zero, normalise=True)(torch.tensor([[3.0, -4.0], [0.0, 0.0]]))
    torch.testing.assert_close(unit, torch.tensor([[0.6, -0.8], [0, 0]]).double())


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("width", [1, 5, 64, 301])
def test_the_exact_way_is_near_and_knows_no_company(width, normalise):
    torch.manual_seed(width)
    x = 100 * torch.randn(23, width)
    x[0] = 0
    whole = Conditioning(torch.randn(width), torch.randn(width, 3), 0.5, normalise)
    for conditioning in (whole, Conditioning(whole.centre, None, 1.0, normalise)):
        z = conditioning.centred(x)
        exact = conditioning.exact(z)
        alone = [conditioning.exact(conditioning.centred(row[None])) for row in x]
        assert torch.equal(torch.cat(alone), exact)
        torch.testing.assert_close(conditioning(x), exact, rtol=0, atol=1e-12 * (1 + 100 * width))
        rows, error = conditioning.with_error(z)
        assert ((rows - exact).norm(dim=1) <= error).all()
        assert (error <= 1e-12 * (1 + 100 * width)).all()


@pytest.mark.parametrize("kind", ["half-whitened", "whitened"])
@pytest.mark.parametrize("positive", [True, False])
def test_whitening(kind, positive):
    torch.manual_seed(0)
    x = torch.randn(4000, 6) * torch.tensor([9.0, 5.0, 3.0, 2.0, 1.0, 0.5])
    x = x.abs() if positive else x
    found = fit_conditioning(lambda: iter(x.split(300)), kind, n_components=4)
    assert found.power == (0.5 if positive else 1.0)
    assert found.normalise
    assert (found.width, found.output_width) == (6, 4)
    z = found(x)
    variances = z.var(dim=0)
    assert (z.mean(dim=0).abs() < 1e-3).all()
    correlation = torch.corrcoef(z.T) - torch.eye(4)
    assert correlation.abs().max() < 0.02
    plain = fit_conditioning(lambda: iter([x]), "half-whitened", n_components=4)(x).var(dim=0)
    if kind == "whitened":  # nearer to equal variances than half of the way
        assert variances.max() / variances.min() < plain.max() / plain.min()


def test_batches_do_not_matter():
    torch.manual_seed(0)
    x = torch.randn(500, 6)
    one = fit_conditioning(lambda: iter([x]), "whitened", None)
    many = fit_conditioning(lambda: iter(x.split(7)), "whitened", None)
    torch.testing.assert_close(many(x), one(x), rtol=1e-4, atol=1e-4)
    centre = fit_conditioning(lambda: iter(x.split(7)), "centre", None).centre
    torch.testing.assert_close(centre, x.mean(dim=0))


def test_few_or_equal_rows_do_no_harm():
    for x in (torch.ones(1, 3), torch.ones(5, 3), torch.zeros(4, 3)):
        found = fit_conditioning(lambda x=x: iter([x]), "whitened", None)
        assert found(x).isfinite().all()


def test_an_unknown_kind():
    with pytest.raises(ValueError, match="conditioning: expected one of 'auto', 'centre', 'norm"):
        fit_conditioning(lambda: iter([torch.ones(2, 2)]), "pca", None)


@pytest.mark.parametrize("signed", [False, True])
def test_auto_whitens_only_what_is_never_negative(rng, signed):
    X = rng.normal(size=(60, 5)).astype(np.float32)
    X = torch.from_numpy(X if signed else np.abs(X))
    found = fit_conditioning(lambda: iter([X]), "auto", None)
    kind = "normalised" if signed else "half-whitened"
    expected = fit_conditioning(lambda: iter([X]), kind, None)
    assert torch.equal(found(X), expected(X))
    assert (found.components is None) == signed
    if signed:
        unit = X.double() / X.double().norm(dim=1, keepdim=True)
        assert torch.allclose(found(X), unit - unit.mean(dim=0), atol=1e-6)

"""The conditionings to choose from: root, L2, centring, and principal axes scaled or not."""

from __future__ import annotations

import torch

from dkvb.bottleneck.conditioning import FLOOR
from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.examples import Examples

PLAIN = "none"
EXPONENTS = {PLAIN: 0.0, "1/8": 0.125, "1/4": 0.25}  # of variances, whose powers divide the axes
OF_KEYS = "keys"
CENTRED = "centred"  # neither root nor L2
FEW_DIMENSIONS = 64  # below which the length of a row may say as much as its direction


def conditionings_from_keys(conditioning: Conditioning) -> dict[str, Conditioning]:
    """The conditioning of given keys, with and without its axes, by name."""
    c = conditioning
    plain = Conditioning(c.centre, None, c.power, c.normalise)
    return {PLAIN: plain} if c.components is None else {PLAIN: plain, OF_KEYS: c}


def fit_conditionings(examples: Examples, device: torch.device | str) -> dict[str, Conditioning]:
    """Conditionings fitted to the examples, by name.

    Square root where no embedding is negative, L2, centring, and principal axes divided by
    (variance + 0.1·mean)**exponent. Axes need more examples than dimensions; without scaling they
    change no distance and are left out. With few dimensions also centring alone.
    """
    width = examples.width
    negative = any(bool((x < 0).any()) for x in examples.chunks())
    zero = torch.zeros(width, device=device)
    bare = Conditioning(zero, None, 1.0 if negative else 0.5, normalise=True)
    total = zero.double()
    for x in examples.chunks():
        total += bare(x.to(device)).sum(dim=0)
    centre = (total / len(examples)).float()
    plain = Conditioning(centre, None, bare.power, normalise=True)
    found = {PLAIN: plain}
    if width < FEW_DIMENSIONS:
        mean = examples.embeddings().double().mean(dim=0).float().to(device)
        found[CENTRED] = Conditioning(mean)
    if len(examples) <= width:
        return found
    covariance = torch.zeros((width, width), dtype=torch.float64, device=device)
    for x in examples.chunks():
        z = plain(x.to(device))
        covariance.addmm_(z.T, z)
    variance, axes = torch.linalg.eigh(covariance / len(examples))
    variance = variance.clamp(min=0)
    if float(variance.sum()) == 0:  # all examples are one
        return found
    floored = variance + FLOOR * variance.mean()
    scaled = {
        name: Conditioning(centre, (axes * floored**-exponent).float(), bare.power, normalise=True)
        for name, exponent in EXPONENTS.items()
        if exponent
    }
    return {**found, **scaled}

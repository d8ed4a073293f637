"""The conditionings to choose from: root, L2, centring, and principal axes scaled or not."""

from __future__ import annotations

import torch

from dkvb.bottleneck.conditioning import FLOOR
from dkvb.bottleneck.heads import Conditioning
from dkvb.estimators.kernel.examples import CHUNK, Examples

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
    width = examples.halves.shape[1]
    power = 1.0 if bool((examples.halves < 0).any()) else 0.5
    zero = torch.zeros(width, device=device)
    bare = Conditioning(zero, None, power, normalise=True)
    n = len(examples.halves)
    enough = n > width
    raw, total = zero.double(), zero.double()
    moment = torch.zeros((width, width) if enough else (0, 0), dtype=torch.float64, device=device)
    for start in range(0, n, CHUNK):
        x = examples.embeddings(slice(start, start + CHUNK)).to(device)
        z = bare(x)
        raw, total = raw + x.double().sum(dim=0), total + z.sum(dim=0)
        if enough:
            moment.addmm_(z.T, z)
    mean = total / n
    centre = mean.float()
    found = {PLAIN: Conditioning(centre, None, power, normalise=True)}
    if width < FEW_DIMENSIONS:
        found[CENTRED] = Conditioning((raw / n).float())
    if not enough:
        return found
    variance, axes = torch.linalg.eigh(moment / n - torch.outer(mean, mean))
    variance = variance.clamp(min=0)
    if float(variance.sum()) == 0:  # all examples are one
        return found
    floored = variance + FLOOR * variance.mean()
    for name, exponent in EXPONENTS.items():
        if exponent:
            components = (axes * floored**-exponent).float()
            found[name] = Conditioning(centre, components, power, normalise=True)
    return found

"""How far scores can be trusted: one temperature, from scores of rows that the model never saw."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PRIOR_WIDTH = math.log(4.0)  # of log T, worth about one row: a guide where there are few
_SPAN = math.log(1e4)  # either side of the guess
_STEPS = 60
_GOLDEN = (math.sqrt(5.0) - 1) / 2


def fit_temperature(
    scores: Tensor,
    columns: Tensor,
    guess: float,
    weights: Tensor | None = None,
    prior_width: float = PRIOR_WIDTH,
) -> float:
    """The T under which softmax(scores / T) gives rows (n, Y) the likeliest labels (n,).

    `weights` (n,) is how often each row counts. The order of rows and columns changes no bit. A
    broad prior around `guess` decides where there are no rows, and keeps a few rows that are all
    right from asking for certainty.

    >>> fit_temperature(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), guess=3.0)
    3.0
    """
    if len(scores) == 0:
        return guess
    own = scores.gather(1, columns[:, None])[:, 0]
    scores = scores.sort(dim=1).values  # so that rounding does not depend on the columns' order

    def loss(log_t: float) -> float:
        beta = math.exp(-log_t)
        terms = own * beta - torch.logsumexp(scores * beta, dim=1)
        terms = terms if weights is None else weights * terms
        likelihood = math.fsum(terms.tolist())  # the same whatever the order of rows
        return -likelihood + 0.5 * ((log_t - math.log(guess)) / prior_width) ** 2

    # By golden section: the loss has one valley.
    low, high = math.log(guess) - _SPAN, math.log(guess) + _SPAN
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = loss(right)
    return math.exp((low + high) / 2)

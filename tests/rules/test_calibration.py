"""One temperature, from scores and labels."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from dkvb.rules.calibration import fit_temperature


def drawn(temperature, n=3000, seed=0):
    """Scores (n, 5), and labels drawn from their softmax at some temperature."""
    rng = np.random.default_rng(seed)
    scores = 4 * temperature * rng.normal(size=(n, 5))
    shares = np.exp(scores / temperature)
    shares /= shares.sum(axis=1, keepdims=True)
    columns = (rng.random((n, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return torch.from_numpy(scores), torch.from_numpy(columns)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("guess", [1.0, 30.0])
def test_the_temperature_that_labels_were_drawn_with(temperature, guess):
    assert fit_temperature(*drawn(temperature), guess) == pytest.approx(temperature, rel=0.1)


def test_it_is_the_likeliest():
    scores, columns = drawn(2.0)

    def loss(log_t):
        return torch.nn.functional.cross_entropy(scores / np.exp(log_t), columns).item()

    best = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
    assert fit_temperature(scores, columns, guess=2.0) == pytest.approx(best, rel=1e-3)


def test_few_rows_stay_near_the_guess():
    sure = torch.tensor([[9.0, 0.0]]).double()
    assert fit_temperature(sure[:0], torch.zeros(0, dtype=torch.int64), 7.0) == 7.0
    # One row that is right asks for certainty; one that is wrong for none.
    assert 1.0 < fit_temperature(sure, torch.tensor([0]), 7.0) < 7.0
    assert 7.0 < fit_temperature(sure, torch.tensor([1]), 7.0) < 1000.0


def test_classes_without_a_chance_and_the_order_of_columns():
    scores, columns = drawn(2.0, n=200)
    plain = fit_temperature(scores, columns, 1.0)
    wider = torch.cat([scores, torch.full((200, 1), -torch.inf).double()], dim=1)
    assert fit_temperature(wider, columns, 1.0) == pytest.approx(plain, rel=1e-6)
    turned = scores.flip(1), 4 - columns
    assert fit_temperature(*turned, 1.0) == plain


def test_weights_are_repeated_rows(rng):
    scores, columns = drawn(2.0)
    scores, columns = scores[:50], columns[:50]
    times = torch.from_numpy(rng.integers(1, 4, size=50))
    repeated = scores.repeat_interleave(times, 0), columns.repeat_interleave(times)
    weighted = fit_temperature(scores, columns, 1.0, times.double())
    assert weighted == pytest.approx(fit_temperature(*repeated, 1.0), rel=1e-6)


def test_the_order_of_rows_changes_no_bit(rng):
    scores, columns = drawn(2.0)
    turned = torch.from_numpy(rng.permutation(len(scores)))
    plain = fit_temperature(scores, columns, 1.0)
    assert fit_temperature(scores[turned], columns[turned], 1.0) == plain

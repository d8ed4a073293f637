"""Expected calibration error, by hand and by its extremes."""

import numpy as np
import pytest

from dkvb.evaluation.metrics import expected_calibration_error


def test_by_hand():
    shares = [[0.95, 0.05], [0.91, 0.09], [0.4, 0.6], [0.35, 0.65]]
    # In ten bins: accuracy 1/2 at confidence 0.93, 0 at 0.6, 1 at 0.65.
    expected = (2 * abs(0.5 - 0.93) + 0.6 + 0.35) / 4
    found = expected_calibration_error(["a", "b", "a", "b"], shares, ["a", "b"], n_bins=10)
    assert found == pytest.approx(expected)


def test_extremes(rng):
    y = rng.integers(3, size=500)
    sure = np.eye(3)[y]
    assert expected_calibration_error(y, sure, range(3)) == 0
    assert expected_calibration_error(y, np.roll(sure, 1, axis=1), range(3)) == 1
    confidence = rng.uniform(0.5, 1, size=20000)
    right = (rng.random(20000) > confidence).astype(int)
    shares = np.stack([confidence, 1 - confidence], axis=1)
    assert expected_calibration_error(right, shares, [0, 1]) < 0.02
    assert expected_calibration_error(right, shares, [0, 1], n_bins=1) < 0.01


@pytest.mark.parametrize(
    ("y", "shares", "settings", "says"),
    [
        ([0], [[0.5, 0.5, 0.0]], {}, "probabilities: expected shape"),
        ([], np.zeros((0, 2)), {}, "probabilities: expected shape"),
        ([0], [[2.0, -1.0]], {}, "from 0 to 1"),
        ([0], [[np.nan, 1.0]], {}, "from 0 to 1"),
        ([7], [[0.5, 0.5]], {}, "y_true"),
        ([0], [[0.5, 0.5]], {"n_bins": 0}, "n_bins"),
    ],
)
def test_bad_input(y, shares, settings, says):
    with pytest.raises(ValueError, match=says):
        expected_calibration_error(y, shares, [0, 1], **settings)

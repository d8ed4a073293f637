"""Every registered classifier passes scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from .settings import NAMES, small

VARIANTS = [
    *(small(name) for name in NAMES),
    small("linear", bias=False, optimizer="adam", learning_rate=0.1),
    small("prototypes", metric="cosine"),
    small("slda", shrinkage="oas"),
    small("neighbours", metric="euclidean"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(VARIANTS)
def test_scikit_learn_check(estimator, check):
    check(estimator)

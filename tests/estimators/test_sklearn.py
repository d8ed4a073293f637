"""Every registered classifier passes scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkvb import BottleneckClassifier, KernelClassifier
from dkvb.estimators.registry import RanPACClassifier

from .settings import NAMES, small

VARIANTS = [
    *(small(name) for name in NAMES),
    small("linear", bias=False, optimizer="adam", learning_rate=0.1),
    small("prototypes", metric="cosine"),
    small("slda", shrinkage="oas"),
    small("neighbours", metric="euclidean"),
]


def expected_failures(estimator):
    """Checks that an estimator need not pass, and why."""
    if isinstance(estimator, RanPACClassifier):
        return {"check_class_weight_classifiers": "weights are factors of scores, not a mapping"}
    if isinstance(estimator, KernelClassifier):
        # The check asks for each label whose probability is above one half.
        return {"check_classifier_multioutput": "labels have the threshold of the highest F1"}
    if not isinstance(estimator, BottleneckClassifier):
        return {}
    # That weights repeat rows is held, with keys given, by test_inputs.
    order = "keys that are fitted to the rows depend on their order, which this check changes"
    return {"check_sample_weight_equivalence_on_dense_data": order}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(VARIANTS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, scikit-learn skips a check
    check(estimator)

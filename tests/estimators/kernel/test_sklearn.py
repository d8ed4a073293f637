"""The kernel classifier passes scikit-learn's own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dkvb.estimators.kernel import KernelClassifier


@parametrize_with_checks([KernelClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)

"""Kernel ridge regression over the learned examples, with every setting chosen by leave-one-out."""

from dkvb.estimators.kernel.classifier import KernelClassifier
from dkvb.estimators.kernel.explain import Influence, KernelExplanation
from dkvb.estimators.kernel.quality import Suspect

KernelClassifier.__module__ = __name__  # files name an estimator by its module

__all__ = ["Influence", "KernelClassifier", "KernelExplanation", "Suspect"]

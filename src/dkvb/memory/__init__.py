"""What is learned in closed form: examples, or a count and a sum per key and class, read by kernel
ridge regression."""

from dkvb.memory.classifier import KernelClassifier
from dkvb.memory.explain import Influence, KernelExplanation
from dkvb.memory.quality import Suspect
from dkvb.memory.regressor import KernelRegressor

KernelClassifier.__module__ = __name__  # files name an estimator by its module
KernelRegressor.__module__ = __name__

__all__ = ["Influence", "KernelClassifier", "KernelExplanation", "KernelRegressor", "Suspect"]

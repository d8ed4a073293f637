"""A multilayer perceptron with one hidden layer."""

from __future__ import annotations

import numpy as np
from torch import nn

from dkvb._validate import positive_int
from dkvb.classifiers._gradient import GradientClassifier, zero_linear


class MLPClassifier(GradientClassifier):
    """One hidden layer of rectified units on the embeddings, trained with softmax cross entropy.

    Needs: no task boundaries, no replay, no classes known in advance (a new label adds a column of
    zeros to the last layer). Forgets earlier classes when later ones come without them.
    Memory: (m + 1)·hidden + (hidden + 1)·Y float32 weights, three times that with Adam.

    >>> mlp = MLPClassifier(hidden=16, optimizer="adam", learning_rate=0.1, epochs=50)
    >>> mlp.partial_fit([[0.0], [1.0], [2.0]], [0, 1, 0]).predict([[0.0], [1.0], [2.0]])
    array([0, 1, 0])
    """

    def __init__(
        self,
        *,
        hidden: int = 128,
        epochs: int = 1,
        batch_size: int = 256,
        learning_rate: float = 0.001,
        optimizer: str = "sgd",
        label_smoothing: float = 0.1,
        weight_decay: float = 0.0,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.label_smoothing = label_smoothing
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.device = device

    def _check_settings(self) -> None:
        positive_int("hidden", self.hidden)
        super()._check_settings()

    def _network(self, width: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(width, self.hidden), nn.ReLU(), zero_linear(self.hidden, 1, bias=True)
        )

"""The linear probe: what forgets in the paper's figures."""

from __future__ import annotations

import numpy as np
from torch import nn

from dkvb.classifiers._gradient import GradientClassifier, zero_linear


class LinearClassifier(GradientClassifier):
    """A linear layer on the embeddings, trained with softmax cross entropy.

    Needs: no task boundaries, no replay, no classes known in advance (a new label adds a column of
    zeros). Forgets earlier classes when later ones come without them: the paper's baseline.
    Memory: (m + 1)·Y float32 weights, three times that with Adam.

    >>> probe = LinearClassifier(learning_rate=0.5, epochs=20)
    >>> probe.partial_fit([[0.0], [1.0], [2.0]], ["low", "high", "high"]).predict([[-3.0], [3.0]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        *,
        bias: bool = True,
        epochs: int = 1,
        batch_size: int = 256,
        learning_rate: float = 0.001,
        optimizer: str = "sgd",
        label_smoothing: float = 0.1,
        weight_decay: float = 0.0,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.bias = bias
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.label_smoothing = label_smoothing
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.device = device

    def _network(self, width: int) -> nn.Sequential:
        return nn.Sequential(zero_linear(width, 1, self.bias))

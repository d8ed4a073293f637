"""A multilayer perceptron with one hidden layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dkvb._support.validation import positive_int
from dkvb.baselines._consolidation import Layer, Signals
from dkvb.baselines._layers import linear_layer, make_empty_output, make_random_layer
from dkvb.baselines._optimizers import Tensors
from dkvb.baselines.gradient import GradientClassifier


@dataclass(kw_only=True, eq=False, repr=False)
class MLPClassifier(GradientClassifier):
    """One hidden layer of rectified units on the embeddings, trained with softmax cross entropy.

    Needs: no task boundaries. Rehearsal-free; classes need not be known in advance (a new class
    adds a column of zeros to the last layer). It forgets classes that do not occur in later tasks.
    Memory: (m + 1)·hidden + (hidden + 1)·Y float32 weights, three times that with Adam.

    >>> mlp = MLPClassifier(hidden=16, optimizer="adam", learning_rate=0.1, epochs=50)
    >>> mlp.partial_fit([[0.0], [1.0], [2.0]], [0, 1, 0]).predict([[0.0], [1.0], [2.0]])
    array([0, 1, 0])
    """

    hidden: int = 128

    def _check_settings(self) -> None:
        positive_int("hidden", self.hidden)
        super()._check_settings()

    def _make_weights(self, width: int) -> Tensors:
        return make_random_layer("hidden", width, self.hidden) | make_empty_output(self.hidden)

    def _forward(self, weights: Tensors, buffers: Tensors, x: Tensor, learning: bool) -> Signals:
        before = linear_layer(weights, "hidden", x)  # (R, b, hidden)
        hidden = before.relu()
        logits = linear_layer(weights, "output", hidden)  # (R, b, Y)
        layers = {"hidden": Layer(x, before), "output": Layer(hidden, logits)}
        return Signals(logits, layers)

"""The linear probe."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dkvb.baselines._consolidation import Layer, Signals
from dkvb.baselines._layers import linear_layer, make_empty_output
from dkvb.baselines._optimizers import Tensors
from dkvb.baselines.gradient import GradientClassifier


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(GradientClassifier):
    """A linear layer on the embeddings, trained with softmax cross entropy.

    Needs: no task boundaries. Rehearsal-free; classes need not be known in advance (a new class
    adds a column of zeros). It forgets classes that do not occur in later tasks.
    Memory: (m + 1)·Y float32 weights, three times that with Adam.

    >>> probe = LinearClassifier(learning_rate=0.5, epochs=20)
    >>> probe.partial_fit([[0.0], [1.0], [2.0]], ["low", "high", "high"]).predict([[-3.0], [3.0]])
    array(['low', 'high'], dtype='<U4')
    """

    bias: bool = True

    def _make_weights(self, width: int) -> Tensors:
        return make_empty_output(width, self.bias)

    def _forward(self, weights: Tensors, buffers: Tensors, x: Tensor, learning: bool) -> Signals:
        logits = linear_layer(weights, "output", x)  # (R, b, Y)
        return Signals(logits, {"output": Layer(x, logits)})

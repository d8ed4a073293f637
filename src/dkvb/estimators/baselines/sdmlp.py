"""The sparse distributed memory as an MLP: few neurons answer to an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dkvb._support.validation import positive_int
from dkvb.estimators.baselines._consolidation import Layer, Signals
from dkvb.estimators.baselines._layers import empty_output, random_layer, through
from dkvb.estimators.baselines._optimizers import Tensors
from dkvb.estimators.baselines.ewc import ConsolidatingClassifier


@dataclass(kw_only=True, eq=False, repr=False)
class SDMLPClassifier(ConsolidatingClassifier):
    """One hidden layer in which neurons inhibit each other until about k are active.

    Bricken et al. (2023). Inputs are rectified and of unit length; weights are never negative, and
    those of a neuron are of unit length. From each activation a share g of the (k + 1)-th largest
    is taken. g grows with the inputs that a neuron was active for, from −1, where all neurons are
    excited and learn, to 1 after `switch_after` of them, where all but the best k are silent.
    Negative numbers in embeddings are lost, so that encoders with rectified outputs suit it.

    Needs: no task boundaries, no replay, no classes known in advance. With `ewc_strength` above 0
    it needs task boundaries, as `EWCClassifier` does.
    Memory: m·n_neurons + n_neurons·Y float32 weights, three times that with consolidation.

    >>> sdmlp = SDMLPClassifier(n_neurons=30, k=3, learning_rate=1.0, epochs=20)
    >>> sdmlp.partial_fit([[0.0, 1.0], [1.0, 0.0]], ["up", "right"]).predict([[0.1, 3.0]])
    array(['up'], dtype='<U5')
    """

    n_neurons: int = 1000
    k: int = 10
    switch_after: int = 500_000
    batch_size: int = 128
    learning_rate: float = 0.05
    label_smoothing: float = 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # negative numbers are lost, and lengths
        return tags

    def _check_settings(self) -> None:
        positive_int("n_neurons", self.n_neurons)
        if positive_int("k", self.k) >= self.n_neurons:
            raise ValueError(f"k: expected fewer than n_neurons = {self.n_neurons}; got {self.k}")
        positive_int("switch_after", self.switch_after)
        super()._check_settings()

    def _first_weights(self, width: int) -> Tensors:
        weights = random_layer("neurons", width, self.n_neurons, bias=False)
        weights |= empty_output(self.n_neurons, bias=False)
        if not weights["neurons weight"].is_meta:  # else it is their shapes that are asked for
            _allow({name: weight[None] for name, weight in weights.items()})
        return weights

    def _first_notes(self, weights: Tensors) -> Tensors:
        device = weights["neurons weight"].device
        counts = torch.zeros((1, self.n_neurons), device=device)
        return super()._first_notes(weights) | {"inputs answered": counts}

    def _encode(self, x: Tensor) -> Tensor:
        return normalize(x.relu(), dim=1)

    def _forward(self, weights: Tensors, notes: Tensors, x: Tensor, learning: bool) -> Signals:
        before = through(weights, "neurons", x)  # (R, b, N)
        excited = before.relu()
        runner_up = excited.detach().topk(self.k + 1, dim=2).values[:, :, -1:]  # (R, b, 1)
        answered = notes["inputs answered"]  # (R, 1, N)
        switch = 2 * answered / self.switch_after - 1  # from excitation to inhibition
        active = (excited - switch * runner_up).relu()
        if learning:
            seen = (active.detach() > 0).sum(dim=1, keepdim=True)
            answered.add_(seen).clamp_(max=self.switch_after)
        logits = through(weights, "output", active)  # (R, b, Y)
        layers = {"neurons": Layer(x, before), "output": Layer(active, logits)}
        return Signals(logits, layers)

    def _after_step(self, weights: Tensors) -> None:
        _allow(weights)


def _allow(weights: Tensors) -> None:
    """No weight below 0, and the weights of each neuron of unit length; (R, ...) in place."""
    for weight in weights.values():
        weight.clamp_(min=0)
    neurons = weights["neurons weight"]  # (R, m, N)
    neurons.div_(neurons.norm(dim=1, keepdim=True).clamp_(min=1e-12))

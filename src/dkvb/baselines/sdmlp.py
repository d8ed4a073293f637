"""SDMLP: sparse distributed memory as an MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from torch import Tensor
from torch.nn.functional import normalize

from dkvb._support.validation import positive_int
from dkvb.baselines._consolidation import Layer, Signals
from dkvb.baselines._layers import linear_layer, make_empty_output, make_random_layer
from dkvb.baselines._optimizers import Tensors
from dkvb.baselines.ewc import ConsolidatingClassifier


@dataclass(kw_only=True, eq=False, repr=False)
class SDMLPClassifier(ConsolidatingClassifier):
    """One hidden layer in which about k neurons are active per input.

    Bricken et al. (2023). Inputs are rectified and normalised, weights are nonnegative, and the
    weights of a neuron have unit norm. From each activation g times the (k + 1)-th largest is
    subtracted. g grows with the inputs for which the neuron was active, from −1 (excitation) to 1
    (inhibition) after `switch_after` of them. Negative entries of embeddings are lost.

    Needs: no task boundaries, unless `ewc_strength` is above 0. Rehearsal-free; classes need not be
    known in advance.
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
        tags.classifier_tags.poor_score = True  # negative entries and norms are lost
        return tags

    def _check_settings(self) -> None:
        positive_int("n_neurons", self.n_neurons)
        if positive_int("k", self.k) >= self.n_neurons:
            raise ValueError(f"k: expected fewer than n_neurons = {self.n_neurons}; got {self.k}")
        positive_int("switch_after", self.switch_after)
        super()._check_settings()

    def pretrain(self, X: ArrayLike, y: ArrayLike, *, epochs: int) -> Self:
        """Train the neurons on labelled data of other classes, before the first `partial_fit`.

        Their weights and their switch from excitation to inhibition are kept; the outputs are
        discarded.

        >>> sdmlp = SDMLPClassifier(n_neurons=30, k=3).pretrain([[0.0, 1.0]], ["a"], epochs=2)
        >>> sdmlp.partial_fit([[0.0, 1.0]], ["up"]).classes_
        array(['up'], dtype='<U2')
        """
        if hasattr(self, "_labels"):
            raise ValueError(
                "pretrain: expected a classifier that has learned nothing; got a fitted one; "
                "pre-train a clone"
            )
        teacher = clone(self).set_params(epochs=positive_int("epochs", epochs)).partial_fit(X, y)
        self._pretrained = {
            "neurons weight": teacher._weights["neurons weight"],
            "inputs answered": teacher._buffers["inputs answered"],
        }
        return self

    def _make_weights(self, width: int) -> Tensors:
        weights = make_random_layer("neurons", width, self.n_neurons, bias=False)
        weights |= make_empty_output(self.n_neurons, bias=False)
        start = getattr(self, "_pretrained", {})
        if start and start["neurons weight"].shape != weights["neurons weight"].shape:
            raise ValueError(
                f"X: expected {len(start['neurons weight'])} features, as in pretrain; got {width}"
            )
        if weights["neurons weight"].is_meta:  # only shapes are needed
            return weights
        if start:
            weights["neurons weight"] = start["neurons weight"].clone()
        else:
            _project({name: weight[None] for name, weight in weights.items()})
        return weights

    def _make_buffers(self, weights: Tensors) -> Tensors:
        device = weights["neurons weight"].device
        counts = torch.zeros((1, self.n_neurons), device=device)
        start = getattr(self, "_pretrained", {})
        if start and not counts.is_meta:
            counts = start["inputs answered"].to(device, copy=True)
        return super()._make_buffers(weights) | {"inputs answered": counts}

    def _encode(self, x: Tensor) -> Tensor:
        return normalize(x.relu(), dim=1)

    def _forward(self, weights: Tensors, buffers: Tensors, x: Tensor, learning: bool) -> Signals:
        before = linear_layer(weights, "neurons", x)  # (R, b, N)
        excited = before.relu()
        runner_up = excited.detach().topk(self.k + 1, dim=2).values[:, :, -1:]  # (R, b, 1)
        answered = buffers["inputs answered"]  # (R, 1, N)
        switch = 2 * answered / self.switch_after - 1  # from excitation to inhibition
        active = (excited - switch * runner_up).relu()
        if learning:
            seen = (active.detach() > 0).sum(dim=1, keepdim=True)
            answered.add_(seen).clamp_(max=self.switch_after)
        logits = linear_layer(weights, "output", active)  # (R, b, Y)
        layers = {"neurons": Layer(x, before), "output": Layer(active, logits)}
        return Signals(logits, layers)

    def _after_step(self, weights: Tensors) -> None:
        _project(weights)


def _project(weights: Tensors) -> None:
    """Make weights (R, ...) nonnegative and those of each neuron of unit norm, in place."""
    for weight in weights.values():
        weight.clamp_(min=0)
    neurons = weights["neurons weight"]  # (R, m, N)
    neurons.div_(neurons.norm(dim=1, keepdim=True).clamp_(min=1e-12))

"""Heads that learn by gradient descent: what the linear probe and the MLP share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from dkvb._validate import one_of, positive_int, real
from dkvb.classifiers._base import Columns, Floats, Rows, StreamClassifier, check_device, softmax
from dkvb.kernels.hashing import epoch_order

_SCORED_ROWS = 4096  # rows scored at a time, which bounds memory


class GradientClassifier(StreamClassifier):
    """Softmax cross entropy over all columns, in shuffled batches, gradient norm clipped at 1.

    One `partial_fit` is `epochs` passes over the rows given; k calls with one epoch equal one call
    with k. Adam's state lives on between calls, until a new column appears or `reset_optimizer`.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    optimizer: str
    label_smoothing: float
    weight_decay: float
    random_state: int | np.random.RandomState | None
    device: str

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The softmax of the scores (n, Y)."""
        return softmax(self._sorted_scores(X))

    def reset_optimizer(self) -> Self:
        """Drop the optimiser's memory, as one would between tasks."""
        self._optimizer = self._new_optimizer()
        return self

    @abstractmethod
    def _network(self, width: int) -> nn.Sequential:
        """The layers; the last is a `zero_linear` with one column, which `_grow` widens."""

    def _check_settings(self) -> None:
        positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size)
        real("learning_rate", self.learning_rate, low=0, low_open=True)
        real("label_smoothing", self.label_smoothing, low=0, high=1)
        real("weight_decay", self.weight_decay, low=0)
        one_of("optimizer", self.optimizer, ("sgd", "adam"))
        check_device(self.device)

    def _start(self, width: int) -> None:
        self._seed_ = self._seed(self.random_state)
        with torch.random.fork_rng(devices=[]):  # the caller's generator is left alone
            torch.manual_seed(self._seed_)
            self._module = self._network(width).to(self.device)
        self._epoch = 0
        self._optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        parameters, rate, decay = self._module.parameters(), self.learning_rate, self.weight_decay
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
        return torch.optim.SGD(parameters, lr=rate, weight_decay=decay)

    def _grow(self, n_columns: int) -> None:
        head = self._module[-1]
        assert isinstance(head, nn.Linear)
        if n_columns == head.out_features:
            return
        # A column that never learned says nothing: its logit is zero.
        wider = zero_linear(head.in_features, n_columns, head.bias is not None).to(self.device)
        with torch.no_grad():
            for new, old in zip(wider.parameters(), head.parameters(), strict=True):
                new[: len(old)] = old
        self._module[-1] = wider
        self._optimizer = self._new_optimizer()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        x = torch.from_numpy(rows).to(self.device)  # (n, m)
        y = torch.from_numpy(columns).to(self.device)  # (n,)
        for group in self._optimizer.param_groups:  # `set_params` between calls takes effect
            group.update(lr=self.learning_rate, weight_decay=self.weight_decay)
        for _ in range(self.epochs):
            order = epoch_order(len(x), self._seed_, self._epoch, x.device)  # (n,)
            for batch in order.split(self.batch_size):  # the last, smaller batch is kept
                self._step(x[batch], y[batch])
            self._epoch += 1

    def _step(self, x: Tensor, y: Tensor) -> None:
        loss = functional.cross_entropy(self._module(x), y, label_smoothing=self.label_smoothing)
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
        self._optimizer.step()

    @torch.no_grad()
    def _scores(self, rows: Rows) -> Floats:
        # In float64, so that a row's scores do not depend on the rows scored beside it.
        scores = []
        for block in torch.from_numpy(rows).split(_SCORED_ROWS):
            signal = block.to(self.device, torch.float64)
            for layer in self._module:
                if isinstance(layer, nn.Linear):
                    bias = None if layer.bias is None else layer.bias.double()
                    signal = functional.linear(signal, layer.weight.double(), bias)
                else:
                    signal = layer(signal)
            scores.append(signal.cpu().numpy())
        return np.concatenate(scores)  # (n, Y)


def zero_linear(width: int, n_columns: int, bias: bool) -> nn.Linear:
    """A linear layer whose outputs are all zero until it learns."""
    layer = nn.utils.skip_init(nn.Linear, width, n_columns, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert isinstance(layer, nn.Linear)
    return layer

"""Elastic weight consolidation on the MLP. It needs task boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dkvb._support.validation import one_of, real
from dkvb.baselines._consolidation import fisher, make_ewc_buffers
from dkvb.baselines._optimizers import Tensors
from dkvb.baselines.gradient import GradientClassifier
from dkvb.baselines.mlp import MLPClassifier
from dkvb.estimators.base import Columns, Rows

_BLOCK = 1024  # samples at a time, which bounds memory


@dataclass(kw_only=True, eq=False, repr=False)
class ConsolidatingClassifier(GradientClassifier):
    """Base of classifiers with elastic weight consolidation.

    A task ends with every call of `partial_fit` (`boundary="call"`), or with `end_task` only
    (`boundary="told"`).
    """

    ewc_strength: float = 0.0
    boundary: str = "call"

    _OWN: ClassVar = GradientClassifier._OWN | {"ewc_strength"}

    @property
    def learns_in_epochs(self) -> bool:
        """Whether k calls with one epoch equal one call with k: not if every call is a task."""
        return self.boundary == "told" or self.ewc_strength == 0

    def end_task(self, X: ArrayLike) -> Self:
        """End a task: estimate the Fisher information on its samples X."""
        check_is_fitted(self, "_labels")
        rows = self._as_rows(X)
        self._remember_features(X, reset=False)
        self._consolidate(torch.from_numpy(rows).to(self.device))
        return self

    def _check_settings(self) -> None:
        real("ewc_strength", self.ewc_strength, low=0)
        one_of("boundary", self.boundary, ("call", "told"))
        super()._check_settings()

    def _ewc_strength(self) -> float:
        return self.ewc_strength

    def _make_buffers(self, weights: Tensors) -> Tensors:
        return super()._make_buffers(weights) | (
            make_ewc_buffers(weights) if self.ewc_strength else {}
        )

    def _learn(self, rows: Rows, columns: Columns) -> None:
        self._buffers = (
            self._make_buffers(self._weights) | self._buffers
        )  # the strength may have changed
        super()._learn(rows, columns)
        if self.boundary == "call":
            self._consolidate(torch.from_numpy(rows).to(self.device))

    def _consolidate(self, x: Tensor) -> None:
        if self.ewc_strength == 0:
            return
        weights = {k: w.detach()[None].requires_grad_() for k, w in self._weights.items()}
        buffers = {name: buffer[None] for name, buffer in self._buffers.items()}
        for block in x.split(_BLOCK):
            with torch.enable_grad():
                signals = self._forward(weights, buffers, self._encode(block)[None], learning=False)
            information = fisher(signals)
            for name, weight in self._weights.items():
                share = information[name][0] / len(x)  # of the mean over samples
                self._buffers[f"precision of {name}"].add_(share)
                self._buffers[f"pull of {name}"].addcmul_(share, weight)


@dataclass(kw_only=True, eq=False, repr=False)
class EWCClassifier(ConsolidatingClassifier, MLPClassifier):
    """The MLP with elastic weight consolidation (Kirkpatrick et al., 2017).

    At the end of a task with weights θ*, ½·`ewc_strength`·F·(θ − θ*)² is added to the loss, where F
    is the diagonal of the Fisher information. The terms of all tasks add up.

    Needs: task boundaries (every call of `partial_fit`, or `end_task`). Rehearsal-free; classes
    need not be known in advance.
    Memory: three times the MLP's weights, five times with Adam.

    >>> mlp = EWCClassifier(hidden=16, optimizer="adam", learning_rate=0.1, epochs=50)
    >>> mlp.partial_fit([[0.0], [1.0], [2.0]], [0, 1, 0]).predict([[0.0], [1.0], [2.0]])
    array([0, 1, 0])
    """

    ewc_strength: float = 100.0

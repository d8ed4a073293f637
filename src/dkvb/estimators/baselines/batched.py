"""Models of one architecture trained side by side, each with its own rows, order and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dkvb._support.hashing import epoch_orders
from dkvb.estimators.baselines._consolidation import add_pull
from dkvb.estimators.baselines._optimizers import OPTIMIZERS, Rates, Tensors

if TYPE_CHECKING:
    from dkvb.estimators.baselines.gradient import GradientClassifier

STEPS_A_GRAPH = 64  # of training, recorded as one CUDA graph
_ORDERS_AT_ONCE = 1 << 24  # row numbers of epochs drawn ahead: 128 MB


class BatchedTrainer:
    """R models that learn from shared rows x (n, m) with labels in columns y (n,).

    While the stack lives, the tensors of a model are views of the stack's: what the stack learns,
    the model knows. One step is the same few operations for R models as for one; on a CUDA device
    many steps are recorded once and replayed, so that no Python runs in between.
    """

    def __init__(self, models: Sequence[GradientClassifier], x: Tensor, y: Tensor) -> None:
        first = models[0]
        self._models, self._first = models, first
        self._x, self._y = first._encode(x), y
        self._weights = _side_by_side([model._weights for model in models])
        self._notes = _side_by_side([model._notes for model in models])
        for r, model in enumerate(models):
            model._weights = {name: stacked[r] for name, stacked in self._weights.items()}
            model._notes = {name: stacked[r] for name, stacked in self._notes.items()}
        # The same memory, for autograd to follow.
        self._leaves = {name: w.detach().requires_grad_() for name, w in self._weights.items()}

        decay = self._setting([model.weight_decay for model in models])
        rate = self._setting([model.learning_rate for model in models])
        self._rates = Rates(rate, decay, decays=bool(decay.any()))
        self._pull = self._setting([model._ewc_strength() for model in models])
        self._pulls = bool(self._pull.any())
        smoothing = self._setting([model.label_smoothing for model in models])
        n_columns = first._n_columns()
        one_hot = torch.eye(n_columns, device=x.device)
        self._wanted = (1 - smoothing) * one_hot + smoothing / n_columns  # (R, Y, Y), by label
        self._model = torch.arange(len(models), device=x.device)[:, None]  # (R, 1)
        self._graphs: dict[int, _Recorded | None] = {}

    def learn(self, rows: Tensor, epochs: int) -> None:
        """`epochs` passes of each model over its own rows (R, n) of x."""
        at_once = self._first.batch_size * STEPS_A_GRAPH
        for order in self._orders(rows.shape[1], epochs):  # (R, n)
            for part in rows.gather(1, order).split(at_once, dim=1):
                self._run(part)
        for model in self._models:
            model._epoch += epochs
        if rows.is_cuda:  # whoever measures time shall see all of it
            torch.cuda.synchronize(rows.device)

    def release(self) -> None:
        """Give each model tensors of its own."""
        for model in self._models:
            model._weights = {name: own.clone() for name, own in model._weights.items()}
            model._notes = {name: own.clone() for name, own in model._notes.items()}

    def _orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """The order (R, n) in which each model visits its rows, epoch by epoch."""
        begun = [(model._seed_, model._epoch) for model in self._models]
        distinct = list(dict.fromkeys(begun))  # settings of one seed share its orders
        own = torch.tensor([distinct.index(start) for start in begun], device=self._x.device)
        at_once = max(1, _ORDERS_AT_ONCE // (n * len(distinct)))
        for done in range(0, epochs, at_once):
            count = min(at_once, epochs - done)
            drawn = [epoch_orders(n, seed, e + done, count, self._x.device) for seed, e in distinct]
            for orders in torch.stack(drawn, dim=1):  # (distinct, n)
                yield orders[own]

    def _run(self, rows: Tensor) -> None:
        """Steps over rows (R, several batches), replayed from the third time of a length on."""
        length = rows.shape[1]
        if not rows.is_cuda:
            self._steps(rows)
        elif length not in self._graphs:  # libraries must have started before they are recorded
            self._graphs[length] = None
            _aside(self, rows)
        else:
            recorded = self._graphs[length]
            if recorded is None:
                recorded = self._graphs[length] = _Recorded(self, rows)
            recorded.replay(rows)

    def _steps(self, rows: Tensor) -> None:
        for batch in rows.split(self._first.batch_size, dim=1):  # the last, smaller one is kept
            self._step(batch)

    def _step(self, rows: Tensor) -> None:
        """One step of every model on its own batch: rows (R, b) of x."""
        x = self._x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)  # (R, b, m)
        with torch.enable_grad():
            logits = self._first._forward(self._leaves, self._notes, x, learning=True).logits
        with torch.no_grad():
            # The gradient of the cross entropy with smoothed labels, by hand.
            wanted = self._wanted[self._model, self._y[rows]]  # (R, b, Y)
            error = (logits.softmax(dim=2) - wanted).div_(rows.shape[1])
            gradients = torch.autograd.grad(logits, list(self._leaves.values()), error)
            if self._pulls:
                add_pull(gradients, self._weights, self._notes, self._pull)
            descend = OPTIMIZERS[self._first.optimizer]
            descend(self._weights, gradients, self._notes, self._rates)
            self._first._after_step(self._weights)

    def _setting(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._x.device)[:, None, None]


class _Recorded:
    """Steps over as many batches as `rows` (R, length) holds, as one CUDA graph."""

    def __init__(self, stack: BatchedTrainer, rows: Tensor) -> None:
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            stack._steps(self._rows)

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._graph.replay()


def _aside(stack: BatchedTrainer, rows: Tensor) -> None:
    """Steps on a stream of their own, as PyTorch asks of the first ones before a recording."""
    stream, present = torch.cuda.Stream(rows.device), torch.cuda.current_stream(rows.device)
    stream.wait_stream(present)
    with torch.cuda.stream(stream):
        stack._steps(rows)
    present.wait_stream(stream)


def _side_by_side(models: Sequence[Tensors]) -> Tensors:
    return {name: torch.stack([own[name] for own in models]) for name in models[0]}

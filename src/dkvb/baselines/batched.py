"""Batched training of models with one architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dkvb.baselines._consolidation import add_pull
from dkvb.baselines._optimizers import OPTIMIZERS, Rates, Tensors
from dkvb.kernels.hashing import epoch_orders

if TYPE_CHECKING:
    from dkvb.baselines.gradient import GradientClassifier

STEPS_PER_GRAPH = 64  # recorded as one CUDA graph
_ORDERS_AT_ONCE = 1 << 24  # indices of epochs drawn ahead: 128 MB


class BatchedTrainer:
    """Trains R models on shared embeddings x (n, m) with class indices y (n,).

    Each model has its own samples, order and hyperparameters. Until `release`, the tensors of a
    model are views of the trainer's. One step takes as many operations for R models as for one. On
    a CUDA device many steps are recorded once and replayed without Python in between.
    """

    def __init__(self, models: Sequence[GradientClassifier], x: Tensor, y: Tensor) -> None:
        first = models[0]
        self._models, self._first = models, first
        self._x, self._y = first._encode(x), y
        decay = self._setting([model.weight_decay for model in models])
        rate = self._setting([model.learning_rate for model in models])
        self._rates = Rates(rate, decay, decays=bool(decay.any()))
        self._pull = self._setting([model._ewc_strength() for model in models])
        self._pulls = bool(self._pull.any())

        self._weights = _stack([model._weights for model in models])
        self._buffers = _stack([model._buffers for model in models])
        for r, model in enumerate(models):
            model._weights = {name: tensors[r] for name, tensors in self._weights.items()}
            model._buffers = {name: tensors[r] for name, tensors in self._buffers.items()}
        # The same memory, for autograd to follow.
        self._leaves = {name: w.detach().requires_grad_() for name, w in self._weights.items()}

        smoothing = self._setting([model.label_smoothing for model in models])
        n_columns = first._n_columns()
        one_hot = torch.eye(n_columns, device=x.device)
        self._wanted = (1 - smoothing) * one_hot + smoothing / n_columns  # (R, Y, Y), by label
        self._model = torch.arange(len(models), device=x.device)[:, None]  # (R, 1)
        self._graphs: dict[int, _Recorded | None] = {}

    def learn(self, rows: Tensor, epochs: int) -> None:
        """Train each model for `epochs` epochs on its own samples: indices (R, n) into x."""
        at_once = self._first.batch_size * STEPS_PER_GRAPH
        for order in self._orders(rows.shape[1], epochs):  # (R, n)
            for part in rows.gather(1, order).split(at_once, dim=1):
                self._run(part)
        for model in self._models:
            model._epoch += epochs
        if rows.is_cuda:  # so that measured times are complete
            torch.cuda.synchronize(rows.device)

    def release(self) -> None:
        """Give each model its own tensors."""
        for model in self._models:
            model._weights = {
                name: own.clone(memory_format=torch.contiguous_format)
                for name, own in model._weights.items()
            }
            model._buffers = {name: own.clone() for name, own in model._buffers.items()}

    def _orders(self, n: int, epochs: int) -> Iterator[Tensor]:
        """Yield the order (R, n) of each model's samples, epoch by epoch."""
        begun = [(model._seed_, model._epoch) for model in self._models]
        distinct = list(dict.fromkeys(begun))  # models with equal seeds share orders
        own = torch.tensor([distinct.index(start) for start in begun], device=self._x.device)
        at_once = max(1, _ORDERS_AT_ONCE // (n * len(distinct)))
        for done in range(0, epochs, at_once):
            count = min(at_once, epochs - done)
            drawn = [epoch_orders(n, seed, e + done, count, self._x.device) for seed, e in distinct]
            for orders in torch.stack(drawn, dim=1):  # (distinct, n)
                yield orders[own]

    def _run(self, rows: Tensor) -> None:
        """Take steps over indices (R, several batches), replayed from a length's third call."""
        length = rows.shape[1]
        if not rows.is_cuda:
            self._steps(rows)
        elif length not in self._graphs:  # libraries must be initialised before recording
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
        """Take one step of every model on its own batch: indices (R, b) into x."""
        x = self._x.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)  # (R, b, m)
        wanted = self._wanted[self._model, self._y[rows]]  # (R, b, Y)
        with torch.enable_grad():
            logits = self._first._forward(self._leaves, self._buffers, x, learning=True).logits
        with torch.no_grad():
            # Gradient of the cross entropy with smoothed labels.
            error = (logits.softmax(dim=2) - wanted).div_(rows.shape[1])
            gradients = torch.autograd.grad(logits, list(self._leaves.values()), error)
            if self._pulls:
                add_pull(gradients, self._weights, self._buffers, self._pull)
            descend = OPTIMIZERS[self._first.optimizer]
            descend(self._weights, gradients, self._buffers, self._rates)
            self._first._after_step(self._weights)

    def _setting(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._x.device)[:, None, None]


class _Recorded:
    """Steps over the batches in `rows` (R, length), as one CUDA graph."""

    def __init__(self, stack: BatchedTrainer, rows: Tensor) -> None:
        self._rows = rows.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            stack._steps(self._rows)

    def replay(self, rows: Tensor) -> None:
        self._rows.copy_(rows)
        self._graph.replay()


def _aside(stack: BatchedTrainer, rows: Tensor) -> None:
    """Take steps on another CUDA stream, which PyTorch requires before recording."""
    stream, present = torch.cuda.Stream(rows.device), torch.cuda.current_stream(rows.device)
    stream.wait_stream(present)
    with torch.cuda.stream(stream):
        stack._steps(rows)
    present.wait_stream(stream)


def _stack(models: Sequence[Tensors]) -> Tensors:
    return {name: torch.stack([own[name] for own in models]) for name in models[0]}

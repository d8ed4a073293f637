"""Base of the gradient-trained classifiers: linear probe, MLP, EWC and SDMLP."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support.files import State
from dkvb._support.validation import check_device, one_of, positive_int, real
from dkvb.baselines._consolidation import Signals, make_ewc_buffers
from dkvb.baselines._optimizers import OPTIMIZERS, Tensors, make_adam_buffers
from dkvb.baselines.batched import BatchedTrainer
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier, softmax
from dkvb.estimators.labels import LabelIndex

_SCORED_ROWS = 4096  # samples scored at a time, which bounds memory


# A dataclass has the constructor that scikit-learn requires: it only stores its keywords.
@dataclass(kw_only=True, eq=False, repr=False)
class GradientClassifier(StreamClassifier):
    """Base of classifiers trained with softmax cross entropy, gradient norm clipped at 1.

    One `partial_fit` trains for `epochs` epochs; k calls with one epoch equal one call with k.
    Adam's state is kept between calls, until a new class appears or `reset_optimizer` is called.

    A subclass defines weights and forward pass. Every tensor has a leading model axis R. Weights of
    a layer are named "NAME weight" (m, outputs) and "NAME bias" (1, outputs); the last layer is
    "output", with one column per class.
    """

    epochs: int = 1
    batch_size: int = 256
    learning_rate: float = 0.001
    optimizer: str = "sgd"
    label_smoothing: float = 0.1
    weight_decay: float = 0.0
    random_state: int | np.random.RandomState | None = 0
    device: str = "cpu"

    # Parameters in which models of one batched training may differ.
    _OWN: ClassVar = frozenset({"learning_rate", "label_smoothing", "weight_decay", "random_state"})

    @property
    def learns_in_epochs(self) -> bool:
        """True: k calls with one epoch equal one call with k."""
        return True

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the softmax of the scores (n, Y)."""
        return softmax(self._sorted_scores(X))

    def reset_optimizer(self) -> Self:
        """Discard the state of the optimiser."""
        self._buffers: Tensors = {
            k: v for k, v in self._buffers.items() if not k.startswith("adam")
        }
        if self.optimizer == "adam":
            self._buffers |= make_adam_buffers(self._weights)
        return self

    # ------------------------------------------------------------------- for a subclass to say
    @abstractmethod
    def _make_weights(self, width: int) -> Tensors:
        """Return the weights of a new model without classes."""

    @abstractmethod
    def _forward(self, weights: Tensors, buffers: Tensors, x: Tensor, learning: bool) -> Signals:
        """Return logits (R, b, Y) of encoded inputs (R, b, m); training may change buffers."""

    def _make_buffers(self, weights: Tensors) -> Tensors:
        """Return the buffers of a new model."""
        return {}

    def _encode(self, x: Tensor) -> Tensor:
        """Return the input of the first layer for embeddings (n, m)."""
        return x

    def _after_step(self, weights: Tensors) -> None:
        """Project weights (R, ...) in place onto the allowed set."""

    def _ewc_strength(self) -> float:
        """Return the strength of elastic weight consolidation."""
        return 0.0

    def _consolidate(self, x: Tensor) -> None:
        """End a task with samples x (n, m)."""

    # ------------------------------------------------------------------ for models side by side
    def _architecture(self) -> tuple[Any, ...]:
        """Return a key that is equal for models that can be trained together."""
        shared = {k: v for k, v in self.get_params().items() if k not in self._OWN}
        return type(self), self._ewc_strength() > 0, tuple(sorted(shared.items()))

    def _begin(self, classes: NDArray[Any], width: int) -> None:
        """Initialise a model for known classes."""
        labels = LabelIndex()
        labels.add(classes, "classes")
        self.n_features_in_ = width
        self._start(width)
        self._grow(len(labels))
        self._labels = labels

    # -------------------------------------------------------------- what StreamClassifier asks
    def _check_settings(self) -> None:
        positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size)
        real("learning_rate", self.learning_rate, low=0, low_open=True)
        real("label_smoothing", self.label_smoothing, low=0, high=1)
        real("weight_decay", self.weight_decay, low=0)
        one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        check_device(self.device)

    def _start(self, width: int) -> None:
        self._seed_ = self._seed(self.random_state)
        with torch.random.fork_rng(devices=[]):  # the global generator stays unchanged
            torch.manual_seed(self._seed_)
            first = self._make_weights(width)
        self._weights = {name: weight.to(self.device) for name, weight in first.items()}
        self._buffers = self._make_buffers(self._weights)
        self._epoch = 0

    def _n_columns(self) -> int:
        return self._weights["output weight"].shape[1]

    def _grow(self, n_columns: int) -> None:
        new = n_columns - self._n_columns()
        if new:
            # The logit of a new class is zero.
            self._weights = _widen(self._weights, new)
            self._buffers = _widen(self._buffers, new)
            self.reset_optimizer()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        if self.optimizer == "adam" and "adam steps" not in self._buffers:
            self.reset_optimizer()
        x = torch.from_numpy(rows).to(self.device)  # (n, m)
        y = torch.from_numpy(columns).to(self.device)  # (n,)
        everything = torch.arange(len(x), device=x.device)[None]  # (1, n)
        trainer = BatchedTrainer([self], x, y)
        trainer.learn(everything, self.epochs)
        trainer.release()

    def _learned(self) -> State:
        state = State(facts={"epoch": self._epoch, "seed": self._seed_})
        return state.with_part("weights", State.of(**self._weights)).with_part(
            "notes", State.of(**self._buffers)
        )

    def _recall(self, state: State, n_columns: int) -> None:
        with torch.device("meta"):  # shapes alone: the file may say anything of sizes
            first = self._make_weights(self.n_features_in_)
            weights = _widen(first, n_columns)
            buffers = self._make_buffers(weights)
            optional = (make_adam_buffers(weights), make_ewc_buffers(weights))
        saved = state.part("notes")
        for group in optional:  # there, all of it, if it was ever in use
            buffers = {k: buffer for k, buffer in buffers.items() if k not in group}
            buffers |= group if group.keys() & saved.arrays.keys() else {}
        self._weights = _load_like(state.part("weights"), weights, self.device)
        self._buffers = _load_like(saved, buffers, self.device)
        self._epoch = state.whole_number("epoch")
        self._seed_ = state.whole_number("seed", low=-(1 << 63), high=1 << 64)

    def _scores(self, rows: Rows) -> Floats:
        return self._score_tensor(torch.from_numpy(rows)).cpu().numpy()

    @torch.no_grad()
    def _score_tensor(self, x: Tensor) -> Tensor:
        """Return scores (n, Y) of embeddings (n, m), classes in order of appearance."""
        # In float64, so that scores do not depend on the other samples of the batch.
        weights = {name: weight.double()[None] for name, weight in self._weights.items()}
        buffers = {name: buffer[None] for name, buffer in self._buffers.items()}
        scores = []
        for block in x.split(_SCORED_ROWS):
            signal = self._encode(block.to(self.device, torch.float64))[None]  # (1, block, m)
            scores.append(self._forward(weights, buffers, signal, learning=False).logits[0])
        return torch.cat(scores)


def _widen(tensors: Tensors, new: int) -> Tensors:
    return {k: pad(tensor, (0, new)) if "output" in k else tensor for k, tensor in tensors.items()}


def _load_like(state: State, like: Tensors, device: str) -> Tensors:
    """The tensors of a file, each of the dtype and shape of its like."""
    return {
        k: torch.from_numpy(state.array(k, _numpy_dtype(tensor), tensor.shape)).to(device)
        for k, tensor in like.items()
    }


def _numpy_dtype(tensor: Tensor) -> Any:
    return torch.empty(0, dtype=tensor.dtype).numpy().dtype

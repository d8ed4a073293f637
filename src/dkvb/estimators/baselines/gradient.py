"""Heads that learn by gradient descent: what the linear probe, the MLP and their kin share."""

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
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier, softmax
from dkvb.estimators.baselines._consolidation import Signals, ewc_notes
from dkvb.estimators.baselines._optimizers import OPTIMIZERS, Tensors, adam_notes
from dkvb.estimators.baselines.batched import BatchedTrainer
from dkvb.estimators.labels import LabelIndex

_SCORED_ROWS = 4096  # rows scored at a time, which bounds memory


# A dataclass writes the constructor that scikit-learn asks for: keywords only, stored and no more.
@dataclass(kw_only=True, eq=False, repr=False)
class GradientClassifier(StreamClassifier):
    """Softmax cross entropy over all columns, in shuffled batches, gradient norm clipped at 1.

    One `partial_fit` is `epochs` passes over the rows given; k calls with one epoch equal one call
    with k. Adam's state lives on between calls, until a new column appears or `reset_optimizer`.

    A subclass says how it begins and how a signal passes, for models side by side: every tensor
    there has a leading model axis R. Weights of a layer are named "NAME weight" (m, outputs) and
    "NAME bias" (1, outputs); the last layer is "output", and has a column a class.
    """

    epochs: int = 1
    batch_size: int = 256
    learning_rate: float = 0.001
    optimizer: str = "sgd"
    label_smoothing: float = 0.1
    weight_decay: float = 0.0
    random_state: int | np.random.RandomState | None = 0
    device: str = "cpu"

    # Settings in which models that learn side by side may differ.
    _OWN: ClassVar = frozenset({"learning_rate", "label_smoothing", "weight_decay", "random_state"})

    @property
    def learns_in_epochs(self) -> bool:
        """Whether k calls with one epoch equal one call with k."""
        return True

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The softmax of the scores (n, Y)."""
        return softmax(self._sorted_scores(X))

    def reset_optimizer(self) -> Self:
        """Drop the optimiser's memory, as one would between tasks."""
        self._notes: Tensors = {k: v for k, v in self._notes.items() if not k.startswith("adam")}
        if self.optimizer == "adam":
            self._notes |= adam_notes(self._weights)
        return self

    # ------------------------------------------------------------------- for a subclass to say
    @abstractmethod
    def _first_weights(self, width: int) -> Tensors:
        """The weights of a new model, whose last layer has no column yet."""

    @abstractmethod
    def _forward(self, weights: Tensors, notes: Tensors, x: Tensor, learning: bool) -> Signals:
        """From encoded rows x (R, b, m) to logits (R, b, Y); `notes` may change while learning."""

    def _first_notes(self, weights: Tensors) -> Tensors:
        """What a new model keeps beside its weights."""
        return {}

    def _encode(self, x: Tensor) -> Tensor:
        """What the first layer is given of rows (n, m), computed once."""
        return x

    def _after_step(self, weights: Tensors) -> None:
        """Bring weights (R, ...) back, in place, to where they are allowed to be."""

    def _ewc_strength(self) -> float:
        """How strongly weights are held to those that earlier tasks ended with."""
        return 0.0

    def _consolidate(self, x: Tensor) -> None:
        """A task is over, of which x (n, m) are rows."""

    # ------------------------------------------------------------------ for models side by side
    def _architecture(self) -> tuple[Any, ...]:
        """Equal for models that can learn side by side."""
        shared = {k: v for k, v in self.get_params().items() if k not in self._OWN}
        return type(self), self._ewc_strength() > 0, tuple(sorted(shared.items()))

    def _begin(self, classes: NDArray[Any], width: int) -> None:
        """A new model of known classes, which has learned nothing."""
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
        with torch.random.fork_rng(devices=[]):  # the caller's generator is left alone
            torch.manual_seed(self._seed_)
            first = self._first_weights(width)
        self._weights = {name: weight.to(self.device) for name, weight in first.items()}
        self._notes = self._first_notes(self._weights)
        self._epoch = 0

    def _n_columns(self) -> int:
        return self._weights["output weight"].shape[1]

    def _grow(self, n_columns: int) -> None:
        new = n_columns - self._n_columns()
        if new:
            # A column that never learned says nothing: its logit is zero.
            self._weights = _widened(self._weights, new)
            self._notes = _widened(self._notes, new)
            self.reset_optimizer()

    def _learn(self, rows: Rows, columns: Columns) -> None:
        if self.optimizer == "adam" and "adam steps" not in self._notes:
            self.reset_optimizer()
        x = torch.from_numpy(rows).to(self.device)  # (n, m)
        y = torch.from_numpy(columns).to(self.device)  # (n,)
        everything = torch.arange(len(x), device=x.device)[None]  # (1, n)
        BatchedTrainer([self], x, y).learn(everything, self.epochs)

    def _learned(self) -> State:
        state = State(facts={"epoch": self._epoch, "seed": self._seed_})
        return state.with_part("weights", State(self._weights)).with_part(
            "notes", State(self._notes)
        )

    def _recall(self, state: State, n_columns: int) -> None:
        with torch.device("meta"):  # shapes alone: the file may say anything of sizes
            first = self._first_weights(self.n_features_in_)
            weights = _widened(first, n_columns)
            notes = self._first_notes(weights)
            optional = (adam_notes(weights), ewc_notes(weights))
        saved = state.part("notes")
        for group in optional:  # there, all of it, if it was ever in use
            notes = {k: note for k, note in notes.items() if k not in group}
            notes |= group if group.keys() & saved.tensors.keys() else {}
        self._weights = _alike(state.part("weights"), weights, self.device)
        self._notes = _alike(saved, notes, self.device)
        self._epoch = state.whole_number("epoch")
        self._seed_ = state.whole_number("seed", low=-(1 << 63), high=1 << 64)

    def _scores(self, rows: Rows) -> Floats:
        return self._score_tensor(torch.from_numpy(rows)).cpu().numpy()

    @torch.no_grad()
    def _score_tensor(self, x: Tensor) -> Tensor:
        """Scores (n, Y) of rows (n, m) on any device, columns in order of appearance."""
        # In float64, so that a row's scores do not depend on the rows scored beside it.
        weights = {name: weight.double()[None] for name, weight in self._weights.items()}
        notes = {name: note[None] for name, note in self._notes.items()}
        scores = []
        for block in x.split(_SCORED_ROWS):
            signal = self._encode(block.to(self.device, torch.float64))[None]  # (1, block, m)
            scores.append(self._forward(weights, notes, signal, learning=False).logits[0])
        return torch.cat(scores)


def _widened(tensors: Tensors, new: int) -> Tensors:
    return {k: pad(tensor, (0, new)) if "output" in k else tensor for k, tensor in tensors.items()}


def _alike(state: State, like: Tensors, device: str) -> Tensors:
    """The tensors of a file, each of the dtype and shape of its like."""
    return {k: state.tensor(k, tensor.dtype, tensor.shape, device) for k, tensor in like.items()}

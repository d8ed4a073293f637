"""The FlyModel, after the olfactory system of the fruit fly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkvb._support.files import State
from dkvb._support.validation import check_device, positive_int, real
from dkvb.baselines._blocks import in_blocks
from dkvb.estimators.base import Columns, Floats, Rows, StreamClassifier

_BLOCK = 1024  # samples at a time, which bounds memory


class FlyClassifier(StreamClassifier):
    """FlyModel (Shen et al., 2021): sparse random features, saturating sums per class.

    Every sample is scaled to [0, 1]. Each of `n_cells` Kenyon cells adds `n_inputs` random entries
    of it. The `share` of cells with the highest sums stay active, relative to the highest. Learning
    a sample adds `learning_rate` times its active cells to the weights of its class, which are
    capped at 1. The score of a class is the sum of its weights over active cells.

    One epoch learns well. With more epochs the weights of all cells that were ever active reach 1,
    and classes become indistinguishable.

    Needs: no task boundaries. Rehearsal-free and order-invariant; classes need not be known in
    advance.
    Memory: n_cells·Y float64 sums, and n_cells·n_inputs integers of the projection.

    >>> fly = FlyClassifier(n_cells=500, n_inputs=1).partial_fit([[0.0, 1.0, 0.1]], ["b"])
    >>> fly.partial_fit([[1.0, 0.0, 0.2]], ["a"]).predict([[0.1, 1.0, 0.0]])
    array(['b'], dtype='<U1')
    """

    def __init__(
        self,
        *,
        n_cells: int = 10_000,
        n_inputs: int = 32,
        share: float = 0.01,
        learning_rate: float = 0.005,
        epochs: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.n_cells = n_cells
        self.n_inputs = n_inputs
        self.share = share
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.random_state = random_state
        self.device = device

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"_wired": []} if "_wired" in state else state  # is recomputed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # two dimensions leave one bit
        return tags

    def _check_settings(self) -> None:
        positive_int("n_cells", self.n_cells)
        positive_int("n_inputs", self.n_inputs)
        real("share", self.share, low=0, high=1, low_open=True)
        real("learning_rate", self.learning_rate, low=0, low_open=True)
        positive_int("epochs", self.epochs)
        check_device(self.device)

    def _start(self, width: int) -> None:
        generator = torch.Generator().manual_seed(self._seed(self.random_state))
        wired = min(self.n_inputs, width)
        chance = torch.rand(self.n_cells, width, generator=generator)
        self._inputs = chance.topk(wired, dim=1).indices.int()  # (cells, inputs)
        self._sums = torch.zeros(0, self.n_cells, dtype=torch.float64, device=self.device)
        self._seen = np.zeros(0, np.bool_)  # (Y,)
        self._wired: list[Tensor] = []

    def _projection(self) -> Tensor:
        """Return the projection as a matrix (m, cells), made from its indices on first use."""
        if not self._wired:
            projection = torch.zeros(self.n_features_in_, self.n_cells)
            projection.scatter_(0, self._inputs.T.long(), 1.0)
            self._wired.append(projection.to(self.device))
        return self._wired[0]

    def _grow(self, n_columns: int) -> None:
        new = n_columns - len(self._sums)
        self._sums = torch.nn.functional.pad(self._sums, (0, 0, 0, new))
        self._seen = np.pad(self._seen, (0, new))

    def _learn(self, rows: Rows, columns: Columns) -> None:
        x, y = torch.from_numpy(rows), torch.from_numpy(columns).to(self.device)
        for block, labels in zip(x.split(_BLOCK), y.split(_BLOCK), strict=True):
            active, strength = self._cells(block)
            places = labels[:, None] * self.n_cells + active  # (n, kept)
            # Whole numbers: their sum does not depend on the order.
            added = (strength.double() * _UNIT).round_() * self.epochs
            self._sums.view(-1).index_add_(0, places.flatten(), added.flatten())
        self._seen[np.unique(columns)] = True

    def _cells(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the active cells of samples (n, m) and their strengths, both (n, kept)."""
        kept = max(1, int(self.share * self.n_cells))
        low, high = x.aminmax(dim=1, keepdim=True)
        scaled = (x - low) / (high - low).clamp_(min=torch.finfo(x.dtype).tiny)
        projection = self._projection()
        sums = in_blocks(lambda block: block.to(self.device) @ projection, scaled)
        strength, active = sums.topk(kept, dim=1)  # (n, kept), the highest first
        return active, strength / strength[:, :1].clamp(min=torch.finfo(x.dtype).tiny)

    def _scores(self, rows: Rows) -> Floats:
        weights = (self.learning_rate / _UNIT * self._sums).clamp_(max=1.0)  # (Y, cells)
        scores = []
        for block in torch.from_numpy(rows).split(_BLOCK):
            active, strength = self._cells(block)
            answers = torch.zeros(len(block), self.n_cells, device=self.device, dtype=torch.float64)
            answers.scatter_(1, active, strength.double())
            scores.append((answers @ weights.T).cpu().numpy())
        result: Floats = np.concatenate(scores)  # (n, Y)
        result[:, ~self._seen] = -np.inf  # classes without samples are never predicted
        return result

    def _learned(self) -> State:
        return State.of(inputs=self._inputs, sums=self._sums, seen=self._seen)

    def _recall(self, state: State, n_columns: int) -> None:
        width = self.n_features_in_
        wired = (self.n_cells, min(self.n_inputs, width))
        inputs = torch.from_numpy(state.array("inputs", np.int32, wired))
        if int(inputs.min()) < 0 or int(inputs.max()) >= width:
            raise state.damaged(f"inputs: expected numbers from 0 to {width - 1}")
        self._inputs = inputs
        sums = state.array("sums", np.float64, (n_columns, self.n_cells))
        self._sums = torch.from_numpy(sums).to(self.device)
        self._seen = state.array("seen", np.bool_, (n_columns,))
        self._wired = []


_UNIT = 2.0**24  # strengths in (0, 1] are learned as whole multiples of 1 / _UNIT

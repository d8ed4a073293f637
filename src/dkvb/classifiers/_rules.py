"""How the bottleneck classifier drives each rule of `learning`: what it reads, keeps and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from dkvb.bottleneck import Codes, Keys
from dkvb.learning import counts, sgd

PREPARED_TOP = 4  # nearest keys kept of each row, so that the first selected one is among them


class Rule(ABC):
    """One rule with the settings of its classifier; the state is replaced, never changed."""

    KEY_SETTINGS: ClassVar[dict[str, Any]]

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def start(self, keys: Keys) -> None:
        self.keys = keys

    def prepare(self, keys: Keys, X: Any) -> Any:
        return X

    @abstractmethod
    def grow(self, n_columns: int) -> None: ...

    @abstractmethod
    def learn(self, rows: Any, columns: Tensor) -> None: ...

    @abstractmethod
    def scores(self, rows: Any) -> Tensor: ...

    @abstractmethod
    def usage(self) -> Tensor: ...


class SgdRule(Rule):
    """Gradient descent on values; by default, predictions search the keys selected so far."""

    KEY_SETTINGS: ClassVar = {
        "n_codebooks": 256,
        "n_pairs": 4096,
        "key_dim": 14,
        "method": "ema",
        "epochs": 10,
    }

    def start(self, keys: Keys) -> None:
        super().start(keys)
        self.state = sgd.start(keys.n_codebooks, keys.n_pairs, keys.device)

    def prepare(self, keys: Keys, X: Any) -> Codes:
        top = PREPARED_TOP if self.settings.search == "selected" else 1
        return keys.snap(X, top=min(top, keys.n_pairs))

    def grow(self, n_columns: int) -> None:
        self.state = sgd.grow(self.state, n_columns)

    def learn(self, rows: Any, columns: Tensor) -> None:
        s = self.settings
        self.state = sgd.update(
            self.state,
            _codes(self.keys, rows).nearest,
            columns,
            epochs=s.epochs,
            batch_size=s.batch_size,
            learning_rate=s.learning_rate,
            label_smoothing=s.label_smoothing,
            seed=s._seed_,
        )

    def scores(self, rows: Any) -> Tensor:
        state = self.state
        if self.settings.search == "all":
            return sgd.scores(state, _codes(self.keys, rows).nearest)
        if not isinstance(rows, Codes):
            rows = self.keys.snap(rows, active=state.active)
            return sgd.scores(state, rows.nearest)
        return sgd.scores(state, nearest_active(self.keys, rows, state.active))

    def usage(self) -> Tensor:
        return self.state.usage


class CountsRule(Rule):
    """Integer counts of pairs and classes, in one pass."""

    KEY_SETTINGS: ClassVar = SgdRule.KEY_SETTINGS

    def start(self, keys: Keys) -> None:
        super().start(keys)
        self.state = counts.start(keys.n_codebooks, keys.n_pairs, keys.device)

    def prepare(self, keys: Keys, X: Any) -> Codes:
        return keys.snap(X)

    def grow(self, n_columns: int) -> None:
        self.state = counts.grow(self.state, n_columns)

    def learn(self, rows: Any, columns: Tensor) -> None:
        self.state = counts.update(self.state, _codes(self.keys, rows).nearest, columns)

    def scores(self, rows: Any) -> Tensor:
        state, s = self.state, self.settings
        codes = _codes(self.keys, rows).nearest
        if s.pooling == "votes":
            return counts.votes(state, codes)
        found = counts.log_posterior(state, codes, smoothing=s.smoothing, prior=s.prior)
        return found.masked_fill(state.per_class == 0, -torch.inf)

    def usage(self) -> Tensor:
        total = torch.zeros(self.keys.keys.shape[:2], dtype=torch.int64, device=self.keys.device)
        for tally in self.state.tallies:
            total.view(-1).index_add_(0, tally.places // counts.COLUMNS, tally.counts.long())
        return total


def nearest_active(keys: Keys, codes: Codes, active: Tensor) -> Tensor:
    """The nearest active key (n, C): the first active one of those kept, searched again where none is."""
    books = torch.arange(keys.n_codebooks, device=keys.device)[:, None]
    index = codes.index.to(torch.int32)
    hit = active[books, index]  # (n, C, top)
    first = hit.to(torch.uint8).argmax(dim=2, keepdim=True)
    found = index.gather(2, first)[:, :, 0]
    missing = ~hit.any(dim=2)  # (n, C)
    rows = torch.nonzero(missing.any(dim=1))[:, 0]
    if len(rows):
        again = keys.snap(codes[rows].rows, active=active).nearest.to(torch.int32)
        found[rows] = torch.where(missing[rows], again, found[rows])
    return found


def _codes(keys: Keys, rows: Any) -> Codes:
    return rows if isinstance(rows, Codes) else keys.snap(rows)


RULES: dict[str, type[Rule]] = {"sgd": SgdRule, "counts": CountsRule}

"""How the bottleneck classifier drives each rule of `learning`: what it reads, keeps and scores."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, NoReturn, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from dkvb._support.files import State
from dkvb._support.validation import one_of
from dkvb.bottleneck import Codes, Keys
from dkvb.bottleneck.sharding import own_codebooks
from dkvb.bottleneck.values import flat_codes
from dkvb.rules.calibration import fit_temperature
from dkvb.rules.counts import posterior
from dkvb.rules.counts import state as counts
from dkvb.rules.sgd import descent as sgd

CALIBRATION_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the pairs that rows select say: contributions add up to scores."""

    codes: Tensor  # (n, C)
    contributions: Tensor  # (n, C, Y) float64
    examples: Tensor | None  # (n, C, Y) int64, rows of each class that selected the pair


class Rule(ABC):
    """One rule with the settings of its classifier.

    What a rule has learned is replaced, never changed in place: the classifier works on a shallow
    copy and puts it in the place of the old rule when all went well, so that an error changes
    nothing and other threads go on predicting with the old one.
    """

    KEY_SETTINGS: ClassVar[dict[str, Any]]  # arguments of fit_keys: the rule's default sizes
    # Of several processes, whether each learns some rows, or all rows in some codebooks.
    splits_rows: ClassVar[bool] = True
    seed = 0
    open_ended = True  # whether nobody declared the classes when learning began

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def settings(self) -> Any:
        """The classifier, whose parameters are read when they are needed."""
        return self._settings()

    @settings.setter
    def settings(self, settings: Any) -> None:
        # Weakly: what was learned is gone with the classifier, not when the collector next looks
        # for objects that hold each other, which does not know how much memory they hold.
        self._settings = weakref.ref(settings)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.settings = state["_settings"]

    def start(self, keys: Keys) -> None:
        """Begin an empty model; no columns yet."""
        self.keys = keys

    def prepare(self, keys: Keys, X: Any) -> Any:
        """What can be computed once from embeddings, and passed wherever rows are expected."""
        return X

    @abstractmethod
    def grow(self, n_columns: int) -> None:
        """Make room for so many columns; those there stay."""

    @abstractmethod
    def learn(self, rows: Any, columns: Tensor) -> None:
        """Learn from rows, float32 (n, m) or what `prepare` returned, labels in columns (n,)."""

    @abstractmethod
    def scores(self, rows: Any) -> Tensor:
        """Scores (n, Y), columns in order of appearance."""

    @abstractmethod
    def usage(self) -> Tensor:
        """How often learning selected each pair (C, K) (soft reads: the nearest key)."""

    @abstractmethod
    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned: equal models, equal tensors."""

    def unlearn(self, rows: Any, columns: Tensor) -> int:
        """Take away exactly what `learn` added; the number of pairs touched."""
        self._refuse("forget_samples")

    def move_columns(self, target: Tensor) -> None:
        """Column y becomes target[y]; a negative one drops what the class taught, and is refused
        by a rule that cannot. Of a class that no row is left of, every rule can drop the column."""
        self._refuse("forget")

    def merge(self, other: Self, target: Tensor) -> None:
        """Add what another model has learned; its column y stands for our column target[y]."""
        self._refuse("merge")

    def change_keys(self, keys: Keys) -> None:
        """Go on with more pairs; those that were selected have kept their places."""
        self._refuse("grow_keys", "rule='counts' or 'sgd'", "whose sums belong to all keys at once")

    def temperature(self) -> float:
        """What scores are divided by before the softmax."""
        return 1.0

    @abstractmethod
    def evidence(self, rows: Any) -> Evidence:
        """Which pairs say what, for a few rows."""

    def sealed(self) -> Self:
        """A smaller copy that scores alike and need not learn any more."""
        return copy(self)

    @abstractmethod
    def trace(self, rows: Any) -> State:
        """What must be kept of rows to learn them again, and not the rows themselves."""

    @abstractmethod
    def retrace(self, state: State, n: int) -> Any:
        """What `learn` takes for n rows from their traces; an error where these cannot be."""

    def _refuse(
        self,
        operation: str,
        expected: str = "rule='counts' or 'least_squares', which keep sums",
        because: str = "whose values depend on all rows and their order, and can lose none of them",
    ) -> NoReturn:
        raise ValueError(
            f"{operation}: expected a model with {expected}; "
            f"got rule={self.settings.rule!r}, {because}"
        )


class HardRule(Rule):
    """Rules that read one pair a codebook, among all keys or among those selected so far."""

    SEARCH: ClassVar[str]  # unless the classifier says otherwise
    _found: tuple[Any, Keys, Tensor] | None = None

    def prepare(self, keys: Keys, X: Any) -> Codes:
        # No further candidates: with hundreds of codebooks almost every row has one where none of
        # its few nearest keys was selected, and a search among the selected is quicker than both.
        return keys.snap(X)

    @property
    def _selected_only(self) -> bool:
        return (self.settings.search or self.SEARCH) == "selected"

    def _selected(self) -> tuple[Keys, Tensor]:
        """The keys selected so far, and the place (C, K') that each has among all."""
        usage, found = self.usage(), self._found
        if found is None or found[0] is not usage:
            found = (usage, *self.keys.subset(usage > 0))
            self._found = found
        return found[1:]

    def codes(self, rows: Any) -> Tensor:
        """The pairs (n, C) that predictions for rows read."""
        if not self._selected_only:
            return nearest(self.keys, rows)
        if isinstance(rows, Codes):
            return self._first_selected(rows)
        keys, place = self._selected()
        return place.gather(1, keys.nearest(rows).T.long()).T

    def _first_selected(self, codes: Codes) -> Tensor:
        """The first selected one of the keys at hand, searched for again where none is."""
        books = torch.arange(self.keys.n_codebooks, device=self.keys.device)[:, None]
        index = codes.index.to(torch.int32)
        hit = (self.usage() > 0)[books, index.long()]  # (n, C, top)
        first = hit.to(torch.uint8).argmax(dim=2, keepdim=True)
        found = index.gather(2, first)[:, :, 0].long()
        missing = ~hit.any(dim=2)  # (n, C)
        rows = torch.nonzero(missing.any(dim=1))[:, 0]
        if len(rows):
            again = self.codes(codes[rows].rows)
            found[rows] = torch.where(missing[rows], again, found[rows])
        return found

    def _pruned(self) -> tuple[Keys, Tensor]:
        """The keys that a sealed copy needs, and the place (C, K') that each has here."""
        if self._selected_only:
            return self._selected()
        everything = torch.arange(self.keys.n_pairs, device=self.keys.device)
        return self.keys, everything.expand(self.keys.n_codebooks, -1)

    def trace(self, rows: Any) -> State:
        return State.of(codes=nearest(self.keys, rows))

    def retrace(self, state: State, n: int) -> Codes:
        kinds = (torch.uint16, torch.int32)
        codes = state.tensor("codes", kinds, (n, self.keys.n_codebooks), self.keys.device)
        if not 0 <= int(codes.int().min()) <= int(codes.int().max()) < self.keys.n_pairs:
            raise state.damaged("codes: expected pairs that are there")
        return Codes(codes[:, :, None], self.keys.fingerprint, None)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_found": None}  # can be found again


class SgdRule(HardRule):
    """Gradient descent on values; by default, predictions search the keys selected so far."""

    SEARCH = "selected"
    splits_rows = False
    KEY_SETTINGS: ClassVar = {
        "n_codebooks": 256,
        "n_pairs": 4096,
        "key_dim": 14,
        "method": "ema",
        "epochs": 10,
    }

    def start(self, keys: Keys) -> None:
        super().start(own_codebooks(keys))
        shape = (self.keys.n_codebooks, keys.n_pairs)
        self.state = sgd.start(
            *shape, keys.device, self.settings.value_dtype, reserve=self.open_ended
        )

    def prepare(self, keys: Keys, X: Any) -> Codes:
        return super().prepare(own_codebooks(keys), X)

    def grow(self, n_columns: int) -> None:
        self.state = sgd.grow(self.state, n_columns)

    def learn(self, rows: Any, columns: Tensor) -> None:
        s = self.settings
        self.state = sgd.update(
            self.state,
            nearest(self.keys, rows),
            columns,
            epochs=s.epochs,
            batch_size=s.batch_size,
            learning_rate=s.learning_rate,
            label_smoothing=s.label_smoothing,
            seed=self.seed,
        )

    def scores(self, rows: Any) -> Tensor:
        return sgd.scores(self.state, self.codes(rows))

    def usage(self) -> Tensor:
        return self.state.usage

    def state_tensors(self) -> dict[str, Tensor]:
        state = self.state
        tensors = {"values": state.values, "usage": state.usage, "epoch": torch.tensor(state.epoch)}
        return tensors | ({"reserve": state.columns[:, :, -1]} if state.reserve else {})

    def move_columns(self, target: Tensor) -> None:
        if sorted(target.tolist()) != list(range(len(target))):
            self._refuse("forget")
        order = torch.argsort(target).tolist()
        last = [len(order)] if self.state.reserve else []  # the reserve stays where it is
        self.state = replace(self.state, columns=self.state.columns[:, :, order + last])

    def change_keys(self, keys: Keys) -> None:
        new = keys.n_pairs - self.keys.n_pairs
        columns, usage = pad(self.state.columns, (0, 0, 0, new)), pad(self.state.usage, (0, new))
        self.keys, self.state = keys, replace(self.state, columns=columns, usage=usage)

    def evidence(self, rows: Any) -> Evidence:
        codes = self.codes(rows)
        books = torch.arange(codes.shape[1], device=codes.device)
        votes = self.state.values[books, codes.long()].double() / codes.shape[1]
        return Evidence(codes, votes, None)

    def sealed(self) -> Self:
        keys, place = self._pruned()
        books = torch.arange(keys.n_codebooks, device=keys.device)[:, None]
        values, usage = self.state.values[books, place], self.state.usage[books, place]
        twin = copy(self)
        twin.keys, twin.state, twin._found = (
            keys,
            sgd.SgdState(values, usage, self.state.epoch),
            None,
        )
        return twin


class CountsRule(HardRule):
    """Integer counts of pairs and classes, in one pass."""

    SEARCH = "all"
    KEY_SETTINGS: ClassVar = {
        **SgdRule.KEY_SETTINGS,
        "conditioning": "whitened",
        "n_components": 128,
    }
    _temperature: tuple[Any, Any, float] | None = None

    def start(self, keys: Keys) -> None:
        super().start(keys)
        shape = keys.n_codebooks, keys.n_pairs
        self.state = counts.start(*shape, keys.device, keys.regions)

    def grow(self, n_columns: int) -> None:
        self.state = counts.grow(self.state, n_columns)

    def learn(self, rows: Any, columns: Tensor) -> None:
        self.state = counts.update_together(self.state, nearest(self.keys, rows), columns)

    def unlearn(self, rows: Any, columns: Tensor) -> int:
        codes = nearest(self.keys, rows)
        self.state = counts.update(self.state, codes, columns, sign=-1)
        return len(torch.unique(flat_codes(codes, self.keys.n_pairs)))

    def move_columns(self, target: Tensor) -> None:
        self.state = counts.move_columns(self.state, target)

    def merge(self, other: Self, target: Tensor) -> None:
        theirs = counts.move_columns(other.state.to(self.state.device), target)
        self.state = counts.merge(self.state, counts.grow(theirs, len(self.state.per_class)))

    def change_keys(self, keys: Keys) -> None:
        self.keys, self.state = keys, counts.more_pairs(self.state, keys.n_pairs, keys.regions)

    def scores(self, rows: Any) -> Tensor:
        state, s = self.state, self.settings
        if s.pooling == "votes":
            return counts.votes(state, self.codes(rows))
        found = posterior.log_posterior(
            state, self.codes(rows), smoothing=s.smoothing, prior=s.prior
        )
        return found.masked_fill(state.per_class == 0, -torch.inf)

    def usage(self) -> Tensor:
        return self.state.usage

    def state_tensors(self) -> dict[str, Tensor]:
        return counts.canonical(self.state)

    def temperature(self) -> float:
        state, how, known = self.state, self._how, self._temperature
        if known is None or known[0] is not state or known[1] != how:
            left_out = posterior.leave_one_out(state, most=CALIBRATION_ROWS, **how)
            scores, columns, weights = left_out
            if how["pooling"] == "posterior":
                scores = scores.masked_fill(state.per_class == 0, -torch.inf)
            temperature = fit_temperature(scores, columns, self._usual_temperature, weights)
            known = (state, how, temperature)
            self._temperature = known
        return known[2]

    @property
    def _how(self) -> dict[str, Any]:
        s = self.settings
        return {"smoothing": s.smoothing, "prior": s.prior, "pooling": s.pooling}

    @property
    def _usual_temperature(self) -> float:
        # Codebooks agree with each other more than independent ones would.
        return self.state.n_codebooks**0.65 if self.settings.pooling == "posterior" else 1.0

    def evidence(self, rows: Any) -> Evidence:
        s, codes = self.settings, self.codes(rows)
        found = torch.from_numpy(counts.read(self.state, codes)).to(codes.device)  # (n, C, Y)
        if s.pooling == "votes":
            return Evidence(codes, found.double() / codes.shape[1], found)
        votes = posterior.contributions(self.state, codes, smoothing=s.smoothing, prior=s.prior)
        return Evidence(codes, votes, found)

    def sealed(self) -> Self:
        keys, place = self._pruned()
        twin = copy(self)
        twin.keys, twin._found = keys, None
        twin.state = counts.only_pairs(self.state, place)
        twin._temperature = (twin.state, self._how, self.temperature())
        return twin


def nearest(keys: Keys, rows: Any) -> Tensor:
    """The nearest keys (n, C) of embeddings, or of those whose codes are at hand."""
    if not isinstance(rows, Codes) and len(rows) == 0:  # of several processes, this one has none
        return torch.zeros((0, keys.n_codebooks), dtype=torch.int32, device=keys.device)
    return (rows if isinstance(rows, Codes) else keys.snap(rows)).nearest


class _Rules(Mapping[str, type[Rule]]):
    """Rules by name, each imported when it is first asked for."""

    _homes: ClassVar = {
        "sgd": ("base", "SgdRule"),
        "counts": ("base", "CountsRule"),
        "least_squares": ("least_squares.rule", "LeastSquaresRule"),
    }

    def __getitem__(self, name: str) -> type[Rule]:
        module, attribute = self._homes[one_of("rule", name, tuple(self._homes))]
        found: type[Rule] = getattr(import_module(f"dkvb.rules.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


RULES = _Rules()

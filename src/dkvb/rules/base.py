"""What every learning rule of the bottleneck does, whatever it keeps of the rows it learns from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from dkvb._support import process_group
from dkvb._support.files import State
from dkvb._support.validation import check_memory, one_of
from dkvb.bottleneck import Batch, Keys

NOT_LEARNED = (
    "X, y: expected rows that were learned with these labels; got rows that were not, or more "
    "often than they were learned; nothing was changed"
)
CLASS_WEIGHTS = ("balanced", None)
MOST_CLASSES = 1 << 20  # that places of counts can hold
MOST_OF_A_CLASS = (1 << 53) - 1  # rows, that float64 tells apart
TOO_MANY_CLASSES = (
    "y: expected at most {} classes in a model; got {}; nothing was changed; learn the rest in "
    "another model"
)
# A rule is imported when it is first used: none should make the others wait.
RULES = {"sgd": "SGD", "counts": "Counts", "least_squares": "LeastSquares"}


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the pairs that rows select say; with what class means add, it sums to scores."""

    codes: Tensor  # (n, C)
    contributions: Tensor  # (n, C, Y) float64
    examples: Tensor | None  # (n, C, Y) int64, rows of each class that selected the pair
    class_means: Tensor | None = None  # (n, Y) float64


class Rule(BaseEstimator, ABC):
    """A scikit-learn estimator that learns the values of frozen keys.

    A rule owns its parameters and what it has learned (`state_`), in terms of codes and class
    indices; labels, keys and the validation of inputs belong to the classifier. A fitted rule is
    never changed in place: every operation returns a copy with another state, so that an error
    changes nothing and other threads go on predicting.
    """

    name: ClassVar[str]
    preset: ClassVar[str]  # of `fit_keys`, for keys that suit the rule
    # Of several processes, whether each learns some rows, or all rows in some codebooks.
    splits_rows: ClassVar[bool] = True
    uses_codes: ClassVar[bool] = True  # or embeddings alone
    learns_in_epochs: ClassVar[bool] = False  # k calls of one epoch equal one call of k epochs

    keys_: Keys
    state_: Any
    seed_: int

    @abstractmethod
    def check_params(self) -> None:
        """Raise for a parameter that cannot be used."""

    def local_keys(self, keys: Keys) -> Keys:
        """The keys that this process searches, of all keys."""
        return keys

    @abstractmethod
    def start(self, keys: Keys, *, seed: int = 0, open_ended: bool = True) -> Self:
        """A fitted copy that has learned nothing, for keys that are not too large.

        `open_ended` says that not all classes were declared.
        """

    @abstractmethod
    def learn(self, batch: Any, class_index: Tensor, n_classes: int) -> Self:
        """With the rows of a `Batch`, or what `from_journal` returned, of classes (n,) learned."""

    @abstractmethod
    def scores(self, batch: Batch) -> Tensor:
        """Scores (n, Y), classes in order of appearance."""

    @abstractmethod
    def usage(self) -> Tensor:
        """How often learning selected each pair (C, K)."""

    @abstractmethod
    def state_tensors(self) -> dict[str, Tensor]:
        """All that was learned: equal models, equal tensors."""

    def softmax_temperature(self) -> float:
        """What scores are divided by before the softmax."""
        return 1.0

    @abstractmethod
    def evidence(self, batch: Batch) -> Evidence:
        """Which pairs say what, for a few rows."""

    # ------------------------------------------------------------------ changing what was learned
    def unlearn(self, batch: Batch, class_index: Tensor) -> tuple[Self, int]:
        """Without exactly what `learn` added, and the number of pairs that changed."""
        self._refuse("forget_samples")

    def map_classes(self, target: Tensor) -> Self:
        """With class y called target[y]; a negative target drops what was learned of the class,
        which a rule that cannot refuses unless no row of it is left."""
        self._refuse("forget")

    def merge(self, other: Self, target: Tensor, n_classes: int) -> Self:
        """With what another model has learned; its class y is our class target[y]."""
        self._refuse("merge")

    def tune(self) -> Self:
        """With all that is chosen by the data chosen again, so that scores depend on the set of
        rows alone."""
        return self

    def with_keys(self, keys: Keys) -> Self:
        """With more pairs; those that were selected have kept their numbers."""
        self._refuse("grow_keys", "rule='counts' or 'sgd'", "whose sums belong to all keys at once")

    @abstractmethod
    def freeze(self) -> Self:
        """A smaller copy that scores alike and cannot learn any more."""

    # -------------------------------------------------------------------------- journals and files
    @property
    def journals_embeddings(self) -> bool:
        """Whether a journal holds embeddings although what was learned does not."""
        return False

    @abstractmethod
    def journal_record(self, batch: Batch, class_index: Tensor) -> State:
        """What must be kept of rows to learn them again, and not the embeddings. Classes (n,) are
        numbered for this record alone."""

    @abstractmethod
    def from_journal(self, record: State, n: int) -> Any:
        """What `learn` takes for n rows, from a record; an error where it cannot be one."""

    def to_state(self, dtype: str | None = None) -> State:
        """Parameters and all that was learned, as tensors and facts; `dtype` rounds values."""
        if dtype is not None:
            raise ValueError(
                f"dtype: expected None for rule={self.name!r}, whose counts and sums are exact; "
                f"got {dtype!r}; only the values of rule='sgd' can be rounded"
            )
        state = self._learned_state()
        return State(state.tensors, {**state.facts, "rule": describe(self), "seed": self.seed_})

    def from_state(self, state: State, keys: Keys, n_classes: int) -> Self:
        """A fitted copy from what `to_state` gave, also in the formats of versions before."""
        seed = state.whole_number("seed", low=-(1 << 63), high=1 << 64)
        return self._with(keys_=keys, seed_=seed)._with_learned_state(state, n_classes)

    @classmethod
    @abstractmethod
    def params_from_flat(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters of this rule from those that formats 1 and 2 wrote for the classifier."""

    @abstractmethod
    def _learned_state(self) -> State:
        """What was learned, as tensors and facts."""

    @abstractmethod
    def _with_learned_state(self, state: State, n_classes: int) -> Self:
        """A copy with what `_learned_state` gave; an error where the parts do not fit."""

    def _with(self, **fitted: Any) -> Self:
        """A copy with other fitted attributes."""
        changed = copy(self)
        changed.__dict__.update(fitted)
        return changed

    def _refuse(
        self,
        operation: str,
        expected: str = "rule='counts' or 'least_squares', which keep sums",
        because: str = "whose values depend on all rows and their order, and can lose none of them",
    ) -> NoReturn:
        raise ValueError(
            f"{operation}: expected a model with {expected}; got rule={self.name!r}, {because}"
        )


def rule_names() -> tuple[str, ...]:
    """The names that `make_rule` knows."""
    return tuple(RULES)


@cache
def rule_class(name: str) -> type[Rule]:
    """The class of a rule, by name."""
    one_of("rule", name, rule_names())
    found: type[Rule] = getattr(import_module(f"dkvb.rules.{name}.rule"), RULES[name])
    return found


def make_rule(rule: Any) -> Rule:
    """A rule by name, with default parameters, or the rule itself."""
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return rule_class(rule)()
    raise TypeError(
        f"rule: expected one of {', '.join(map(repr, RULES))}, or an object such as "
        f"rules.Counts(); got {rule!r:.60}"
    )


def describe(rule: Rule) -> dict[str, Any]:
    """Name and parameters of a rule, as JSON can hold them."""
    params = rule.get_params(deep=False).items()
    plain = {name: p.item() if isinstance(p, np.generic) else p for name, p in params}
    return {"name": rule.name, "params": plain}


def check_countable(class_counts: NDArray[np.int64]) -> None:
    """Raise for more classes (Y,), or more rows of one, than can be counted."""
    if len(class_counts) > MOST_CLASSES:
        raise ValueError(TOO_MANY_CLASSES.format(MOST_CLASSES, len(class_counts)))
    if class_counts.max(initial=0) > MOST_OF_A_CLASS:
        raise ValueError(
            f"y: expected at most {MOST_OF_A_CLASS} rows of one class; got {class_counts.max()}; "
            "nothing was changed; learn fewer of them"
        )


def check_one_process(rule: Rule, operation: str) -> None:
    """Raise where codebooks are spread over the processes of a job."""
    if not rule.splits_rows and process_group.world_size() > 1:
        raise ValueError(
            f"{operation}: expected all codebooks of rule={rule.name!r} in one process; "
            f"got a job of {process_group.world_size()}"
        )


def check_fits(rule: Rule, size: int, device: torch.device, what: str) -> None:
    """Raise, before anything is allocated, for more bytes than are free."""
    check_memory(
        f"keys: rule={rule.name!r} would keep {what}",
        size,
        f"use smaller keys, such as fit_keys(X, preset={rule.preset!r}), or keys=None, which fits "
        "keys of the rule's own size; or learn fewer classes in one model",
        device,
    )

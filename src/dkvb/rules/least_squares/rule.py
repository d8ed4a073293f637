"""Rule `least_squares`: soft reads, and values that solve a ridge problem from exact sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from dkvb._support import process_group, validation
from dkvb._support.files import State as SavedState
from dkvb._support.hashing import content_hash
from dkvb.bottleneck import Codes, Keys
from dkvb.bottleneck.assignment import SoftReads, in_blocks
from dkvb.rules.base import Evidence, Rule
from dkvb.rules.counts.state import NOT_LEARNED
from dkvb.rules.least_squares import ridge

# Of a softmax of scores, in units of how far held-out scores lie from the mean of their class: the
# best was 0.63 to 0.78 where it could be measured (docs/research.md). Scores are about 0 or 1.
_TEMPERATURE_PER_DEVIATION = 0.7
_LOWEST_TEMPERATURE = 0.02
_ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 28}  # weights of the rows held at a time


@dataclass(frozen=True, eq=False)
class Ledger:
    """The rows learned, as far as is needed to take any of them back: stored data.

    Kept in the order of their hashes and columns, so that it tells nothing of the order they came
    in and equal models have equal ledgers.
    """

    rows: Tensor  # (n, p) float16, conditioned embeddings
    hashes: Tensor  # (n,) int64, of the embeddings
    columns: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, chosen: Tensor | slice) -> Ledger:
        return Ledger(self.rows[chosen], self.hashes[chosen], self.columns[chosen])

    def joined(self, other: Ledger) -> Ledger:
        both = Ledger(
            torch.cat([self.rows, other.rows]),
            torch.cat([self.hashes, other.hashes]),
            torch.cat([self.columns, other.columns]),
        )
        by_column = torch.argsort(both.columns, stable=True)
        return both[by_column[torch.argsort(both.hashes[by_column], stable=True)]]

    def without(self, other: Ledger) -> Ledger:
        """The entries that are left when those of `other` are taken out, or an error."""
        left = Counter(zip(other.hashes.tolist(), other.columns.tolist(), strict=True))
        kept = []
        for entry in zip(self.hashes.tolist(), self.columns.tolist(), strict=True):
            kept.append(left[entry] == 0)
            left[entry] -= not kept[-1]
        if left.total():
            raise ValueError(NOT_LEARNED)
        return self[torch.tensor(kept, dtype=torch.bool, device=self.columns.device)]


@dataclass(frozen=True, eq=False)
class State:
    """Sums over what was learned: whole numbers, so that equal data give equal bits."""

    sums: ridge.RidgeSums
    selected: Tensor  # (M,) int64, how often each pair's weight was its codebook's largest
    ledger: Ledger | None

    @cached_property
    def empirical(self) -> ridge.Solution:
        """The ridge solution, which favours frequent classes; solved when first asked for."""
        return ridge.fit(self.sums)

    @cached_property
    def uniform(self) -> ridge.Solution:
        """The same with all classes on an equal footing."""
        return ridge.level(self.sums, self.empirical)


class LeastSquaresRule(Rule):
    """Ridge regression from soft reads to classes; learning only adds to sums.

    A new state takes the place of the old one, so that predictions in other threads see either.
    """

    KEY_SETTINGS: ClassVar = {
        "n_codebooks": 320,
        "n_pairs": 32,
        "key_dim": 96,
        "method": "lloyd",
        "epochs": 5,
        "conditioning": "half-whitened",
        "n_components": 768,
    }

    def start(self, keys: Keys) -> None:
        super().start(keys)
        self.reads = SoftReads(keys, self.settings.temperature)
        M = self.reads.n_features
        ledger = self._entries([]) if self.settings.ledger else None
        selected = torch.zeros(M, dtype=torch.int64, device=keys.device)
        self.state = State(ridge.empty(M, device=keys.device), selected, ledger)

    def grow(self, n_columns: int) -> None:
        if n_columns > self.state.sums.n_columns:
            self.state = replace(self.state, sums=ridge.grow_columns(self.state.sums, n_columns))

    def learn(self, rows: Any, columns: Tensor) -> None:
        self.state = self._changed(self.state, self._parts(rows, columns), 1)

    def unlearn(self, rows: Any, columns: Tensor) -> int:
        before = self.state
        self.state = self._changed(before, self._parts(rows, columns), -1)
        return self._touched(before)

    def move_columns(self, target: Tensor) -> None:
        state, target = self.state, target.to(self.keys.device)
        dropped = target < 0
        if bool(state.sums.total[dropped].any()):
            if state.ledger is None:
                raise ValueError(
                    "label: rule='least_squares' keeps sums over all classes, which a class can "
                    "only be taken from together with its rows; pass these to "
                    "forget_samples(X, y), or learn with ledger=True, which stores them"
                )
            taught = state.ledger[dropped[state.ledger.columns]]
            state = self._changed(state, self._stored(taught), -1)
        n_columns = int(target.max()) + 1 if len(target) else 0
        sums = ridge.move_columns(state.sums, target, max(0, n_columns))
        self.state = replace(state, sums=sums, ledger=_relabelled(state.ledger, target))

    def merge(self, other: Rule, target: Tensor) -> None:
        ours = self.state
        assert isinstance(other, LeastSquaresRule)  # the classifier has compared rules
        if other.reads.temperature != self.reads.temperature:
            raise ValueError(
                f"other: expected a model with temperature {self.reads.temperature}, as this one; "
                f"got {other.reads.temperature}; learn both with the same temperature"
            )
        theirs = _on(other.state, self.keys.device)
        target = target.to(self.keys.device)
        ledger = _relabelled(theirs.ledger, target)
        if ours.ledger is not None:
            if ledger is None:
                raise ValueError(
                    "other: expected a model with a ledger, as this one; got one without; "
                    "learn both with the same ledger setting"
                )
            ledger = ours.ledger.joined(ledger)
        else:
            ledger = None
        moved = ridge.move_columns(theirs.sums, target, ours.sums.n_columns)
        sums = ridge.merge(ours.sums, moved)
        selected = ours.selected + theirs.selected
        self.state = _exact(replace(ours, sums=sums, selected=selected, ledger=ledger))

    def scores(self, rows: Any) -> Tensor:
        state = self.state
        values = self._solution(state).values  # (M, Y)
        X = rows.rows if isinstance(rows, Codes) else rows
        found = [
            self.reads(x) @ values
            for _, x in validation.chunks(X, self._rows_at_a_time, device=self.keys.device)
        ]
        return torch.cat(found).masked_fill(state.sums.total == 0, -torch.inf)  # (n, Y)

    def usage(self) -> Tensor:
        return self.state.selected.view(self.keys.n_codebooks, -1)

    def state_tensors(self) -> dict[str, Tensor]:
        state = self.state
        tensors = {**state.sums.tensors(), "selected": state.selected}
        if state.ledger is not None:
            tensors |= {"ledger_" + name: value for name, value in vars(state.ledger).items()}
        return tensors

    def temperature(self) -> float:
        """Under which a softmax of scores is calibrated, from the sums over held-out rows."""
        judgement = self._solution(self.state).judgement
        deviation = 0.0 if judgement is None else judgement.score_deviation
        return max(_TEMPERATURE_PER_DEVIATION * deviation, _LOWEST_TEMPERATURE)

    def _solution(self, state: State) -> ridge.Solution:
        solution: ridge.Solution = getattr(state, self.settings.prior)
        return solution

    def evidence(self, rows: Any) -> Evidence:
        values = self._solution(self.state).values
        X = rows.rows if isinstance(rows, Codes) else rows
        x = validation.as_float32(X).to(self.keys.device)
        phi = self.reads(x).view(len(x), self.keys.n_codebooks, -1)  # (n, C, K)
        votes = torch.einsum("nck,cky->ncy", phi, values.view(*phi.shape[1:], -1))
        return Evidence(phi.argmax(dim=2), votes, None)

    def sealed(self) -> Self:
        """Without sums of products and ledger, which only learning needs."""
        state, twin = self.state, copy(self)

        def bare(moments: ridge.Moments) -> ridge.Moments:
            return replace(moments, gram=moments.gram[:0].clone())

        sums = ridge.RidgeSums(bare(state.sums.learned), bare(state.sums.held))
        twin.state = replace(state, sums=sums, ledger=None)
        for prior in ("empirical", "uniform"):
            solution: ridge.Solution = getattr(state, prior)
            judged = solution.judgement
            if judged is not None:
                judged = replace(judged, moments=bare(judged.moments))
            vars(twin.state)[prior] = replace(solution, judgement=judged)
        return twin

    def trace(self, rows: Any) -> SavedState:
        columns = torch.zeros(len(rows), dtype=torch.int64, device=self.keys.device)
        kept = self._entries(list(self._parts(rows, columns)))
        return SavedState.of(rows=kept.rows, hashes=kept.hashes)

    def retrace(self, state: SavedState, n: int) -> Ledger:
        device = self.keys.device
        rows = state.tensor("rows", torch.float16, (n, self.keys.projection.width), device)
        hashes = state.whole_numbers("hashes", (n,), high=1 << 63).to(device)
        if not bool(rows.isfinite().all()):
            raise state.damaged("rows: expected finite numbers")
        return Ledger(rows, hashes, hashes)

    @property
    def ridge(self) -> float:
        """The λ in use, in units of tr(G)/M."""
        return self.state.empirical.lam

    @property
    def _rows_at_a_time(self) -> int:
        elements = _ELEMENTS.get(self.keys.device.type, _ELEMENTS["cpu"])
        return max(1, elements // self.reads.n_features)

    def _parts(self, rows: Any, columns: Tensor) -> Iterator[Ledger]:
        """What a ledger says of these rows, a few at a time."""
        if isinstance(rows, Ledger):
            yield from self._stored(replace(rows, columns=columns))
            return
        X = rows.rows if isinstance(rows, Codes) else rows
        for part, x in validation.chunks(X, self._rows_at_a_time, device=self.keys.device):
            conditioned = in_blocks(self.reads.rows, x)
            yield Ledger(conditioned, content_hash(x), columns[part])

    def _stored(self, ledger: Ledger) -> Iterator[Ledger]:
        for part in torch.arange(len(ledger), device=self.keys.device).split(self._rows_at_a_time):
            yield ledger[part]

    def _changed(self, state: State, parts: Iterator[Ledger], sign: int) -> State:
        """The state with rows added, everyone's, or taken away; an error leaves no trace."""
        selected = torch.zeros_like(state.selected)
        entries: list[Ledger] = []
        C, K = self.keys.n_codebooks, self.keys.n_pairs
        books = torch.arange(C, device=self.keys.device) * K

        def batches() -> Iterator[ridge.Batch]:
            for part in parts:
                phi = in_blocks(self.reads.weights, part.rows)  # (n, M)
                nearest = phi.view(-1, C, K).argmax(dim=2) + books  # (n, C)
                selected.add_(torch.bincount(nearest.flatten(), minlength=C * K), alpha=sign)
                if state.ledger is not None:
                    entries.append(part)
                yield phi, part.columns, part.hashes % ridge.HELD_OUT == 0

        if sign > 0:
            sums = ridge.update_together(state.sums, batches())
            selected = process_group.all_reduce(selected)
        else:
            sums = ridge.update(state.sums, batches(), sign)
        ledger = state.ledger
        if ledger is not None:
            given = self._entries(entries)
            ledger = ledger.joined(_everyones(given)) if sign > 0 else ledger.without(given)
        selected += state.selected
        changed = _exact(replace(state, sums=sums, selected=selected, ledger=ledger))
        return changed if sign > 0 else _of_rows(changed)

    def _entries(self, parts: list[Ledger]) -> Ledger:
        device = self.keys.device
        none = torch.zeros(0, dtype=torch.int64, device=device)
        width = self.keys.projection.width
        rows = torch.zeros((0, width), dtype=torch.float16, device=device)
        return Ledger(
            torch.cat([rows, *(part.rows for part in parts)]),
            torch.cat([none, *(part.hashes for part in parts)]),
            torch.cat([none, *(part.columns for part in parts)]),
        )

    def _touched(self, before: State) -> int:
        """How many pairs' sums are not what they were."""
        moved = torch.zeros_like(before.selected, dtype=torch.bool)
        pairs = zip(
            (before.sums.learned, before.sums.held),
            (self.state.sums.learned, self.state.sums.held),
            strict=True,
        )
        for old, new in pairs:
            moved |= (old.cross != new.cross).any(dim=1)
        return int(moved.sum())


def _everyones(own: Ledger) -> Ledger:
    return Ledger(*(torch.cat(process_group.all_gather(part)) for part in vars(own).values()))


def _of_rows(state: State) -> State:
    """The state, or an error where no rows can have such sums."""
    for sum_ in (*state.sums.tensors().values(), state.selected):
        if sum_.numel() and float(sum_.min()) < 0:
            raise ValueError(NOT_LEARNED)
    return state


def _exact(state: State) -> State:
    """The state, or an error where its sums are too large to be exact."""
    for moments in (state.sums.learned, state.sums.held):
        # No sum of products is above the largest sum of squares.
        if float(moments.diagonal().max()) >= ridge.EXACT:
            raise ValueError(
                "X: expected fewer rows: sums would pass 2**53 and no longer be exact; "
                "nothing was changed; use more pairs a codebook, or learn the rest apart"
            )
    return state


def _relabelled(ledger: Ledger | None, target: Tensor) -> Ledger | None:
    if ledger is None:
        return None
    moved = Ledger(ledger.rows, ledger.hashes, target[ledger.columns])
    return moved[:0].joined(moved)  # in its order again


def _on(state: State, device: torch.device) -> State:
    def moved(value: Any) -> Any:
        return type(value)(*(t.to(device) for t in vars(value).values()))

    sums = ridge.RidgeSums(moved(state.sums.learned), moved(state.sums.held))
    ledger = None if state.ledger is None else moved(state.ledger)
    return replace(state, sums=sums, selected=state.selected.to(device), ledger=ledger)

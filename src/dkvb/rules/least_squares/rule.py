"""Rule `least_squares`: soft assignments, and values that solve a ridge problem from exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from dkvb._support import process_group, validation
from dkvb._support.files import State
from dkvb._support.hashing import content_hash
from dkvb.bottleneck import Batch, Keys
from dkvb.bottleneck.assignment import READ_TEMPERATURE, SoftAssignment, in_blocks
from dkvb.rules.base import CLASS_WEIGHTS, NOT_LEARNED, Evidence, Rule, check_fits
from dkvb.rules.least_squares import ridge, serialisation, sums
from dkvb.rules.least_squares.export import SoftValuesView
from dkvb.rules.least_squares.incremental import Rows
from dkvb.rules.least_squares.samples import Samples, joined, no_samples
from dkvb.rules.least_squares.state import SumsState

# Of a softmax of scores, in units of how far held-out scores lie from the mean of their class: the
# best was 0.63 to 0.78 where it could be measured (docs/results/research.md). Scores are about 0
# or 1.
_TEMPERATURE_PER_DEVIATION = 0.7
_LOWEST_TEMPERATURE = 0.02
_CHEAP = 2e11  # multiplications, some seconds, that solving before a model is written may take
_ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 28}  # weights of the rows held at a time


class LeastSquares(Rule):
    """Ridge regression from soft assignments to classes; learning only adds to sums.

    What was learned does not depend on the order of the data, can be merged, and rows can be
    unlearned exactly; a class can be where samples are stored.

    λ, the strength of regularisation, is chosen by the squared error on one row in ten. With up to
    1,024 pairs (codebooks × pairs), that and the solution are found anew after every change, and
    predictions are a function of the set of rows alone. With more pairs a solution follows from
    the last one: λ is kept, and chosen again when the number of rows has doubled, after
    unlearning and merging, and by `tune`. Predictions then depend on when λ was chosen; the
    solution is that of all rows for this λ, to 1e-6. One prediction in every M/4 rows learned, for
    M pairs, takes as long as a factorisation. The factor takes 4·M² bytes beside the 8·M² of sums.

    Parameters
    ----------
    read_temperature : float
        Width of the soft assignment to the keys of a codebook, in units of its quantization error.
    class_weight : "balanced" or None
        Whether scores are normalised per class; without it frequent classes are favoured.
    store_samples : bool
        Whether conditioned rows are stored, so that `forget` can find those of a class.
    """

    name = "least_squares"
    preset = "least_squares"
    uses_codes = False

    state_: SumsState
    assignment_: SoftAssignment

    def __init__(
        self,
        read_temperature: float = READ_TEMPERATURE,
        class_weight: str | None = "balanced",
        store_samples: bool = False,
    ) -> None:
        self.read_temperature = read_temperature
        self.class_weight = class_weight
        self.store_samples = store_samples

    def check_params(self) -> None:
        validation.real("read_temperature", self.read_temperature, low=0, low_open=True)
        validation.one_of("class_weight", self.class_weight, CLASS_WEIGHTS)
        if not isinstance(self.store_samples, bool | np.bool_):
            raise TypeError(f"store_samples: expected True or False; got {self.store_samples!r}")

    def start(self, keys: Keys, *, seed: int = 0, open_ended: bool = True) -> Self:
        C, K, _ = keys.keys.shape
        M, device = C * K, keys.keys.device
        # Of rows learned from and rows held out, a triangle of products each, and a factor.
        check_fits(self, 12 * M * M, device, f"sums over products of {C} × {K} pairs")
        samples = no_samples(keys.projection.width, device) if self.store_samples else None
        selected = torch.zeros(M, dtype=torch.int64, device=device)
        return self._with(
            keys_=keys,
            seed_=seed,
            assignment_=SoftAssignment(keys, self.read_temperature),
            state_=SumsState(sums.empty(M, device=device), selected, samples),
        )

    def learn(self, batch: Any, class_index: Tensor, n_classes: int) -> Self:
        M = len(self.state_.selected)
        if n_classes > M:  # else sums over classes are smaller than those that `start` checked
            # Of rows learned from and rows held out, sums before and after.
            what = f"sums over products of {M} pairs with {n_classes} classes"
            check_fits(self, 4 * 8 * M * n_classes, self.keys_.keys.device, what)
        parts = self._parts(batch, class_index)
        return self._with(state_=self._learned(parts, len(class_index), n_classes))

    def unlearn(self, batch: Batch, class_index: Tensor) -> tuple[Self, int]:
        before, after = self.state_, self._unlearned(self._parts(batch, class_index))
        return self._with(state_=after), _n_changed(before.sums, after.sums)

    def map_classes(self, target: Tensor) -> Self:
        state, target = self.state_, target.to(self.keys_.device)
        dropped = target < 0
        if bool(state.total[dropped].any()):
            if state.samples is None:
                raise ValueError(
                    "label: rule='least_squares' keeps sums over all classes, which a class can "
                    "only be taken from together with its rows; pass these to forget_samples(X, y),"
                    " or learn with store_samples=True"
                )
            gone = state.samples[dropped[state.samples.class_index]]
            state = self._unlearned(self._parts(gone, gone.class_index))
        n_classes = int(target.max()) + 1 if len(target) else 0
        mapped = sums.map_classes(state.sums, target, max(0, n_classes))
        samples = None if state.samples is None else state.samples.relabelled(target)
        return self._with(state_=SumsState(mapped, state.selected, samples))

    def merge(self, other: Self, target: Tensor, n_classes: int) -> Self:
        if other.assignment_.temperature != self.assignment_.temperature:
            raise ValueError(
                f"other: expected a model with read_temperature {self.assignment_.temperature}, as "
                f"this one; got {other.assignment_.temperature}; learn both with the same"
            )
        ours, device = self.state_, self.keys_.device
        theirs, target = other.state_, target.to(device)
        samples = None
        if ours.samples is not None:
            if theirs.samples is None:
                raise ValueError(
                    "other: expected a model with stored samples, as this one; got one without; "
                    "learn both with the same store_samples"
                )
            samples = ours.samples.with_(theirs.samples.to(device).relabelled(target))
        merged = sums.merge(
            sums.grow_classes(ours.sums, n_classes),
            sums.map_classes(theirs.sums.to(device), target, n_classes),
        )
        selected = ours.selected + theirs.selected.to(device)
        return self._with(state_=SumsState(merged, selected, samples))

    def tune(self) -> Self:
        state = self.state_
        return self._with(state_=SumsState(state.sums, state.selected, state.samples))

    def scores(self, batch: Batch) -> Tensor:
        values = self.solution().values  # (M, Y)
        parts = [self.assignment_(x) @ values for _, x in batch.chunks(self._rows_at_a_time)]
        return torch.cat(parts).masked_fill(self.state_.total == 0, -torch.inf)  # (n, Y)

    def solution(self) -> ridge.Solution:
        """The values in use, and the λ they were found with."""
        state = self.state_
        return state.unweighted if self.class_weight is None else state.balanced

    def usage(self) -> Tensor:
        return self.state_.selected.view(self.keys_.n_codebooks, -1)

    def state_tensors(self) -> dict[str, Tensor]:
        return serialisation.tensors(self.state_)

    def softmax_temperature(self) -> float:
        """Under which a softmax of scores is calibrated, from the sums over held-out rows."""
        scored = self.solution().held_out_scores
        deviation = 0.0 if scored is None else scored.score_deviation
        return max(_TEMPERATURE_PER_DEVIATION * deviation, _LOWEST_TEMPERATURE)

    def evidence(self, batch: Batch) -> Evidence:
        values = self.solution().values
        ((_, x),) = batch.chunks(len(batch))
        phi = self.assignment_(x).view(len(x), self.keys_.n_codebooks, -1)  # (n, C, K)
        votes = torch.einsum("nck,cky->ncy", phi, values.view(*phi.shape[1:], -1))
        return Evidence(phi.argmax(dim=2), votes, None)

    def freeze(self) -> Self:
        """Without sums of products and stored samples, which only learning needs."""
        return self._with(state_=self.state_.without_products())

    @property
    def journals_embeddings(self) -> bool:
        return self.state_.samples is None  # sums of products are too large for every record

    def journal_record(self, batch: Batch, class_index: Tensor) -> State:
        class_index = torch.zeros(len(batch), dtype=torch.int64, device=self.keys_.device)
        kept = joined(list(self._parts(batch, class_index)))
        return State.of(rows=kept.rows, hashes=kept.hashes)

    def from_journal(self, record: State, n: int) -> Samples:
        device = self.keys_.device
        rows = record.tensor("rows", torch.float16, (n, self.keys_.projection.width), device)
        hashes = record.whole_numbers("hashes", (n,), high=1 << 63).to(device)
        if not bool(rows.isfinite().all()):
            raise record.damaged("rows: expected finite numbers")
        return Samples(rows, hashes, hashes)

    @classmethod
    def params_from_flat(cls, params: dict[str, Any]) -> dict[str, Any]:
        return serialisation.params_from_flat(params)

    def _learned_state(self) -> State:
        state = self.state_
        n_rows = float(state.total.sum())
        cheap = state.is_extended() or ridge.cost(len(state.selected), n_rows) <= _CHEAP
        if n_rows and cheap:
            self.solution()  # written too, so that whoever reads the file need not solve
        return serialisation.to_state(self.state_, self.assignment_.temperature)

    def _with_learned_state(self, state: State, n_classes: int) -> Self:
        found, temperature = serialisation.from_state(state, self.keys_, n_classes)
        return self._with(assignment_=SoftAssignment(self.keys_, temperature), state_=found)

    def export_view(self) -> SoftValuesView:
        """What an exported graph needs to give the same scores."""
        return SoftValuesView(self.assignment_, self.solution().values, self.state_.total)

    @property
    def _rows_at_a_time(self) -> int:
        C, K, _ = self.keys_.keys.shape
        elements = _ELEMENTS.get(self.keys_.keys.device.type, _ELEMENTS["cpu"])
        return min(max(1, elements // (C * K)), sums.MOST_ROWS)

    def _parts(self, batch: Any, class_index: Tensor) -> Iterator[Samples]:
        """Rows as samples, a few at a time."""
        if isinstance(batch, Samples):
            samples = replace(batch, class_index=class_index)
            for part in torch.arange(len(samples)).split(self._rows_at_a_time):
                yield samples[part.to(samples.hashes.device)]
            return
        for part, x in batch.chunks(self._rows_at_a_time):
            rows = in_blocks(self.assignment_.rows, x)
            yield Samples(rows, content_hash(x), class_index[part])

    def _learned(self, parts: Iterator[Samples], n_rows: int, n_classes: int) -> SumsState:
        """The state with rows added, those of all processes; an error changes nothing."""
        state, large = self.state_, len(self.state_.selected) > ridge.LARGE
        stored: list[Samples] = []
        selected = torch.zeros_like(state.selected)
        batches = self._batches(parts, selected, stored)
        rows, summed = [], None
        if process_group.world_size() > 1:
            grown = sums.grow_classes(state.sums, n_classes)
            summed = sums.update_together(grown, batches)
            selected = process_group.all_reduce(selected)
        elif large and state.may_wait(n_rows):
            rows = [Rows(phi.float(), classes, held) for phi, classes, held in batches]
        else:
            grown = sums.grow_classes(state.summed, n_classes)
            summed = sums.update(grown, chain(state.batches() if large else (), batches))
        selected += state.selected
        samples = state.samples
        if samples is not None:
            samples = samples.with_(joined([samples[:0], *stored]).of_all_processes())
        if summed is None:
            return state.with_waiting(rows, n_classes, selected, samples)
        choice = state.latest_choice() if large else None
        return SumsState(summed, selected, samples, choice=choice)

    def _unlearned(self, parts: Iterator[Samples]) -> SumsState:
        """The state with rows taken away; an error changes nothing."""
        state = self.state_
        stored: list[Samples] = []
        selected = torch.zeros_like(state.selected)
        summed = sums.update(state.sums, self._batches(parts, selected, stored), sign=-1)
        samples = state.samples
        if samples is not None:
            samples = samples.without(joined([samples[:0], *stored]))
        changed = SumsState(summed, state.selected - selected, samples)
        _check_not_negative(changed)
        return changed

    def _batches(
        self, parts: Iterator[Samples], selected: Tensor, stored: list[Samples]
    ) -> Iterator[sums.Batch]:
        """Rows as sums take them; counts what they select, and lists those that are stored."""
        C, K, _ = self.keys_.keys.shape
        books = torch.arange(C, device=selected.device) * K
        for part in parts:
            phi = in_blocks(self.assignment_.weights, part.rows)  # (n, M)
            nearest = phi.view(-1, C, K).argmax(dim=2) + books  # (n, C)
            selected += torch.bincount(nearest.flatten(), minlength=C * K)
            if self.state_.samples is not None:
                stored.append(part)
            yield phi, part.class_index, part.hashes % sums.HELD_OUT == 0


def _check_not_negative(state: SumsState) -> None:
    """Raise where no rows can have such sums."""
    parts = (part.rounded().tensors() for part in (state.sums.learned, state.sums.held))
    for sum_ in (*(sum_ for part in parts for sum_ in part.values()), state.selected):
        if sum_.numel() and float(sum_.min()) < 0:
            raise ValueError(NOT_LEARNED)


def _n_changed(before: sums.RidgeSums, after: sums.RidgeSums) -> int:
    """How many pairs' sums are not what they were."""
    changed = (before.learned.cross != after.learned.cross).any(dim=1)
    changed |= (before.held.cross != after.held.cross).any(dim=1)
    return int(changed.sum())

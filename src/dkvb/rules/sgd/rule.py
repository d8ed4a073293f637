"""Rule `sgd`: values by stochastic gradient descent, as in the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from dkvb._support import process_group, validation
from dkvb._support.files import State
from dkvb.bottleneck import Batch, Keys
from dkvb.bottleneck.sharding import local_codebooks
from dkvb.kernels.sgd import pool
from dkvb.rules import candidates
from dkvb.rules.base import Evidence, Rule, check_fits, check_one_process
from dkvb.rules.sgd import descent, serialisation
from dkvb.rules.sgd.descent import SgdState
from dkvb.rules.sgd.export import ValuesView

SCORES_AT_ONCE = 1 << 25  # numbers that are summed over processes together: 128 MB


class SGD(Rule):
    """The paper's rule: passes of gradient descent over the rows of each `partial_fit`.

    Unless the first call declares all classes, as the paper does, a hidden column learns for those
    yet to come, and a new class starts as its copy. What was learned depends on the order of the
    data a little, and cannot be unlearned or merged.

    Parameters
    ----------
    epochs : int
        Passes over the rows of each call.
    learning_rate : float
        Step size.
    batch_size : int
        Rows per step.
    label_smoothing : float
        Share of the target that is spread over all classes, 0 to 1.
    value_dtype : "float32", "bfloat16" or "float16"
        How values are stored; with 16 bits, in half the memory.
    candidate_keys : "used" or "all"
        Keys that predictions read: those that learning has used at least once, as in the paper's
        experiments, or all.
    """

    name = "sgd"
    preset = "paper"
    splits_rows = False
    learns_in_epochs = True

    state_: SgdState
    n_codebooks_: int  # of all processes

    def __init__(
        self,
        epochs: int = 1,
        learning_rate: float = 0.3,
        batch_size: int = 256,
        label_smoothing: float = 0.1,
        value_dtype: str = "float32",
        candidate_keys: str = "used",
    ) -> None:
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.label_smoothing = label_smoothing
        self.value_dtype = value_dtype
        self.candidate_keys = candidate_keys

    def check_params(self) -> None:
        validation.positive_int("epochs", self.epochs)
        validation.real("learning_rate", self.learning_rate, low=0, low_open=True)
        validation.positive_int("batch_size", self.batch_size)
        validation.real("label_smoothing", self.label_smoothing, low=0, high=1)
        validation.one_of("value_dtype", self.value_dtype, descent.DTYPES)
        validation.one_of("candidate_keys", self.candidate_keys, candidates.OPTIONS)

    def local_keys(self, keys: Keys) -> Keys:
        return keys if process_group.world_size() == 1 else local_codebooks(keys)

    def start(self, keys: Keys, *, seed: int = 0, open_ended: bool = True) -> Self:
        own = self.local_keys(keys)
        C, K, _ = own.keys.shape
        state = descent.start(C, K, own.keys.device, self.value_dtype, unseen=open_ended)
        return self._with(keys_=own, n_codebooks_=len(keys.keys), seed_=seed, state_=state)

    def learn(self, batch: Any, class_index: Tensor, n_classes: int) -> Self:
        C, K, _ = self.keys_.keys.shape
        size = C * K * (n_classes + 1) * self.state_.columns.element_size()
        check_fits(self, size, self.keys_.keys.device, f"{C} × {K} × {n_classes} values")
        state = descent.update(
            descent.grow(self.state_, n_classes),
            batch.codes,
            class_index,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            label_smoothing=self.label_smoothing,
            seed=self.seed_,
            n_codebooks=self.n_codebooks_,
        )
        return self._with(state_=state)

    def scores(self, batch: Batch) -> Tensor:
        return logits(self.state_, self.codes(batch), self.n_codebooks_)

    def codes(self, batch: Batch) -> Tensor:
        """The pairs (n, C) that predictions for rows read."""
        if self.candidate_keys == "all":
            return batch.codes
        return candidates.codes_to_read(self.keys_, self.state_, batch)

    def usage(self) -> Tensor:
        return self.state_.usage

    def state_tensors(self) -> dict[str, Tensor]:
        state = self.state_
        tensors = {"values": state.values, "usage": state.usage, "epoch": torch.tensor(state.epoch)}
        return tensors | ({"unseen": state.columns[:, :, -1]} if state.unseen else {})

    def map_classes(self, target: Tensor) -> Self:
        if sorted(target.tolist()) != list(range(len(target))):
            self._refuse("forget")
        order = torch.argsort(target).tolist()
        last = [len(order)] if self.state_.unseen else []  # the column of unseen classes stays
        return self._with(
            state_=replace(self.state_, columns=self.state_.columns[:, :, order + last])
        )

    def with_keys(self, keys: Keys) -> Self:
        new = keys.n_pairs - self.keys_.n_pairs
        state = self.state_
        columns, usage = pad(state.columns, (0, 0, 0, new)), pad(state.usage, (0, new))
        return self._with(keys_=keys, state_=replace(state, columns=columns, usage=usage))

    def evidence(self, batch: Batch) -> Evidence:
        codes = self.codes(batch)
        books = torch.arange(codes.shape[1], device=codes.device)
        votes = self.state_.values[books, codes.long()].double() / codes.shape[1]
        return Evidence(codes, votes, None)

    def freeze(self) -> Self:
        keys, number = candidates.keys_to_read(self.keys_, self.state_, self.candidate_keys)
        books = torch.arange(keys.n_codebooks, device=keys.device)[:, None]
        values, usage = self.state_.values[books, number], self.state_.usage[books, number]
        return self._with(keys_=keys, state_=SgdState(values, usage, self.state_.epoch))

    def journal_record(self, batch: Batch, class_index: Tensor) -> State:
        return candidates.codes_record(batch)

    def from_journal(self, record: State, n: int) -> Batch:
        return candidates.codes_from_journal(record, self.keys_, n)

    def to_state(self, dtype: str | None = None) -> State:
        """Values rounded to "float16" or "int8", if `dtype` says so, make a smaller file and
        slightly different predictions."""
        check_one_process(self, "save")
        state = super().to_state()
        return state if dtype is None else serialisation.rounded(state, self.state_.columns, dtype)

    @classmethod
    def params_from_flat(cls, params: dict[str, Any]) -> dict[str, Any]:
        return serialisation.params_from_flat(params)

    def _learned_state(self) -> State:
        return serialisation.to_state(self.state_)

    def _with_learned_state(self, state: State, n_classes: int) -> Self:
        found = serialisation.from_state(state, self.keys_, n_classes)
        return self._with(state_=found, n_codebooks_=self.keys_.n_codebooks)

    def export_view(self) -> ValuesView:
        """What an exported graph needs to give the same scores."""
        check_one_process(self, "export")
        keys, number = candidates.keys_to_read(self.keys_, self.state_, self.candidate_keys)
        return ValuesView(self.keys_, keys, number, self.state_.values)


def logits(state: SgdState, codes: Tensor, n_codebooks: int | None = None) -> Tensor:
    """Logits (n, Y): the mean over codebooks of the values fetched by codes (n, C); of several
    processes, over `n_codebooks` in all."""
    columns = state.columns
    (C, K, width), n_classes = columns.shape, columns.shape[2] - state.unseen
    n_codebooks = n_codebooks or C
    if n_codebooks == C and columns.dtype == torch.float32:
        places = codes.long() + torch.arange(C, device=codes.device) * K
        return embedding_bag(places, columns.flatten(0, 1), mode="mean")[:, :n_classes]
    every = torch.zeros((len(codes), width), device=columns.device)
    step = max(1, SCORES_AT_ONCE // max(1, width))
    for first in range(0, len(codes), step):
        sums = pool(columns, codes[first : first + step].int())
        sums = process_group.all_reduce(sums) if n_codebooks > C else sums
        every[first : first + step] = sums / n_codebooks
    return every[:, :n_classes]

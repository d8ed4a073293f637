"""Rule `counts`: values by counting, in one pass."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from dkvb._support import process_group, validation
from dkvb._support.files import State
from dkvb.bottleneck import Batch, Keys
from dkvb.bottleneck.values import flat_codes
from dkvb.rules import candidates
from dkvb.rules.base import CLASS_WEIGHTS, Evidence, Rule
from dkvb.rules.counts import leave_one_out, posterior, serialisation
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.class_means import sums_of
from dkvb.rules.counts.class_sums import ClassSums
from dkvb.rules.counts.export import CountsView
from dkvb.rules.counts.posterior import Posterior
from dkvb.rules.counts.processes import update_together
from dkvb.rules.counts.serialisation import JournaledRows
from dkvb.rules.counts.state import CountState

POOLINGS = ("posterior", "votes")


class Counts(Rule):
    """Integer counts of pairs and classes, in one pass over the data.

    What was learned does not depend on the order of the data, can be merged, and can be unlearned
    exactly, by class or by rows. Scores of counts and of class means of the embeddings are added
    (`rules.counts.class_means`): a few rows say more by their mean than by counts.

    Parameters
    ----------
    pseudocount : float
        Examples of each class that a pair borrows from the keys around it.
    class_weight : "balanced" or None
        Whether scores are normalised per class; without it frequent classes are favoured.
    pooling : "posterior" or "votes"
        How codebooks are combined: as likelihoods, or by the mean of counts, as in the paper.
    candidate_keys : "used" or "all"
        Keys that predictions read: those that learning has used at least once, or all.
    """

    name = "counts"
    preset = "counts"

    state_: CountState

    def __init__(
        self,
        pseudocount: float = 0.025,
        class_weight: str | None = "balanced",
        pooling: str = "posterior",
        candidate_keys: str = "all",
    ) -> None:
        self.pseudocount = pseudocount
        self.class_weight = class_weight
        self.pooling = pooling
        self.candidate_keys = candidate_keys

    def check_params(self) -> None:
        validation.real("pseudocount", self.pseudocount, low=0, low_open=True)
        validation.one_of("class_weight", self.class_weight, CLASS_WEIGHTS)
        validation.one_of("pooling", self.pooling, POOLINGS)
        validation.one_of("candidate_keys", self.candidate_keys, candidates.OPTIONS)

    def start(self, keys: Keys, *, seed: int = 0, open_ended: bool = True) -> Self:
        (C, K, _), (m, p) = keys.keys.shape, keys.fixed_point.axes.shape
        state = counts.start(C, K, keys.keys.device, keys.clusters, sums_width=m + p + 1)
        return self._with(keys_=keys, seed_=seed, state_=state)

    def learn(self, batch: Batch | JournaledRows, class_index: Tensor, n_classes: int) -> Self:
        sums = self._sums(batch, class_index, n_classes)
        update = counts.update if process_group.world_size() == 1 else update_together
        codes, before = batch.codes, counts.grow(self.state_, n_classes)
        return self._with(state_=update(before, codes, class_index, sums))

    def unlearn(self, batch: Batch | JournaledRows, class_index: Tensor) -> tuple[Self, int]:
        sums = self._sums(batch, class_index, len(self.state_.per_class))
        state = counts.update(self.state_, batch.codes, class_index, sums, sign=-1)
        pairs = torch.unique(flat_codes(batch.codes, self.keys_.n_pairs))
        return self._with(state_=state), len(pairs)

    def _sums(
        self, batch: Batch | JournaledRows, class_index: Tensor, n_classes: int
    ) -> ClassSums | None:
        """Sums of rows by class; None where the state or the journal has none."""
        if isinstance(batch, JournaledRows):
            return batch.class_sums(class_index, n_classes)
        return None if self.state_.class_sums is None else sums_of(batch, class_index, n_classes)

    def map_classes(self, target: Tensor) -> Self:
        return self._with(state_=counts.map_classes(self.state_, target))

    def merge(self, other: Self, target: Tensor, n_classes: int) -> Self:
        ours = counts.grow(self.state_, n_classes)
        theirs = counts.map_classes(other.state_.to(ours.device), target)
        return self._with(state_=counts.merge(ours, counts.grow(theirs, n_classes)))

    def with_keys(self, keys: Keys) -> Self:
        state = counts.more_pairs(self.state_, keys.n_pairs, keys.clusters)
        return self._with(keys_=keys, state_=state)

    def scores(self, batch: Batch) -> Tensor:
        if self.pooling == "votes":
            return posterior.votes(self.state_, self.codes(batch))
        solution = self.solution()
        means = solution.class_means
        mean_scores = None if means is None else means.scores(batch)
        logs = posterior.log_likelihoods(self.state_, self.codes(batch), solution)
        return solution.scores(logs, mean_scores)

    def solution(self) -> Posterior:
        """How counts become scores; found once for a state and parameters."""
        space = self.keys_.fixed_point
        return posterior.solve(self.state_, space, self.pseudocount, self.class_weight)

    def codes(self, batch: Batch) -> Tensor:
        """The pairs (n, C) that predictions for rows read."""
        if self.candidate_keys == "all":
            return batch.codes
        return candidates.codes_to_read(self.keys_, self.state_, batch)

    def usage(self) -> Tensor:
        return self.state_.usage

    def state_tensors(self) -> dict[str, Tensor]:
        return counts.canonical(self.state_)

    def softmax_temperature(self) -> float:
        """The temperature under which kept rows, each scored as if it had not been learned, are
        calibrated; fitted once for a state and parameters."""
        state, how = self.state_, (self.pseudocount, self.class_weight, self.pooling)
        known: dict[Any, float] = vars(state).setdefault("_temperatures", {})
        if how not in known and self.pooling == "votes":
            known[how] = leave_one_out.temperature_of_votes(state)
        elif how not in known:
            known[how] = leave_one_out.temperature_of_posterior(
                state, self.keys_, self.solution(), self.pseudocount, self.class_weight
            )
        return known[how]

    def evidence(self, batch: Batch) -> Evidence:
        state, codes = self.state_, self.codes(batch)
        examples = torch.from_numpy(posterior.read(state, codes)).to(codes.device)  # (n, C, Y)
        if self.pooling == "votes":
            return Evidence(codes, examples.double() / codes.shape[1], examples)
        solution = self.solution()
        votes, means = posterior.contributions(state, codes, solution), solution.class_means
        return Evidence(codes, votes, examples, None if means is None else means.scores(batch))

    def freeze(self) -> Self:
        """Without the rows kept for calibration, whose temperature is fitted now, and without pairs
        that are not read."""
        keys, number = candidates.keys_to_read(self.keys_, self.state_, self.candidate_keys)
        state = counts.only_pairs(self.state_, number)
        self.softmax_temperature()
        vars(state)["_temperatures"] = dict(vars(self.state_)["_temperatures"])
        return self._with(keys_=keys, state_=state)

    def journal_record(self, batch: Batch, class_index: Tensor) -> State:
        record = candidates.codes_record(batch)
        if self.state_.class_sums is not None:
            sums = sums_of(batch, class_index, int(class_index.max()) + 1)
            record.tensors.update(serialisation.named_sums(sums, self.keys_))
        return record

    def from_journal(self, record: State, n: int) -> JournaledRows:
        return serialisation.from_journal(record, self.keys_, n)

    @classmethod
    def params_from_flat(cls, params: dict[str, Any]) -> dict[str, Any]:
        return serialisation.params_from_flat(params)

    def _learned_state(self) -> State:
        return serialisation.to_state(self.state_, self.keys_)

    def _with_learned_state(self, state: State, n_classes: int) -> Self:
        return self._with(state_=serialisation.from_state(state, self.keys_, n_classes))

    def export_view(self) -> CountsView:
        """What an exported graph needs to give the same scores."""
        keys, number = candidates.keys_to_read(self.keys_, self.state_, self.candidate_keys)
        solution = None if self.pooling == "votes" else self.solution()
        return CountsView(self.keys_, keys, number, self.state_, solution)

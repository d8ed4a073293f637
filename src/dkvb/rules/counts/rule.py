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
from dkvb.rules.calibration import PRIOR_WIDTH, fit_temperature
from dkvb.rules.counts import posterior, serialisation
from dkvb.rules.counts import state as counts
from dkvb.rules.counts.class_means import TEMPERATURE_WIDTH, ClassMeans
from dkvb.rules.counts.class_sums import ClassSums, no_sums, space_of, sums_of
from dkvb.rules.counts.export import CountsView
from dkvb.rules.counts.reconstruction import conditioned_rows
from dkvb.rules.counts.serialisation import JournaledRows
from dkvb.rules.counts.state import CountState

CALIBRATION_ROWS = 1000
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
        C, K, _ = keys.keys.shape
        sums = no_sums(0, keys.width, space_of(keys).n_axes, keys.keys.device)
        state = counts.start(C, K, keys.keys.device, keys.clusters, sums)
        return self._with(keys_=keys, seed_=seed, state_=state)

    def learn(self, batch: Batch | JournaledRows, class_index: Tensor, n_classes: int) -> Self:
        codes, alone = batch.codes, process_group.world_size() == 1
        state = counts.grow(self.state_, n_classes)
        update = counts.update if alone else counts.update_together
        state = update(state, codes, class_index)
        sums = None if state.class_sums is None else _sums(batch, class_index, n_classes)
        if sums is not None and not alone:
            sums = sums.all_reduced()
        return self._with(state_=counts.update_sums(state, sums))

    def unlearn(self, batch: Batch | JournaledRows, class_index: Tensor) -> tuple[Self, int]:
        state = counts.update(self.state_, batch.codes, class_index, sign=-1)
        if state.class_sums is not None:
            sums = _sums(batch, class_index, len(state.per_class))
            state = counts.update_sums(state, sums, sign=-1)
        pairs = torch.unique(flat_codes(batch.codes, self.keys_.n_pairs))
        return self._with(state_=state), len(pairs)

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
        state, codes = self.state_, self.codes(batch)
        if self.pooling == "votes":
            return counts.votes(state, codes)
        scores = posterior.log_posterior(
            state, codes, pseudocount=self.pseudocount, class_weight=self.class_weight
        )
        means = self._class_means()
        if means is not None:
            scores = scores + self._mean_scores(means, batch)
        return scores.masked_fill(state.per_class == 0, -torch.inf)

    def _class_means(self) -> ClassMeans | None:
        """What scores back off to; found once for a state."""
        state = self.state_
        if state.class_sums is None or self.pooling == "votes":
            return None
        known: ClassMeans | None = vars(state).get("_class_means")
        if known is None:
            known = ClassMeans(space_of(self.keys_), state.class_sums, state.per_class)
            vars(state)["_class_means"] = known
        return known

    def _mean_scores(self, means: ClassMeans, batch: Batch) -> Tensor:
        scores = means.scores(batch, self.class_weight is not None)
        return posterior.scale_of(self.state_.n_codebooks) * scores

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
        if how not in known:
            known[how] = self._fitted_temperature()
        return known[how]

    def _fitted_temperature(self) -> float:
        state, means = self.state_, self._class_means()
        how: dict[str, Any] = {"pseudocount": self.pseudocount, "class_weight": self.class_weight}
        left_out = posterior.leave_one_out(
            state, most=CALIBRATION_ROWS, **how, pooling=self.pooling
        )
        scores, guess, width, noise = left_out.scores, 1.0, PRIOR_WIDTH, 1.0
        if self.pooling == "posterior":
            scale = posterior.scale_of(state.n_codebooks)
            guess = scale
            if means is not None:
                rows = conditioned_rows(self.keys_, left_out.codes)
                balanced = self.class_weight is not None
                scores = scores + scale * means.left_out(rows, left_out.columns, balanced)
                guess, width = scale * means.temperature, TEMPERATURE_WIDTH
                noise = means.unseen_noise
            scores = scores.masked_fill(state.per_class == 0, -torch.inf)
        weights = left_out.weights
        return noise * fit_temperature(scores, left_out.columns, guess / noise, weights, width)

    def evidence(self, batch: Batch) -> Evidence:
        codes = self.codes(batch)
        examples = torch.from_numpy(counts.read(self.state_, codes)).to(codes.device)  # (n, C, Y)
        if self.pooling == "votes":
            return Evidence(codes, examples.double() / codes.shape[1], examples)
        votes = posterior.contributions(
            self.state_, codes, pseudocount=self.pseudocount, class_weight=self.class_weight
        )
        means = self._class_means()
        backoff = None if means is None else self._mean_scores(means, batch)
        return Evidence(codes, votes, examples, backoff)

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
            record.tensors.update(class_sums=sums.sums, class_squares=sums.squares)
        return record

    def from_journal(self, record: State, n: int) -> JournaledRows:
        return serialisation.from_journal(record, self.keys_, n)

    @classmethod
    def params_from_flat(cls, params: dict[str, Any]) -> dict[str, Any]:
        return serialisation.params_from_flat(params)

    def _learned_state(self) -> State:
        return serialisation.to_state(self.state_)

    def _with_learned_state(self, state: State, n_classes: int) -> Self:
        return self._with(state_=serialisation.from_state(state, self.keys_, n_classes))

    def export_view(self) -> CountsView:
        """What an exported graph needs to give the same scores."""
        keys, number = candidates.keys_to_read(self.keys_, self.state_, self.candidate_keys)
        how = (self.pooling, self.pseudocount, self.class_weight)
        return CountsView(self.keys_, keys, number, self.state_, *how, self._class_means())


def _sums(batch: Batch | JournaledRows, class_index: Tensor, n_classes: int) -> ClassSums | None:
    """The sums of rows by class (n,); None for journals that hold none."""
    if isinstance(batch, JournaledRows):
        return batch.class_sums(class_index, n_classes)
    return sums_of(batch, class_index, n_classes)

"""Three ways to do the same work: this package, its peer on PyPI, and plain torch.

Each contender offers the operations as methods. `units` says how many steps or batches one call
does, since a single step of ours is too short to be timed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.problem import DECAY, EXPIRY_SHARE, LEARNING_RATE, SMOOTHING, Problem
from dkvb.bottleneck import sgd
from dkvb.bottleneck.fit_keys import fit_keys
from dkvb.bottleneck.key_data import HELD_OUT_EVERY
from dkvb.kernels.hashing import content_hash, epoch_orders
from dkvb.kernels.sgd import descend

PEER = "discrete_key_value_bottleneck_pytorch"
OPERATIONS = ("nearest", "sgd-step", "20-epochs", "key-init")


class Contender(Protocol):
    """What is timed."""

    name: str
    units: dict[str, int]  # steps or batches in a call, where not one

    def nearest(self) -> Tensor:
        """Codes (B, C) of an evaluation batch, from embeddings."""

    def sgd_step(self) -> None:
        """One or more SGD steps on the values."""

    def learn(self) -> None:
        """All epochs over all rows, from embeddings; only where `extrapolated` says nothing."""

    def extrapolated(self, nearest: float, step: float) -> tuple[float, str] | None:
        """The seconds that `learn` would take, and why; None if it is short enough to be run."""

    def key_init(self) -> None:
        """One or more batches of key initialisation by moving averages."""


class Ours:
    """dkvb: codes are searched once, values learn from codes, one call trains all epochs."""

    name = "dkvb"

    def __init__(self, problem: Problem) -> None:
        size = problem.size
        self.problem = problem
        self.batch = problem.x[: size.batch]
        self.key_rows = problem.x[: size.key_rows]
        fitting = int((content_hash(self.key_rows) % HELD_OUT_EVERY != 0).sum())
        self.units = {
            "sgd-step": size.steps,
            "key-init": size.key_epochs * -(-fitting // size.batch),
        }
        self._codes: Tensor | None = None
        shape = (size.n_codebooks, size.n_pairs, size.n_classes)
        self._values = torch.zeros(shape)
        self._orders = epoch_orders(size.rows, 0, 0, size.epochs)

    def nearest(self) -> Tensor:
        return self.problem.keys.codes(self.batch)

    def sgd_step(self) -> None:
        if self._codes is None:  # codes of the training data
            self._codes = self.problem.keys.codes(self.problem.x).contiguous()
        batch = self.problem.size.batch
        y, orders = self.problem.y, self._orders
        descend(self._values, self._codes, y, orders, batch, LEARNING_RATE, SMOOTHING)

    def learn(self) -> None:
        size, keys = self.problem.size, self.problem.keys
        codes = keys.codes(self.problem.x).contiguous()
        state = sgd.add_classes(sgd.start(keys.n_codebooks, keys.n_pairs), size.n_classes)
        sgd.update(
            state,
            codes,
            self.problem.y,
            epochs=size.epochs,
            batch_size=size.batch,
            learning_rate=LEARNING_RATE,
            label_smoothing=SMOOTHING,
            seed=0,
        )

    def extrapolated(self, nearest: float, step: float) -> None:
        return None

    def key_init(self) -> None:
        size = self.problem.size
        fit_keys(
            self.key_rows,
            preset="paper",
            n_codebooks=size.n_codebooks,
            n_pairs=size.n_pairs,
            key_dim=size.key_dim,
            epochs=size.key_epochs,
            batch_size=size.batch,
            decay=DECAY,
        )


class Peer:
    """The package on PyPI: keys as wide as ours, its batch in one piece, keys frozen for training.

    Its layout is (groups, rows, width): rows of one batch go along the second dimension, since it
    copies the whole table of values for each of the first. Without `codebook_dim` its keys would be
    as wide as all heads together, behind a linear layer.
    """

    name = "discrete-key-value-bottleneck-pytorch"

    def __init__(self, problem: Problem) -> None:
        size, keys = problem.size, problem.keys
        self.problem = problem
        self.units: dict[str, int] = {}
        self.model = import_module(PEER).DiscreteKeyValueBottleneck(
            dim=size.key_dim,
            num_memories=size.n_pairs,
            dim_embed=size.width,
            num_memory_codebooks=size.n_codebooks,
            dim_memory=size.n_classes,
            codebook_dim=size.key_dim,
            decay=DECAY,
            threshold_ema_dead_code=EXPIRY_SHARE * size.batch / size.n_pairs,
            commitment_weight=0.0,
        )
        shape = tuple(self.model.vq.codebook.shape)
        if shape != (size.n_codebooks, size.n_pairs, size.key_dim) or self.model.vq.has_projections:
            raise RuntimeError(f"{self.name}: expected keys of key_dim {size.key_dim}; got {shape}")
        # Our keys are those of centred rows, it does not centre: shifted by the centre's own heads.
        centre = torch.einsum("m,cmd->cd", keys.conditioning.centre, _matrices(problem))
        with torch.no_grad():
            self.model.rand_proj.copy_(_matrices(problem))
            self.model.vq.codebook = keys.keys + centre[:, None]
            self.model.values.zero_()
        self.batch = problem.x[None, : size.batch]  # (1, B, m)
        self.labels = problem.y[: size.batch]
        self.optimizer = torch.optim.SGD([self.model.values], lr=LEARNING_RATE)

    def _mode(self, training: bool, frozen: bool) -> None:
        self.model.train(training)
        self.model.vq.freeze_codebook = frozen

    @torch.no_grad()
    def nearest(self) -> Tensor:
        self._mode(training=False, frozen=True)
        _, (_, codes, _) = self.model(self.batch, return_intermediates=True)
        return torch.as_tensor(codes[0])

    def sgd_step(self) -> None:
        self._mode(training=True, frozen=True)
        logits = self.model(self.batch)[0]  # (B, Y), the mean over codebooks
        loss = cross_entropy(logits, self.labels, label_smoothing=SMOOTHING)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def learn(self) -> None:
        self.sgd_step()

    def extrapolated(self, nearest: float, step: float) -> tuple[float, str]:
        steps = self.problem.size.steps
        return steps * step, f"extrapolated: {steps} of its steps"

    @torch.no_grad()
    def key_init(self) -> None:
        self._mode(training=True, frozen=False)
        self.model(self.batch)


class Plain:
    """Plain torch: one matrix product per codebook, codes kept, autograd on the values."""

    name = "plain torch"

    def __init__(self, problem: Problem) -> None:
        size, keys = problem.size, problem.keys
        self.problem = problem
        self.units: dict[str, int] = {}
        self.matrices, self.keys = _matrices(problem), keys.keys.clone()
        self.batch = problem.x[: size.batch] - keys.conditioning.centre
        self.labels = problem.y[: size.batch]
        self.books = torch.arange(size.n_codebooks)
        self.values = torch.zeros((*self.keys.shape[:2], size.n_classes), requires_grad=True)
        self.optimizer = torch.optim.SGD([self.values], lr=LEARNING_RATE)
        self.counts, self.sums = torch.ones(self.keys.shape[:2]), self.keys.clone()
        self._codes: Tensor | None = None

    def _heads(self) -> Tensor:
        return torch.einsum("nm,cmd->cnd", self.batch, self.matrices)

    def _search(self, heads: Tensor, book: int) -> Tensor:
        keys = self.keys[book]
        return (0.5 * keys.square().sum(dim=1) - heads @ keys.T).argmin(dim=1)  # (B,)

    def nearest(self) -> Tensor:
        heads = self._heads()
        return torch.stack([self._search(own, book) for book, own in enumerate(heads)], dim=1)

    def sgd_step(self) -> None:
        if self._codes is None:
            self._codes = self.nearest()
        logits = self.values[self.books, self._codes].mean(dim=1)
        loss = cross_entropy(logits, self.labels, label_smoothing=SMOOTHING)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def learn(self) -> None:
        self.sgd_step()

    def extrapolated(self, nearest: float, step: float) -> tuple[float, str]:
        size = self.problem.size
        batches = -(-size.rows // size.batch)
        note = f"extrapolated: {batches} of its batches snapped once, {size.steps} of its steps"
        return batches * nearest + size.steps * step, note

    def key_init(self) -> None:
        threshold = EXPIRY_SHARE * self.problem.size.batch / self.problem.size.n_pairs
        for book, heads in enumerate(self._heads()):
            codes = self._search(heads, book)
            counts, sums, keys = self.counts[book], self.sums[book], self.keys[book]
            counts.lerp_(torch.bincount(codes, minlength=len(counts)).float(), 1 - DECAY)
            sums.lerp_(torch.zeros_like(sums).index_add_(0, codes, heads), 1 - DECAY)
            keys.copy_(sums / (counts + 1e-5)[:, None])
            expired = torch.nonzero(counts < threshold)[: len(heads), 0]
            keys[expired] = heads[torch.randperm(len(heads))[: len(expired)]]
            counts[expired], sums[expired] = 1.0, keys[expired]


def contenders() -> list[type[Ours] | type[Peer] | type[Plain]]:
    """Ours first; the peer only where it is installed."""
    return [Ours, Peer, Plain] if find_spec(PEER) else [Ours, Plain]


def operation(runner: Contender, name: str) -> Callable[[], Any]:
    """The method that does it."""
    return {
        "nearest": runner.nearest,
        "sgd-step": runner.sgd_step,
        "20-epochs": runner.learn,
        "key-init": runner.key_init,
    }[name]


def _matrices(problem: Problem) -> Tensor:
    matrices = problem.keys.projection.matrices
    assert matrices is not None
    return matrices  # (C, m, d)

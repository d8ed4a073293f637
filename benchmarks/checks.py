"""Correctness checks before speed is measured: each returns what is wrong, or None."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.problem import DECAY, EXPIRY_SHARE, SMOOTHING, Problem
from dkvb.kernels.hashing import epoch_orders
from dkvb.kernels.kmeans import ema
from dkvb.kernels.sgd import descend

ROWS = 8  # that are searched exactly, in all codebooks
BOOKS = 4  # that are initialised by the oracle too
BATCHES = 3


def nearest(problem: Problem, codes: Tensor) -> str | None:
    """Codes (B, C) of the first batch against the float64 decision that defines them."""
    C = problem.size.n_codebooks
    found = codes[:ROWS].long()
    z = problem.keys.conditioning.centred(problem.x[: len(found)]).repeat_interleave(C, dim=0)
    books = torch.arange(C).repeat(len(found))
    exact = problem.keys.exact_codes(z, books, problem.keys.first_of_equals).view(-1, C)
    wrong = int((found != exact).sum())
    return f"{wrong} of {found.numel()} codes differ from the oracle's" if wrong else None


def sgd(problem: Problem) -> str | None:
    """Values after a few steps. Large values and steps, so that the softmax matters."""
    size = problem.size
    n = min(size.rows, BATCHES * size.batch - 3)  # the last batch is partial
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(size.n_pairs, (n, size.n_codebooks), generator=generator).int()
    shape = (size.n_codebooks, size.n_pairs, size.n_classes)
    before = 10 * torch.randn(shape, generator=generator)
    ours, oracle = before.clone(), before.clone()
    for values, backend in ((ours, None), (oracle, "oracle")):
        orders = epoch_orders(n, 0, 0, 1)
        descend(values, codes, problem.y[:n], orders, size.batch, 1e3, SMOOTHING, backend)
    error = float((ours - oracle).abs().max() / (oracle - before).abs().max())
    return None if error <= 1e-3 else f"values differ from the oracle's by {error:.1e} of a change"


def key_init(problem: Problem) -> str | None:
    """Keys after a few batches. Where two keys are equally near, rounding may move another one."""
    size = problem.size
    n = min(size.rows, BATCHES * size.batch)
    x = problem.keys.conditioning(problem.x[:n])
    heads = problem.keys.projection(x, slice(0, BOOKS)).float()
    start = problem.keys.keys[:BOOKS]
    results = []
    for backend in (None, "oracle"):
        keys, counts = start.clone(), torch.full(start.shape[:2], 0.01)  # many will expire
        threshold = EXPIRY_SHARE * size.batch / size.n_pairs
        order = epoch_orders(n, 0, 0, 1)
        sums = keys * counts[:, :, None]
        ema(heads, keys, counts, sums, order, size.batch, DECAY, threshold, seed=0, backend=backend)
        results.append(keys)
    ours, oracle = results
    close = torch.isclose(ours, oracle, rtol=1e-3, atol=1e-3).all(dim=2)
    wrong = 1 - float(close.double().mean())
    return None if wrong <= 1e-3 else f"{wrong:.1%} of keys differ from the oracle's"


def all_of(problem: Problem, codes: Tensor) -> dict[str, str | None]:
    """For each operation what is wrong with it."""
    codes_wrong, values_wrong = nearest(problem, codes), sgd(problem)
    return {
        "nearest": codes_wrong,
        "sgd-step": values_wrong,
        "20-epochs": codes_wrong or values_wrong,
        "key-init": key_init(problem),
    }

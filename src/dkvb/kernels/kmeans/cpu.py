"""Statistics of keys and classes on the CPU; see `dkvb.kernels.kmeans`.

A codebook is one worker's from its first batch to its last, with keys and averages in that core's
cache: results do not depend on the number of threads. Compiling takes about four seconds, once for
a machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dkvb._support.hashing import scalar_bits
from dkvb.kernels._numba import compiled, run, take
from dkvb.kernels._simd import HEADS, PANEL
from dkvb.kernels.kmeans.oracle import SMOOTHING
from dkvb.kernels.nearest.cpu import BLOCK, F32, nearest_in_book, prepare, search
from dkvb.kernels.products import pack_heads

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_bits = compiled(scalar_bits)


def ema(
    heads: Tensor,
    keys: Tensor,
    counts: Tensor,
    sums: Tensor,
    order: Tensor,
    batch_size: int,
    decay: float,
    threshold: float,
    seed: int,
    first_book: int = 0,
    first_step: int = 0,
    reset: bool = True,
) -> None:
    """Move keys (g, K, d), counts (g, K) and sums (g, K, d) over whole epochs, in place."""
    if order.numel() == 0:
        return
    results = [given.to(torch.float32).contiguous() for given in (keys, counts, sums)]
    run(
        _ema,
        keys.shape[0],
        heads.to(torch.float32).contiguous().numpy(),
        *(result.numpy() for result in results),
        order.reshape(-1, order.shape[-1]).contiguous().numpy(),
        batch_size,
        decay,
        threshold,
        np.uint64(seed % (1 << 64)),
        first_book,
        first_step,
        reset,
    )
    for given, result in zip((keys, counts, sums), results, strict=True):
        if result is not given:
            given.copy_(result)


@compiled
def _ema(
    state: Any,
    worker: int,
    workers: int,
    heads: F32,
    all_keys: F32,
    all_counts: F32,
    all_sums: F32,
    orders: I64,
    batch_size: int,
    decay: float,
    threshold: float,
    seed: int,
    first_book: int,
    first_step: int,
    reset: bool,
) -> None:
    n_codebooks, n_pairs, key_dim = all_keys.shape
    epochs, n = orders.shape
    batch_size = min(batch_size, n)
    panels = (n_pairs + PANEL - 1) // PANEL
    keys = np.empty((panels, key_dim, PANEL), np.float32)
    sums = np.empty((panels, key_dim, PANEL), np.float32)
    counts = np.empty((panels, PANEL), np.float32)
    bias = np.empty((panels, PANEL), np.float32)

    batch = np.empty((batch_size, key_dim), np.float32)
    groups = np.empty(((batch_size + HEADS - 1) // HEADS, key_dim, HEADS), np.float32)
    lowest = np.empty((batch_size + HEADS, 2), np.float32)
    nearest = np.empty((batch_size + HEADS, 2), np.int32)
    slack = np.zeros(batch_size + HEADS, np.float32)
    scores = np.empty((HEADS, BLOCK * PANEL), np.float32)
    hashes = np.empty(batch_size, np.int64)
    keep, fresh = np.float32(decay), np.float32(1 - decay)

    book = take(state)
    while book < n_codebooks:
        _to_panels(all_keys[book], keys)
        _to_panels(all_sums[book], sums)
        for k in range(panels * PANEL):
            counts[k // PANEL, k % PANEL] = all_counts[book, k] if k < n_pairs else 0
        for panel in range(panels):
            _set_bias(keys, bias, panel, n_pairs)
        step = first_step
        for epoch in range(epochs):
            for start in range(0, n, batch_size):
                rows = min(batch_size, n - start)
                for i in range(rows):
                    for j in range(key_dim):
                        batch[i, j] = heads[orders[epoch, start + i], book, j]
                pack_heads(batch[:rows], groups)
                nearest_in_book(groups, keys, bias, slack, rows, scores, lowest, nearest)
                _average(batch, rows, nearest, keep, fresh, n_pairs, counts, sums, keys)

                replaced = 0
                for k in range(n_pairs):
                    panel, w = k // PANEL, k % PANEL
                    if counts[panel, w] < threshold and not (reset and replaced == rows):
                        if reset:
                            if replaced == 0:
                                for i in range(rows):
                                    hashes[i] = _bits(seed, first_book + book, step, i)
                                drawn = np.argsort(hashes[:rows], kind="mergesort")
                            row = drawn[replaced]
                            counts[panel, w] = 1
                        else:
                            row = _bits(seed, first_book + book, step, k) % rows
                        for j in range(key_dim):
                            keys[panel, j, w] = batch[row, j]
                            if reset:
                                sums[panel, j, w] = batch[row, j]
                        replaced += 1
                for panel in range(panels):
                    _set_bias(keys, bias, panel, n_pairs)
                step += 1
        _from_panels(keys, all_keys[book])
        _from_panels(sums, all_sums[book])
        for k in range(n_pairs):
            all_counts[book, k] = counts[k // PANEL, k % PANEL]
        book = take(state)


@compiled
def _average(
    batch: F32,
    rows: int,
    nearest: NDArray[np.int32],
    keep: np.float32,
    fresh: np.float32,
    n_pairs: int,
    counts: F32,
    sums: F32,
    keys: F32,
) -> None:
    """Take a batch (rows, d) into the averages, and set keys from them."""
    panels, key_dim, _ = keys.shape
    for panel in range(panels):
        for w in range(PANEL):
            counts[panel, w] *= keep
        for j in range(key_dim):
            for w in range(PANEL):
                sums[panel, j, w] *= keep
    for i in range(rows):
        panel, w = nearest[i, 0] // PANEL, nearest[i, 0] % PANEL
        counts[panel, w] += fresh
        for j in range(key_dim):
            sums[panel, j, w] += fresh * batch[i, j]
    total = 0.0
    for panel in range(panels):
        for w in range(PANEL):
            total += np.float64(counts[panel, w])
    scale = np.float32((total + n_pairs * SMOOTHING) / total)
    inverse = np.empty(PANEL, np.float32)
    for panel in range(panels):
        for w in range(PANEL):
            inverse[w] = scale / (counts[panel, w] + np.float32(SMOOTHING))
        for j in range(key_dim):
            for w in range(PANEL):
                keys[panel, j, w] = sums[panel, j, w] * inverse[w]


@compiled
def _set_bias(keys: F32, bias: F32, panel: int, n_pairs: int) -> None:
    """½‖k‖² of the keys of one panel, infinite for those that only fill it up."""
    for w in range(PANEL):
        bias[panel, w] = 0
    for j in range(keys.shape[1]):
        for w in range(PANEL):
            bias[panel, w] += np.float32(0.5) * keys[panel, j, w] * keys[panel, j, w]
    for k in range(n_pairs, (panel + 1) * PANEL):
        bias[panel, k - panel * PANEL] = np.inf


@compiled
def _to_panels(table: F32, panels: F32) -> None:
    """(K, d) → (panels, d, PANEL), zeros at the end."""
    panels[:] = 0
    for k in range(table.shape[0]):
        for j in range(table.shape[1]):
            panels[k // PANEL, j, k % PANEL] = table[k, j]


@compiled
def _from_panels(panels: F32, table: F32) -> None:
    for k in range(table.shape[0]):
        for j in range(table.shape[1]):
            table[k, j] = panels[k // PANEL, j, k % PANEL]


def assign(heads: Tensor, keys: Tensor) -> Tensor:
    """The nearest key of each head: codes (n, g)."""
    bias = 0.5 * keys.double().square().sum(2)
    certain = torch.zeros(1).expand(heads.shape[:2])
    return search(heads, prepare(keys, bias), certain)[0][:, :, 0].contiguous()


def assign_sums(heads: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One pass of Lloyd's algorithm: codes (n, g), counts (g, K), sums (g, K, d), errors (g,)."""
    codes = assign(heads, keys)
    counts = torch.zeros(keys.shape[:2], dtype=torch.int64)
    sums = torch.zeros(keys.shape, dtype=torch.float64)
    errors = torch.zeros(keys.shape[0], dtype=torch.float64)
    arrays = (heads.contiguous(), keys.contiguous(), codes, counts, sums, errors)
    run(_assign_sums, keys.shape[0], *(array.numpy() for array in arrays))
    return codes, counts, sums, errors


@compiled
def _assign_sums(
    state: Any,
    worker: int,
    workers: int,
    heads: F32,
    keys: F32,
    codes: NDArray[np.int32],
    counts: I64,
    sums: F64,
    errors: F64,
) -> None:
    n, n_codebooks, key_dim = heads.shape
    book = take(state)
    while book < n_codebooks:
        error = 0.0
        for i in range(n):
            k = codes[i, book]
            counts[book, k] += 1
            for j in range(key_dim):
                head = np.float64(heads[i, book, j])
                sums[book, k, j] += head
                error += (head - np.float64(keys[book, k, j])) ** 2
        errors[book] = error
        book = take(state)

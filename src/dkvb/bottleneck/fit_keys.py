"""Where keys come from: unlabelled rows, by moving averages, Lloyd's algorithm or sampling.

No codebook knows of another. For an array, the heads of a few codebooks at a time are computed once
and kept for all epochs; a stream of batches is projected batch by batch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dkvb._support import arrow, validation
from dkvb._support.hashing import bits
from dkvb._support.validation import check_memory
from dkvb.bottleneck.conditioning import fit_conditioning
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.key_data import Rows, rows_of
from dkvb.bottleneck.keys import KeyReport, Keys, first_of_equals
from dkvb.bottleneck.projection import make_projection
from dkvb.kernels import kmeans
from dkvb.kernels.hashing import epoch_order

METHODS = ("ema", "ema-reference", "lloyd", "sample")
UNCHANGED = ("ema-reference", "sample")  # whose keys may be rows
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "n_codebooks": 256,
        "n_pairs": 4096,
        "key_dim": 14,
        "method": "ema",
        "epochs": 10,
        "conditioning": "centre",
        "n_components": None,
    },
}
ROWS_PER_KEY = 8  # on average, unless the number of pairs is given
FEWEST_PAIRS = 4  # also of fewer rows
LEAST_ROWS = 3  # that a key is the mean of: a single row could be read from keys
EXPIRY_SHARE = 0.1  # of the count that an evenly used key would have
TINY = torch.finfo(torch.float32).tiny


class FewRowsWarning(UserWarning):
    """There are fewer rows than pairs were asked for."""


@dataclass(frozen=True)
class FitSettings:
    """How keys are initialised; `batch_rows` counts the positions of spatial maps one by one."""

    method: str
    n_pairs: int
    epochs: int
    batch_rows: int
    decay: float
    seed: int


def fit_keys(
    X: Any,
    preset: str = "paper",
    *,
    n_codebooks: int | None = None,
    n_pairs: int | None = None,
    key_dim: int | None = None,
    method: str | None = None,
    projection: str = "gaussian",
    conditioning: str | None = None,
    n_components: int | None = None,
    epochs: int | None = None,
    batch_size: int = 256,
    decay: float = 0.95,
    random_state: Any = 0,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Keys:
    """Keys from unlabelled embeddings, frozen from here on.

    Parameters
    ----------
    X : array or tensor (n, m), spatial map (n, h, w, m), iterable of such batches, or table
        Unlabelled embeddings; the positions of a spatial map count one by one. An iterable is
        iterated `epochs` times; a `DataLoader` may give labels too, which are not read. One row in
        ten is held out to measure the keys.
    preset : "paper"
        Which values the parameters below have unless they are given: those of the paper.
    n_codebooks, n_pairs, key_dim : int
        Number of codebooks, of pairs per codebook, and width of keys. Unless `n_pairs` is given,
        there is at most one key for every eight rows, since keys that follow single rows say
        nothing of rows to come. Without a gaussian projection, `key_dim` follows
        from the width of the embeddings.
    method : "ema", "ema-reference", "lloyd" or "sample"
        Moving averages (appendix C of the paper; expired keys start afresh); the same with expired
        keys that keep their old averages, as in the paper's own code, for comparison; k-means in
        `epochs` passes; random rows. With "ema" and "lloyd" every key is in the end the mean of the
        rows nearest to it, at least three, so that no row can be read from keys; keys of fewer rows
        are replaced by copies of others. This takes three rows for every key: ask for fewer pairs
        if `n_pairs` is given, and expect rows among the keys of fewer than twelve rows. It holds
        neither for an iterator that can be read only once nor for "ema-reference" and "sample".
    projection : "gaussian", "partition" or "identity"
        How heads are made from conditioned rows, see `Projection`.
    conditioning, n_components
        How embeddings are prepared for L2 distances, see `fit_conditioning`; the paper's is
        `"centre"`, which changes no distance.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 32))
    >>> fit_keys(X, n_codebooks=4, n_pairs=16, key_dim=3, epochs=2).keys.shape
    torch.Size([4, 16, 3])
    """
    chosen = PRESETS[validation.one_of("preset", preset, tuple(PRESETS))]
    explicit_pairs = n_pairs is not None
    n_codebooks = chosen["n_codebooks"] if n_codebooks is None else n_codebooks
    n_pairs = chosen["n_pairs"] if n_pairs is None else n_pairs
    method = chosen["method"] if method is None else method
    epochs = chosen["epochs"] if epochs is None else epochs
    conditioning = chosen["conditioning"] if conditioning is None else conditioning
    n_components = chosen["n_components"] if n_components is None else n_components
    if key_dim is None and projection == "gaussian":
        key_dim = chosen["key_dim"]
    validation.one_of("method", method, METHODS)
    n_codebooks = validation.positive_int("n_codebooks", n_codebooks)
    n_pairs = validation.positive_int("n_pairs", n_pairs)
    key_dim = None if key_dim is None else validation.positive_int("key_dim", key_dim)
    epochs = validation.positive_int("epochs", epochs)
    batch_size = validation.positive_int("batch_size", batch_size)
    decay = validation.real("decay", decay, low=0.0, high=1.0)
    seed = validation.seed("random_state", random_state)

    passes = 1 if method == "sample" else epochs
    rows = rows_of(
        arrow.without_labels(X),
        at_least=(LEAST_ROWS if explicit_pairs else ROWS_PER_KEY) * n_pairs,
        passes=passes,
        batch_size=batch_size,
        device=torch.device(device),
    )
    most_pairs = rows.at_least if explicit_pairs else _most_pairs(rows.at_least)
    if explicit_pairs and most_pairs < n_pairs:  # else nobody asked for a number of pairs
        warnings.warn(
            f"n_pairs: {n_pairs} keys per codebook need as many rows; X has {most_pairs} to fit "
            f"them, so each codebook gets {most_pairs} pairs",
            FewRowsWarning,
            stacklevel=2,
        )
    fit = FitSettings(
        method, min(n_pairs, most_pairs), passes, rows.batch_rows(batch_size), decay, seed
    )
    conditioned = fit_conditioning(rows.sample, conditioning, n_components)
    heads_of = make_projection(
        projection, conditioned.output_width, n_codebooks=n_codebooks, key_dim=key_dim, seed=seed
    ).to(device)
    keys, quantization_error, novelty, report = _initialise(
        rows, conditioned, heads_of, fit, progress
    )
    settings = {
        "method": method,
        "epochs": passes,
        "batch_size": batch_size,
        "decay": decay,
        "random_state": seed,
        "conditioning": conditioning,
    }
    return Keys(conditioned, heads_of, keys, quantization_error, novelty, report, settings)


def _most_pairs(n_rows: int) -> int:
    """How many keys so many rows can fit: a few in any case, or nothing could be told apart."""
    return max(n_rows // ROWS_PER_KEY, min(FEWEST_PAIRS, n_rows))


def _initialise(
    rows: Rows, conditioning: Conditioning, projection: Projection, fit: FitSettings, progress: bool
) -> tuple[Tensor, Tensor, Tensor, KeyReport]:
    """Keys (C, K, d), and what held-out rows say of them, a group of codebooks at a time."""
    C, d = projection.n_codebooks, projection.key_dim
    device = conditioning.centre.device
    unit = _unit(conditioning(rows.held_out()))
    if conditioning.components is None:  # cheap enough to repeat for each group

        def heads_of(x: Tensor, books: slice) -> Tensor:
            return (projection(conditioning(x), books) / unit).float()
    else:
        rows = rows.mapped(lambda x: conditioning(x).float())

        def heads_of(x: Tensor, books: slice) -> Tensor:
            return (projection(x.double(), books) / unit).float()

    check_memory(
        f"keys ({C}, {fit.n_pairs}, {d})",
        12 * C * fit.n_pairs * d,  # float32, and sums in float64
        "fit fewer pairs (n_pairs), codebooks (n_codebooks) or a lower key_dim",
        device,
    )
    keys = torch.empty((C, fit.n_pairs, d), device=device)
    quantization_error = torch.empty(C, dtype=torch.float64, device=device)
    held_out = rows.held_out()
    novelty = torch.zeros(len(held_out), dtype=torch.float64, device=device)
    used, variance = 0, 0.0
    groups = rows.groups(C, d)
    with _bar(progress, len(groups) * fit.epochs, fit.method) as bar:
        for books in groups:
            keys[books], n_used = _fit_group(rows, partial(heads_of, books=books), fit, books, bar)
            used += n_used
            held = heads_of(held_out, books)  # (h, g, d)
            codes = kmeans.assign(held, keys[books]).long()
            group = torch.arange(held.shape[1], device=device)
            squared = (held - keys[books][group, codes]).double().square().sum(dim=2)  # (h, g)
            quantization_error[books] = squared.mean(dim=0)
            novelty += (squared / quantization_error[books].clamp(min=TINY)).sum(dim=1) / C
            variance += float((held - held.mean(dim=0)).double().square().sum()) / len(held)
    keys *= unit
    quantization_error *= unit**2
    total, variance = float(quantization_error.sum()), variance * unit**2
    report = KeyReport(
        rows=len(held_out),
        quantization_error=(total / C) ** 0.5,
        relative_error=total / variance if variance else 0.0,
        distinct=float(first_of_equals(keys).double().mean()),
        used=used / (C * fit.n_pairs),
    )
    return keys, quantization_error.float(), novelty.sort().values.float(), report


def _fit_group(
    rows: Rows, heads_of: Callable[[Tensor], Tensor], fit: FitSettings, books: slice, bar: Any
) -> tuple[Tensor, int]:
    """Keys (g, K, d) of some codebooks, and how many of them rows are nearest to."""
    # Enough rows for keys that are means: if a pass sees all of them, it can count.
    as_means = (
        fit.method not in UNCHANGED and rows.repeats and rows.at_least >= LEAST_ROWS * fit.n_pairs
    )
    least = LEAST_ROWS if as_means else 1
    passes = rows.passes(heads_of)
    keys = _METHODS[fit.method](passes, fit, books.start, bar)
    counts, sums = _attached(next(passes), keys)
    keys = _means(keys, counts, sums) if as_means else keys
    return keys, int((counts >= least).sum())


def _attached(batches: Iterator[Tensor], keys: Tensor) -> tuple[Tensor, Tensor]:
    """How many heads (r, g, d) are nearest to each of keys (g, K, d), and their sums: (g, K) int64
    and (g, K, d) float64."""
    counts = torch.zeros(keys.shape[:2], dtype=torch.int64, device=keys.device)
    sums = torch.zeros(keys.shape, dtype=torch.float64, device=keys.device)
    for heads in batches:
        if heads.shape[:2].numel():
            _, batch_counts, batch_sums, _ = kmeans.assign_sums(heads, keys)
            counts += batch_counts
            sums += batch_sums
    return counts, sums


def _means(keys: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
    """Keys (g, K, d) as means of the heads nearest to them, so many (g, K) with so large sums
    (g, K, d). A key of fewer than `LEAST_ROWS` heads becomes a copy of one with enough, which ties,
    going to the lowest index, never select."""
    means = (sums / counts.clamp(min=1)[:, :, None]).float()
    enough = counts >= LEAST_ROWS
    first = enough.to(torch.uint8).argmax(dim=1)  # (g,)
    common = means[torch.arange(len(keys), device=keys.device), first]  # (g, d)
    means = torch.where(enough[:, :, None], means, common[:, None])
    # A codebook without any such key stays as it is: heads so far apart are no crowd to hide in.
    return torch.where(enough.any(dim=1)[:, None, None], means, keys)


def _unit(rows: Tensor) -> float:
    """A power of two near the size of rows, by which float32 divides exactly: squares of very
    large or small heads would overflow or vanish."""
    size = float(rows.square().mean().sqrt())
    return 2.0 ** math.floor(math.log2(size)) if size > 0 else 1.0


def _ema(passes: Passes, fit: FitSettings, first_book: int, bar: Any) -> Tensor:
    """Moving averages of the heads that attach to each key (appendix C of the paper)."""
    threshold = EXPIRY_SHARE * fit.batch_rows / fit.n_pairs
    state: tuple[Tensor, Tensor, Tensor] | None = None  # keys, counts, sums
    step = 0
    for epoch in range(fit.epochs):
        for heads in next(passes):
            order = epoch_order(len(heads), fit.seed, epoch, heads.device)
            if state is None:
                keys = _draw(heads[order[: fit.batch_rows]], fit, first_book)
                state = (keys, torch.ones(keys.shape[:2], device=keys.device), keys.clone())
            kmeans.ema(
                heads,
                *state,
                order,
                batch_size=fit.batch_rows,
                decay=fit.decay,
                threshold=threshold,
                seed=fit.seed,
                first_book=first_book,
                first_step=step,
                reset=fit.method == "ema",
            )
            step += -(-len(heads) // fit.batch_rows)
        bar.update()
    assert state is not None
    return state[0]


def _lloyd(passes: Passes, fit: FitSettings, first_book: int, bar: Any) -> Tensor:
    """k-means: every key becomes the mean of the heads that attach to it.

    A key that no head attaches to is drawn anew from the heads, so that none is wasted.
    """
    keys = _sample(passes, fit, first_book, None)
    for epoch in range(fit.epochs):
        counts = torch.zeros(keys.shape[:2], dtype=torch.int64, device=keys.device)
        sums = torch.zeros(keys.shape, dtype=torch.float64, device=keys.device)
        first = None
        for heads in next(passes):
            first = heads if first is None else first  # the last batch may be a row or two
            if len(heads) == 0:
                continue
            _, batch_counts, batch_sums, _ = kmeans.assign_sums(heads, keys)
            counts += batch_counts
            sums += batch_sums
        assert first is not None
        fresh = _draw(first, replace(fit, seed=fit.seed + epoch + 1), first_book)
        means = (sums / counts.clamp(min=1)[:, :, None]).float()
        keys = torch.where((counts > 0)[:, :, None], means, fresh)
        bar.update()
    return keys


def _sample(passes: Passes, fit: FitSettings, first_book: int, bar: Any) -> Tensor:
    """Random distinct rows."""
    collected: list[Tensor] = []
    for heads in next(passes):
        collected.append(heads)
        if sum(map(len, collected)) >= fit.n_pairs:
            break
    if bar is not None:
        bar.update()
    return _draw(torch.cat(collected), fit, first_book)


def _draw(heads: Tensor, fit: FitSettings, first_book: int) -> Tensor:
    """Heads (n, g, d) at random as keys (g, K, d): repeated only once all are taken."""
    books = first_book + torch.arange(heads.shape[1], device=heads.device)[:, None]
    drawn = _drawn(len(heads), books, fit)
    return heads[drawn, books - first_book].contiguous()


def _drawn(n: int, books: Tensor, fit: FitSettings) -> Tensor:
    """Random numbers of n rows (g, K) for books (g, 1)."""
    row = torch.arange(n, device=books.device)
    place = torch.arange(fit.n_pairs, device=books.device)
    order = torch.argsort(bits(fit.seed, books, 1, row), dim=1, stable=True)
    drawn: Tensor = bits(fit.seed, books, 2, place) % n
    distinct = min(n, fit.n_pairs)
    drawn[:, :distinct] = order[:, :distinct]
    return drawn


Passes = Iterator[Iterator[Tensor]]  # of each pass, the heads (r, g, d) of batches or of all rows
_METHODS = {"ema": _ema, "ema-reference": _ema, "lloyd": _lloyd, "sample": _sample}


def _bar(show: bool, total: int, method: str) -> Any:
    from contextlib import nullcontext

    if not show:
        return nullcontext(_Silent())
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=f"keys ({method})", unit="epoch", leave=False)


class _Silent:
    def update(self) -> None:
        pass

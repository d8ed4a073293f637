"""Embedding a data set: hash it, look in the cache, make the shards that are missing."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from dkvb._support import validation
from dkvb.embedding.cache.digests import UNREADABLE, data_digest, digest, item_digests
from dkvb.embedding.cache.entry import DTYPES, Entry, Skipped
from dkvb.embedding.cache.store import Cache
from dkvb.embedding.datasets.dataset import Dataset
from dkvb.embedding.encoders.encoder import FrozenEncoder
from dkvb.embedding.encoders.transforms import ImageTransform, PixelNoise

Array = NDArray[Any]

SHARD_ROWS = 1024
BATCH_ROWS = {"cuda": 256}  # elsewhere 32; both divide a shard

_AHEAD = 3  # batches that are decoded while one is encoded
_POLL = 0.2  # seconds between looks at shards that another process makes


@dataclass(frozen=True)
class Embeddings:
    """A data set's embeddings in the cache: shards, memory-mapped, and the labels of their rows."""

    entry: Entry
    labels: Array | None  # (n,), of the rows that are there
    items: Array  # (n,), the position of each row in the data set
    skipped: list[Skipped]
    embedded: int  # items that were embedded now, and not before
    seconds: float

    def parts(self) -> Iterator[Array]:
        """The rows (n, m), a shard at a time."""
        for shard in range(self.entry.n_shards):
            yield self.entry.shard(shard).rows

    def array(self) -> Array:
        """All rows (n, m) in memory."""
        return np.concatenate(list(self.parts()))


class UnreadableItemsError(ValueError):
    """Items that cannot be decoded; `skipped` has their names and the reasons."""

    def __init__(self, skipped: list[Skipped]) -> None:
        self.skipped = skipped
        names = ", ".join(item.name for item in skipped[:3])
        super().__init__(
            f"data: expected items that can be read; {len(skipped)} cannot "
            f"({names}{', ...' if len(skipped) > 3 else ''}); repair or remove them, or leave "
            "them out with --on-error skip"
        )


def embed(
    encoder: FrozenEncoder,
    dataset: Dataset,
    cache: Cache | str | Path | None = None,
    *,
    dtype: str = "float32",
    noise: PixelNoise | None = None,
    crop: bool = True,
    on_error: str = "fail",
    batch_rows: int | None = None,
    shard_rows: int = SHARD_ROWS,
    workers: int | None = None,
    progress: bool = False,
) -> Embeddings:
    """Embed every item of `dataset`, or take from the cache what is there already.

    Killed at any moment and called again, it goes on after the last full shard, to the same bits;
    processes that embed the same at once share the shards among them. `noise` disturbs the
    pixels; `crop=False` resizes images without cropping them. Items that cannot be decoded have
    no row; they are an error at the end (`on_error="fail"`), or listed in the result ("skip").
    """
    validation.one_of("dtype", dtype, DTYPES)
    validation.one_of("on_error", on_error, ("fail", "skip"))
    transform = _with_options(encoder, noise, crop)
    start = time.perf_counter()
    cache = cache if isinstance(cache, Cache) else Cache(cache)
    n_workers = validation.positive_int("workers", workers or min(os.cpu_count() or 1, 16))
    with ThreadPoolExecutor(n_workers) as executor:
        digests = item_digests(dataset, cache.file_memory, executor)
        identity = {
            "encoder": dict(encoder.identity),
            "transform": transform.describe() if isinstance(transform, ImageTransform) else None,
            "dtype": dtype,
            # Images were not turned upright before 0.2: their rows are others.
            **({"orientation": "exif"} if dataset.kind == "image" else {}),
            "data": {"sha256": data_digest(digests), "items": len(dataset)},
        }
        entry = cache.open(
            identity,
            dimension=encoder.dimension,
            shard_rows=validation.positive_int("shard_rows", shard_rows),
            batch_rows=validation.positive_int(
                "batch_rows", batch_rows or BATCH_ROWS.get(encoder.device.type, 32)
            ),
            encoder_name=encoder.name,
            data_name=dataset.name,
            torch=torch.__version__,
        )
        job = _Job(entry, encoder, dataset, transform, digests, executor)
        try:
            embedded = _complete(job, progress)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise
    skipped = [item for s in range(entry.n_shards) for item in entry.shard(s).skipped]
    if skipped and on_error == "fail":
        raise UnreadableItemsError(skipped)
    items = np.setdiff1d(np.arange(len(dataset)), [item.item for item in skipped])
    return Embeddings(
        entry,
        None if dataset.labels is None else dataset.labels[items],
        items,
        skipped,
        embedded,
        time.perf_counter() - start,
    )


def _with_options(encoder: FrozenEncoder, noise: PixelNoise | None, crop: bool) -> Any:
    transform = encoder.transform
    if noise is None and crop:
        return transform
    if not isinstance(transform, ImageTransform):
        raise ValueError(
            f"noise, crop: expected an image encoder with an ImageTransform; "
            f"{encoder.name} has another transform; leave both out"
        )
    return replace(transform if crop else transform.without_crop(), noise=noise)


class _Job(NamedTuple):
    """Everything that making a shard needs."""

    entry: Entry
    encoder: FrozenEncoder
    dataset: Dataset
    transform: Any
    digests: list[bytes]
    executor: ThreadPoolExecutor


class _Batch(NamedTuple):
    """Items that are encoded together: always the same ones, wherever a run begins."""

    shard: int
    items: range
    claim: FileLock
    loaded: list[Future[Any]]


def _complete(job: _Job, progress: bool) -> int:
    """Make every shard that is missing or damaged; returns how many items that took."""
    entry = job.entry
    left = {shard for shard in range(entry.n_shards) if entry.problem(shard) is not None}
    embedded, n_left = 0, sum(len(entry.span(shard)) for shard in left)
    with tqdm(
        total=entry.n_items,
        initial=entry.n_items - n_left,  # shown, but no part of the rate
        desc=job.encoder.name,
        unit="item",
        disable=not progress,
    ) as bar:
        while left:
            made = _make(job, sorted(left), bar)
            embedded += sum(len(entry.span(shard)) for shard in made)
            others = {shard for shard in left - made if entry.problem(shard) is None}
            bar.update(sum(len(entry.span(shard)) for shard in others))
            left -= made | others
            if left and not made:
                time.sleep(_POLL)  # others are at it; should one die, its claim is free
    entry.tidy()
    return embedded


def _make(job: _Job, shards: Sequence[int], bar: Any) -> set[int]:
    """Make those shards that no other process is making; returns which."""
    made: set[int] = set()
    claims: list[FileLock] = []
    rows: list[Array] = []
    skipped: list[Skipped] = []
    try:
        for batch in _ahead(_batches(job, shards, claims)):
            found, bad = _encode(job, batch)
            rows.append(found)
            skipped += bad
            bar.update(len(batch.items))
            if batch.items.stop == job.entry.span(batch.shard).stop:
                job.entry.write(batch.shard, np.concatenate(rows), skipped)
                job.entry.release(batch.claim)
                made.add(batch.shard)
                rows, skipped = [], []
    finally:
        for claim in claims:
            job.entry.release(claim)
    return made


def _batches(job: _Job, shards: Sequence[int], claims: list[FileLock]) -> Iterator[_Batch]:
    size = int(job.entry.about["batch_rows"])
    for shard in shards:
        claim = job.entry.claim(shard)
        if claim is None:
            continue
        claims.append(claim)
        if job.entry.problem(shard) is None:  # another process was faster
            job.entry.release(claim)
            continue
        span = job.entry.span(shard)
        for start in range(span.start, span.stop, size):
            items = range(start, min(start + size, span.stop))
            yield _Batch(shard, items, claim, [job.executor.submit(_load, job, i) for i in items])


def _ahead(batches: Iterator[_Batch]) -> Iterator[_Batch]:
    """The same batches; those that follow are loaded meanwhile."""
    waiting: deque[_Batch] = deque()
    for batch in batches:
        waiting.append(batch)
        if len(waiting) > _AHEAD:
            yield waiting.popleft()
    yield from waiting


def _load(job: _Job, i: int) -> Any:
    """Item i, decoded and transformed; the reason if it cannot be."""
    try:
        content = job.dataset.read(i)
    except OSError as error:
        content, reason = None, _reason(error)
    if (digest(content) if content is not None else UNREADABLE) != job.digests[i]:
        raise ValueError(
            f"data: expected that it stays as it is while it is embedded; "
            f"{job.dataset.item_name(i)} has changed; run the command again"
        )
    if content is None:
        return Skipped(i, job.dataset.item_name(i), reason)
    try:
        return job.transform(job.dataset.decode(content))
    except Exception as error:  # decoders raise anything for what they cannot read
        return Skipped(i, job.dataset.item_name(i), _reason(error))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _encode(job: _Job, batch: _Batch) -> tuple[Array, list[Skipped]]:
    """Rows (items − skipped, m) in the entry's type, and the items that have none."""
    results = [future.result() for future in batch.loaded]
    bad = [result for result in results if isinstance(result, Skipped)]
    good = [result for result in results if not isinstance(result, Skipped)]
    width = job.encoder.dimension
    rows = _within_memory(job.encoder, good) if good else torch.empty(0, width)
    if rows.shape != (len(good), width):
        raise ValueError(
            f"encoder {job.encoder.name}: expected rows of shape {(len(good), width)}; "
            f"got {tuple(rows.shape)}"
        )
    with np.errstate(over="ignore"):  # the check below says it better
        array = rows.numpy().astype(job.entry.identity["dtype"])
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        names = [job.dataset.item_name(batch.items[int(i)]) for i in np.flatnonzero(~finite)[:3]]
        raise ValueError(
            f"encoder {job.encoder.name}: expected finite {array.dtype} numbers; got NaN or "
            f"infinity near {', '.join(names)}; use float32 for rows and precision"
        )
    return array, bad


def _within_memory(encoder: FrozenEncoder, items: list[Any]) -> Tensor:
    """Rows of all items; in halves where a GPU's memory does not hold them at once."""
    try:
        return encoder.encode(items)
    except torch.cuda.OutOfMemoryError:
        if len(items) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(items) // 2
    return torch.cat([_within_memory(encoder, part) for part in (items[:half], items[half:])])

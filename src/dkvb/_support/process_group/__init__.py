"""Collectives of the process group that torchrun started; in a single process they do nothing.

    torchrun --nproc-per-node 4 -m dkvb evaluate ...

`init()` joins the group; gloo carries tensors on the CPU, NCCL those on GPUs. A process group that
other code opened is left alone: only inside `init()` does anything here communicate.

Every function must be called by all processes, in the same order. `traffic()` returns how many
bytes this process has sent, to be compared with the volumes computed from shapes.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dkvb._support.process_group.failures import RankLostError, leave_message, why

__all__ = [
    "RankLostError",
    "all_gather",
    "all_gather_objects",
    "all_reduce",
    "all_reduce_int",
    "all_to_all",
    "broadcast",
    "check_same_on_all_ranks",
    "init",
    "parts",
    "rank",
    "shard",
    "traffic",
    "world_size",
]

TIMEOUT = timedelta(minutes=30)  # of a collective: how long others may compute meanwhile


@dataclass(frozen=True)
class _Group:
    rank: int
    size: int
    store: Any
    nccl: bool  # whether tensors on a GPU can be reduced there


_group: _Group | None = None
_traffic: Counter[str] = Counter()


@contextmanager
def init(timeout: timedelta = TIMEOUT) -> Iterator[None]:
    """Join the process group that torchrun started, if it did; leave when all others are done.

    A collective that fails because another process died, hangs (after `timeout`) or stopped with an
    error raises a `RankLostError`, which quotes that error if there was one.
    """
    global _group
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    store, own, size = next(rendezvous("env://", timeout=timeout))
    nccl = _own_gpu()
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    dist.init_process_group(backend, store=store, rank=own, world_size=size, timeout=timeout)
    _traffic.clear()
    _group = _Group(own, size, store, nccl)
    ended: SystemExit | None = None
    try:
        try:
            yield
        except SystemExit as end:  # as commands end, also those that succeed
            if end.code:
                raise
            ended = end
        _barrier()
    except RankLostError:
        raise
    except BaseException as error:
        leave_message(store, own, size, error)
        raise
    finally:
        _group = None
    # Threads of a group that is still there when the interpreter ends may abort the process.
    dist.destroy_process_group()
    if ended is not None:
        raise ended


def rank() -> int:
    """The rank of this process, from 0."""
    return _group.rank if _group else 0


def world_size() -> int:
    """The number of processes in the group.

    >>> world_size()
    1
    """
    return _group.size if _group else 1


def parts(n: int, size: int | None = None) -> list[slice]:
    """n rows in consecutive parts, one per process, whose lengths differ by one at most.

    >>> parts(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    size = size or world_size()
    short, longer = divmod(n, size)
    bounds = [i * short + min(i, longer) for i in range(size + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def shard(n: int) -> slice:
    """The part of n rows that is this process's.

    >>> shard(5)
    slice(0, 5, None)
    """
    return parts(n)[rank()]


def all_reduce(tensor: Tensor, kind: str = "all_reduce") -> Tensor:
    """The sum over all processes, in place: the same bits in each of them, exact for integers."""
    if _group is None:
        return tensor
    with _collective(kind, tensor.nbytes):
        moved = _movable(tensor)
        dist.all_reduce(moved)
        if moved is not tensor:
            tensor.copy_(moved)
    return tensor


def broadcast(tensor: Tensor) -> Tensor:
    """The tensor of rank 0, in place: for results that another process might round differently."""
    if _group is None:
        return tensor
    with _collective("broadcast", tensor.nbytes if _group.rank == 0 else 0):
        moved = _movable(tensor)
        dist.broadcast(moved, 0)
        if moved is not tensor:
            tensor.copy_(moved)
    return tensor


def all_gather(tensor: Tensor, kind: str = "all_gather") -> list[Tensor]:
    """The tensors of all processes, in order of rank; the first dimension may differ, and be 0.

    Shorter ones are filled up on the way: each process sends as much as the longest.
    """
    if _group is None:
        return [tensor]
    lengths = torch.zeros(_group.size, dtype=torch.int64)
    lengths[_group.rank] = len(tensor)
    longest = int(all_reduce(lengths, "notes").max())
    each = math.prod(tensor.shape[1:]) * tensor.element_size()
    # As bytes, since no backend knows every dtype; an empty tensor may have strides without any.
    filled = torch.zeros(longest * each, dtype=torch.uint8, device=tensor.device)
    if tensor.numel():
        filled[: tensor.nbytes] = tensor.contiguous().flatten().view(torch.uint8)
    with _collective(kind, filled.nbytes):
        moved = _movable(filled)
        out = [torch.empty_like(moved) for _ in range(_group.size)]
        dist.all_gather(out, moved)
    return [
        found[: n * each].to(tensor.device).view(tensor.dtype).view(n, *tensor.shape[1:])
        for found, n in zip(out, lengths.tolist(), strict=True)
    ]


def all_gather_objects(what: Any) -> list[Any]:
    """The values of all processes, in order of rank, of anything that JSON can hold."""
    if _group is None:
        return [what]
    text = torch.frombuffer(bytearray(json.dumps(what).encode()), dtype=torch.uint8)
    return [json.loads(bytes(found.numpy())) for found in all_gather(text, "notes")]


def all_to_all(tensor: Tensor, columns: Sequence[slice]) -> Tensor:
    """From some rows of all columns to all rows of some columns.

    Each process has rows (n_r, C, ...), of which columns[q] go to process q; what comes back is
    (Σ n_r, own columns, ...), rows in order of rank.
    """
    if _group is None:
        return tensor[:, columns[0]]
    lengths = [int(n) for n in all_gather_objects(len(tensor))]
    own = columns[_group.rank]
    shape = (own.stop - own.start, *tensor.shape[2:])
    each = math.prod(shape) * tensor.element_size()
    pieces = [tensor[:, part].flatten().view(torch.uint8) for part in columns]
    sent = _movable(torch.cat(pieces))
    received = sent.new_empty(sum(lengths) * each)
    with _collective("all_to_all", sent.nbytes - pieces[_group.rank].nbytes):
        dist.all_to_all_single(
            received, sent, [n * each for n in lengths], [len(piece) for piece in pieces]
        )
    return received.to(tensor.device).view(tensor.dtype).view(sum(lengths), *shape)


def check_same_on_all_ranks(what: Any, name: str) -> None:
    """Raise where processes disagree on a value that must be equal in all of them."""
    found = all_gather_objects(what)
    others = [i for i, value in enumerate(found) if value != found[0]]
    if others:
        raise ValueError(
            f"{name}: expected the same in every process; rank 0 has {found[0]!r}, "
            f"rank {others[0]} has {found[others[0]]!r}; give all of them the same settings"
        )


def all_reduce_int(value: int) -> int:
    """The sum of an integer over all processes."""
    return int(all_reduce(torch.tensor([value]), "notes"))


def traffic() -> dict[str, int]:
    """Bytes that this process has sent since it joined, by kind of collective.

    A sum counts its tensor once. On the wire a ring sends 2 (N − 1)/N of that from each of N
    processes. "notes" are lengths, labels and other small values.
    """
    return dict(_traffic)


def _own_gpu() -> bool:
    """Choose this process's GPU; whether every process of the machine has one to itself."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        return False
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % count)
    alone = count >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return alone and dist.is_nccl_available()


def _movable(tensor: Tensor) -> Tensor:
    """The tensor where its backend can reach it, in one piece."""
    moved = tensor if tensor.device.type == "cpu" or (_group and _group.nccl) else tensor.cpu()
    return moved.contiguous()


def _barrier() -> None:
    all_reduce(torch.zeros(1), "notes")


@contextmanager
def _collective(kind: str, n_bytes: int) -> Iterator[None]:
    """Count what is sent; a failure says why."""
    assert _group is not None
    _traffic[kind] += n_bytes
    try:
        yield
    except RuntimeError as error:
        raise RankLostError(why(_group.store, _group.rank, _group.size, error)) from error

"""Keys fitted to what was learned, where it is too much to be solved for one by one.

Each target has keys of its own, in proportion to its entries: k-means in the first principal
components. A cell is a key with the entries that are nearest to it, so that exactly as many cells
come out as can be solved for, whatever the data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkvb.memory.conditioning import Conditioning
from dkvb.memory.kernel import squared_norms
from dkvb.memory.points import Memory, Points

Rows = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Places = NDArray[np.int64]

COMPONENTS = 64  # that keys see: more are slower, and no better
PASSES = 3  # of Lloyd's algorithm: more are no better
PER_KEY = 16  # entries that a key is fitted to
AXES_ROWS = 4096  # that principal axes are fitted to
CHUNK = 4096


def fit_groups(memory: Memory, which: Places, by: Conditioning, most: int) -> Places:
    """The group (k,) of each of some entries: of one target, at most so many groups, or one for
    each target."""
    z = _leading_components(memory, which, by)
    targets = np.unique(memory.targets[which], return_inverse=True)[1]
    weights = memory.counts[which].astype(np.float64)
    count = np.bincount(targets)
    keys = shares(count, most)
    first, ends = np.cumsum(keys) - keys, np.cumsum(count)
    order = np.argsort(targets, kind="stable")
    group = np.empty(len(which), np.int64)
    for target, k in enumerate(keys.tolist()):
        mine = order[ends[target] - count[target] : ends[target]]
        some = mine[: PER_KEY * k]
        group[mine] = first[target] + nearest(z[mine], lloyd(z[some], weights[some], k))
    dense: Places = np.unique(group, return_inverse=True)[1]
    return dense


def shares(count: Places, most: int) -> Places:
    """Keys per target: in proportion to its entries, at least one, by largest remainders."""
    room = max(most - len(count), 0)  # one key each, the rest in proportion to further entries
    others = count - 1
    exact = room * others / max(int(others.sum()), 1)
    whole = np.floor(exact).astype(np.int64)
    left = min(room, int(others.sum())) - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[: max(left, 0)]] += 1
    return np.minimum(whole + 1, count)


def lloyd(z: F32, weights: F64, k: int) -> F32:
    """k keys (k, p) fitted to weighted rows z (n, p), beginning with the first; a key without rows
    stays where it is."""
    # The k-means of `kernels` needs torch and takes no weights; scikit-learn's starts at random.
    # Three passes from the first rows in canonical order depend on the set of rows alone.
    keys = z[:k].copy()
    for _ in range(PASSES):
        code = nearest(z, keys)
        order = np.argsort(code, kind="stable")
        present, first = np.unique(code[order], return_index=True)
        share = weights[order]
        sums = np.add.reduceat(z[order] * share[:, None], first, axis=0)
        keys[present] = sums / np.add.reduceat(share, first)[:, None]
    return keys


def nearest(z: F32, keys: F32) -> Places:
    """The nearest key (n,) of rows z (n, p), the first of equals."""
    found, bias = np.empty(len(z), np.int64), squared_norms(keys) / 2
    for start in range(0, len(z), CHUNK):
        part = slice(start, start + CHUNK)
        scores = z[part] @ keys.T
        scores -= bias
        found[part] = scores.argmax(axis=1)
    return found


def _leading_components(memory: Memory, which: Places, by: Conditioning) -> F32:
    """Entries (k, p) by the first components of their conditioned rows, in which they vary most."""
    width = min(COMPONENTS, by.output_width)
    if by.components is None:
        step = -(-len(which) // AXES_ROWS)
        sample = by.of_units(memory.units(which[::step], by)[0]).astype(np.float64)
        sample -= sample.mean(axis=0)
        axes = np.linalg.eigh((sample.T @ sample).astype(np.float32))[1][:, ::-1]
        by = replace(by, components=axes)
    by = by.leading(width)
    z = np.empty((len(which), width), np.float32)
    for start in range(0, len(which), CHUNK):
        part = slice(start, start + CHUNK)
        z[part] = by.of_units(memory.units(which[part], by)[0])
    return z


def coarse(points: Points, most: int) -> Points:
    """At most so many points that stand for all, whatever their targets."""
    z = np.ascontiguousarray(points.z[:, :COMPONENTS])
    code = nearest(z, lloyd(z[: PER_KEY * most], points.counts[: PER_KEY * most], most))
    code = np.unique(code, return_inverse=True)[1]
    counts = np.bincount(code, points.counts).astype(np.float64)
    order = np.argsort(code, kind="stable")
    first = np.searchsorted(code[order], np.arange(len(counts)))
    share = (points.counts / counts[code])[order]
    rows = points.z[order].astype(np.float64)
    mean = np.add.reduceat(rows * share[:, None], first, axis=0)
    squares = np.add.reduceat(share * (squared_norms(rows) + points.spread[order]), first)
    spread = np.maximum(squares - squared_norms(mean), 0)
    return Points(mean.astype(np.float32), spread, counts, np.full(len(counts), -1))

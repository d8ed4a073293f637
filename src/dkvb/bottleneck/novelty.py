"""Distances of inputs from the keys, compared with key-initialisation rows that fitted none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from dkvb.bottleneck.batch import Batch
from dkvb.bottleneck.keys import Keys

Floats = NDArray[np.float64]

_TINY = float(np.finfo(np.float32).tiny)
_EXACT_ROWS = 1000  # up to here p-values come from counting, not from a limit


@dataclass(frozen=True)
class Drift:
    """Two batches compared by how far their rows lie from the keys."""

    # Kolmogorov–Smirnov: the largest difference between the two distributions, 0 to 1.
    statistic: float
    p_value: float  # how often batches from one source differ as much
    novelty: float  # median quantile of the batch
    reference_novelty: float  # and of the reference


def distance_from_keys(batch: Batch) -> Floats:
    """Return (n,) the mean over codebooks of d² to the nearest key, in quantization errors."""
    quantization_error = batch.keys.quantization_error.double().clamp(min=_TINY)  # (C,)
    mean: Floats = (batch.distances / quantization_error).mean(dim=1).cpu().numpy()
    return mean


def novelty(keys: Keys, distance: Floats) -> Floats:
    """Return the share of held-out key-initialisation rows that lie nearer to their keys: (n,)."""
    reference = keys.novelty.double().cpu().numpy()  # (h,) ascending
    # Rounded as the reference is. Where every row is a key, distances leave float32's range.
    rounded = distance.clip(max=np.finfo(np.float32).max).astype(np.float32)
    share: Floats = np.searchsorted(reference, rounded) / len(reference)
    return share


def compare(keys: Keys, distance: Floats, reference: Floats) -> Drift:
    """Run a two-sample Kolmogorov–Smirnov test on distances from the keys."""
    exact = max(len(distance), len(reference)) <= _EXACT_ROWS
    test = ks_2samp(distance, reference, method="exact" if exact else "asymp")
    return Drift(
        statistic=float(test.statistic),
        p_value=float(test.pvalue),
        novelty=float(np.median(novelty(keys, distance))),
        reference_novelty=float(np.median(novelty(keys, reference))),
    )

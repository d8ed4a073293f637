"""A map of heads and keys in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def flat_map(points: npt.ArrayLike, *, seed: int = 0) -> tuple[Floats, str]:
    """Points (n, d) in the plane (n, 2), and the name of the method: `UMAP` if umap-learn is
    installed, else `PCA`."""
    table = np.asarray(points, dtype=np.float64)
    if len(table) < 3 or table.ndim != 2:
        raise ValueError(f"points: expected at least three rows (n, d); got shape {table.shape}")
    umap = _umap()
    if umap is None:
        return _pca(table), "PCA"
    placed = umap.UMAP(n_components=2, random_state=seed, n_jobs=1).fit_transform(table)
    return np.asarray(placed, dtype=np.float64), "UMAP"


def _umap() -> Any:
    try:
        import umap  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return umap


def _pca(table: Floats) -> Floats:
    centred = table - table.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]  # (2 or 1, d)
    placed = np.zeros((len(table), 2))
    placed[:, : len(directions)] = centred @ directions.T
    return placed

"""Maps of heads and keys in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA

Floats = npt.NDArray[np.float64]


def project_to_plane(points: npt.ArrayLike, *, seed: int = 0) -> tuple[Floats, str]:
    """Return points (n, d) in the plane (n, 2), and the method.

    The method is "UMAP" if umap-learn is installed, and "PCA" otherwise.
    """
    table = np.asarray(points, dtype=np.float64)
    if len(table) < 3 or table.ndim != 2:
        raise ValueError(f"points: expected at least three rows (n, d); got shape {table.shape}")
    umap = _umap()
    if umap is not None:
        reducer = umap.UMAP(n_components=2, random_state=seed, n_jobs=1)
        return np.asarray(reducer.fit_transform(table), dtype=np.float64), "UMAP"
    n_components = min(2, table.shape[1])
    coordinates = PCA(n_components, svd_solver="full").fit_transform(table)
    return np.pad(coordinates, ((0, 0), (0, 2 - n_components))), "PCA"


def _umap() -> Any:
    try:
        import umap  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return umap

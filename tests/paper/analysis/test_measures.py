import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paper.analysis import plane as maps
from paper.analysis.robustness import add_noise, changed_codes
from paper.analysis.values import relative_difference


def test_relative_difference_is_the_papers():
    a, b = np.array([[1.0, -2.0], [0.0, 1.0]]), np.array([[1.0, -1.0], [0.5, 1.0]])
    assert relative_difference(a, b) == pytest.approx(1.5 / 4)
    assert relative_difference(a, a) == 0
    with pytest.raises(ValueError, match="values: expected"):
        relative_difference(np.zeros(3), a)


def test_noise_has_the_size_asked_for_and_the_same_direction():
    X = torch.full((400, 50), 3.0)
    small, large = add_noise(X, 0.1, unit=2.0, seed=5) - X, add_noise(X, 0.2, unit=2.0, seed=5) - X
    assert small.std() == pytest.approx(0.2, rel=0.05)
    torch.testing.assert_close(large, 2 * small, atol=1e-5, rtol=1e-4)
    assert torch.equal(add_noise(X, 0.0), X)
    assert not torch.equal(add_noise(X, 0.1, seed=1), add_noise(X, 0.1, seed=2))


def test_changed_codes_of_any_type():
    a = torch.tensor([[1, 2], [3, 60000]], dtype=torch.uint16)
    b = torch.tensor([[1, 5], [3, 60000]], dtype=torch.int32)
    assert changed_codes(a, b).tolist() == [[False, True], [False, False]]


def test_a_flat_map_without_umap_is_pca(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    points = np.outer(rng.normal(size=50), [3.0, 4.0, 0.0]) + 0.01 * rng.normal(size=(50, 3))
    coordinates, method = maps.project_to_plane(points)
    assert method == "PCA"
    assert coordinates.shape == (50, 2)
    along = np.abs(np.corrcoef(coordinates[:, 0], points @ [0.6, 0.8, 0.0])[0, 1])
    assert along > 0.999
    assert coordinates[:, 1].std() < 0.05
    assert maps.project_to_plane(points[:, :1])[0][:, 1].any() == False  # noqa: E712, one dimension
    with pytest.raises(ValueError, match="points: expected"):
        maps.project_to_plane(points[:2])


def test_umap_is_used_where_it_is_installed(rng, monkeypatch):
    class UMAP:
        def __init__(self, **settings):
            assert settings["random_state"] == 3

        def fit_transform(self, table):
            return table[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    coordinates, method = maps.project_to_plane(rng.normal(size=(9, 4)), seed=3)
    assert (coordinates.shape, method) == ((9, 2), "UMAP")

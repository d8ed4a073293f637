"""Each baseline against an obvious version of itself, or scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from dkvb.baselines._ridge import GRID, add_product
from dkvb.baselines.slda import _oas
from dkvb.estimators.registry import (
    LinearClassifier,
    MLPClassifier,
    NeighboursClassifier,
    PrototypesClassifier,
    RanPACClassifier,
    SLDAClassifier,
)
from dkvb.kernels.hashing import epoch_order

from ..estimators.settings import blobs


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_the_obvious_loop(optimizer, bias):
    X, y = blobs(3, a_class=11)  # 33 rows: batches of 8, 8, 8, 8 and 1
    model = LinearClassifier(
        bias=bias, epochs=3, batch_size=8, learning_rate=0.3, optimizer=optimizer, weight_decay=0.01
    ).partial_fit(X, y, classes=[0, 1, 2])

    layer = torch.nn.Linear(X.shape[1], 3, bias=bias)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    maker = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    stepper = maker(layer.parameters(), lr=0.3, weight_decay=0.01)
    for epoch in range(3):
        order = epoch_order(33, 0, epoch).numpy()
        for start in range(0, 33, 8):
            rows = order[start : start + 8]
            logits = layer(torch.tensor(X[rows]))
            loss = torch.nn.functional.cross_entropy(
                logits, torch.tensor(y[rows]), label_smoothing=0.1
            )
            stepper.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            stepper.step()
    expected = layer(torch.tensor(X)).detach().numpy()
    assert np.allclose(model.decision_function(X), expected, atol=1e-5)


def test_a_new_column_starts_at_zero_and_leaves_the_others():
    X, y = blobs(3)
    for model in (LinearClassifier(learning_rate=0.1), MLPClassifier(learning_rate=0.1)):
        model.partial_fit(X[y < 2], y[y < 2], classes=[0, 1])
        before = model.decision_function(X)
        model.set_params(learning_rate=1e-12).partial_fit(X, y)
        after = model.decision_function(X)
        assert np.allclose(after[:, 1] - after[:, 0], before, atol=1e-6)
        assert np.allclose(after[:, 2], 0, atol=1e-6)


def test_reset_optimizer_forgets_adams_averages_only():
    X, y = blobs(3)
    kept, reset = (LinearClassifier(optimizer="adam").partial_fit(X, y) for _ in range(2))
    assert np.array_equal(reset.reset_optimizer().decision_function(X), kept.decision_function(X))
    kept.partial_fit(X, y)
    reset.partial_fit(X, y)
    assert not np.array_equal(reset.decision_function(X), kept.decision_function(X))


def test_linear_and_mlp_forget_what_prototypes_keep():
    X, y = blobs(6)
    accuracy = {}
    for name, model in {
        "linear": LinearClassifier(learning_rate=0.1, epochs=40, batch_size=20),
        "mlp": MLPClassifier(learning_rate=0.1, epochs=40, batch_size=20),
        "prototypes": PrototypesClassifier(),
    }.items():
        for stage in ([0, 1], [2, 3], [4, 5]):
            rows = np.isin(y, stage)
            model.partial_fit(X[rows], y[rows], classes=range(6))
        accuracy[name] = model.score(X[y < 2], y[y < 2])
    assert accuracy["linear"] < 0.5
    assert accuracy["mlp"] < 0.5
    assert accuracy["prototypes"] > 0.95


def test_the_mlp_bends():
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.float32)
    labels = [0, 1, 1, 0]
    model = MLPClassifier(optimizer="adam", learning_rate=0.02, epochs=100).fit(corners, labels)
    assert model.predict(corners).tolist() == labels


def test_prototypes_are_the_nearest_centroid():
    X, y = blobs(5, width=3)
    queries = 4 * blobs(5, width=3, seed=2)[0]
    ours = PrototypesClassifier().fit(X, y)
    assert (ours.predict(queries) == NearestCentroid().fit(X, y).predict(queries)).all()
    means = np.stack([X[y == k].astype(float).mean(axis=0) for k in range(5)])
    distances = ((queries[:, None].astype(float) - means) ** 2).sum(axis=2)
    assert np.allclose(ours.decision_function(queries), -distances)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([unit[y == k].mean(axis=0) for k in range(5)])
    cosine = queries @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    by_angle = PrototypesClassifier(metric="cosine").fit(X, y)
    assert (by_angle.predict(queries) == cosine.argmax(axis=1)).all()


def test_prototypes_far_from_the_origin():
    X, y = blobs(4)
    far = (X + np.float32(1e4)).astype(np.float32)
    near = PrototypesClassifier().fit(far - np.float32(1e4), y)
    assert (PrototypesClassifier().fit(far, y).predict(far) == near.predict(far - 1e4)).all()


def test_slda_is_linear_discriminant_analysis():
    X, y = blobs(4, width=5)
    queries = 5 * blobs(4, width=5, seed=3)[0]
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, priors=np.full(4, 0.25))
    expected = theirs.fit(X.astype(np.float64), y).predict_proba(queries)
    ours = SLDAClassifier(shrinkage=0.2)
    for rows in np.array_split(np.argsort(y), 7):
        ours.partial_fit(X[rows], y[rows])
    assert np.allclose(ours.predict_proba(queries), expected, atol=1e-8)


def test_slda_with_fewer_rows_than_dimensions():
    X, y = blobs(3, a_class=5, width=40)
    queries, truth = blobs(3, width=40, seed=1)
    for shrinkage in (0, 1e-4, "oas", 1):
        assert SLDAClassifier(shrinkage=shrinkage).fit(X, y).score(queries, truth) > 0.9


def test_oracle_approximating_shrinkage(rng):
    X = rng.normal(size=(30, 8)) * np.arange(1, 9)
    X -= X.mean(axis=0)
    shrunk = oas(X, assume_centered=True)[1]
    assert _oas(X.T @ X / 30, 30) == pytest.approx(shrunk)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_neighbours_are_scikit_learns(metric, rng):
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    queries = rng.normal(size=(200, 4))
    theirs = KNeighborsClassifier(7, metric=metric).fit(X, y)
    ours = NeighboursClassifier(k=7, metric=metric)
    for rows in np.array_split(np.arange(300), 4):
        ours.partial_fit(X[rows], y[rows])
    assert (ours.predict(queries) == theirs.predict(queries)).all()


def test_equal_votes_go_to_the_nearer():
    X, y = [[0.0], [1.0], [1.2], [3.0]], ["a", "b", "b", "a"]
    model = NeighboursClassifier(k=4, metric="euclidean").fit(X, y)
    assert model.predict([[1.0], [0.1]]).tolist() == ["b", "a"]
    model = NeighboursClassifier(k=3, metric="euclidean").fit(X, y)
    assert model.predict([[0.1]]).tolist() == ["b"]  # one vote is more than any nearness


def test_neighbours_in_blocks(monkeypatch):
    X, y = blobs(3)
    whole = NeighboursClassifier(k=3).fit(X, y).decision_function(X)
    monkeypatch.setattr("dkvb.baselines.neighbours._DISTANCES", 500)
    assert np.array_equal(NeighboursClassifier(k=3).fit(X, y).decision_function(X), whole)


def test_ranpac_is_ridge_regression_on_random_features():
    X, y = blobs(3, a_class=60)
    model = RanPACClassifier(n_features=50).fit(X, y)
    W = np.random.default_rng(0).standard_normal((6, 50), dtype=np.float32).astype(float)
    phi = np.maximum(0, X.astype(float) @ W)  # (n, M)
    gram = phi.T @ phi
    system = gram + model.ridge_ * np.trace(gram) / 50 * np.eye(50)
    expected = phi @ np.linalg.solve(system, phi.T @ np.eye(3)[y])
    assert np.allclose(model.decision_function(X), expected, atol=1e-3)
    assert model.ridge_ in GRID


def test_random_features_do_not_depend_on_the_batch(rng):
    model = RanPACClassifier(n_features=300).fit(*blobs(3, width=70))
    x = rng.normal(size=(150, 70)).astype(np.float32)
    whole = model._features(x)
    for size in (1, 7, 64, 100):
        parts = [model._features(x[start : start + size]) for start in range(0, 150, size)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_balanced_ranpac_divides_scores_by_the_roots_of_the_counts():
    X, y = blobs(3, a_class=60)
    kept = np.r_[np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:4]]
    X, y = X[kept], y[kept]
    plain = RanPACClassifier(n_features=50).fit(X, y)
    balanced = RanPACClassifier(n_features=50, class_weight="balanced").fit(X, y)
    factors = np.array([60, 60, 4]) ** -0.5
    expected = plain.decision_function(X) * factors / factors.mean()
    np.testing.assert_allclose(balanced.decision_function(X), expected)
    with pytest.raises(ValueError, match="class_weight: expected one of 'balanced', None"):
        RanPACClassifier(class_weight="uniform").fit(X, y)


def test_sums_of_products_grow_in_place(rng):
    total, a, b = rng.normal(size=(7, 3)), rng.normal(size=(20, 7)), rng.normal(size=(20, 3))
    expected, whole = total + a.T @ b, total
    add_product(total, a, b)
    np.testing.assert_allclose(whole, expected)
    add_product(np.zeros((7, 0)), a, np.zeros((20, 0)))
    add_product(total, a[:0], b[:0])
    np.testing.assert_allclose(total, expected)

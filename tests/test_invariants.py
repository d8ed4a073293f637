"""The invariants that everything else stands on, for any data that hypothesis thinks of."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from torch.nn.functional import cross_entropy

from dkvb import BottleneckClassifier, KeyValueBottleneck, fit_keys
from dkvb.bottleneck import sgd
from dkvb.bottleneck.fit_keys import FewRowsWarning
from dkvb.bottleneck.heads import Conditioning, Projection
from dkvb.bottleneck.keys import first_of_equals

WIDTH, C, K = 6, 4, 12
KEYS = fit_keys(
    np.random.default_rng(0).normal(size=(300, WIDTH)),
    preset="paper",
    n_codebooks=C,
    n_pairs=K,
    key_dim=3,
    epochs=2,
)
FINGERPRINT = KEYS.fingerprint
seeds = st.integers(0, 2**32 - 1)


@st.composite
def labelled(draw, most: int = 40):
    """Rows and labels of a few classes, some rows repeated, at any scale."""
    rng = np.random.default_rng(draw(seeds))
    n = draw(st.integers(1, most))
    X = rng.normal(size=(n, WIDTH)) * draw(st.sampled_from([1e-3, 1.0, 1e3]))
    X = X[rng.integers(n, size=n)].astype(np.float32)
    return X, rng.integers(draw(st.integers(1, 5)), size=n)


def bits_of(keys):
    tensors = (keys.keys, keys.projection.matrices, keys.conditioning.centre)
    return [tensor.numpy().tobytes() for tensor in tensors]


# 1. After initialisation keys never change.
@settings(max_examples=15)
@given(stages=st.lists(labelled(), min_size=1, max_size=3), seed=seeds)
def test_learning_never_moves_a_key(stages, seed):
    before = bits_of(KEYS)
    classifier = BottleneckClassifier(KEYS, learning_rate=30.0, random_state=seed)
    for X, y in stages:
        classifier.partial_fit(X, y)
    classifier.predict(stages[0][0])
    assert bits_of(KEYS) == before
    assert bits_of(classifier.keys_) == before

    model = KeyValueBottleneck(KEYS, 5, decoder="linear", value_start="normal")
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for X, y in stages:
        optimiser.zero_grad()
        cross_entropy(model(torch.from_numpy(X)), torch.from_numpy(y)).backward()
        optimiser.step()
    assert bits_of(KEYS) == before
    assert bits_of(model.frozen_keys()) == before
    assert model.frozen_keys().fingerprint == FINGERPRINT


# 2. One step changes only the values that were read.
@settings(max_examples=30)
@given(data=labelled(), seed=seeds)
def test_a_step_touches_only_what_it_read(data, seed):
    X, y = data
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(C, K, 5, generator=generator)
    codes, columns = KEYS.codes(X), torch.from_numpy(y)
    read = torch.zeros(C, K, dtype=torch.bool)
    read[torch.arange(C), codes.long()] = True

    state = sgd.LearnedValues(values, torch.zeros(C, K, dtype=torch.int64))
    how = {"batch_size": len(X), "learning_rate": 1.0, "label_smoothing": 0.1, "seed": seed}
    after = sgd.update(state, codes, columns, epochs=1, **how)
    assert torch.equal(after.values[~read], values[~read])
    assert (after.values[read] != values[read]).any(dim=1).all()
    assert torch.equal(after.usage > 0, read)

    model = KeyValueBottleneck(KEYS, 5)
    model.values.data.copy_(values)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    cross_entropy(model(torch.from_numpy(X)), columns, label_smoothing=0.1).backward()
    optimiser.step()
    assert torch.equal(model.values.detach()[~read], values[~read])
    torch.testing.assert_close(model.values.detach(), after.values)


# 3. Codes are canonical.
@settings(max_examples=30)
@given(
    data=labelled(),
    split=st.integers(1, 40),
    backend=st.sampled_from(["oracle", "cpu"]),
    top=st.sampled_from([1, 3]),
    seed=seeds,
)
def test_codes_depend_on_nothing_but_the_row(data, split, backend, top, seed):
    X = torch.from_numpy(data[0])
    active = torch.rand(C, K, generator=torch.Generator().manual_seed(seed)) < 0.5
    active[:, seed % K] = True
    books = torch.arange(C).repeat(len(X))
    for mask in (None, active):
        z = KEYS.conditioning.centred(X).repeat_interleave(C, dim=0)
        expected = KEYS.exact_codes(z, books, first_of_equals(KEYS.keys, mask), top).view(
            len(X), C, top
        )
        how = {"top": top, "active": mask}
        assert torch.equal(KEYS.codes(X, **{"top": 1, **how}).int(), expected)
        parts = [KEYS.codes(x, backend=backend, **{"top": 1, **how}) for x in X.split(split)]
        assert torch.equal(torch.cat(parts).int(), expected)


@settings(max_examples=30)
@given(
    grid=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=2, max_size=12, unique=True),
    rows=st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=1, max_size=8),
    exponent=st.integers(-100, 100),
    backend=st.sampled_from(["oracle", "cpu"]),
)
def test_ties_go_to_the_lowest_index_at_any_scale(grid, rows, exponent, backend):
    scale = 2.0**exponent
    own = replace(
        KEYS,
        conditioning=Conditioning(torch.zeros(2)),
        projection=Projection("identity", 1, 2, 2),
        keys=scale * torch.tensor([grid]).float(),
        quantization_error=torch.ones(1),
    )
    squared = np.square(np.array(rows)[:, None] - np.array(grid)).sum(axis=2)
    found = own.codes(scale * torch.tensor(rows).float(), backend=backend)
    assert found[:, 0].tolist() == squared.argmin(axis=1).tolist()


# 7. The same seed gives the same result.
@settings(max_examples=10)
@given(data=labelled(), seed=st.integers(0, 2**31 - 1))
def test_the_same_seed_gives_the_same_result(data, seed):
    X, y = data
    keys = {"n_codebooks": 2, "n_pairs": 3, "key_dim": 2, "epochs": 2}
    found = []
    for _ in range(2):
        classifier = BottleneckClassifier(keys, epochs=3, batch_size=8, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewRowsWarning)
            classifier.fit(X, y)
        found.append((classifier.keys_.fingerprint, classifier._sorted_scores(X).tobytes()))
    assert found[0] == found[1]


# 8. Bad input raises before anything changes.
BAD_ROWS = {
    "NaN": lambda X: np.where(np.arange(WIDTH) == 2, np.nan, X),
    "infinity": lambda X: np.where(np.arange(WIDTH) == 5, np.inf, X),
    "too wide": lambda X: np.hstack([X, X]),
    "too narrow": lambda X: X[:, 1:],
    "no rows": lambda X: X[:0],
    "one dimension": lambda X: X[0],
    "three dimensions": lambda X: X[None],
    "strings": lambda X: X.astype(str),
    "complex": lambda X: X.astype(complex),
    "too large for float32": lambda X: X.astype(float) + 1e300,
}


@pytest.mark.parametrize("bad", BAD_ROWS)
@settings(max_examples=5)
@given(data=labelled(), more=labelled())
def test_bad_rows_change_nothing(bad, data, more):
    classifier = BottleneckClassifier(KEYS).fit(*data)
    before, classes = classifier._sorted_scores(data[0]), classifier.classes_
    X, y = BAD_ROWS[bad](more[0]), more[1] + 100
    for call in (classifier.partial_fit, classifier.fit):
        with pytest.raises((ValueError, TypeError)):
            call(X, y[: len(X)])
    with pytest.raises((ValueError, TypeError)):
        classifier.predict(X)
    with pytest.raises((ValueError, TypeError)):
        KEYS.codes(X)
    assert np.array_equal(classifier.classes_, classes)
    assert np.array_equal(classifier._sorted_scores(data[0]), before)
    fresh = BottleneckClassifier(KEYS)
    with pytest.raises((ValueError, TypeError)):
        fresh.partial_fit(X, y[: len(X)])
    with pytest.raises(NotFittedError):
        fresh.predict(data[0])


@pytest.mark.parametrize("labels", ["too few", "too many", "mixed kinds", "another kind", "NaN"])
@settings(max_examples=5)
@given(data=labelled())
def test_bad_labels_change_nothing(labels, data):
    X, y = data
    classifier = BottleneckClassifier(KEYS).fit(X, y)
    before = classifier._sorted_scores(X)
    X2 = np.concatenate([X, X])
    bad = {
        "too few": np.arange(len(X2) - 1),
        "too many": np.arange(len(X2) + 1),
        "mixed kinds": np.array(["a", 1] * len(X), dtype=object),
        "another kind": np.array(["cat"] * len(X2)),
        "NaN": np.full(len(X2), np.nan),
    }[labels]
    with pytest.raises((ValueError, TypeError)):
        classifier.partial_fit(X2, bad)
    assert np.array_equal(classifier._sorted_scores(X), before)

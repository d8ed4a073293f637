"""Values in 16 bits: half the memory, the same lessons."""

import numpy as np
import pytest
import torch

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck import sgd
from dkvb.bottleneck.sgd import logits

HOW = {"batch_size": 16, "learning_rate": 3.0, "label_smoothing": 0.1, "seed": 3}


def problem(n=200, C=7, K=12, Y=5):
    torch.manual_seed(n)
    return torch.randint(K, (n, C), dtype=torch.int32), torch.randint(Y, (n,))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_epochs_follow_those_in_float32(dtype):
    codes, y = problem()
    exact, stored = (
        sgd.update(sgd.add_classes(sgd.start(7, 12, dtype=kind), 5), codes, y, epochs=30, **HOW)
        for kind in ("float32", dtype)
    )
    assert stored.values.dtype == sgd.DTYPES[dtype]
    assert torch.equal(stored.usage, exact.usage)
    assert exact.values.abs().max() > 0.2
    # Up to 0.8 % and 0.1 % are lost or gained in each rounding; many even each other out.
    share = 0.08 if dtype == "bfloat16" else 0.01
    assert (stored.values.float() - exact.values).norm() < share * exact.values.norm()
    scores = logits(stored, codes)
    assert scores.dtype == torch.float32
    wanted = logits(exact, codes)
    assert (scores - wanted).norm() < share * wanted.norm()


def test_many_calls_of_one_epoch_are_one_call_of_many():
    codes, y = problem()
    start = sgd.add_classes(sgd.start(7, 12, dtype="bfloat16"), 5)
    together = sgd.update(start, codes, y, epochs=3, **HOW)
    apart = start
    for _ in range(3):
        apart = sgd.update(apart, codes, y, epochs=1, **HOW)
    assert torch.equal(together.values, apart.values)


def test_scores_of_many_rows_come_in_parts(monkeypatch):
    codes, y = problem()
    state = sgd.update(
        sgd.add_classes(sgd.start(7, 12, dtype="float16"), 5), codes, y, epochs=1, **HOW
    )
    whole = logits(state, codes)
    monkeypatch.setattr("dkvb.bottleneck.sgd.SCORES_AT_ONCE", 33)
    torch.testing.assert_close(logits(state, codes), whole)
    assert logits(state, codes[:0]).shape == (0, 5)


def test_a_classifier_in_sixteen_bits_predicts_alike():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=300)
    X = (4 * np.eye(8)[y] + rng.normal(size=(300, 8))).astype(np.float32)
    keys = fit_keys(X, preset="paper", n_codebooks=12, n_pairs=16, key_dim=3, epochs=2)
    models = [
        BottleneckClassifier(keys, epochs=5, value_dtype=dtype).fit(X, y)
        for dtype in ("float32", "bfloat16", "float16")
    ]
    assert models[1]._state.values.values.dtype == torch.bfloat16
    for model in models[1:]:
        assert (model.predict(X) == models[0].predict(X)).mean() > 0.97


def test_other_kinds_of_numbers_are_refused():
    with pytest.raises(ValueError, match="value_dtype: expected one of 'float32', 'bfloat16'"):
        BottleneckClassifier(value_dtype="int8").fit([[0.0], [1.0]], [0, 1])

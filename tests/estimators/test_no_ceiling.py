"""10¹⁰ rows at one pair: sums stay exact, against Python's integers."""

import pickle

import numpy as np
import pytest
import torch

from dkvb import BottleneckClassifier, fit_keys
from dkvb.bottleneck.assignment import LEVELS
from dkvb.kernels.counts import CLASS_STRIDE
from dkvb.rules.least_squares.sums import LIMB

N = 10**10
RNG = np.random.default_rng(0)
KEYS = fit_keys(RNG.normal(size=(200, 4)).astype(np.float32), n_codebooks=2, n_pairs=4, key_dim=2)
ROW = KEYS.keys[0, 0].numpy()[None] @ np.ones((2, 4), np.float32) / 2  # any row
OTHERS = RNG.normal(size=(30, 4)).astype(np.float32)
LABELS = np.array(["ant", "bee"])[np.arange(30) % 2]


def learned(rule, X, y):
    return BottleneckClassifier(KEYS, rule=rule).fit(X, y)


def repeated(model, times):
    """The model of its rows so many times: merged with copies of itself."""
    total, power = None, model
    while times:
        if times & 1:
            copy = pickle.loads(pickle.dumps(power))
            total = copy if total is None else total.merge(copy)
        times >>= 1
        if times:
            power = pickle.loads(pickle.dumps(power)).merge(power)
    return total


def same(one, other):
    ours, theirs = one.state_tensors(), other.state_tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.fixture(scope="module", params=["counts", "least_squares"])
def models(request):
    """One row, the same row 10¹⁰ times, and other rows of two classes beside these."""
    one = learned(request.param, ROW, ["ant"])
    many = repeated(one, N)
    both = pickle.loads(pickle.dumps(many)).merge(learned(request.param, OTHERS, LABELS))
    return one, many, both


def whole_numbers(tensors, name, limb):
    """Both limbs as Python's integers."""
    low = tensors[name if name in tensors else name + "_low"].flatten().tolist()
    high = tensors.get(name + "_high")
    high = [0] * len(low) if high is None else high.flatten().tolist()
    return [int(a) + int(limb) * int(b) for a, b in zip(low, high, strict=True)]


def test_sums_are_exact(models):
    one, many, _ = models
    assert many.class_count_ == {"ant": N}
    assert many.usage_.max() == N
    before, after = one.state_tensors(), many.state_tensors()
    if one.rule == "counts":
        assert after["counts"].tolist() == [N * count for count in before["counts"].tolist()]
        assert (after["places"] % CLASS_STRIDE == 0).all()
        sums = [whole_numbers(part, "class_sums", 1 << 62) for part in (before, after)]
        assert sums[1] == [N * number for number in sums[0]]
    else:
        assert max(float(before[name].max()) for name in ("gram", "held_gram")) > LEVELS
        for name in ("gram", "cross", "held_gram", "held_cross"):
            expected = [N * number for number in whole_numbers(before, name, LIMB)]
            assert whole_numbers(after, name, LIMB) == expected
        assert any(name.endswith("gram_high") for name in after)


def test_any_order_and_back_again(models, tmp_path):
    _, many, both = models
    rule = many.rule
    other = learned(rule, OTHERS[::-1], LABELS[::-1])
    parts = [repeated(learned(rule, ROW, ["ant"]), times) for times in (3 * 10**9, 7 * 10**9)]
    assert same(parts[1].merge(other).merge(parts[0]), both)
    assert same(pickle.loads(pickle.dumps(both)).forget_samples(OTHERS, LABELS), many)
    both.save(tmp_path / "model")
    again = BottleneckClassifier.load(tmp_path / "model")
    assert same(again, both)
    again.partial_fit(OTHERS[:3], LABELS[:3]).forget_samples(OTHERS[:3], LABELS[:3])
    assert same(again, both)
    assert set(both.predict(OTHERS)) <= {"ant", "bee"}
    assert np.isfinite(both.predict_proba(OTHERS)).all()
    assert both.predict(ROW)[0] == "ant"


def test_less_than_nothing_is_still_refused(models):
    _, many, _ = models
    with pytest.raises(ValueError, match="rows that were learned"):
        pickle.loads(pickle.dumps(many)).forget_samples(OTHERS[:1], ["ant"])

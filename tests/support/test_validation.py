"""Errors name the argument, what was expected, what came and the remedy."""

import numpy as np
import pytest
import torch

from dkvb._support import validation
from dkvb.bottleneck.rows import as_tensor


def test_one_of_lists_what_is_valid():
    assert validation.one_of("order", "iid", ("iid", "own")) == "iid"
    for wrong in ("IID", "", None, 3, ["iid"]):
        with pytest.raises(ValueError, match=r"^order: expected one of 'iid', 'own'; got "):
            validation.one_of("order", wrong, ("iid", "own"))


@pytest.mark.parametrize("value", [1, 7, np.int64(3), np.uint8(2)])
def test_whole_numbers(value):
    found = validation.positive_int("epochs", value)
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, "3", None, np.float64(2)])
def test_no_whole_numbers(value):
    with pytest.raises(ValueError, match=r"^epochs: expected a whole number of at least 1; got "):
        validation.positive_int("epochs", value)


def test_numbers_in_a_range():
    assert validation.real("decay", 1, low=0, high=1) == 1.0
    assert validation.real("decay", np.float32(0.5), low=0, high=1) == 0.5
    assert type(validation.real("decay", 0)) is float
    for wrong in (-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None):
        with pytest.raises(ValueError, match=r"^decay: expected a number in \[0, 1\]; got "):
            validation.real("decay", wrong, low=0, high=1)
    with pytest.raises(ValueError, match=r"in \(0, inf\); got 0"):
        validation.real("temperature", 0, low=0, low_open=True)
    with pytest.raises(ValueError, match="got inf"):
        validation.real("temperature", float("inf"))


def test_seeds():
    assert validation.seed("random_state", np.int32(5)) == 5
    assert validation.seed("random_state", None) != validation.seed("random_state", None)
    first, second = (validation.seed("s", np.random.RandomState(3)) for _ in range(2))
    assert first == second
    for wrong in (-1, 1.0, True, "1", np.random.default_rng(0)):
        with pytest.raises(ValueError, match=r"^random_state: expected a whole number"):
            validation.seed("random_state", wrong)


def test_good_rows_come_back_as_they_are(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float16))
    for X in (np.ones((3, 2)), torch.ones(3, 2), np.load(tmp_path / "x.npy", mmap_mode="r")):
        assert validation.rows(X, width=2) is X
    for dtype in (np.int8, np.uint16, bool, np.float16, np.float64):
        assert validation.rows(np.ones((3, 2), dtype)).shape == (3, 2)
    assert validation.rows([[1, 2], [3, 4]]).shape == (2, 2)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones(3), ValueError, r"^Z: expected a 2-d array \(rows, width\); got shape \(3,\);"),
        (3.0, ValueError, r"^Z: expected a 2-d array .* got shape \(\)"),
        (np.ones((1, 2, 3)), ValueError, r"^Z: .* got shape \(1, 2, 3\)$"),
        (np.ones((0, 3)), ValueError, r"^Z: expected at least one row .* got shape \(0, 3\)"),
        (np.ones((3, 0)), ValueError, r"^Z: expected at least one row and one column"),
        (torch.ones(0, 4), ValueError, "^Z: expected at least one row"),
        (np.ones((3, 5)), ValueError, "^Z: expected width 4, as at fitting; got 5; use embeddings"),
        (np.array([["a"] * 4]), TypeError, "^Z: expected real numbers; got dtype <U1; convert"),
        (np.ones((2, 4), complex), TypeError, "^Z: expected real numbers; got dtype complex128"),
        (np.array([[None] * 4]), TypeError, "^Z: expected real numbers; got dtype object"),
        (torch.ones(2, 4, dtype=torch.complex64), TypeError, "^Z: expected real numbers"),
        ([[1.0, 2.0], [1.0]], ValueError, "^Z: expected rows of one length"),
    ],
)
def test_bad_rows(X, error, message):
    with pytest.raises(error, match=message):
        validation.rows(X, "Z", width=4)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite_in_float32(kind, bad):
    X = np.zeros((5, 3))
    X[1, 2] = X[4, 0] = bad
    message = r"^X: expected finite float32 numbers; got NaN or infinity in 2 row\(s\), the"
    with pytest.raises(ValueError, match=message + " first is row 11; drop or repair"):
        validation.as_float32(kind(X), first_row=10)
    with pytest.raises(ValueError, match=message + " first is row 11; drop or repair"):
        as_tensor(kind(X), first_row=10)


def test_rows_become_float32(tmp_path):
    whole = np.arange(6).reshape(3, 2)
    np.save(tmp_path / "x.npy", whole.astype(np.float16))
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    for X in (whole, whole.astype(np.float16), whole.T.copy().T, torch.from_numpy(whole), stored):
        found = validation.as_float32(X)
        assert found.dtype == np.float32
        assert found.flags.writeable
        assert np.array_equal(found, whole)
        assert torch.equal(as_tensor(X), torch.arange(6.0).reshape(3, 2))
    last = validation.as_float32(whole.astype(np.float32)[2:3][::-1])  # a negative stride
    assert last.tolist() == [[4.0, 5.0]]
    learned = torch.ones(2, 2, requires_grad=True)
    assert not as_tensor(learned).requires_grad
    assert np.array_equal(validation.as_float32(learned.bfloat16()), np.ones((2, 2)))
    large = np.full((2, 2), 3e38, np.float32)  # whose sum no float32 holds
    assert validation.as_float32(large) is large


def test_chunks_cover_all_rows_once_and_name_the_bad_one():
    X = np.arange(14.0).reshape(7, 2)
    chunks = list(validation.chunks(X, 3))
    assert [(part.start, part.stop) for part, _ in chunks] == [(0, 3), (3, 6), (6, 7)]
    assert np.array_equal(np.concatenate([x for _, x in chunks]), X)
    X[5, 0] = np.nan
    with pytest.raises(ValueError, match="the first is row 5"):
        list(validation.chunks(X, 3))


def test_tensors_that_are_not_dense_are_refused():
    X = torch.ones(4, 3)
    for tensor in (X.to_sparse(), X.to("meta")):
        with pytest.raises(TypeError, match="expected a dense tensor of real numbers"):
            validation.rows(tensor)


def test_plain_rows_are_taken_as_they_are_and_others_as_scikit_learn_takes_them():
    X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    assert validation.embeddings(X) is X
    for same in (X.astype(np.float64), X.tolist(), np.asfortranarray(X), X[::-1][::-1]):
        found = validation.embeddings(same)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        assert np.array_equal(found, X)
    frozen = X.copy()
    frozen.flags.writeable = False
    assert validation.embeddings(frozen).flags.writeable
    assert min(validation.embeddings(X[:1][::-1]).strides) > 0
    large = np.full((2, 3), 3e38, np.float32)  # whose sum no float32 holds
    assert np.array_equal(validation.embeddings(large), large)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        validation.embeddings(X)
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        validation.embeddings(X[:0])

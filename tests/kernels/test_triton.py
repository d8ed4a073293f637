"""The Triton kernels against the oracles; without a GPU, in Triton's interpreter."""

import pytest
import torch

pytest.importorskip("triton")

from dkvb.kernels.kmeans import oracle as plain_accumulate
from dkvb.kernels.kmeans import triton as accumulate
from dkvb.kernels.sgd import gram
from dkvb.kernels.sgd import oracle as plain_descend
from dkvb.kernels.sgd import triton as descend

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")

# n, g, K, d, batch size
EMA_SHAPES = [(1, 1, 1, 1, 1), (53, 3, 37, 5, 16), (41, 2, 130, 14, 41), (20, 1, 7, 96, 64)]
# n, C, K, Y, batch size: classes 2 to 1000
DESCEND_SHAPES = [
    (1, 1, 1, 2, 1),
    (29, 7, 11, 10, 16),
    (13, 5, 4, 16, 13),
    (11, 3, 5, 77, 8),
    (9, 3, 6, 1000, 7),
    (17, 33, 300, 3, 17),
]
# Of values themselves, and of the Gram matrix of codes where it is for so many classes.
WAYS = [("values", shape) for shape in DESCEND_SHAPES]
WAYS += [("gram", shape) for shape in [*DESCEND_SHAPES[:3], (60, 5, 6, 10, 64)]]


def by(way, monkeypatch):
    """Let `descend` take one of its two ways, whatever is faster."""
    most = float("inf") if way == "gram" else 0
    monkeypatch.setattr(gram, "COMPARISONS", most)
    monkeypatch.setattr(gram, "COMPARISONS_IN_ORDER", most)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def ema_start(n, g, K, d):
    torch.manual_seed(n + K)
    heads, keys = torch.randn(n, g, d, device=DEVICE), torch.randn(g, K, d, device=DEVICE)
    # In quarters, which products and sums of float32 keep exactly: keys drawn from the same row tie
    # in whatever order the interpreter's matrix product, each processor's own, adds up.
    heads = (4 * heads).round() / 4
    orders = torch.stack([torch.randperm(n) for _ in range(2)]).to(DEVICE)
    return heads, [keys, torch.ones(g, K, device=DEVICE), keys.clone()], orders


def descend_start(n, C, K, Y, epochs=2, seed=0):
    torch.manual_seed(n + Y + seed)
    orders = torch.stack([torch.randperm(n) for _ in range(epochs)])
    codes = torch.randint(K, (n, C), dtype=torch.int32)
    values = 0.5 * torch.randn(C, K, Y)
    return [t.to(DEVICE) for t in (values, codes, torch.randint(Y, (n,)), orders)]


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("shape", EMA_SHAPES)
def test_ema(shape, reset):
    n, g, K, d, batch_size = shape
    heads, ours, orders = ema_start(n, g, K, d)
    theirs = [tensor.clone() for tensor in ours]
    # A threshold that many keys fall below, again and again.
    settings = (orders, batch_size, 0.7, 0.3, 11, 5, 2, reset)
    accumulate.ema(heads, *ours, *settings)
    plain_accumulate.ema(heads, *theirs, *settings)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", EMA_SHAPES)
def test_a_pass_of_lloyd(shape):
    n, g, K, d, _ = shape
    heads, (keys, _, _), _ = ema_start(n, g, K, d)
    ours, theirs = accumulate.assign_sums(heads, keys), plain_accumulate.assign_sums(heads, keys)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    torch.testing.assert_close(ours[2], theirs[2])
    torch.testing.assert_close(ours[3], theirs[3])


def test_ema_of_numbers_beyond_float16():
    heads, ours, orders = ema_start(20, 2, 23, 3)
    heads, ours = heads * 2.0**20, [ours[0] * 2.0**20, ours[1], ours[2] * 2.0**20]
    theirs = [tensor.clone() for tensor in ours]
    accumulate.ema(heads, *ours, orders, 16, 0.8, 0.2, 1)
    plain_accumulate.ema(heads, *theirs, orders, 16, 0.8, 0.2, 1)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_ema_in_pieces_is_ema_at_once():
    heads, whole, orders = ema_start(40, 2, 23, 3)
    pieces = [tensor.clone() for tensor in whole]
    accumulate.ema(heads, *whole, orders, 16, 0.8, 0.2, 1)
    for epoch in range(2):  # three batches each, the last one of eight rows
        accumulate.ema(heads, *pieces, orders[epoch], 16, 0.8, 0.2, 1, 0, 3 * epoch)
    for mine, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(mine, expected)


@needs_gpu
@pytest.mark.parametrize("reset", [True, False])
def test_ema_of_recorded_batches(reset):
    heads, ours, orders = ema_start(1003, 3, 37, 5)  # 63 batches each, the last one of 11 rows
    theirs = [tensor.clone() for tensor in ours]
    settings = (orders, 16, 0.9, 0.1, 11, 5, 2, reset)
    accumulate.ema(heads, *ours, *settings)
    plain_accumulate.ema(heads, *theirs, *settings)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("way", "shape"), WAYS)
def test_descend(way, shape, smoothing, monkeypatch):
    by(way, monkeypatch)
    n, C, K, Y, size = shape
    values, codes, y, orders = descend_start(n, C, K, Y)
    expected = values.clone()
    lr = 0.7 * C  # large enough for every column to move
    descend.descend(values, codes, y, orders, size, lr, smoothing)
    plain_descend.descend(expected, codes, y, orders, size, lr, smoothing)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(("way", "shape"), WAYS)
def test_descend_in_a_fixed_order(way, shape, monkeypatch):
    by(way, monkeypatch)
    n, C, K, Y, size = shape
    values, codes, y, orders = descend_start(n, C, K, Y, epochs=1)
    expected, again = values.clone(), values.clone()
    descend.descend(values, codes, y, orders, size, 0.7 * C, 0.1)
    descend.descend(again, codes, y, orders, size, 0.7 * C, 0.1)
    plain_descend.descend(expected, codes, y, orders, size, 0.7 * C, 0.1)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(values, again)


@needs_gpu
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("way", ["values", "gram"])
def test_the_fixed_order_gives_the_same_bits_on_many_programs(way, monkeypatch):
    by(way, monkeypatch)
    values, codes, y, orders = descend_start(2000, 64, 50, 10, epochs=5)
    results = [values.clone() for _ in range(3)]
    for result in results:
        descend.descend(result, codes, y, orders, 256, 0.3, 0.1)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("way", ["values", "gram"])
@pytest.mark.parametrize("fixed", [True, False])
def test_runs_side_by_side_are_runs_alone(fixed, way, request, monkeypatch):
    by(way, monkeypatch)
    if fixed:
        request.getfixturevalue("deterministic")
    values, codes, y, orders = (
        torch.stack(parts)
        for parts in zip(*(descend_start(21, 5, 4, 3, seed=i) for i in range(3)), strict=True)
    )
    alone = values.clone()
    descend.descend(values, codes, y, orders, 8, 2.0, 0.1)
    for i in range(3):
        plain_descend.descend(alone[i], codes[i], y[i], orders[i], 8, 2.0, 0.1)
    torch.testing.assert_close(values, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["values", "gram"])
def test_sixteen_bit_codes(way, monkeypatch):
    by(way, monkeypatch)
    values, codes, y, orders = descend_start(21, 5, 4, 3)
    expected = values.clone()
    descend.descend(values, codes.to(torch.uint16), y, orders, 8, 2.0, 0.1)
    plain_descend.descend(expected, codes, y, orders, 8, 2.0, 0.1)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["values", "gram"])
def test_values_that_were_not_read_stay_bit_for_bit(way, monkeypatch):
    by(way, monkeypatch)
    values, codes, y, orders = descend_start(20, 5, 30, 10)
    values[0, 29] = torch.nan  # would spread if it were read
    codes[:, 0] %= 29
    before = values.clone()
    descend.descend(values, codes, y, orders, 8, 0.3, 0.1)
    read = torch.zeros(5, 30, dtype=torch.bool, device=DEVICE)
    read[torch.arange(5, device=DEVICE), codes.long()] = True
    assert torch.equal(values[~read].nan_to_num(), before[~read].nan_to_num())
    assert (values[read] != before[read]).any(dim=1).all()


@pytest.mark.parametrize("n_codebooks", [3, 256, 300])
def test_the_gram_matrix_counts_equal_codes(n_codebooks):
    torch.manual_seed(0)
    n = 70 if n_codebooks == 3 else 7
    codes = torch.randint(4, (1, n, n_codebooks), dtype=torch.int32, device=DEVICE)
    for dtype in (torch.int16 if n_codebooks > 256 else torch.uint8, torch.int16):
        expected = (codes[:, :, None] == codes[:, None]).sum(dim=3)
        expected.diagonal(dim1=1, dim2=2).zero_()
        found = gram.gram_matrix(codes)
        assert found.dtype == (torch.uint8 if n_codebooks < 256 else dtype)
        assert torch.equal(found[:, :n, :n].long(), expected)
        assert not found[:, n:].any()
        codes[0, n - 1] = codes[0, 2]  # in all codebooks: 256 needs more than eight bits


def test_epochs_that_visit_some_rows_or_some_twice(monkeypatch):
    by("gram", monkeypatch)
    values, codes, y, orders = descend_start(21, 5, 4, 3)
    for rows in (orders[:, :10], orders % 19):
        ours, expected = values.clone(), values.clone()
        descend.descend(ours, codes, y, rows, 8, 2.0, 0.1)
        plain_descend.descend(expected, codes, y, rows, 8, 2.0, 0.1)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_runs_that_share_codes_share_a_gram_matrix(monkeypatch):
    by("gram", monkeypatch)
    values, codes, y, orders = descend_start(21, 5, 4, 3)
    ours = torch.stack([values, 2 * values])
    expected = ours.clone()
    inputs = [tensor.expand(2, *tensor.shape) for tensor in (codes, y, orders)]
    descend.descend(ours, *inputs, 8, 2.0, 0.1)
    for own in expected:
        plain_descend.descend(own, codes, y, orders, 8, 2.0, 0.1)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("shape", [(700, 5, 4, 16, 13), (5000, 256, 64, 10, 256)])
def test_the_gram_matrix_on_many_programs(shape, monkeypatch):
    by("gram", monkeypatch)
    n, C, K, Y, size = shape
    parts = zip(*(descend_start(n, C, K, Y, epochs=3, seed=i) for i in range(5)), strict=True)
    values, codes, y, orders = (torch.stack(tensors) for tensors in parts)
    expected = values.clone()
    descend.descend(values, codes, y, orders, size, 0.7 * C, 0.1)
    for i in range(5):
        plain_descend.descend(expected[i], codes[i], y[i], orders[i], size, 0.7 * C, 0.1)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


def test_the_gram_matrix_pays_for_many_epochs_of_few_rows(monkeypatch):
    monkeypatch.setattr(gram, "_programs", lambda *_: 528)

    def pays(n, epochs, Y=10, batch_size=256):
        values, codes = torch.empty(1, 256, 4096, Y, device="meta"), torch.empty(1, n, 256)
        return gram.pays(values, codes, torch.empty(1, epochs, n, device="meta"), batch_size)

    assert pays(10_000, 2000)
    assert not pays(10_000, 1)
    assert not pays(10_000, 2000, Y=1000)
    assert not pays(10_000, 2000, batch_size=512)
    assert not pays(1_000_000, 2000)

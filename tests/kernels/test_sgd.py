"""SGD on values: against autograd, against the oracle, and what one step may touch."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dkvb.kernels.sgd import cpu, descend, oracle

# n, C, K, Y, batch size: classes 2 to 1000, books around the size of a block, one of everything
SHAPES = [
    (1, 1, 1, 2, 1),
    (107, 37, 11, 10, 16),
    (50, 16, 4, 16, 50),
    (31, 17, 5, 77, 8),
    (20, 3, 6, 1000, 7),
    (64, 33, 300, 3, 64),
]


def problem(n: int, C: int, K: int, Y: int, epochs: int = 2) -> tuple[Tensor, ...]:
    torch.manual_seed(n + Y)
    orders = torch.stack([torch.randperm(n) for _ in range(epochs)])
    codes = torch.randint(K, (n, C), dtype=torch.int32)
    return 0.5 * torch.randn(C, K, Y), codes, torch.randint(Y, (n,)), orders


def by_autograd(
    values: Tensor, codes: Tensor, y: Tensor, orders: Tensor, size: int, lr: float, smoothing: float
) -> Tensor:
    values = values.clone().requires_grad_()
    optimiser = torch.optim.SGD([values], lr=lr)
    books = torch.arange(values.shape[0])
    for order in orders:
        for rows in order.split(size):
            logits = values[books, codes[rows].long()].mean(1)
            optimiser.zero_grad()
            cross_entropy(logits, y[rows], label_smoothing=smoothing).backward()
            optimiser.step()
    return values.detach()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("module", [cpu, oracle])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_autograd(module, shape, smoothing):
    n, C, K, Y, size = shape
    values, codes, y, orders = problem(n, C, K, Y)
    lr = 0.7 * C  # large enough for every column to move
    expected = by_autograd(values, codes, y, orders, size, lr, smoothing)
    module.descend(values, codes, y, orders, size, lr, smoothing)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


def test_a_step_lowers_the_loss():
    values, codes, y, orders = problem(40, 5, 3, 4, epochs=1)

    def loss() -> float:
        return float(cross_entropy(values[torch.arange(5), codes.long()].mean(1), y))

    before = loss()
    cpu.descend(values, codes, y, orders, 40, lr=1.0)
    assert loss() < before


@pytest.mark.parametrize("Y", [5, 10, 37])
def test_the_padded_table_of_long_runs_gives_the_same(monkeypatch, Y):
    values, codes, y, orders = problem(90, 20, 7, Y)
    padded = values.clone()
    monkeypatch.setattr(cpu, "LONG", 1 << 40)
    cpu.descend(values, codes, y, orders, 32, 3.0, 0.1)
    monkeypatch.setattr(cpu, "LONG", 0)
    cpu.descend(padded, codes, y, orders, 32, 3.0, 0.1)
    assert torch.equal(values, padded)


def test_values_that_were_not_read_stay_bit_for_bit():
    values, codes, y, orders = problem(30, 20, 100, 10)
    values[0, 99] = torch.nan  # would spread if it were read
    codes[:, 0] %= 99
    before = values.clone()
    cpu.descend(values, codes, y, orders, 8, 0.3, 0.1)
    read = torch.zeros(20, 100, dtype=torch.bool)
    read[torch.arange(20), codes.long()] = True
    assert torch.equal(values[~read].nan_to_num(), before[~read].nan_to_num())
    assert (values[read] != before[read]).any(dim=1).all()


def test_any_thread_count_gives_the_same():
    values, codes, y, orders = problem(300, 50, 13, 10)
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2, 3, 4):
        torch.set_num_threads(count)
        results.append(values.clone())
        cpu.descend(results[-1], codes, y, orders, 256, 0.3, 0.1)
    torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results[1:])


def test_sixteen_bit_codes_strided_values_and_parts_of_the_rows():
    values, codes, y, orders = problem(40, 6, 5, 4)
    orders = orders[:, :17]  # an epoch need not visit every row
    strided = values.permute(2, 0, 1).contiguous().permute(1, 2, 0)  # (C, K, Y)
    oracle.descend(values, codes, y, orders, 8, 2.0, 0.1)
    cpu.descend(strided, codes.to(torch.uint16), y, orders, 8, 2.0, 0.1)
    torch.testing.assert_close(strided, values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda codes, y, orders: codes.fill_(5), "codes: expected 0 to 4"),
        (lambda codes, y, orders: y.fill_(4), "columns: expected 0 to 3"),
        (lambda codes, y, orders: orders.fill_(40), "orders: expected rows 0 to 39; got 40"),
    ],
)
def test_what_points_outside_is_refused(change, message):
    values, codes, y, orders = problem(40, 6, 5, 4)
    before = values.clone()
    change(codes, y, orders)
    with pytest.raises(ValueError, match=message):
        cpu.descend(values, codes, y, orders, 8, 2.0)
    assert torch.equal(values, before)


def test_dispatch():
    values, codes, y, orders = problem(30, 4, 5, 3)
    plain = values.clone()
    descend(values, codes, y, orders, 8, 1.0, 0.1)
    descend(plain, codes, y, orders, 8, 1.0, 0.1, backend="oracle")
    torch.testing.assert_close(values, plain, rtol=1e-5, atol=1e-5)

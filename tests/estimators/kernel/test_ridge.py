"""Kernel ridge regression against obvious computations and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from dkvb.estimators.kernel.conjugate_gradients import (
    KernelOperator,
    conjugate_gradients,
    landmark_values,
    preconditioner,
)
from dkvb.estimators.kernel.functions import ARC_COSINE, RBF, KernelFunction
from dkvb.estimators.kernel.ridge import (
    Inverse,
    NotPositiveDefinite,
    _triangular_inverse,
    inverse_factor,
)

FUNCTIONS = [KernelFunction(RBF, 0.3), KernelFunction(ARC_COSINE)]


def problem(n=40, p=5, seed=0):
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(rng.normal(size=(n, p)))
    targets = torch.nn.functional.one_hot(torch.from_numpy(rng.integers(3, size=n)), 3).double()
    noise = torch.from_numpy(rng.uniform(0.1, 0.5, size=n))
    return z, targets, noise


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_solution_is_that_of_scikit_learn(function):
    z, targets, _ = problem()
    noise = torch.full((40,), 0.2, dtype=torch.float64)
    inverse, alpha, _ = Inverse.solve(function.matrix(z), noise, targets)
    torch.testing.assert_close(inverse @ targets, alpha)
    other = KernelRidge(alpha=0.2, kernel="precomputed").fit(function(z, z).numpy(), targets)
    np.testing.assert_allclose((inverse @ targets).numpy(), other.dual_coef_, atol=1e-9)
    x, _, _ = problem(7, seed=1)
    ours = function(x, z) @ (inverse @ targets)
    np.testing.assert_allclose(ours.numpy(), other.predict(function(x, z).numpy()), atol=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_leave_one_out_is_what_the_other_rows_predict(function):
    z, targets, noise = problem()
    _, alpha, diagonal = Inverse.solve(function.matrix(z), noise, targets)
    found = targets - alpha / diagonal[:, None]
    for i in range(len(z)):
        others = torch.arange(len(z)) != i
        system = function(z[others], z[others]) + noise[others].diag()
        apart = torch.linalg.solve(system, targets[others])
        torch.testing.assert_close(found[i], (function(z[i : i + 1], z[others]) @ apart)[0])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_appended_and_reweighted_give_the_inverse_of_all(function):
    z, targets, noise = problem()
    kernel = function.matrix(z)
    inverse, _, diagonal = Inverse.solve(kernel[:30, :30], noise[:30], targets[:30])
    for start, end in ((30, 31), (31, 40)):
        corner = kernel[start:end, start:end] + noise[start:end].diag()
        inverse, added = inverse.appended(kernel[:start, start:end], corner)
        diagonal = torch.nn.functional.pad(diagonal, (0, end - start)) + added.square().sum(dim=0)
    inverse, _, added = inverse.reweighted(3, -0.05)
    diagonal = diagonal + added[0].square()
    noise[3] -= 0.05
    _, alpha, whole_diagonal = Inverse.solve(kernel, noise, targets)
    torch.testing.assert_close(inverse @ targets, alpha)
    torch.testing.assert_close(diagonal, whole_diagonal)
    folded = inverse.folded(most=2)
    assert len(folded.added) == 0
    torch.testing.assert_close(folded @ targets, alpha)


def test_a_triangular_matrix_is_inverted_in_blocks(monkeypatch):
    monkeypatch.setattr("dkvb.estimators.kernel.ridge.BLOCK", 16)
    kernel = FUNCTIONS[0].matrix(problem()[0]) + torch.eye(40, dtype=torch.float64)
    lower = torch.linalg.cholesky(kernel)
    torch.testing.assert_close(_triangular_inverse(lower), torch.linalg.inv(lower))


def test_a_matrix_without_a_cholesky_factor_is_refused():
    with pytest.raises(NotPositiveDefinite):
        inverse_factor(-torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_conjugate_gradients_find_the_solution(function, stored):
    z, targets, noise = problem(300)
    kernel = KernelOperator.of(function, z, stored)
    precondition = preconditioner(kernel, 0.1, torch.arange(0, 300, 10))
    found, steps, residual = conjugate_gradients(kernel, noise, targets, precondition)
    _, exact, _ = Inverse.solve(function.matrix(z), noise, targets)
    assert residual < 1e-3
    assert steps < 100
    assert float((kernel @ (found - exact)).abs().max()) < 5e-3


def test_landmarks_that_are_all_rows_give_the_exact_solution():
    z, targets, _ = problem()
    function = FUNCTIONS[0]
    found = landmark_values(function, z, targets, 0.2, torch.arange(len(z)))
    noise = torch.full((40,), 0.2, dtype=torch.float64)
    _, exact, _ = Inverse.solve(function.matrix(z), noise, targets)
    torch.testing.assert_close(function(z, z) @ found, function(z, z) @ exact, atol=1e-5, rtol=0)


def test_the_arc_cosine_kernel_is_the_mean_of_products_of_rectified_projections():
    z, _, _ = problem(4, 3)
    rng = np.random.default_rng(0)
    w = torch.from_numpy(rng.normal(size=(3, 400_000)))
    rectified = (z @ w).clamp(min=0)
    mean = 2 * rectified @ rectified.T / w.shape[1]
    torch.testing.assert_close(FUNCTIONS[1](z, z), mean, atol=0.05, rtol=0.02)
    torch.testing.assert_close(FUNCTIONS[1].diagonal(z), FUNCTIONS[1](z, z).diagonal())

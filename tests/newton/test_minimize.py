"""Damped Newton of functions that need not be convex, against SciPy and against plain Newton."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, rosen
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.exceptions import TrainingError
from sstorch.newton import Gaussian, Problem, Smooth, System, newton

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Toy(Batched, Problem):
    """Functions of coefficients (D,) by autograd, each a member of the batch."""

    functions: tuple[Function, ...] = field(metadata=SHARED)
    which: Tensor  # function of each member, (K,)

    @override
    def value(self, theta: Tensor) -> Tensor:
        return torch.stack([self.functions[k](row) for k, row in zip(self.which, theta, strict=True)])

    @override
    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradients, matrices = [], []
        for k, row in zip(self.which, theta, strict=True):
            at = row.clone().requires_grad_()
            gradients.append(torch.autograd.grad(self.functions[k](at), at)[0])
            matrices.append(torch.autograd.functional.hessian(self.functions[k], row))
        return self.value(theta), torch.stack(gradients), torch.stack(matrices)


def convex(theta: Tensor) -> Tensor:
    return (theta - torch.arange(len(theta))).exp().sum() - theta.sum() + theta.square().sum() / 5


def valley(theta: Tensor) -> Tensor:
    """Rosenbrock's function: indefinite above the valley, minimum 0 at (1, ..., 1)."""
    return (100 * (theta[1:] - theta[:-1].square()).square() + (1 - theta[:-1]).square()).sum()


def mixture(theta: Tensor) -> Tensor:
    """Negative log-likelihood of a gate, two means and a log standard deviation: 300 rows, two components."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(2, 300, generator=generator, dtype=torch.float64)
    x = noise[0]
    y = torch.where(x + 0.3 * noise[1].sin() > 0, 1.5, -1.5) + noise[1]
    gate = torch.nn.functional.logsigmoid(torch.stack([theta[0] * x, -theta[0] * x]))
    error = (y - torch.stack([theta[1].expand(300), theta[2].expand(300)])) / theta[3].exp()
    return -torch.logsumexp(gate - error.square() / 2 - theta[3], 0).sum()


def members(*functions: Function) -> Toy:
    return Toy(functions, torch.arange(len(functions)))


def start(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def smallest_curvature(toy: Toy, theta: Tensor) -> list[float]:
    return torch.linalg.eigvalsh(toy.derivatives(theta)[2])[:, 0].tolist()


def test_indefinite_hessian_leads_to_the_minimum_that_scipy_finds() -> None:
    toy = members(convex, valley, mixture)
    theta = start([3.0, -2.0, 0.5, 2.0], [0.5, 1.0, -0.5, 2.0], [0.1, 0.2, -0.1, 0.0])
    assert smallest_curvature(toy, theta)[0] > 0
    assert max(smallest_curvature(toy, theta)[1:]) < 0
    found = newton(toy, Gaussian.flat(theta), theta)
    assert min(smallest_curvature(toy, found.theta)) > 0
    assert float(found.gradient.abs().max()) < 1e-5
    for k, function in enumerate(toy.functions):
        by_scipy = minimize(
            lambda row, function=function: float(function(torch.as_tensor(row))),
            found.theta[k].numpy() + 0.01,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 10_000, "maxfev": 10_000},
        )
        np.testing.assert_allclose(found.theta[k].numpy(), by_scipy.x, atol=1e-5)
    np.testing.assert_allclose(found.theta[1].numpy(), 1.0, atol=1e-6)
    assert float(found.theta[2, 0]) > 1  # the gate divides the rows
    assert rosen(found.theta[1].numpy()) < 1e-12


def test_positive_definite_member_takes_plain_newton_steps_whatever_the_others_are() -> None:
    toy, theta = members(convex, valley), start([1.0, 0.8, 2.1, 2.9], [-1.2, 1.0, -0.5, 2.0])
    prior = Gaussian(torch.full_like(theta, 0.1), torch.zeros_like(theta))
    found = newton(toy, prior, theta)
    row = theta[:1]
    for _ in range(30):
        _, gradient, hessian = members(convex).derivatives(row)
        matrix = hessian + torch.diag_embed(prior.precision[:1])
        slope = gradient + prior.gradient(row.expand(2, -1))[:1]
        step = torch.linalg.solve(matrix, slope)
        row = row - step
        if float((slope * step).sum()) / 2 <= 1e-9:
            break
    torch.testing.assert_close(found.theta[:1], row, rtol=0, atol=1e-14)


def test_start_next_to_a_saddle_point_leaves_it() -> None:
    # (a^2 - 1)^2 + b^2 has a saddle point at zero, where the decrement vanishes.
    toy = members(lambda theta: (theta[0].square() - 1).square() + theta[1].square())
    for first in (1e-9, -1e-9):
        found = newton(toy, Gaussian.flat(start([first, 0.0])), start([first, 0.0]))
        np.testing.assert_allclose(found.theta[0].numpy(), [np.sign(first), 0.0], atol=1e-8)


def test_values_that_are_not_defined_halve_the_step() -> None:
    toy = members(lambda theta: (theta - theta.log()).sum())  # Newton's step from 3 is -3
    found = newton(toy, Gaussian.flat(start([3.0])), start([3.0]))
    assert float(found.theta) == pytest.approx(1.0, abs=1e-8)


def test_step_size_limits_the_first_trial() -> None:
    tried = []

    @dataclass(frozen=True)
    class Limited(Toy):
        @override
        def step_size(self, step: Tensor) -> Tensor:
            return 0.5 / step.abs().amax(-1).clamp(min=0.5)

        @override
        def value(self, theta: Tensor) -> Tensor:
            tried.append(theta.clone())
            return super().value(theta)

    toy = Limited((convex,), torch.tensor([0]))
    found = newton(toy, Gaussian.flat(start([4.0, 4.0])), start([4.0, 4.0]))
    assert max(float((b - a).abs().max()) for a, b in pairwise(tried)) <= 0.5
    assert float(found.gradient.abs().max()) < 1e-8


def test_indefinite_system_is_that_of_the_matrix_with_a_share_of_its_diagonal_added() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64) / 4
    matrix = matrix + matrix.mT + torch.diag(torch.tensor([9.0, 0.5, 2.0, 3.0, 1.0]).double())
    matrix[0] += 3 * torch.eye(5).double()
    matrix[2, 3, 3] = -1.0
    system = System.of(matrix, torch.full((3, 5), 0.1, dtype=torch.float64))
    assert system.indefinite.tolist() == [False, bool(torch.linalg.eigvalsh(matrix[1])[0] < -0.1), True]
    eye = torch.eye(5, dtype=torch.float64).expand(3, -1, -1)
    damped = torch.linalg.inv(system.solve(eye))
    added = damped - matrix - 0.1 * eye
    assert (torch.linalg.eigvalsh(damped) > 0).all()
    torch.testing.assert_close(added, torch.diag_embed(added.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-8)
    torch.testing.assert_close(added[0], torch.zeros(5, 5).double(), rtol=0, atol=1e-10)
    ratio = added.diagonal(dim1=1, dim2=2) / (matrix.diagonal(dim1=1, dim2=2) + 0.1).abs()
    torch.testing.assert_close(ratio, ratio[:, :1].expand(-1, 5), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(system.variances(), torch.linalg.inv(damped).diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(system.log_determinant(), torch.logdet(damped))
    with pytest.raises(TrainingError, match="not finite"):
        System.of(torch.full((1, 2, 2), torch.nan, dtype=torch.float64), torch.zeros(1, 2).double())


def test_smooth_functions_of_data_are_fitted_each_to_its_own_data() -> None:
    # Exponential times without covariates: the rate is events over time at risk.
    generator = torch.Generator().manual_seed(4)
    time = torch.rand(3, 20, generator=generator, dtype=torch.float64) * torch.tensor([[1.0], [50.0], [0.01]])
    event = (torch.rand(3, 20, generator=generator) < 0.5).double()

    def loss(theta: Tensor, time: Tensor, event: Tensor) -> Tensor:
        return (theta.exp() * time - event * theta).sum(-1)

    theta = torch.zeros(3, 1, dtype=torch.float64)
    found = newton(Smooth(loss, (time, event)), Gaussian.flat(theta), theta)
    rate = event.sum(-1) / time.sum(-1)
    torch.testing.assert_close(found.theta[:, 0], rate.log(), rtol=0, atol=1e-8)
    torch.testing.assert_close(found.hessian[:, 0, 0], event.sum(-1), rtol=1e-6, atol=0)

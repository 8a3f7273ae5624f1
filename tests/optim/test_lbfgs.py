"""The batched L-BFGS against SciPy and torch, and its promises on independence, failure and compaction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize
from torch import Tensor

from sstorch.optim.batched_lbfgs import BatchedFunction, LBFGSOptions, Status, minimize
from tests.batches import AutogradFunction

TIGHT = LBFGSOptions(gradient_tolerance=1e-8, relative_tolerance=0.0)


class Rosenbrock:
    """Closed form and elementwise, so that a row does not depend on its batch."""

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x[:, 1:] - x[:, :-1] ** 2, 1 - x[:, :-1]
        gradient = torch.zeros_like(x)
        gradient[:, 1:] += 200 * a
        gradient[:, :-1] -= 400 * a * x[:, :-1] + 2 * b
        return (100 * a * a + b * b).sum(-1), gradient

    def select(self, problems: Tensor) -> Rosenbrock:
        return self


class Counting:
    """Counts calls and rows of another function."""

    def __init__(self, function: BatchedFunction, rows: list[int]) -> None:
        self.function, self.rows = function, rows

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.append(len(x))
        return self.function.value_and_gradient(x)

    def select(self, problems: Tensor) -> Counting:
        assert (problems.diff() > 0).all()
        return Counting(self.function.select(problems), self.rows)


def starts(n: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 1.5 * torch.randn(n, d, dtype=dtype, generator=torch.Generator().manual_seed(d))


def logistic(n_problems: int = 40, dtype: torch.dtype = torch.float64) -> tuple[AutogradFunction, Tensor]:
    """Ridge logistic regressions, each on data of its own, with badly scaled columns."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n_problems, 80, 8, generator=generator, dtype=torch.float64) * torch.logspace(0, 1, 8)
    positive = torch.rand(n_problems, 80, generator=generator) < torch.sigmoid(X.mean(-1))
    X, sign = X.to(dtype), torch.where(positive, 1.0, -1.0).to(dtype)

    def loss(beta: Tensor, problems: Tensor) -> Tensor:
        margin = sign[problems] * (X[problems] * beta[:, None, :]).sum(-1)
        return torch.nn.functional.softplus(-margin).mean(-1) + 0.01 * (beta * beta).sum(-1)

    return AutogradFunction(loss, n_problems), torch.zeros(n_problems, 8, dtype=dtype)


def rosenbrock(d: int) -> Callable[[], tuple[BatchedFunction, Tensor]]:
    return lambda: (Rosenbrock(), starts(50, d))


def with_scipy(function: BatchedFunction, x0: Tensor, options: LBFGSOptions) -> tuple[np.ndarray, np.ndarray]:
    """End values and evaluations of SciPy, one problem after the other."""
    values, evaluations = [], []
    for i, x in enumerate(x0):
        one = function.select(torch.tensor([i]))

        def value_and_gradient(v: np.ndarray, one: BatchedFunction = one) -> tuple[float, np.ndarray]:
            value, gradient = one.value_and_gradient(torch.from_numpy(v.copy())[None])
            return value.item(), gradient[0].numpy()

        settings = {
            "maxcor": options.history,
            "gtol": options.gradient_tolerance,
            "ftol": options.relative_tolerance,
        }
        end = scipy_minimize(value_and_gradient, x.numpy(), jac=True, method="L-BFGS-B", options=settings)
        values.append(end.fun)
        evaluations.append(end.nfev)
    return np.array(values), np.array(evaluations)


PROBLEMS = pytest.mark.parametrize(
    "problem", [rosenbrock(2), rosenbrock(10), logistic], ids=["rosenbrock 2", "rosenbrock 10", "logistic"]
)


@PROBLEMS
def test_agrees_with_scipy_at_no_more_evaluations(
    problem: Callable[[], tuple[BatchedFunction, Tensor]],
) -> None:
    function, x0 = problem()
    values, evaluations = with_scipy(function, x0, LBFGSOptions())
    result = minimize(function, x0)
    assert (result.status == Status.CONVERGED).all()
    np.testing.assert_allclose(result.value.numpy(), values, atol=1e-6)
    assert result.n_evaluations.double().mean() <= 1.25 * evaluations.mean()


def test_nan_start_is_reported_and_leaves_the_others_alone() -> None:
    x0 = starts(12, 5)
    poisoned = x0.clone()
    poisoned[4, 2] = torch.nan
    others = torch.arange(12) != 4
    clean, result = minimize(Rosenbrock(), x0), minimize(Rosenbrock(), poisoned)
    assert result.status[4] == Status.NON_FINITE
    assert torch.equal(result.x[4].isnan(), poisoned[4].isnan())
    for field in ("x", "value", "gradient_norm", "status", "n_evaluations"):
        assert torch.equal(getattr(result, field)[others], getattr(clean, field)[others])


def test_non_finite_gradient_at_the_start() -> None:
    function = AutogradFunction(lambda x, problems: x.sqrt().sum(-1), 1)
    assert minimize(function, torch.zeros(1, 2)).status.tolist() == [Status.NON_FINITE]


def test_steps_back_from_overflow() -> None:
    # One overflows far to the left, the other is undefined there; both have an interior minimum.
    def f(x: Tensor, problems: Tensor) -> Tensor:
        barrier = torch.where(problems[:, None] % 2 == 0, torch.exp(-300 * x) + x, -x.log() + x)
        return barrier.sum(-1)

    x0 = torch.tensor([[-2.0, 0.5], [1e-3, 30.0]], dtype=torch.float64)
    result = minimize(AutogradFunction(f, 2), x0, TIGHT)
    assert (result.status == Status.CONVERGED).all()
    torch.testing.assert_close(result.x[0], torch.full((2,), np.log(300) / 300, dtype=torch.float64))
    torch.testing.assert_close(result.x[1], torch.ones(2, dtype=torch.float64))


def test_rolls_back_where_every_trial_is_non_finite() -> None:
    x0 = torch.zeros(1, 3, dtype=torch.float64)

    def f(x: Tensor, problems: Tensor) -> Tensor:
        return torch.where((x == 0).all(-1), x.sum(-1), torch.inf)

    result = minimize(AutogradFunction(f, 1), x0)
    assert result.status.tolist() == [Status.NON_FINITE]
    assert torch.equal(result.x, x0)
    assert result.value.tolist() == [0.0]


def test_wrong_gradient_stalls() -> None:
    class Uphill(Rosenbrock):
        def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = super().value_and_gradient(x)
            return value, -gradient

    x0 = torch.tensor([[3.0, 1.0]], dtype=torch.float64)
    result = minimize(Uphill(), x0)
    assert result.status.tolist() == [Status.STALLED]
    assert torch.equal(result.x, x0)
    assert result.n_evaluations.tolist() == [21]


def test_alone_as_in_the_batch() -> None:
    x0 = starts(33, 7)
    batch = minimize(Rosenbrock(), x0)
    for i in range(0, 33, 4):
        alone = minimize(Rosenbrock(), x0[i : i + 1])
        assert torch.equal(alone.x[0], batch.x[i])
        assert alone.n_evaluations[0] == batch.n_evaluations[i]

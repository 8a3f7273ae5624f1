"""The batched L-BFGS against SciPy and torch, and its promises on independence, failure and compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits
from torch import Tensor

from sstorch.optim.batched_lbfgs import AutogradFunction, BatchedFunction, LBFGSOptions, Status, minimize


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Problems this small gain nothing from threads, which only wait for each other on a shared machine."""
    with threadpool_limits(1):
        yield


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
    assert result.n_iterations[4] == 0
    assert torch.equal(result.x[4].isnan(), poisoned[4].isnan())
    for field in ("x", "value", "gradient_norm", "status", "n_evaluations", "n_iterations"):
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


def test_unbounded_below_stays_finite() -> None:
    function = AutogradFunction(lambda x, problems: -torch.exp(x).sum(-1), 1)
    result = minimize(function, torch.zeros(1, 2, dtype=torch.float64))
    assert result.x.isfinite().all()
    assert result.value.isfinite().all()
    assert result.status.item() in (Status.NON_FINITE, Status.STALLED, Status.MAX_ITER)


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


@pytest.mark.parametrize("problem", [rosenbrock(10), logistic], ids=["rosenbrock", "logistic"])
def test_single_precision(problem: Callable[[], tuple[BatchedFunction, Tensor]]) -> None:
    exact = minimize(*problem(), TIGHT)
    function, x0 = (
        logistic(dtype=torch.float32) if problem is logistic else (Rosenbrock(), starts(50, 10).float())
    )
    for options in (LBFGSOptions(), TIGHT):
        result = minimize(function, x0, options)
        assert result.x.dtype == result.value.dtype == torch.float32
        assert (result.status == Status.CONVERGED).all()
        assert result.n_evaluations.max() < 300
    if problem is logistic:
        torch.testing.assert_close(result.value.double(), exact.value, atol=1e-5, rtol=0)
        torch.testing.assert_close(result.x.double(), exact.x, atol=2e-2, rtol=0)


def test_alone_as_in_the_batch() -> None:
    x0 = starts(33, 7)
    batch = minimize(Rosenbrock(), x0)
    for i in range(0, 33, 4):
        alone = minimize(Rosenbrock(), x0[i : i + 1])
        assert torch.equal(alone.x[0], batch.x[i])
        assert alone.n_evaluations[0] == batch.n_evaluations[i]


def test_checking_less_often_changes_nothing_but_the_calls() -> None:
    function, x0 = logistic()
    rare, often = (minimize(function, x0, LBFGSOptions(check_every=k)) for k in (7, 1))
    torch.testing.assert_close(rare.x, often.x, atol=1e-9, rtol=0)
    assert often.n_batched_evaluations == often.n_evaluations.max()
    assert 0 <= rare.n_batched_evaluations - rare.n_evaluations.max() < 7


def test_converged_problems_leave_the_batch() -> None:
    # Half the problems start at the solution, the others need unequal numbers of iterations.
    x0 = torch.cat((torch.ones(20, 4, dtype=torch.float64), starts(20, 4)))
    rows: list[int] = []
    result = minimize(Counting(Rosenbrock(), rows), x0)
    assert rows[0] == 40
    assert rows[1] == 20
    assert rows[-1] < 10
    assert len(rows) == result.n_batched_evaluations == result.n_evaluations.max()
    asked = int(result.n_evaluations.sum())
    assert asked <= sum(rows) <= asked / 0.8
    assert (result.n_iterations[:20] == 0).all()
    assert (result.status == Status.CONVERGED).all()


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_max_iterations(limit: int) -> None:
    x0 = torch.cat((starts(5, 3), torch.ones(1, 3, dtype=torch.float64)))
    start, _ = Rosenbrock().value_and_gradient(x0)
    result = minimize(Rosenbrock(), x0, LBFGSOptions(max_iterations=limit))
    assert result.status.tolist() == [Status.MAX_ITER] * 5 + [Status.CONVERGED]
    assert result.n_iterations.tolist() == [limit] * 5 + [0]
    assert ((result.value < start) == ((limit > 0) & (start > 0))).all()


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_max_evaluations(limit: int) -> None:
    x0 = starts(20, 3)
    start, _ = Rosenbrock().value_and_gradient(x0)
    result = minimize(Rosenbrock(), x0, LBFGSOptions(max_evaluations=limit))
    assert (result.status == Status.MAX_ITER).all()
    assert (result.n_evaluations == limit).all()
    assert (result.value <= start).all()


def test_reports_the_point_it_returns() -> None:
    function, x0 = logistic()
    for options in (LBFGSOptions(), LBFGSOptions(max_iterations=3), LBFGSOptions(max_evaluations=5), TIGHT):
        result = minimize(function, x0, options)
        value, gradient = function.value_and_gradient(result.x)
        torch.testing.assert_close(result.value, value, atol=1e-14, rtol=0)
        torch.testing.assert_close(result.gradient_norm, gradient.abs().amax(-1), atol=1e-13, rtol=0)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty(shape: tuple[int, int]) -> None:
    result = minimize(
        Rosenbrock() if shape[1] else AutogradFunction(lambda x, i: x.sum(-1), 3), torch.zeros(shape)
    )
    assert result.x.shape == shape
    assert result.status.tolist() == [Status.CONVERGED] * shape[0]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_grad_mode_of_the_caller(mode: Callable[[], torch.no_grad]) -> None:
    function, x0 = logistic()
    expected = minimize(function, x0.clone().requires_grad_())
    assert not expected.x.requires_grad
    assert not expected.value.requires_grad
    with mode():
        result = minimize(function, x0)
    assert torch.equal(result.x, expected.x)


def test_errors_name_what_was_found() -> None:
    with pytest.raises(ValueError, match=r"floating point \(R, d\), found torch.int64"):
        minimize(Rosenbrock(), torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"returned shapes \(\) and \(2, 2\)"):
        minimize(_Scalar(), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"c1 = 0\.5"):
        LBFGSOptions(c1=0.5)
    with pytest.raises(ValueError, match="history must be at least 1"):
        LBFGSOptions(history=0)
    with pytest.raises(ValueError, match="gradient_tolerance must not be negative, found nan"):
        LBFGSOptions(gradient_tolerance=float("nan"))


class _Scalar(Rosenbrock):
    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = super().value_and_gradient(x)
        return value.sum(), gradient


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda() -> None:
    x0 = starts(50, 10)
    cpu, first, second = (minimize(Rosenbrock(), x.clone(), TIGHT) for x in (x0, x0.cuda(), x0.cuda()))
    assert first.x.is_cuda
    assert torch.equal(first.x, second.x)
    torch.testing.assert_close(first.value.cpu(), cpu.value, atol=1e-9, rtol=0)

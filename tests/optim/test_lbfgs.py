"""Batched L-BFGS against SciPy, its promises on independence and failure, and metrics of its directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize
from torch import Tensor

from sstorch.nn import HazardFamily, LogisticHazard, LogLogistic
from sstorch.objective import TrainingObjective
from sstorch.objective.penalties import NormalPrior
from sstorch.objective.rows import problem_blocks
from sstorch.optim import LBFGSOptions, Status, minimize
from sstorch.optim.batched_lbfgs import BatchedFunction, BlockMetric
from sstorch.optim.steps import Batch, Step, lbfgs
from sstorch.optim.working_sets import joint_step, leaf_step, logistic_step
from tests.batches import AutogradFunction, random_sample, random_tree

TIGHT = LBFGSOptions(gradient_tolerance=1e-9, relative_tolerance=0.0)


class Rosenbrock:
    """Closed form and elementwise, so that a row does not depend on its batch; the gradient may be wrong."""

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x[:, 1:] - x[:, :-1] ** 2, 1 - x[:, :-1]
        gradient = torch.zeros_like(x)
        gradient[:, 1:] += 200 * a
        gradient[:, :-1] -= 400 * a * x[:, :-1] + 2 * b
        return (100 * a * a + b * b).sum(-1), self.sign * gradient

    def select(self, problems: Tensor) -> Rosenbrock:
        return self


def starts(n: int, d: int) -> Tensor:
    return 1.5 * torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d))


def logistic() -> tuple[BatchedFunction, Tensor]:
    """Forty ridge logistic regressions, each on data of its own, with badly scaled columns."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 80, 8, generator=generator, dtype=torch.float64) * torch.logspace(0, 1, 8)
    positive = torch.rand(40, 80, generator=generator) < torch.sigmoid(X.mean(-1))
    sign = torch.where(positive, 1.0, -1.0).double()

    def loss(beta: Tensor, problems: Tensor) -> Tensor:
        margin = sign[problems] * (X[problems] * beta[:, None, :]).sum(-1)
        return torch.nn.functional.softplus(-margin).mean(-1) + 0.01 * (beta * beta).sum(-1)

    return AutogradFunction(loss, 40), torch.zeros(40, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    "problem", [lambda: (Rosenbrock(), starts(50, 2)), lambda: (Rosenbrock(), starts(50, 10)), logistic]
)
def test_minima_are_those_of_scipy_at_no_more_evaluations(
    problem: Callable[[], tuple[BatchedFunction, Tensor]],
) -> None:
    (function, x0), options, found = problem(), LBFGSOptions(), []
    for i, x in enumerate(x0):
        one = function.select(torch.tensor([i]))

        def value_and_gradient(v: np.ndarray, one: BatchedFunction = one) -> tuple[float, np.ndarray]:
            value, gradient = one.value_and_gradient(torch.from_numpy(v.copy())[None])
            return value.item(), gradient[0].numpy()

        tolerances = {"gtol": options.gradient_tolerance, "ftol": options.relative_tolerance}
        settings = {"maxcor": options.history, **tolerances}
        end = scipy_minimize(value_and_gradient, x.numpy(), jac=True, method="L-BFGS-B", options=settings)
        found.append((end.fun, end.nfev))
    values, evaluations = np.array(found).T
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
    root = AutogradFunction(lambda x, problems: x.sqrt().sum(-1), 1)
    assert minimize(root, torch.zeros(1, 2)).status.tolist() == [Status.NON_FINITE]


def test_steps_back_from_overflow() -> None:
    # One overflows far to the left, the other is undefined there; both have an interior minimum.
    def f(x: Tensor, problems: Tensor) -> Tensor:
        barrier = torch.where(problems[:, None] % 2 == 0, torch.exp(-300 * x) + x, -x.log() + x)
        return barrier.sum(-1)

    x0 = torch.tensor([[-2.0, 0.5], [1e-3, 30.0]], dtype=torch.float64)
    result = minimize(AutogradFunction(f, 2), x0, LBFGSOptions(gradient_tolerance=1e-8, relative_tolerance=0))
    assert (result.status == Status.CONVERGED).all()
    torch.testing.assert_close(result.x[0], torch.full((2,), np.log(300) / 300, dtype=torch.float64))
    torch.testing.assert_close(result.x[1], torch.ones(2, dtype=torch.float64))


def test_start_stays_where_no_trial_is_finite_or_lower() -> None:
    x0 = torch.zeros(1, 3, dtype=torch.float64)
    spike = AutogradFunction(lambda x, _: torch.where((x == 0).all(-1), x.sum(-1), torch.inf), 1)
    result = minimize(spike, x0)
    assert result.status.tolist() == [Status.NON_FINITE]
    assert torch.equal(result.x, x0)
    assert result.value.tolist() == [0.0]
    x0 = torch.tensor([[3.0, 1.0]], dtype=torch.float64)
    result = minimize(Rosenbrock(sign=-1.0), x0)
    assert result.status.tolist() == [Status.STALLED]
    assert torch.equal(result.x, x0)
    assert result.n_evaluations.tolist() == [21]


def test_problem_alone_is_as_in_the_batch() -> None:
    x0 = starts(33, 7)
    batch = minimize(Rosenbrock(), x0)
    for i in range(0, 33, 4):
        alone = minimize(Rosenbrock(), x0[i : i + 1])
        assert torch.equal(alone.x[0], batch.x[i])
        assert alone.n_evaluations[0] == batch.n_evaluations[i]


# ------------------------------------------------------------------ metrics


def hessian(step: Step, x: Tensor) -> Tensor:
    columns, h = [], 1e-5
    for move in h * torch.eye(x.shape[1], dtype=x.dtype):
        ahead, behind = (step.value_and_gradient(x + side * move)[1] for side in (1, -1))
        columns.append((ahead - behind) / (2 * h))
    return torch.stack(columns, -1)


@pytest.mark.parametrize(
    "leaf",
    [
        "log_logistic",
        "spline_po",
        "weibull",
        "log_normal",
        LogLogistic(ancillary="linear"),
        LogisticHazard([0.3, 1.5]),
        LogisticHazard([0.2, 0.6, 1.5], ancillary="linear"),
    ],
    ids=str,
)
def test_leaf_blocks_are_the_hessian(leaf: str | HazardFamily) -> None:
    tree, sample = random_tree(3, 2, leaf), random_sample(3, n_splits=2)
    rows = sample.restrict(tree.visits(sample.x, 2))
    step = leaf_step(Batch(tree, TrainingObjective(0.02), rows), 2)
    (blocks,) = step.objective.curvature(step.read())
    whole, size = hessian(step, step.read()), blocks.shape[-1]
    for n in range(blocks.shape[1]):
        own = whole[:, n * size : (n + 1) * size, n * size : (n + 1) * size]
        torch.testing.assert_close(blocks[:, n], own, rtol=1e-4, atol=1e-6)
    assert float(whole[:, :size, size:].abs().max()) < 1e-6


@pytest.mark.parametrize("node", [1, 2])
def test_leaves_that_a_prior_binds_are_one_block(node: int) -> None:
    tree, sample = random_tree(3, 2, "spline_po"), random_sample(3, n_splits=2)
    given = torch.rand(3, 3, 3, dtype=torch.float64) + 0.1
    groups, one = torch.tensor([[0, 1, 2, 3]]).expand(3, -1), torch.ones(3).double()
    prior = NormalPrior(given[0], given[1], given[2, 0], given[2, 1], given[2], groups, one)
    rows = sample.restrict(tree.visits(sample.x, node))
    chance = (tree.apply_leaf(rows.x)[:, None] == torch.arange(4)[:, None]).double()
    places = slice(None) if node == 1 else slice(0, 2)
    step = leaf_step(Batch(tree, TrainingObjective(0.02).with_prior(prior), rows), node, chance[:, places])
    (block,) = step.objective.curvature(step.read())
    torch.testing.assert_close(block[:, 0], hessian(step, step.read()), rtol=1e-4, atol=1e-5)


def test_blocks_of_many_problems_and_shapes_are_those_of_each_alone() -> None:
    tree, sample = random_tree(5, 2, LogisticHazard(30)), random_sample(5, n_rows=900)
    step = joint_step(Batch(tree, TrainingObjective(), sample))
    together = step.objective.curvature(step.read())
    assert len(problem_blocks(5, 32 * 4 * 900, torch.device("cpu"))) == 5
    for k in range(5):
        alone = step.objective.select(slice(k, k + 1)).curvature(step.read()[k : k + 1])
        for whole, own in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[k : k + 1], own)


@pytest.mark.parametrize("kind", ["leaf", "logistic"])
def test_metric_saves_evaluations_to_the_same_minimum(kind: str) -> None:
    tree, sample = random_tree(6, 2), random_sample(6, n_splits=2, n_rows=200)
    # Columns far from zero and of different sizes.
    sample.x.to_dense().mul_(torch.tensor([1.0, 10.0, 0.1])).add_(2.0)
    batch = Batch(tree, TrainingObjective(0.02, 0.03), sample)
    step = leaf_step(batch, 1)
    if kind == "logistic":
        step = logistic_step(batch, 1, sample.log_time > 0, sample.weight)
        step.write(torch.zeros_like(step.read()))
    scaled = lbfgs(step.objective, step.read(), TIGHT)
    plain = minimize(step.objective, step.read(), TIGHT)
    torch.testing.assert_close(scaled.value, plain.value, rtol=1e-9, atol=1e-9)
    assert int(scaled.n_evaluations.sum()) < 0.5 * int(plain.n_evaluations.sum())


def test_blocks_that_are_not_definite_are_made_so() -> None:
    bad, good = torch.tensor([[[1.0, 3.0], [3.0, 1.0]], [[4.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    others = torch.zeros(2, 2, dtype=torch.float64), torch.full((2, 2), torch.nan, dtype=torch.float64)
    metric = BlockMetric.invert(torch.stack([bad, good, *others])[None])
    inverses = metric.inverses[0][0]
    torch.testing.assert_close(inverses[0], torch.eye(2).double(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(inverses[1], good.inverse(), rtol=1e-6, atol=1e-9)
    assert (torch.linalg.eigvalsh(inverses) > 0).all()
    gradient = torch.rand(1, 8, dtype=torch.float64)
    expected = torch.einsum("nij,nj->ni", inverses, gradient.reshape(4, 2)).flatten()
    torch.testing.assert_close(metric(gradient)[0], expected)


def test_first_search_that_fails_along_the_metric_is_repeated_along_steepest_descent() -> None:
    function = AutogradFunction(lambda x, _: (x.exp() - x).sum(-1), 1)
    far = BlockMetric((torch.full((1, 1, 1, 1), 1e12, dtype=torch.float64),))
    result = minimize(function, -torch.ones(1, 1, dtype=torch.float64), LBFGSOptions(), far)
    assert result.status.item() == Status.CONVERGED
    assert result.x.item() == pytest.approx(0.0, abs=1e-3)

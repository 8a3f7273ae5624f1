"""The curvature that scales the first direction of a step."""

import pytest
import torch
from torch import Tensor

from sstorch.nn import HazardFamily, LogisticHazard, LogLogistic
from sstorch.objective import TrainingObjective
from sstorch.objective.penalties import NormalPrior
from sstorch.objective.rows import problem_blocks
from sstorch.optim import LBFGSOptions, minimize
from sstorch.optim.batched_lbfgs import BlockMetric, Status
from sstorch.optim.steps import Batch, Step, lbfgs
from sstorch.optim.working_sets import joint_step, leaf_step, logistic_step
from tests.batches import AutogradFunction, random_sample, random_tree

OBJECTIVE = TrainingObjective(0.02, 0.03)


def _hessian(step: Step, x: Tensor) -> Tensor:
    columns, h = [], 1e-5
    for move in h * torch.eye(x.shape[1], dtype=x.dtype):
        ahead, behind = (step.value_and_gradient(x + side * move)[1] for side in (1, -1))
        columns.append((ahead - behind) / (2 * h))
    return torch.stack(columns, -1)


def _curvature(step: Step, x: Tensor) -> list[Tensor]:
    return list(step.objective.curvature(x))


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
    # A single leaf's block is all of its Hessian.
    step = leaf_step(Batch(tree, TrainingObjective(0.02), rows), 2)
    x = step.read()
    (blocks,) = _curvature(step, x)
    hessian, size = _hessian(step, x), blocks.shape[-1]
    for n in range(blocks.shape[1]):
        own = hessian[:, n * size : (n + 1) * size, n * size : (n + 1) * size]
        torch.testing.assert_close(blocks[:, n], own, rtol=1e-4, atol=1e-6)
    others = hessian[:, :size, size:]
    assert float(others.abs().max()) < 1e-6


@pytest.mark.parametrize("node", [1, 2])
def test_leaves_that_a_prior_binds_are_one_block(node: int) -> None:
    tree, sample = random_tree(3, 2, "spline_po"), random_sample(3, n_splits=2)
    given = torch.rand(3, 3, 3, dtype=torch.float64) + 0.1
    groups = torch.tensor([[0, 1, 2, 3]]).expand(3, -1)
    prior = NormalPrior(
        given[0], given[1], given[2, 0], given[2, 1], given[2], groups, torch.ones(3).double()
    )
    rows = sample.restrict(tree.visits(sample.x, node))
    chance = (tree.apply_leaf(rows.x)[:, None] == torch.arange(4)[:, None]).double()
    places = slice(None) if node == 1 else slice(0, 2)
    objective = TrainingObjective(0.02).with_prior(prior)
    step = leaf_step(Batch(tree, objective, rows), node, chance[:, places])
    (block,) = _curvature(step, step.read())
    torch.testing.assert_close(block[:, 0], _hessian(step, step.read()), rtol=1e-4, atol=1e-5)


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
def test_fewer_evaluations_for_the_same_minimum(kind: str) -> None:
    tree, sample = random_tree(6, 2), random_sample(6, n_splits=2, n_rows=200)
    # Columns far from zero and of different sizes.
    sample.x.to_dense().mul_(torch.tensor([1.0, 10.0, 0.1])).add_(2.0)
    left = sample.log_time > 0
    step: Step = leaf_step(Batch(tree, OBJECTIVE, sample), 1)
    if kind == "logistic":
        step = logistic_step(Batch(tree, OBJECTIVE, sample), 1, left, sample.weight)
        step.write(torch.zeros_like(step.read()))
    options = LBFGSOptions(gradient_tolerance=1e-9, relative_tolerance=0.0)
    scaled = lbfgs(step.objective, step.read(), options)
    plain = minimize(step.objective, step.read(), options)
    torch.testing.assert_close(scaled.value, plain.value, rtol=1e-9, atol=1e-9)
    assert int(scaled.n_evaluations.sum()) < 0.5 * int(plain.n_evaluations.sum())


def test_blocks_that_are_not_definite() -> None:
    bad = torch.tensor([[1.0, 3.0], [3.0, 1.0]], dtype=torch.float64)
    good = torch.tensor([[4.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    nothing = torch.zeros(2, 2, dtype=torch.float64)
    odd = torch.full((2, 2), torch.nan, dtype=torch.float64)
    metric = BlockMetric.invert(torch.stack([bad, good, nothing, odd])[None])
    torch.testing.assert_close(metric.inverses[0][0, 0], torch.eye(2).double(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(metric.inverses[0][0, 1], good.inverse(), rtol=1e-6, atol=1e-9)
    for k in (2, 3):
        assert torch.isfinite(metric.inverses[0][0, k]).all()
        assert (torch.linalg.eigvalsh(metric.inverses[0][0, k]) > 0).all()
    gradient = torch.rand(1, 8, dtype=torch.float64)
    expected = torch.einsum("nij,nj->ni", metric.inverses[0][0], gradient.reshape(4, 2)).flatten()
    torch.testing.assert_close(metric(gradient)[0], expected)


def test_first_search_that_fails_along_the_metric_is_repeated_along_steepest_descent() -> None:
    function = AutogradFunction(lambda x, _: (x.exp() - x).sum(-1), 1)
    far = BlockMetric((torch.full((1, 1, 1, 1), 1e12, dtype=torch.float64),))
    result = minimize(function, -torch.ones(1, 1, dtype=torch.float64), LBFGSOptions(), far)
    assert result.status.item() == Status.CONVERGED
    assert result.x.item() == pytest.approx(0.0, abs=1e-3)

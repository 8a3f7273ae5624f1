"""Gradients that are written out compared with plain autograd."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from sstorch.nn import DesignMatrix, HazardFamily, LogisticHazard, LogLogistic, Spline
from sstorch.nn.functional import sigmoid_and_softplus
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.training import leaf_losses
from sstorch.optim.steps import Batch, Step, by_autograd
from sstorch.optim.working_sets import branch_step, joint_step, leaf_step, logistic_step
from tests.batches import random_sample, random_tree, with_entry, within_intervals

LEAVES = [
    "exponential",
    "weibull",
    "log_logistic",
    "logistic_hazard",
    LogisticHazard([0.3, 1.5]),
    "spline_ph",
    "spline_po",
    LogLogistic(ancillary="linear"),
    Spline("hazard", knots=3, ancillary="linear"),
    Spline("odds", knots=0),
]


def _steps(depth: int, leaf: str | HazardFamily, sample: Sample) -> list[Step]:
    tree = random_tree(sample.n_problems, depth, leaf)
    objective = TrainingObjective(0.02, 0.03)
    rows = sample.restrict(tree.visits(sample.x, 2))
    left = tree.gate_logits(rows.x, [1]).squeeze(1) >= 0
    return [
        branch_step(Batch(tree, objective, sample), 1),
        branch_step(Batch(tree, objective, rows), 2),
        leaf_step(Batch(tree, objective, rows), 2),
        logistic_step(Batch(tree, objective, rows), 1, left, rows.weight),
        joint_step(Batch(tree, objective, sample)),
    ]


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("depth", [2, 3])
def test_every_step_equals_autograd(depth: int, leaf: str | HazardFamily) -> None:
    for step in _steps(depth, leaf, random_sample(4, n_splits=2, n_rows=50)):
        x = step.read()
        with torch.enable_grad():
            at = x.clone().requires_grad_()
            value = step.objective.data(at) + step.objective.penalty(at)
            (gradient,) = torch.autograd.grad(value.sum(), at)
        with patch("sstorch.optim.steps.by_autograd", _of_penalties_alone):
            own_value, own = step.value_and_gradient(x)
        torch.testing.assert_close(own_value, value.detach(), rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(own, gradient, rtol=1e-11, atol=1e-13)


def _of_penalties_alone(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    assert function.__name__ == "penalty"  # the rows' part has a closed form
    return by_autograd(function, x)


@pytest.mark.parametrize("leaf", ["log_normal", "spline_probit", *LEAVES], ids=str)
def test_row_derivatives_against_differences(leaf: str | HazardFamily) -> None:
    tree, sample = random_tree(2, 1, leaf), random_sample(2, n_rows=20)
    family, leaves = tree.family, tree.leaf_parameters()
    linear = leaves.linear_predictor(sample.x).detach()
    shape = leaves.shape_parameters(sample.x).detach().expand(*linear.shape, -1).clone()
    log_time, event = sample.log_time[:, None], sample.event[:, None]

    def loss(linear: Tensor, shape: Tensor) -> Tensor:
        return family.loss(log_time, event, linear, shape)

    value, slope, others = family.loss_and_gradient(log_time, event, linear, shape)
    torch.testing.assert_close(value, loss(linear, shape), rtol=1e-12, atol=1e-13)
    h = 1e-6
    difference = (loss(linear + h, shape) - loss(linear - h, shape)) / (2 * h)
    torch.testing.assert_close(slope, difference, rtol=1e-6, atol=1e-7)
    assert len(others) == shape.shape[-1]
    for k, other in enumerate(others):
        move = torch.zeros_like(shape)
        move[..., k] = h
        difference = (loss(linear, shape + move) - loss(linear, shape - move)) / (2 * h)
        torch.testing.assert_close(other, difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("leaf", "intercept"), [("exponential", 2e3), ("weibull", -2e3), ("spline_ph", 2e3)])
def test_a_leaf_that_overflows_where_nobody_goes_does_no_harm(leaf: str, intercept: float) -> None:
    tree, sample = random_tree(2, 2, leaf), random_sample(2, n_rows=30)
    with torch.no_grad():
        dict(tree.named_parameters())["gates.1.bias"].fill_(-2000.0)  # all rows go right at the root
        for node in (4, 5):
            dict(tree.named_parameters())[f"leaves.{node}.intercept"].fill_(intercept)
    assert bool(leaf_losses(tree, sample, (4, 5)).isinf().all())
    step = joint_step(Batch(tree, TrainingObjective(0.02, 0.03), sample))
    x = step.read()
    found = step.objective.data_and_gradient(x)
    value, gradient = by_autograd(step.objective.data, x)
    assert bool(value.isfinite().all())
    torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found[1], gradient, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("change", [with_entry, within_intervals])
def test_entry_times_and_intervals_take_the_plain_way(change: Callable[[Sample], Sample]) -> None:
    tree, sample = random_tree(2, 1), change(random_sample(2))
    step = leaf_step(Batch(tree, TrainingObjective(), sample), 1)
    without = leaf_step(Batch(tree, TrainingObjective(), random_sample(2)), 1)
    with patch("sstorch.optim.working_sets.leaf_value_and_gradient", None):
        value = step.value_and_gradient(step.read())[0]
        with pytest.raises(TypeError):
            without.value_and_gradient(without.read())
    assert not torch.equal(value, without.value_and_gradient(without.read())[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sigmoid_and_softplus(dtype: torch.dtype) -> None:
    z = torch.tensor([-1e4, -700.0, -80.0, -30.0, -1e-3, 0.0, 2.0, 40.0, 80.0, 700.0, 1e4], dtype=dtype)
    sigmoid, softplus = sigmoid_and_softplus(z)
    exact = z.double()
    torch.testing.assert_close(sigmoid, torch.sigmoid(exact).to(dtype))
    expected = exact.clamp(min=0) + torch.log1p(torch.exp(-exact.abs()))
    error = (softplus.double() - expected).abs() / exact.abs().clamp(min=1)
    assert float(error.max()) < 4 * torch.finfo(dtype).eps


def test_design_matrix_and_its_adjoint() -> None:
    generator = torch.Generator().manual_seed(1)
    x = DesignMatrix(torch.rand(2, 30, 4, generator=generator, dtype=torch.float64), (2, 1))
    kept = torch.stack([torch.randperm(30, generator=generator)[:12] for _ in range(3)])
    for design in (x, x.restrict(kept), DesignMatrix(x.to_dense(), x.counts, kept)):
        rows = design.n_rows
        theta = torch.rand(3, 2, 5, generator=generator, dtype=torch.float64)
        weight = torch.rand(3, 2, rows, generator=generator, dtype=torch.float64)
        scores = design.project(theta[..., :4], theta[..., 4])
        torch.testing.assert_close((scores * weight).sum(), (theta * design.pull_back(weight)).sum())
        split = torch.tensor([0, 0, 1])
        own = x.to_dense()[split] if design.rows is None else x.to_dense()[split[:, None], kept]
        extended = torch.nn.functional.pad(own, (0, 1), value=1.0)
        expected = torch.einsum("rkm,rmi,rmj->rkij", weight, extended, extended)
        torch.testing.assert_close(design.gram(weight), expected)
        some = design.select(slice(1, 3))
        torch.testing.assert_close(some.project(theta[1:, :, :4], theta[1:, :, 4]), scores[1:])


@pytest.mark.parametrize("leaf", ["exponential", "weibull", "log_logistic", "spline_ph", "spline_po"])
@pytest.mark.parametrize("shift", [-40.0, -12.0, 0.0, 12.0, 700.0])
def test_far_bounds_have_a_finite_gradient(leaf: str, shift: float) -> None:
    """Where both bounds are long before or after the events of a leaf, losses are large but tell a way."""
    tree, sample = random_tree(2, 1, leaf), within_intervals(random_sample(2, n_rows=30))
    with torch.no_grad():
        for node in (2, 3):
            dict(tree.named_parameters())[f"leaves.{node}.intercept"].add_(shift)
    step = joint_step(Batch(tree, TrainingObjective(), sample))
    x = step.read()
    value, gradient = step.objective.data_and_gradient(x)
    assert not value.isnan().any()
    if value.isfinite().all():
        assert gradient.isfinite().all()

"""The steps of the decomposition against the plain objective, with autograd as the reference."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sstorch.nn import HazardFamily, LogLogistic, SoftTree, Spline
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.penalties import Monotone
from sstorch.objective.training import expected_loss, leaf_losses
from sstorch.optim import LBFGSOptions, minimize
from sstorch.optim.steps import Batch, Step, by_autograd
from sstorch.optim.working_sets import LeafObjective, branch_step, joint_step, leaf_step, logistic_step
from tests.batches import blank_tree, random_sample, random_tree, to_device, with_entry, within_intervals
from tests.conftest import covering, devices

OBJECTIVE = TrainingObjective(0.02, 0.03)
# Families whose gradients are written out.
CLOSED = [
    "log_logistic",
    "weibull",
    "exponential",
    "spline_po",
    "spline_ph",
    "logistic_hazard",
    LogLogistic(ancillary="linear"),
    Spline("hazard", knots=1, ancillary="linear"),
    Spline("odds", knots=0),
]


def restricted(tree: SoftTree, rows: Sample, node: int) -> Tensor:
    """E restricted to the subtree under a node and to given rows, without caches."""
    probability = tree.log_leaf_probability(rows.x, node).exp() * rows.normalised_weight[:, None]
    losses = leaf_losses(tree, rows, tree.topology.leaves_under(node))
    return expected_loss(probability, losses) + OBJECTIVE.penalty(tree)


def check_gradient(step: Step, tree: SoftTree, rows: Sample, node: int) -> None:
    with patch("sstorch.optim.steps.by_autograd", _of_penalties_alone):
        value, gradient = step.value_and_gradient(step.read())
    expected = restricted(tree, rows, node)
    reference = torch.autograd.grad(expected.sum(), step.parameters)
    flat = torch.cat([g.reshape(tree.n_problems, -1) for g in reference], 1)
    torch.testing.assert_close(gradient, flat, rtol=1e-11, atol=1e-13)
    # Values agree up to what is constant in the step: the penalty that does not act.
    if step.name == "BN":
        value = value + OBJECTIVE.leaf_penalty(tree.leaf_parameters())
    elif step.name == "LN":
        value = value + OBJECTIVE.gate_penalty(tree.gate_parameters())
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)


def _of_penalties_alone(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    assert function.__name__ == "penalty"  # the rows' part has a closed form
    return by_autograd(function, x)


@pytest.mark.parametrize(("leaf", "depth"), covering(CLOSED, [1, 2, 3]), ids=str)
def test_steps_in_closed_form_are_the_restricted_objective(depth: int, leaf: str | HazardFamily) -> None:
    tree, sample = random_tree(5, depth, leaf), random_sample(5, n_splits=2)
    for node in tree.topology.branches:
        rows = sample.restrict(tree.visits(sample.x, node))
        branch = branch_step(Batch(tree, OBJECTIVE, rows), node)
        expected = [1] if node == 1 else tree.topology.branches_under(node)
        assert branch.parameters == tuple(p for n in expected for p in tree.gate(n).parameters())
        check_gradient(branch, tree, rows, node)
        leaves = leaf_step(Batch(tree, OBJECTIVE, rows), node)
        assert list(leaves.leaves) == tree.topology.leaves_under(node)
        check_gradient(leaves, tree, rows, node)
    joint = joint_step(Batch(tree, OBJECTIVE, sample))
    check_gradient(joint, tree, sample, 1)
    some = joint.objective.select(torch.tensor([2])).value_and_gradient(joint.read()[2:3])
    own = joint.value_and_gradient(joint.read())[1]
    torch.testing.assert_close(some[1], own[2:3], rtol=1e-11, atol=1e-14)


@devices
def test_logistic_step_equals_scikit_learn(device: str) -> None:
    tree, sample = random_tree(2, 1).to(device), to_device(random_sample(2, n_rows=80), device)
    left = sample.x.to_dense()[0, :, 0] + 0.3 * sample.log_time > 0.5
    weight = torch.where(left, 0.7, 1.9).to(sample.weight)
    step = logistic_step(Batch(tree, OBJECTIVE, sample), 1, left, weight)
    step.write(torch.zeros_like(step.read()))
    tight = LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0)
    result = minimize(step.objective, step.read(), tight)
    for r in range(2):
        peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
        peer.fit(sample.x.to_dense()[0].cpu(), left[r].cpu(), sample_weight=weight[r].cpu().numpy())
        np.testing.assert_allclose(result.x[r, :3].cpu(), peer.coef_[0], atol=1e-6)
        np.testing.assert_allclose(result.x[r, 3].cpu(), peer.intercept_[0], atol=1e-6)
    by_hand = by_autograd(step.objective.data, result.x)
    torch.testing.assert_close(step.objective.data_and_gradient(result.x), by_hand)


@pytest.mark.parametrize("change", [with_entry, within_intervals])
def test_entry_times_and_intervals_take_the_plain_way(change: Callable[[Sample], Sample]) -> None:
    tree, sample = random_tree(2, 1), change(random_sample(2))
    step = leaf_step(Batch(tree, TrainingObjective(), sample), 1)
    with patch.object(LeafObjective, "losses_and_gradient", None):
        value = step.value_and_gradient(step.read())[0]
    without = leaf_step(Batch(tree, TrainingObjective(), random_sample(2)), 1)
    assert not torch.equal(value, without.value_and_gradient(without.read())[0])


# ------------------------------------------------------------------ overflow


@pytest.mark.parametrize(("leaf", "intercept"), [("exponential", 2e3), ("weibull", -2e3), ("spline_ph", 2e3)])
def test_leaf_that_overflows_at_rows_of_probability_zero_changes_nothing(leaf: str, intercept: float) -> None:
    tree, sample = random_tree(2, 2, leaf), random_sample(2, n_rows=30)
    with torch.no_grad():
        tree.gate(1).bias.fill_(-2000.0)  # all rows go right at the root
        for node in (4, 5):
            tree.leaf(node).intercept.fill_(intercept)
    assert bool(leaf_losses(tree, sample, (4, 5)).isinf().all())
    step = joint_step(Batch(tree, OBJECTIVE, sample))
    found = step.objective.data_and_gradient(step.read())
    expected = by_autograd(step.objective.data, step.read())
    assert bool(expected[0].isfinite().all())
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_overflowing_leaf_leaves_gate_steps_finite() -> None:
    tree, sample = random_tree(1, 2, "weibull"), random_sample(1)
    with torch.no_grad():
        tree.leaf(5).shape.fill_(8.0)
        tree.leaf(5).intercept.fill_(-5.0)
    for node in (1, 2):
        step = branch_step(Batch(tree, OBJECTIVE, sample), node)
        value, gradient = step.value_and_gradient(step.read())
        assert torch.isfinite(value).all()
        assert torch.isfinite(gradient).all()


def test_rows_that_do_not_count_never_matter() -> None:
    """A row outside I_s that overflows, in a batch where another problem keeps all its rows."""
    sample, tree = random_sample(2, n_rows=40), random_tree(2, 0, "weibull")
    sample.log_time[1, 0] = 4000.0
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[1, 0] = False
    step = leaf_step(Batch(tree, OBJECTIVE, sample.restrict(keep)), 1)
    value, gradient = step.value_and_gradient(step.read())
    one = torch.tensor([1])
    own = leaf_step(Batch(tree.select(one), OBJECTIVE, sample.select(one).restrict(keep[1:])), 1)
    own_value, own_gradient = own.value_and_gradient(own.read())
    torch.testing.assert_close(value[1:], own_value)
    torch.testing.assert_close(gradient[1:], own_gradient)
    sample.weight[1, 0] = 0.0
    assert torch.isfinite(OBJECTIVE(tree, sample)).all()


@pytest.mark.parametrize(
    ("leaf", "shift"),
    covering(
        ["exponential", "weibull", "log_logistic", "spline_ph", "spline_po"], [-40.0, -12.0, 12.0, 700.0]
    ),
)
def test_far_bounds_have_a_finite_gradient(leaf: str, shift: float) -> None:
    """Where both bounds are long before or after the events of a leaf, losses are large but tell a way."""
    tree, sample = random_tree(2, 1, leaf), within_intervals(random_sample(2, n_rows=30))
    with torch.no_grad():
        for node in (2, 3):
            tree.leaf(node).intercept.add_(shift)
    step = joint_step(Batch(tree, TrainingObjective(), sample))
    value, gradient = step.objective.data_and_gradient(step.read())
    assert not value.isnan().any()
    if value.isfinite().all():
        assert gradient.isfinite().all()


# ------------------------------------------------------------------ features of gates and of leaves

CURVED = TrainingObjective(
    0.02,
    0.03,
    roughness=0.5,
    curved=torch.tensor([False, False, True, True]),
    monotone=Monotone(torch.full((4,), 10.0), torch.randn(4, 2, 4, dtype=torch.float64)),
)


def check_slope(step: Step, size: float) -> None:
    """The gradient along a direction is that of differences; a problem alone is as in the batch."""
    x = step.read()
    value, gradient = step.value_and_gradient(x)
    away = torch.randn(x.shape, dtype=torch.float64)
    ahead, behind = (step.value_and_gradient(x + h * away)[0] for h in (size, -size))
    torch.testing.assert_close((ahead - behind) / (2 * size), (gradient * away).sum(-1), rtol=1e-5, atol=1e-8)
    alone = step.objective.select(torch.tensor([1, 3]))
    torch.testing.assert_close(alone.value_and_gradient(x[[1, 3]])[0], value[[1, 3]])
    assert all(len(block) == 4 for block in step.objective.curvature(x))


@pytest.mark.parametrize(
    ("leaf", "depth"),
    covering(["log_logistic", "spline_ph", LogLogistic(ancillary="linear")], [0, 1, 2]),
    ids=str,
)
def test_gates_and_leaves_may_see_different_features(depth: int, leaf: str | HazardFamily) -> None:
    """Gates the first three of six features, leaves the last four; penalties that act on some of them."""
    family = random_tree(4, depth, leaf).family
    tree, sample = blank_tree(4, depth, family, (4,), n_gate_features=3), random_sample(4, n_splits=2, p=6)
    with torch.no_grad():
        for parameter in tree.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, dtype=torch.float64))
    x, gates, leaves = sample.x.to_dense(), tree.gate_parameters(), tree.leaf_parameters()
    x = x.repeat_interleave(2, 0)
    if depth:
        logits = torch.matmul(gates.weight, x[..., :3].mT) + gates.bias[..., None]
        torch.testing.assert_close(tree.gate_logits(sample.x), logits)
    linear = torch.matmul(leaves.slope, x[..., 2:].mT) + leaves.intercept[..., None]
    torch.testing.assert_close(tree.leaf_parameters().linear_predictor(sample.x), linear)
    joint = joint_step(Batch(tree, CURVED, sample))
    torch.testing.assert_close(joint.value_and_gradient(joint.read())[0], CURVED(tree, sample))
    check_slope(joint, 1e-6)
    for node in tree.topology.branches:
        rows = sample.restrict(tree.visits(sample.x, node))
        for kind in (branch_step, leaf_step):
            check_slope(kind(Batch(tree, CURVED, rows), node), 1e-6)

"""The steps of the decomposition against the plain objective, with autograd as the reference."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sstorch.nn import HazardFamily, LogLogistic, SoftTree, Spline
from sstorch.objective import Monotone, Sample, TrainingObjective, leaf_losses
from sstorch.objective.training import expected_loss
from sstorch.optim import LBFGSOptions, minimize
from sstorch.optim.steps import Batch, Step
from sstorch.optim.working_sets import BranchObjective, branch_step, joint_step, leaf_step, logistic_step
from tests.batches import blank_tree, random_sample, random_tree, to_device
from tests.conftest import devices

OBJECTIVE = TrainingObjective(0.02, 0.03)


def _restricted(tree: SoftTree, rows: Sample, node: int) -> Tensor:
    """E restricted to the subtree under a node and to given rows, without caches."""
    probability = tree.log_leaf_probability(rows.x, node).exp() * rows.normalised_weight[:, None]
    losses = leaf_losses(tree, rows, tree.topology.leaves_under(node))
    return expected_loss(probability, losses) + _gate_penalty(tree) + _leaf_penalty(tree)


def _gate_penalty(tree: SoftTree) -> Tensor:
    return OBJECTIVE.gate_penalty(tree.gate_parameters())


def _leaf_penalty(tree: SoftTree) -> Tensor:
    return OBJECTIVE.leaf_penalty(tree.leaf_parameters())


def _check_gradient(step: Step, tree: SoftTree, rows: Sample, node: int) -> None:
    value, gradient = step.value_and_gradient(step.read())
    reference = torch.autograd.grad(_restricted(tree, rows, node).sum(), step.parameters)
    flat = torch.cat([g.reshape(tree.n_problems, -1) for g in reference], 1)
    torch.testing.assert_close(gradient, flat, rtol=1e-11, atol=1e-13)
    # Values agree up to what is constant in the step: here, the penalty that does not act.
    frozen = _leaf_penalty if isinstance(step.objective, BranchObjective) else _gate_penalty
    torch.testing.assert_close(value + frozen(tree), _restricted(tree, rows, node), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "leaf",
    [
        "log_logistic",
        "weibull",
        "exponential",
        "spline_po",
        "spline_ph",
        "log_normal",
        LogLogistic(ancillary="linear"),
        Spline("hazard", knots=1, ancillary="linear"),
    ],
    ids=str,
)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_steps_equal_the_restricted_objective(depth: int, leaf: str | HazardFamily) -> None:
    tree, sample = random_tree(5, depth, leaf), random_sample(5, n_splits=2)
    for node in tree.topology.branches:
        rows = sample.restrict(tree.visits(sample.x, node))
        branch = branch_step(Batch(tree, OBJECTIVE, rows), node)
        expected = [1] if node == 1 else tree.topology.branches_under(node)
        assert branch.parameters == tuple(p for n in expected for p in tree.gate(n).parameters())
        _check_gradient(branch, tree, rows, node)
        leaves = leaf_step(Batch(tree, OBJECTIVE, rows), node)
        assert list(leaves.leaves) == tree.topology.leaves_under(node)
        _check_gradient(leaves, tree, rows, node)


def test_joint_step_is_the_whole_objective() -> None:
    tree, sample = random_tree(3, 2), random_sample(3)
    step = joint_step(Batch(tree, OBJECTIVE, sample))
    value, gradient = step.value_and_gradient(step.read())
    torch.testing.assert_close(value, OBJECTIVE(tree, sample))
    assert gradient.shape == (3, sum(p[0].numel() for p in tree.parameters()))
    some = step.objective.select(torch.tensor([2])).value_and_gradient(step.read()[2:])
    torch.testing.assert_close(some[1], gradient[2:], rtol=1e-11, atol=1e-14)


@devices
def test_logistic_step_equals_scikit_learn(device: str) -> None:
    tree, sample = random_tree(2, 1).to(device), to_device(random_sample(2, n_rows=80), device)
    left = sample.x.to_dense()[0, :, 0] + 0.3 * sample.log_time > 0.5
    weight = torch.where(left, 0.7, 1.9).to(sample.weight)
    step = logistic_step(Batch(tree, OBJECTIVE, sample), 1, left, weight)
    step.write(torch.zeros_like(step.read()))
    result = minimize(
        step.objective, step.read(), LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0)
    )
    for r in range(2):
        peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
        peer.fit(sample.x.to_dense()[0].cpu(), left[r].cpu(), sample_weight=weight[r].cpu().numpy())
        np.testing.assert_allclose(result.x[r, :3].cpu(), peer.coef_[0], atol=1e-6)
        np.testing.assert_allclose(result.x[r, 3].cpu(), peer.intercept_[0], atol=1e-6)


def test_an_overflowing_leaf_leaves_gate_steps_finite() -> None:
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


CURVED = TrainingObjective(
    0.02,
    0.03,
    roughness=0.5,
    curved=torch.tensor([False, False, True, True]),
    monotone=Monotone(torch.full((4,), 10.0), torch.randn(4, 2, 4, dtype=torch.float64)),
)


@pytest.mark.parametrize("leaf", ["log_logistic", "spline_ph", LogLogistic(ancillary="linear")], ids=str)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_gates_and_leaves_may_see_different_features(depth: int, leaf: str | HazardFamily) -> None:
    """Gates the first three of six features, leaves the last four; penalties that act on some of them."""
    family = random_tree(4, depth, leaf).family
    tree, sample = blank_tree(4, depth, family, (4,), n_gate_features=3), random_sample(4, n_splits=2, p=6)
    with torch.no_grad():
        for parameter in tree.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, dtype=torch.float64))
    gates = [sample.x.to_dense()[..., :3].repeat_interleave(2, 0), tree.gate_parameters()]
    if depth:
        torch.testing.assert_close(
            tree.gate_logits(sample.x), torch.matmul(gates[1].weight, gates[0].mT) + gates[1].bias[..., None]
        )
    slope, seen = tree.leaf_parameters().slope, sample.x.to_dense()[..., 2:].repeat_interleave(2, 0)
    linear = torch.matmul(slope, seen.mT) + tree.leaf_parameters().intercept[..., None]
    torch.testing.assert_close(tree.linear_predictor(sample.x), linear)
    joint = joint_step(Batch(tree, CURVED, sample))
    start = joint.read()
    value, gradient = joint.value_and_gradient(start)
    torch.testing.assert_close(value, CURVED(tree, sample))
    moved = torch.randn(start.shape, dtype=torch.float64)
    step = 1e-6 * moved
    ahead, behind = (joint.value_and_gradient(start + side * step)[0] for side in (1, -1))
    difference = (ahead - behind) / 2e-6
    torch.testing.assert_close(difference, (gradient * moved).sum(-1), rtol=1e-6, atol=1e-8)
    for node in tree.topology.branches:
        rows = sample.restrict(tree.visits(sample.x, node))
        for made in (
            branch_step(Batch(tree, CURVED, rows), node),
            leaf_step(Batch(tree, CURVED, rows), node),
        ):
            own, slope = made.value_and_gradient(made.read())
            away = torch.randn(slope.shape, dtype=torch.float64)
            ahead, behind = (made.value_and_gradient(made.read() + h * away)[0] for h in (1e-6, -1e-6))
            difference = (ahead - behind) / 2e-6
            torch.testing.assert_close(difference, (slope * away).sum(-1), rtol=1e-5, atol=1e-8)
            # A frozen step leaves what it does not train as it is, and the batch as its problems alone.
            alone = made.objective.select(torch.tensor([1, 3]))
            torch.testing.assert_close(alone.value_and_gradient(made.read()[[1, 3]])[0], own[[1, 3]])
            assert all(len(block) == 4 for block in made.objective.curvature(made.read()))

"""The training objective against plain loops, its derivatives, and penalties one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sstorch import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.nn import DesignMatrix, GateParameters, HazardFamily, LeafParameters, LogLogistic, SoftTree
from sstorch.nn.hazards.base import Ancillary
from sstorch.objective import GatePenalty, LeafPenalty, Ridge, Sample, SmallLeaves, TrainingObjective
from sstorch.objective.penalties import GateRidge, NormalPrior
from sstorch.optim.steps import Batch
from sstorch.optim.working_sets import joint_step
from tests.batches import blank_tree, random_sample, random_tree, with_entry, within_intervals
from tests.flat import soft_tree


def by_loops(tree: SoftTree, sample: Sample, ridge: float, gate_ridge: float) -> np.ndarray:
    """E of every problem in plain loops, log-logistic leaves, from the printed formulas."""
    split = np.repeat(np.arange(len(sample.x.counts)), sample.x.counts)
    values = []
    for r in range(tree.n_problems):
        total = penalty = 0.0
        gates = {n: tree.gate(n) for n in tree.topology.branches}
        leaves = {n: tree.leaf(n) for n in tree.topology.leaves}
        for i in range(sample.x.n_rows):
            x, t = sample.x.to_dense()[split[r], i].numpy(), float(sample.log_time[r, i].exp())
            c, w = float(sample.event[r, i]), float(sample.weight[r, i])
            for n, leaf in leaves.items():
                p = 1.0
                for gate, left in tree.topology.ancestors(n):
                    z = gates[gate].weight[r].detach().numpy() @ x + float(gates[gate].bias[r].detach())
                    p *= 1 / (1 + np.exp(-z if left else z))
                log_a = float(leaf.shape.detach()[r, 0])
                if leaf.shape_slope is not None:
                    log_a += float(leaf.shape_slope[r, 0].detach().numpy() @ x)
                mu = np.exp(leaf.slope[r].detach().numpy() @ x + float(leaf.intercept.detach()[r]))
                a, at_entry = np.exp(log_a), 1.0
                if sample.log_entry is not None:
                    at_entry = 1 / (1 + (np.exp(float(sample.log_entry[r, i])) / mu) ** a)
                survival = 1 / (1 + (t / mu) ** a)
                hazard = (a / mu) * (t / mu) ** (a - 1) / (1 + (t / mu) ** a)
                total += w * p * (np.log(at_entry) - np.log(survival) - c * np.log(hazard))
        for leaf in leaves.values():
            slopes = [leaf.slope[r], *([] if leaf.shape_slope is None else leaf.shape_slope[r])]
            penalty += ridge / 2 * sum(float(each.detach().square().sum()) for each in slopes)
        penalty += gate_ridge / 2 * sum(float(g.weight[r].detach().square().sum()) for g in gates.values())
        values.append(total / float(sample.weight[r].sum()) + penalty)
    return np.array(values)


@pytest.mark.parametrize("ancillary", ["constant", "linear"])
@pytest.mark.parametrize(("depth", "entry"), [(0, True), (1, False), (2, True)])
def test_objective_is_that_of_plain_loops(depth: int, entry: bool, ancillary: Ancillary) -> None:
    tree = random_tree(4, depth, LogLogistic(ancillary=ancillary))
    sample = random_sample(4, n_splits=2, n_rows=12)
    sample = with_entry(sample) if entry else sample
    sample.weight[0, 3] = 2.5
    value = TrainingObjective(0.3, 0.2)(tree, sample)
    np.testing.assert_allclose(value.detach(), by_loops(tree, sample, 0.3, 0.2), rtol=1e-12)


def test_penalties_may_differ_by_problem() -> None:
    tree, sample = random_tree(3, 2), random_sample(3)
    ridge = torch.tensor([0.0, 0.1, 2.0], dtype=torch.float64)
    scale = torch.tensor([[0.2, 1.0, 3.0], [0.5, 0.5, 0.5], [1.0, 2.0, 0.1]], dtype=torch.float64)
    gates, two = tree.gate_parameters(), torch.tensor([0, 2])
    for each in (
        scale[:, None],
        scale[:, None] * torch.tensor([[1.0], [0.0], [2.0]]),
    ):
        scaled = GateRidge(ridge, each)
        expected = ridge / 2 * (gates.weight * each).square().sum((1, 2))
        torch.testing.assert_close(scaled.select(two)(gates.select(two)), expected[two])
        curvature = (ridge[:, None, None] * each.square()).expand_as(gates.weight)
        torch.testing.assert_close(scaled.curvature(gates).weight, curvature)
    together = TrainingObjective(ridge, 2 * ridge)
    for r in range(3):
        alone = TrainingObjective(float(ridge[r]), float(2 * ridge[r]))(tree, sample)[r]
        torch.testing.assert_close(together(tree, sample)[r], alone, rtol=1e-14, atol=0)
    some = torch.tensor([0, 2])
    own = together.select(some)(tree.select(some), sample.select(some))
    torch.testing.assert_close(own, together(tree, sample)[some], rtol=1e-13, atol=0)


def test_restrict_gathers_rows_and_pads_with_an_own_row() -> None:
    sample = with_entry(random_sample(3, n_rows=6))
    keep = torch.tensor([[1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    part = sample.restrict(keep)
    assert part.n_rows.tolist() == [3, 1, 0]
    assert part.x.rows is not None
    assert part.x.rows[:2].tolist() == [[0, 2, 5], [4, 4, 4]]
    for name in ("log_time", "log_entry"):
        assert torch.equal(getattr(part, name)[0], getattr(sample, name)[0, [0, 2, 5]])
        assert torch.equal(getattr(sample.select(torch.tensor([1])), name)[0], getattr(sample, name)[1])
    assert part.weight[1].tolist() == [1.0, 0.0, 0.0]
    assert part.normalised_weight[2].tolist() == [0.0, 0.0, 0.0]
    # One problem that keeps every row must not let the others keep theirs.
    keep[0] = True
    assert sample.restrict(keep).n_rows.tolist() == [6, 1, 0]


# ------------------------------------------------------------------ derivatives for torch's own optimizers

LEAVES = ["weibull", "spline_po", "log_normal"]  # closed forms, and plain operations


@pytest.mark.parametrize(("leaf", "intervals"), [("weibull", False), ("spline_po", True)])
def test_gradients_reach_the_features_and_all_else_upstream(leaf: str, intervals: bool) -> None:
    tree, sample = random_tree(2, 2, leaf), random_sample(2, n_splits=2, n_rows=12)
    sample = within_intervals(sample) if intervals else sample
    objective, layer = TrainingObjective(0.1), nn.Linear(3, 3, dtype=torch.float64)

    def total(moved: Tensor | None = None) -> Tensor:
        matrices = layer(sample.x.to_dense()).sigmoid()
        matrices = matrices if moved is None else matrices.detach() + moved
        return objective(tree, replace(sample, x=DesignMatrix(matrices, sample.x.counts))).sum()

    total().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().max() > 1e-4
    moved = torch.zeros_like(sample.x.to_dense(), requires_grad=True)
    assert torch.autograd.gradcheck(total, moved, rtol=1e-4)
    weight = sample.weight.clone().requires_grad_()
    (slope,) = torch.autograd.grad(objective(tree, replace(sample, weight=weight)).sum(), weight)
    assert slope.abs().max() > 1e-4


class Value(nn.Module):
    """The objective of a tree as a module, whose parameters torch.func can replace."""

    def __init__(self, tree: SoftTree, objective: TrainingObjective) -> None:
        super().__init__()
        self.tree, self.objective = tree, objective

    def forward(self, sample: Sample) -> Tensor:
        return self.objective(self.tree, sample).sum()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore")  # those of torch itself
@pytest.mark.parametrize("leaf", LEAVES)
def test_second_derivatives_are_exact(leaf: str) -> None:
    tree, sample, objective = random_tree(1, 1, leaf), random_sample(1, n_rows=20), TrainingObjective(0.1)
    module = Value(tree, objective)
    shapes = {name: part.shape for name, part in module.named_parameters()}
    start = torch.cat([part.detach().flatten() for part in module.parameters()])

    def total(theta: Tensor) -> Tensor:
        parts = zip(shapes.items(), theta.split([shape.numel() for shape in shapes.values()]), strict=True)
        own = {name: value.reshape(shape) for (name, shape), value in parts}
        return torch.func.functional_call(module, own, sample)  # type: ignore[no-any-return]

    def slope(theta: Tensor) -> Tensor:
        at = theta.clone().requires_grad_()
        return torch.autograd.grad(total(at), at)[0]

    steps = 1e-5 * torch.eye(len(start), dtype=torch.float64)
    expected = torch.stack([(slope(start + step) - slope(start - step)) / 2e-5 for step in steps])
    assert expected.abs().max() > 0.05
    for found in (torch.func.hessian(total)(start), torch.autograd.functional.hessian(total, start)):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    step = joint_step(Batch(tree, objective, sample))
    at = step.read().requires_grad_()
    value = step.objective.data(at) + step.objective.penalty(at)
    (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), at)
    torch.testing.assert_close(second.norm(), (2 * expected @ slope(start)).norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("batch_shape", [(), (2, 3)])
def test_trees_that_are_no_batch_raise(batch_shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="batch_shape"):
        TrainingObjective()(blank_tree(3, 2, batch_shape=batch_shape), random_sample(6))


# ------------------------------------------------------------------ the prior of leaves


def prior_of(groups: list[list[int]], p: int = 3) -> NormalPrior:
    """A prior of problems with some groups of leaves, one slope of which is shared."""
    n, generator = len(groups), torch.Generator().manual_seed(2)
    common, own, centre = torch.rand(3, n, p, generator=generator, dtype=torch.float64).unbind()
    level, shape, factor = torch.rand(3, n, generator=generator, dtype=torch.float64).unbind()
    own[:, 1] = torch.inf
    return NormalPrior(common, own, level, shape, centre, torch.tensor(groups), factor)


@pytest.mark.parametrize("ancillary", ["constant", "linear"])
def test_prior_is_the_least_over_the_common_part(ancillary: Ancillary) -> None:
    """Common coefficients are found by least squares, and own ones are what is left."""
    tree, prior = random_tree(1, 2, LogLogistic(ancillary=ancillary)), prior_of([[0, 0, 1, 2]])
    prior.project(tree)
    parts = vars(tree.leaf_parameters()).values()
    leaves, chosen = LeafParameters(*(part.detach() for part in parts)), [0, 2, 3]  # one of each group
    slopes = [leaves.slope[0, chosen], *leaves.shape_slope[0, chosen].unbind(1)]
    level = leaves.intercept[0, chosen] + leaves.slope[0, chosen] @ prior.centre[0]
    expected = 0.0
    for slope in slopes:
        assert float(slope[:, 1].std()) < 1e-12
        for j in range(3):
            common, own, values = float(prior.common[0, j]), float(prior.own[0, j]), slope[:, j].numpy()
            shared = own * values.sum() / (common + 3 * own)
            expected += common * shared**2 / 2 + own * ((values - shared) ** 2).sum() / 2
    for precision, values in ((prior.level, level), (prior.shape, leaves.shape[0, chosen, 0])):
        expected += float(precision[0] * (values - values.mean()).square().sum() / 2)
    assert float(prior(leaves)) == pytest.approx(float(prior.coefficient[0]) * expected, rel=1e-6)


@pytest.mark.parametrize("leaf", [LogLogistic(ancillary="linear"), "spline_po"])
def test_hessian_of_the_prior_is_that_of_autograd(leaf: str | HazardFamily) -> None:
    tree, prior = random_tree(2, 2, leaf), prior_of([[0, 0, 1, 2], [0, 1, 2, 3]])
    leaves = tree.leaf_parameters()
    p, m, flat = leaves.slope.shape[-1], leaves.shape.shape[-1], leaves.flatten().detach()
    for k in range(2):
        own = prior.select(torch.tensor([k]))

        def value(x: Tensor, own: NormalPrior = own) -> Tensor:
            return own(LeafParameters.unflatten(x[None], p, m)).sum()

        found, size = prior.hessian(leaves)[k], flat[k].numel()
        expected = torch.autograd.functional.hessian(value, flat[k])
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-6)
        diagonal = found.reshape(size, size).diagonal().reshape(flat[k].shape)
        torch.testing.assert_close(prior.curvature(leaves).flatten()[k], diagonal)


def test_projection_of_the_prior_leaves_what_is_tied_equal() -> None:
    tree, prior = random_tree(1, 2, "weibull"), prior_of([[0, 0, 1, 2]])
    before = float(prior(tree.leaf_parameters()).detach())
    TrainingObjective().with_prior(prior).project(tree)
    leaves = tree.leaf_parameters()
    for part in vars(leaves).values():
        torch.testing.assert_close(part[:, 0], part[:, 1])
    torch.testing.assert_close(leaves.slope[0, :, 1], leaves.slope[0, :1, 1].expand(4))
    assert float(prior(leaves).detach()) < 1e-3 * before


# ------------------------------------------------------------------ custom penalties


class Orthogonal(GatePenalty):
    """Squared cosines between gates, with autograd alone."""

    def forward(self, gates: GateParameters) -> Tensor:
        w = nn.functional.normalize(gates.weight, dim=-1, eps=1e-6)
        return self.at(w) * (w @ w.mT).triu(1).square().sum((-2, -1))


class Level(LeafPenalty):
    """Squared intercepts."""

    def forward(self, leaves: LeafParameters) -> Tensor:
        return self.at(leaves.intercept) * leaves.intercept.square().sum(-1)


def test_curvature_of_penalties_comes_from_autograd() -> None:
    linear = random_tree(3, 2, LogLogistic(ancillary="linear")).leaf_parameters()
    for own, expected in (
        (Ridge(0.4), {"slope": 0.4, "shape_slope": 0.4}),
        (Level(0.1), {"intercept": 0.2}),
    ):
        for name, found in vars(own.curvature(linear)).items():
            torch.testing.assert_close(found, torch.full_like(found, expected.get(name, 0.0)))
    batch = random_tree(3, 2, "weibull")
    objective = TrainingObjective(own=[Orthogonal(0.5), Level(0.1)])
    assert (objective.gate_curvature(batch.gate_parameters())[..., :-1] > 0).any()
    curvature = objective.leaf_curvature(batch.leaf_parameters())
    assert float(curvature.sum()) == pytest.approx(3 * 4 * 0.2)  # of the intercepts of three trees
    alone = batch.select(1)
    value = objective.penalty(alone)
    torch.testing.assert_close(value, objective.penalty(batch)[1])
    x, time = torch.rand(20, 3).double(), torch.rand(20).double() + 0.1
    (alone(x).nll(time, torch.ones(20)) + value).backward()
    assert alone.gate(2).weight.grad is not None


# ------------------------------------------------------------------ leaves with too few of the rows


def rows_of_three_trees(depth: int) -> tuple[SoftTree, Sample]:
    tree, sample = random_tree(3, depth, "weibull"), random_sample(3, n_rows=14)
    sample.weight[0, 3], sample.weight[1, :4] = 2.5, 0.0
    return tree, sample


def mass_of_leaves(tree: SoftTree, sample: Sample) -> np.ndarray:
    """Share of the rows in each leaf, (R, L)."""
    mass = (sample.weight[:, None] * tree.log_leaf_probability(sample.x).exp()).sum(-1)
    return (mass / sample.weight.sum(-1, keepdim=True)).detach().numpy()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_it_is_the_square_of_what_leaves_lack(depth: int) -> None:
    tree, sample = rows_of_three_trees(depth)
    expected = 7.0 * (np.maximum(0.3 - mass_of_leaves(tree, sample), 0) ** 2).sum(axis=1)
    objective = TrainingObjective(row_penalties=[SmallLeaves(7.0, 0.3)])
    np.testing.assert_allclose(objective.row_penalty(tree, sample).detach(), expected, atol=1e-14)
    assert (expected > 0).any() == (depth > 0)
    each = SmallLeaves(torch.tensor([1.0, 0.0, 7.0], dtype=torch.float64), 0.3)
    some = torch.tensor([0, 2])
    chosen = TrainingObjective(row_penalties=[each]).select(some)
    found = chosen.row_penalty(tree.select(some), sample.select(some)).detach()
    np.testing.assert_allclose(found, expected[[0, 2]] * [1 / 7, 1], atol=1e-14)
    assert TrainingObjective(row_penalties=[each]).terms(tree, sample, 1, of_gates=False) == ()


def test_trained_tree_has_no_small_leaves(gbsg2: SurvivalData) -> None:
    least = []
    for min_leaf in (None, 0.0, 0.1):
        tree = soft_tree(n_starts=2, min_leaf=min_leaf, gate_ridge=1e-4, trainer="joint", init="random")
        tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
        hard = np.bincount(tree.apply(gbsg2.frame), minlength=5)[1:] / len(gbsg2)
        least.append((tree.predict_leaf_proba(gbsg2.frame).mean(axis=0).min(), hard.min(), tree.objective_))
    assert least[0] == least[1]  # off by default
    assert max(least[0][:2]) < 0.03
    assert min(least[2][:2]) > 0.07
    assert least[2][0] > 0.09

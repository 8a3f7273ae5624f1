"""The parity penalty against pairs of rows, one by one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily, PiecewiseExponential, SoftTree, Spline
from sstorch.objective import L2Parity, RowPenalty, Sample, TrainingObjective, parity
from sstorch.objective.parity import GroupParity, log_time_quadrature
from sstorch.optim.steps import Batch, Step
from sstorch.optim.working_sets import BranchObjective, branch_step, joint_step, leaf_step
from tests.batches import random_sample, random_tree, with_groups
from tests.conftest import covering, nightly

RHO = torch.tensor([3.0, 0.5, 0.0, 7.0], dtype=torch.float64)
DEFAULT = L2Parity()


def _value(penalty: GroupParity, tree: SoftTree, sample: Sample, relaxed: bool = False) -> Tensor:
    return TrainingObjective(row_penalties=[penalty]).row_penalty(tree, sample, relaxed)


def _penalty(settings: L2Parity = DEFAULT, n_problems: int = 4, n_splits: int = 2) -> GroupParity:
    rng = np.random.default_rng(0)
    times = [rng.uniform(0.05, 4.0, 30 + 5 * k) for k in range(n_splits)]
    base = n_problems // n_splits
    counts = [base] * (n_splits - 1) + [n_problems - base * (n_splits - 1)]
    return settings.penalty(RHO[:n_problems], times, np.zeros(n_splits), counts)


def _curves(tree: SoftTree, sample: Sample, penalty: GroupParity, problem: int, relaxed: bool) -> Tensor:
    """S_i at the nodes (M, Q) by the prediction of the tree."""
    split = torch.repeat_interleave(torch.tensor(sample.x.counts))[problem]
    x = sample.x.to_dense()[split]
    if sample.x.rows is not None:
        x = x[sample.x.rows[problem]]
    times = penalty.log_time[problem].exp()
    return (tree(x) if relaxed else tree(x).most_probable()).survival(times)[problem]  # type: ignore[no-any-return]


def _by_pairs(tree: SoftTree, sample: Sample, penalty: GroupParity, relaxed: bool = False) -> Tensor:
    """rho times the mean over pairs, each formed."""
    values = []
    assert sample.group is not None
    for r in range(tree.n_problems):
        curves, group = _curves(tree, sample, penalty, r, relaxed), sample.group[r]
        weight = sample.weight[r]
        i, j = torch.triu_indices(len(group), len(group), 1)
        pair = weight[i] * weight[j] * (group[i] != group[j])
        squares = ((curves[i] - curves[j]).square() * penalty.measure[r]).sum(-1)
        total = (pair * squares).sum()
        values.append(penalty.coefficient[r] * total / pair.sum())
    return torch.stack(values)


def _check(value: Tensor, reference: Tensor, tree: SoftTree, rtol: float = 1e-10) -> None:
    torch.testing.assert_close(value, reference, rtol=rtol, atol=0)
    parameters = [p for p in tree.parameters() if p.numel()]
    found = torch.autograd.grad(value.sum(), parameters, allow_unused=True)
    expected = torch.autograd.grad(reference.sum(), parameters, allow_unused=True)
    for mine, theirs in zip(found, expected, strict=True):
        theirs = torch.zeros_like(mine) if theirs is None and mine is not None else theirs
        mine = torch.zeros_like(theirs) if mine is None and theirs is not None else mine
        if mine is not None:
            scale = float(theirs.abs().max())
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=rtol * scale)


LEAVES = ["log_logistic", "exponential", "log_normal", Spline("hazard", knots=1, ancillary="linear")]


@pytest.mark.parametrize(("leaf", "n_groups", "relaxed"), covering(LEAVES, [2, 3], [False, True], strength=2))
def test_against_pairs(leaf: str | HazardFamily, n_groups: int, relaxed: bool) -> None:
    tree, penalty = random_tree(4, 2, leaf), _penalty()
    sample = with_groups(random_sample(4, n_splits=2, n_rows=40), n_groups)
    sample.weight[:, 3] *= 2.5
    reference = _by_pairs(tree, sample, penalty, relaxed)
    assert bool((reference[RHO > 0] > 1e-4).all())
    _check(_value(penalty, tree, sample, relaxed=relaxed), reference, tree)


@pytest.mark.parametrize(("spread", "relaxed"), [(1e-2, False), (1e-4, True), (1e-6, False), (1e-6, True)])
def test_nearly_equal_curves(spread: float, relaxed: bool) -> None:
    """Where the curves nearly agree, the plain identity of moments has lost all digits."""
    tree, penalty = random_tree(4, 2), _penalty()
    with torch.no_grad():
        for node in tree.topology.leaves:
            leaf, first = tree.leaf(node), tree.leaf(4)
            for name in ("intercept", "shape"):
                value = getattr(leaf, name)
                value.copy_(getattr(first, name) + spread * value)
            leaf.slope.mul_(spread)
    sample = with_groups(random_sample(4, n_splits=2, n_rows=40))
    reference = _by_pairs(tree, sample, penalty, relaxed=relaxed)
    assert bool((reference < 100 * spread**2).all())
    # The curves themselves are rounded, at 1e-16 against a spread of 1e-6 and less.
    _check(_value(penalty, tree, sample, relaxed=relaxed), reference, tree, 1e-10 if spread > 1e-5 else 1e-8)


@pytest.mark.parametrize("kept", [0, 2**30])
@pytest.mark.parametrize("relaxed", [False, True])
def test_chunks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch, relaxed: bool, kept: int) -> None:
    tree, penalty = random_tree(4, 2), _penalty()
    sample = with_groups(random_sample(4, n_splits=2, n_rows=70), 3)
    whole = _value(penalty, tree, sample, relaxed=relaxed)
    expected = torch.autograd.grad(whole.sum(), list(tree.parameters()), allow_unused=True)
    monkeypatch.setattr(parity, "CHUNK_ELEMENTS", 4 * 64 * 13)
    monkeypatch.setattr(parity, "KEPT_ELEMENTS", kept)
    parts = _value(penalty, tree, sample, relaxed=relaxed)
    torch.testing.assert_close(parts, whole, rtol=1e-13, atol=0)
    found = torch.autograd.grad(parts.sum(), list(tree.parameters()), allow_unused=True)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)


FAMILIES = ["log_logistic", "weibull", "exponential", "log_normal", "gompertz", "generalized_gamma"]


@pytest.mark.parametrize(
    "leaf",
    [
        *map(nightly, FAMILIES),
        nightly(Spline("odds", knots=0)),
        Spline("hazard", knots=3),
        nightly(PiecewiseExponential()),
    ],
)
def test_quadrature_error_at_the_default_number(leaf: str | HazardFamily) -> None:
    """Relative error of the penalty against 10 000 nodes, follow-up from half a unit to thousands."""
    tree = random_tree(2, 2, leaf, seed=1)
    sample = with_groups(random_sample(2, n_splits=2, n_rows=16))
    times = [np.array([2e-3, 8.0]), np.array([0.02, 3.0])]
    values = []
    for n_nodes in (L2Parity().n_nodes, 10_000):
        settings = L2Parity(n_nodes=n_nodes)
        corners = tree.family.corners().exp().tolist()
        penalty = settings.penalty(torch.ones(2), times, np.zeros(2), [1, 1], corners)
        values.append(_value(penalty, tree, sample).detach())
    torch.testing.assert_close(values[0], values[1], rtol=1e-8, atol=0)


def test_quadrature_is_an_integral_over_time() -> None:
    nodes, weight = log_time_quadrature(0.5, 30.0, 64)
    np.testing.assert_allclose(weight.sum(), 29.5, rtol=1e-13)
    np.testing.assert_allclose((weight * np.exp(-nodes / 7)).sum(), 7 * (np.exp(-0.5 / 7) - np.exp(-30 / 7)))


def test_the_unit_is_that_of_the_data() -> None:
    """The same trees on a clock of another unit: rho is per unit of the data's time."""
    sample = with_groups(random_sample(4, n_splits=2))
    tree = random_tree(4, 2)
    times = [np.array([0.1, 3.0])] * 2
    days = L2Parity().penalty(RHO, times, np.zeros(2), [2, 2])
    hours = L2Parity().penalty(RHO, [24 * t for t in times], np.full(2, np.log(24.0)), [2, 2])
    torch.testing.assert_close(_value(hours, tree, sample), 24 * _value(days, tree, sample))


def test_rows_of_one_group_have_no_pairs_and_a_group_of_one_row_has() -> None:
    tree, penalty = random_tree(4, 2), _penalty()
    sample = with_groups(random_sample(4, n_splits=2, n_rows=30))
    alone = replace(sample, group=torch.zeros_like(sample.group))  # type: ignore[arg-type]
    value = _value(penalty, tree, alone)
    assert value.tolist() == [0, 0, 0, 0]
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(value.sum(), tree.leaf(4).slope))
    group = torch.zeros_like(sample.group)  # type: ignore[arg-type]
    group[:, 5] = 1
    one = replace(sample, group=group)
    _check(_value(penalty, tree, one), _by_pairs(tree, one, penalty), tree)
    with pytest.raises(ConfigError, match="group of every row"):
        _value(penalty, tree, random_sample(4, n_splits=2))


# ---------------------------------------------------------------------- in the steps


def _check_step(penalty: GroupParity, depth: int, node: int, kind: Callable[[Batch, int], Step]) -> None:
    """A step with the penalty over all rows compared with one without: value and gradient."""
    tree, sample = random_tree(4, depth), with_groups(random_sample(4, n_splits=2))
    rows = sample.restrict(tree.visits(sample.x, node)) if depth else sample
    objective = TrainingObjective(row_penalties=[penalty])
    step = kind(Batch(tree, objective, rows, sample), node)
    plain = kind(Batch(tree, TrainingObjective(), rows), node)
    inside = rows.weight.sum(-1)
    assert int((inside > 0).sum()) >= 3
    scale = torch.where(inside > 0, sample.weight.sum(-1) / inside, 0.0)
    (value, gradient), (base, base_gradient) = (s.value_and_gradient(s.read()) for s in (step, plain))
    reference = _by_pairs(tree, sample, penalty, relaxed=kind is branch_step) * scale
    torch.testing.assert_close(value - base, reference.detach(), rtol=1e-10, atol=1e-13)
    tree.requires_grad_(True)
    slopes = torch.autograd.grad(reference.sum(), step.parameters)
    expected = torch.cat([g.reshape(4, -1) for g in slopes], 1)
    torch.testing.assert_close(gradient - base_gradient, expected, rtol=1e-9, atol=1e-12)
    some = step.objective.select(torch.tensor([1, 3]))
    own = some.value_and_gradient(step.read()[[1, 3]])[1]
    torch.testing.assert_close(own, gradient[[1, 3]], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("depth", "node"), [(0, 1), (2, 1), (2, 2), (3, 5)])
def test_leaf_step_carries_the_penalty_over_all_rows(depth: int, node: int) -> None:
    _check_step(_penalty(), depth, node, leaf_step)


@pytest.mark.parametrize(("depth", "node"), [(1, 1), (2, 2), (3, 3)])
def test_branch_step_carries_the_relaxation_when_asked(depth: int, node: int) -> None:
    _check_step(_penalty(L2Parity(gates="relaxed")), depth, node, branch_step)
    tree, sample = random_tree(4, depth), with_groups(random_sample(4, n_splits=2))
    frozen = TrainingObjective(row_penalties=[_penalty()])
    rows = sample.restrict(tree.visits(sample.x, node))
    objective = branch_step(Batch(tree, frozen, rows, sample), node).objective
    assert isinstance(objective, BranchObjective)
    assert objective.terms == ()


class ByForward(GroupParity):
    """The penalty as a user writes one, with `forward` alone."""

    term = RowPenalty.term


@pytest.mark.parametrize(("gates", "node", "kind"), [("frozen", 3, leaf_step), ("relaxed", 2, branch_step)])
def test_steps_carry_a_penalty_that_has_forward_alone(
    gates: Literal["frozen", "relaxed"], node: int, kind: Callable[[Batch, int], Step]
) -> None:
    penalty = _penalty(L2Parity(gates=gates))
    penalty.__class__ = ByForward
    _check_step(penalty, 2, node, kind)


def test_joint_step_minimises_the_relaxation() -> None:
    tree, sample = random_tree(4, 2), with_groups(random_sample(4, n_splits=2))
    objective = TrainingObjective(0.1, row_penalties=[_penalty(L2Parity(gates="relaxed"))])
    plain = TrainingObjective(0.1)(tree, sample)
    for relaxed in (False, True):
        step = joint_step(Batch(tree, objective, sample), relaxed=relaxed)
        value = step.value_and_gradient(step.read())[0]
        expected = plain + _by_pairs(tree, sample, _penalty(), relaxed=relaxed)
        torch.testing.assert_close(value, expected.detach())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gates": "soft"}, "gates must be one of frozen, relaxed"),
        ({"n_nodes": 1}, "n_nodes must be at least 2"),
        ({"n_nodes": 2.5}, "n_nodes must be at least 2"),
    ],
)
def test_settings_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        L2Parity(**options)  # type: ignore[arg-type]

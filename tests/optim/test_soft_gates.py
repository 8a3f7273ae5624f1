"""Soft gates with their leaves as one problem: derivatives, limits of the gates and of the temperature."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import FAMILIES, HazardFamily, LogisticHazard, Topology, make_family
from sstorch.nn.losses import component_losses
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.soft_gates import SoftGates, path_signs
from tests.batches import random_sample, with_entry, within_intervals
from tests.conftest import nightly

KINDS: dict[str, Callable[[Sample], Sample]] = {
    "exact": lambda sample: sample,
    "entry": with_entry,
    "entry and intervals": lambda sample: within_intervals(with_entry(sample)),
}
TOPOLOGY = Topology(2)


def hazards_of(leaf: str | HazardFamily, kind: str = "exact", n: int = 24, seed: int = 5) -> LinearHazards:
    """Two problems with weights, padding in the second, and three features."""
    sample = KINDS[kind](random_sample(2, 2, n, 3))
    generator = torch.Generator().manual_seed(seed)
    weight = sample.weight * (0.5 + torch.rand(2, n, generator=generator, dtype=torch.float64))
    sample = replace(sample, weight=weight, event=sample.event if seed == 5 else 1 - sample.event)
    family = make_family(leaf).prepare(sample.log_time, sample.event, weight, torch.zeros(2).double())
    return LinearHazards(family, sample, weight, DesignMatrix(sample.x.to_dense() - 0.5, (1, 1)))


def gates_of(*hazards: LinearHazards, gates: tuple[int, ...] = (1, 2, 3), tau: float = 0.5) -> SoftGates:
    _, signs = path_signs(TOPOLOGY, gates)
    z = 2 * hazards[0].x.to_dense()[..., :2]
    return SoftGates(hazards, torch.tensor([0, 2]), signs, z, tau=tau)


def somewhere(problem: SoftGates, size: float = 0.1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    start = torch.zeros(2, problem.n_coefficients, dtype=torch.float64)
    for each, part in zip(problem.hazards, problem.of_causes, strict=True):
        sample = each.sample
        intercept, shape = each.family.guess(sample.log_time, sample.event, each.weight, sample.log_entry)
        start[:, part.start] = intercept
        first = part.stop - shape.shape[1] * (1 + problem.n_leaves)
        start[:, first : part.stop : 1 + problem.n_leaves] = shape
    noise = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    return start + size * noise * torch.where(torch.arange(start.shape[1]) >= problem.of_gates.start, 10, 1)


def by_definition(problem: SoftGates, theta: Tensor) -> Tensor:
    """-(1/tau) log sum_l P_l exp(-tau L_l), from the parameters of each leaf."""
    gates = theta[:, problem.of_gates].unflatten(1, (-1, 3))
    assert problem.z is not None
    logits = gates[:, :, :1] + torch.matmul(gates[:, :, 1:], problem.z.mT)
    exponent = log_path_probability(TOPOLOGY, logits)
    for each, part in zip(problem.hazards, problem.of_causes, strict=True):
        own, x = theta[:, part], each.x.to_dense()
        losses = []
        for leaf in range(4):
            slope = own[:, 1:4].clone()
            slope[:, [0, 2]] += own[:, 8 + 2 * leaf : 10 + 2 * leaf]
            linear = own[:, :1] + own[:, 4 + leaf, None] + torch.matmul(x, slope[..., None]).squeeze(-1)
            shapes = own[:, 16:].unflatten(1, (-1, 5))
            shape = (shapes[..., 0] + shapes[..., 1 + leaf])[:, None, None]
            losses.append(component_losses(each.family, each.sample.log_times, linear[:, None], shape))
        exponent = exponent - problem.tau * torch.cat(losses, 1)
    weight = problem.hazards[0].weight
    return (weight * torch.where(weight > 0, -exponent.logsumexp(1) / problem.tau, 0.0)).sum(-1)


def differences(function: Callable[[Tensor], Tensor], theta: Tensor, step: float = 2e-3) -> Tensor:
    """Central differences of sixth order: those of three steps, extrapolated."""
    out = []
    for move in step * torch.eye(theta.shape[-1], dtype=theta.dtype):
        near, middle, far = (function(theta + k * move) - function(theta - k * move) for k in (1, 2, 3))
        out.append((45 * near - 9 * middle + far) / (60 * step))
    return torch.stack(out, -1)


def family_of(leaf: str) -> HazardFamily:
    return LogisticHazard([0.2, 1.0, 4.0]) if leaf == "logistic_hazard" else make_family(leaf)


DAILY = {*product(("spline_po", "weibull"), KINDS), ("generalized_gamma", "exact"), ("exponential", "exact")}


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (leaf, kind) if (leaf, kind) in DAILY else nightly(leaf, kind)
        for leaf, kind in product(sorted(FAMILIES), KINDS)
    ],
)
def test_gradient_and_hessian_are_those_of_differences(leaf: str, kind: str) -> None:
    problem = gates_of(hazards_of(family_of(leaf), kind, n=8 if leaf == "generalized_gamma" else 24))
    theta = somewhere(problem)
    value, gradient, hessian = problem.derivatives(theta)
    torch.testing.assert_close(value, problem.value(theta), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(value, by_definition(problem, theta), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, differences(problem.value, theta), rtol=1e-8, atol=1e-7)
    of_gradient = differences(lambda at: problem.derivatives(at)[1], theta)
    torch.testing.assert_close(hessian, of_gradient, rtol=1e-8, atol=1e-7)
    assert torch.equal(hessian, hessian.mT)


@pytest.mark.parametrize("gates", [(1, 2, 3), (1,), (1, 3)])
def test_two_causes_under_the_same_gates(gates: tuple[int, ...]) -> None:
    problem = gates_of(hazards_of("spline_po"), hazards_of("weibull", seed=6), gates=gates)
    theta = somewhere(problem)
    value, gradient, hessian = problem.derivatives(theta)
    if len(gates) == 3:
        torch.testing.assert_close(value, by_definition(problem, theta), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, differences(problem.value, theta), rtol=1e-8, atol=1e-8)
    of_gradient = differences(lambda at: problem.derivatives(at)[1], theta)
    torch.testing.assert_close(hessian, of_gradient, rtol=1e-8, atol=1e-8)


def test_rows_in_blocks_and_problems_alone_give_the_same() -> None:
    problem = gates_of(hazards_of("spline_po"))
    theta = somewhere(problem)
    whole = problem.derivatives(theta)
    blocks = gates_of(hazards_of("spline_po"))
    object.__setattr__(blocks, "_row_blocks", [slice(0, 7), slice(7, 20), slice(20, 24)])
    alone = problem.select(torch.tensor([1]))
    for own, other, one in zip(whole, blocks.derivatives(theta), alone.derivatives(theta[1:]), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(own[1:], one, rtol=1e-11, atol=1e-11)


def test_given_probabilities_are_those_of_fixed_gates() -> None:
    problem = gates_of(hazards_of("weibull"))
    theta = somewhere(problem)
    assert problem.z is not None
    gates = theta[:, problem.of_gates].unflatten(1, (-1, 3))
    logits = gates[:, :, :1] + torch.matmul(gates[:, :, 1:], problem.z.mT)
    given = replace(problem, z=None, log_probability=log_path_probability(TOPOLOGY, logits))
    n = given.n_coefficients
    assert n == problem.of_gates.start
    for own, other in zip(given.derivatives(theta[:, :n]), problem.derivatives(theta), strict=True):
        torch.testing.assert_close(own, other[(slice(None), *[slice(n)] * (own.ndim - 1))])


def test_gates_of_certainty_are_groups() -> None:
    """Leaves of rows that one path alone reaches have the likelihood of groups."""
    plain = hazards_of("spline_po")
    group = (plain.x.to_dense()[..., 0] > 0).long() + 2 * (plain.x.to_dense()[..., 1] > 0).long()
    grouped = replace(plain, group=group, own=torch.tensor([1, 3]), n_groups=4)
    certain = torch.where(torch.nn.functional.one_hot(group, 4).mT == 1, 0.0, -800.0).double()
    problem = SoftGates((plain,), torch.tensor([0, 2]), torch.zeros(4, 0).double(), log_probability=certain)
    theta = somewhere(problem, 0.2)
    for own, other in zip(problem.derivatives(theta), grouped.derivatives(theta), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10)


def test_small_temperature_gives_the_expected_loss() -> None:
    problem = gates_of(hazards_of("weibull"), tau=1e-6)
    theta = somewhere(problem)
    softer = replace(problem, tau=0.02)
    assert problem.z is not None
    weight = problem.hazards[0].weight
    gates = theta[:, problem.of_gates].unflatten(1, (-1, 3))
    logits = gates[:, :, :1] + torch.matmul(gates[:, :, 1:], problem.z.mT)
    probability = log_path_probability(TOPOLOGY, logits).exp()
    linear, shape = problem._latents(0, theta, slice(None))
    each = problem.hazards[0]
    losses = component_losses(each.family, each.sample.log_times, linear, shape)
    expected = (weight * (probability * losses).sum(1)).sum(-1)
    torch.testing.assert_close(problem.value(theta), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(softer.value(theta), expected, rtol=5e-3, atol=0)
    assert (softer.value(theta) < expected).all()  # by Jensen's inequality

"""Problems of Newton's method: linear hazards, a soft gate, and designs with codes of categories."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import FAMILIES, HazardFamily, LogisticHazard, make_family
from sstorch.objective import Sample
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.optim.soft_gate import SoftGate
from sstorch.soft.design import null_start
from tests.batches import random_sample, with_entry, within_intervals
from tests.conftest import nightly

KINDS: dict[str, Callable[[Sample], Sample]] = {
    "exact": lambda sample: sample,
    "entry": with_entry,
    "entry and intervals": lambda sample: within_intervals(with_entry(sample)),
}


def family_of(leaf: str) -> HazardFamily:
    return LogisticHazard([0.2, 1.0, 4.0]) if leaf == "logistic_hazard" else make_family(leaf)


def hazards_of(
    leaf: str, kind: str = "exact", n: int = 24, groups: bool = False, seed: int = 5
) -> LinearHazards:
    """Two problems with weights, padding in the second, three features, and three groups or none."""
    sample, generator = KINDS[kind](random_sample(2, 2, n, 3)), torch.Generator().manual_seed(seed)
    weight = sample.weight * (0.5 + torch.rand(2, n, generator=generator, dtype=torch.float64))
    sample = replace(sample, weight=weight, event=sample.event if seed == 5 else 1 - sample.event)
    family = family_of(leaf).prepare(sample.log_time, sample.event, weight, torch.zeros(2).double())
    hazards = LinearHazards(family, sample, weight, DesignMatrix(sample.x.to_dense() - 0.5, (1, 1)))
    if not groups:
        return hazards
    group = torch.randint(3, (2, n), generator=generator)
    return replace(hazards, group=group, own=torch.tensor([1, 2]), n_groups=3)


def gate_of(*hazards: LinearHazards) -> SoftGate:
    return SoftGate(hazards, torch.tensor([0, 2]), 2 * hazards[0].x.to_dense()[..., :2], tau=0.5)


Problem = LinearHazards | SoftGate
PROBLEMS: dict[str, Callable[..., Problem]] = {
    "line": hazards_of,
    "groups": lambda *given: hazards_of(*given, groups=True),
    "gate": lambda *given: gate_of(hazards_of(*given)),
}


def somewhere(problem: Problem, size: float = 0.1) -> Tensor:
    """Coefficients around those that a hazard without covariates begins with; gates further from zero."""
    start = torch.zeros(2, problem.n_coefficients, dtype=torch.float64)
    parts = [(problem, slice(0, problem.n_coefficients))]
    if isinstance(problem, SoftGate):
        parts = list(zip(problem.hazards, problem.of_causes, strict=True))
    n_groups = 2 if isinstance(problem, SoftGate) else problem.n_groups
    for each, part in parts:
        intercept, shape = each.family.guess(
            each.sample.log_time, each.sample.event, each.weight, each.sample.log_entry
        )
        start[:, part.start] = intercept
        start[:, part.stop - shape.shape[1] * (1 + n_groups) : part.stop : 1 + n_groups] = shape
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return start + size * noise * torch.where(torch.arange(start.shape[1]) >= parts[-1][1].stop, 10, 1)


def by_definition(problem: SoftGate, theta: Tensor) -> Tensor:
    """-(1/tau) log sum_l P_l exp(-tau L_l), from the parameters of each leaf."""
    assert problem.z is not None
    gate = theta[:, problem.of_gate]
    logit = gate[:, :1] + torch.matmul(problem.z, gate[:, 1:, None]).squeeze(-1)
    exponent = torch.stack([logit, -logit], 1).sigmoid().log()
    for each, part in zip(problem.hazards, problem.of_causes, strict=True):
        own, x = theta[:, part], each.x.to_dense()
        losses = []
        for leaf in range(2):
            slope = own[:, 1:4].clone()
            slope[:, [0, 2]] += own[:, 6 + 2 * leaf : 8 + 2 * leaf]
            linear = own[:, :1] + own[:, 4 + leaf, None] + torch.matmul(x, slope[..., None]).squeeze(-1)
            shapes = own[:, 10:].unflatten(1, (-1, 3))
            shape = (shapes[..., 0] + shapes[..., 1 + leaf])[:, None, None]
            losses.append(each.family.loss(each.sample.log_times, linear[:, None], shape))
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


def check_derivatives(problem: Problem, theta: Tensor) -> None:
    value, gradient, hessian = problem.derivatives(theta)
    torch.testing.assert_close(value, problem.value(theta), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradient, differences(problem.value, theta), rtol=1e-8, atol=1e-7)
    of_gradient = differences(lambda at: problem.derivatives(at)[1], theta)
    torch.testing.assert_close(hessian, of_gradient, rtol=1e-8, atol=1e-7)
    assert torch.equal(hessian, hessian.mT)


# No shape, one, and several; second derivatives written out, and by autograd.
DAILY = {
    *product(("groups",), ("exponential", "spline_po", "weibull"), KINDS),
    *product(("groups",), ("logistic_hazard",), ("exact",)),
    *product(("line",), ("generalized_gamma", "spline_po", "weibull"), ("exact",)),
    *product(("gate",), ("weibull",), KINDS),
    *product(("gate",), ("spline_po", "exponential"), ("exact",)),
}


@pytest.mark.parametrize(
    ("problem", "leaf", "kind"),
    [case if case in DAILY else nightly(*case) for case in product(PROBLEMS, sorted(FAMILIES), KINDS)],
)
def test_gradient_and_hessian_are_those_of_differences(problem: str, leaf: str, kind: str) -> None:
    made = PROBLEMS[problem](leaf, kind, 8 if leaf == "generalized_gamma" else 24)
    theta = somewhere(made)
    check_derivatives(made, theta)
    if isinstance(made, SoftGate):
        torch.testing.assert_close(made.value(theta), by_definition(made, theta), rtol=1e-12, atol=1e-12)


def test_two_causes_under_the_same_gate() -> None:
    problem = gate_of(hazards_of("spline_po"), hazards_of("weibull", seed=6))
    theta = somewhere(problem)
    check_derivatives(problem, theta)
    torch.testing.assert_close(problem.value(theta), by_definition(problem, theta))


@pytest.mark.parametrize("kind", PROBLEMS)
def test_rows_in_blocks_and_problems_alone_give_the_same(kind: str) -> None:
    problem, blocks = PROBLEMS[kind]("spline_po"), PROBLEMS[kind]("spline_po")
    theta = somewhere(problem)
    object.__setattr__(blocks, "_row_blocks", [slice(0, 7), slice(7, 20), slice(20, 24)])
    alone = problem.select(torch.tensor([1]))
    found = problem.derivatives(theta), blocks.derivatives(theta), alone.derivatives(theta[1:])
    for own, other, one in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(own[1:], one, rtol=1e-11, atol=1e-11)


def test_padding_adds_nothing_whatever_it_holds() -> None:
    hazards = hazards_of("weibull", groups=True)
    theta = somewhere(hazards)
    strange = hazards.sample.log_time.masked_fill(hazards.weight == 0, 1e4)
    other = replace(hazards, sample=replace(hazards.sample, log_time=strange))
    for own, same in zip(hazards.derivatives(theta), other.derivatives(theta), strict=True):
        assert torch.equal(own, same)


def test_gate_of_certainty_makes_groups() -> None:
    """Leaves of rows that go one way alone have the likelihood of groups."""
    plain = hazards_of("spline_po")
    group = (plain.x.to_dense()[..., 0] > 0).long()
    grouped = replace(plain, group=group, own=torch.tensor([1, 3]), n_groups=2)
    certain = torch.where(torch.nn.functional.one_hot(group, 2).mT == 1, 0.0, -800.0).double()
    problem = SoftGate((plain,), torch.tensor([0, 2]), log_probability=certain)
    theta = somewhere(problem, 0.2)
    for own, other in zip(problem.derivatives(theta), grouped.derivatives(theta), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------ codes of categories

SIZES = (5, 3, 2)


def coded(n: int = 90, n_problems: int = 2) -> DesignMatrix:
    """Splits of two numbers, a category of five levels, a number and two of three and two; some have none."""
    generator = torch.Generator().manual_seed(3)
    numbers = torch.rand(n_problems, n, 3, generator=generator, dtype=torch.float64)
    codes = torch.stack(
        [torch.randint(size + 1, (n_problems, n), generator=generator) for size in SIZES], -1
    ).int()
    return DesignMatrix(numbers, (1,) * n_problems, codes=codes, blocks=((2, 5), (8, 3), (11, 2)))


def pair(leaf: str, groups: bool, late: bool = False) -> tuple[LinearHazards, LinearHazards]:
    """The same problems with codes and with indicators."""
    x = coded()
    n_problems, n, _ = x.shape
    sample = random_sample(2, 2, n, 3)
    sample = with_entry(sample) if late else sample
    family = make_family(leaf).prepare(
        sample.log_time, sample.event, sample.weight, torch.zeros(n_problems, dtype=torch.float64)
    )
    dense = x.to_dense()
    centre, scale = dense.mean(1), dense.std(1)
    scale[:, 2:7], scale[:, 8:] = 1.0, 1.0
    scale[:, 4] = torch.inf  # a level that counts as constant
    group = torch.randint(3, (n_problems, n), generator=torch.Generator().manual_seed(1)) if groups else None
    own = torch.tensor([1, 8]) if groups else None
    one, other = (
        LinearHazards(family, sample, sample.weight, each, centre, scale, group, own, 3 * groups)
        for each in (x, DesignMatrix(dense, x.counts))
    )
    return one, other


def test_matrix_of_codes_is_that_of_indicators() -> None:
    x = coded()
    dense = x.to_dense()
    assert dense.shape == x.shape
    torch.testing.assert_close(x.of_split(1).to_dense(), dense[1], rtol=0, atol=0)
    torch.testing.assert_close(x[torch.tensor([3, 1])].to_dense(), dense[:, [3, 1]], rtol=0, atol=0)
    torch.testing.assert_close(x.features(slice(0, 7)).to_dense(), dense[..., :7], rtol=0, atol=0)
    torch.testing.assert_close(x.features(slice(7, 11)).to_dense(), dense[..., 7:11], rtol=0, atol=0)
    for rows in (slice(2, None, 3), torch.tensor([5, 2])):
        found = x.of_split(0).columns([10, 1, 3], rows)
        torch.testing.assert_close(found, dense[0][rows][:, [10, 1, 3]], rtol=0, atol=0)
    generator = torch.Generator().manual_seed(0)
    weight, bias = (torch.rand(*size, generator=generator, dtype=torch.float64) for size in ((4, 13), (4,)))
    expected = torch.matmul(weight, dense.mT) + bias[:, None]
    torch.testing.assert_close(x.of_split(0).project(weight, bias), expected[0])
    torch.testing.assert_close(x.project(weight.expand(2, -1, -1), bias.expand(2, -1)), expected)


@pytest.mark.parametrize(("leaf", "groups", "late"), [("weibull", True, True), ("spline_po", False, False)])
def test_derivatives_of_codes_are_those_of_indicators(leaf: str, groups: bool, late: bool) -> None:
    one, other = pair(leaf, groups, late)
    assert one.n_coefficients == other.n_coefficients
    theta = null_start(other)
    generator = torch.Generator().manual_seed(7)
    theta += 0.2 * torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    theta[:, 5] = 0.0  # of the level that counts as constant
    torch.testing.assert_close(one.value(theta), other.value(theta), rtol=1e-12, atol=0)
    (loss, gradient, hessian), expected = one.derivatives(theta), other.derivatives(theta)
    torch.testing.assert_close(loss, expected[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected[1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(hessian, expected[2], rtol=1e-10, atol=1e-10)


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

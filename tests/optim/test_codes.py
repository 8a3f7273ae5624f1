"""Designs with codes of categories against those with indicators."""

import pytest
import torch
from torch import Tensor

from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import make_family
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.soft.design import null_start
from tests.batches import random_sample, with_entry

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


def somewhere(hazards: LinearHazards) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    start = null_start(hazards)
    return start + 0.2 * torch.randn(start.shape, generator=generator, dtype=torch.float64)


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
    theta = somewhere(other)
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

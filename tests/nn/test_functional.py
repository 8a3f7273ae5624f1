"""Elementwise functions in all their digits, with two derivatives."""

import math

import mpmath
import pytest
import torch

from sstorch.nn.functional import normal_cumulative_hazard, softplus


def test_values_to_full_precision() -> None:
    points = [0.0, 1e-300, 1e-9, 0.3, 20.5, 37.0, 745.0, 1e3, 1e300]
    points += [-z for z in points]
    z = torch.tensor(points, dtype=torch.float64)
    with mpmath.workdps(400):
        rest = [float(mpmath.log1p(mpmath.exp(-abs(mpmath.mpf(point))))) for point in points]
    for value, exact, point in zip(softplus(z).tolist(), rest, points, strict=True):
        assert math.isclose(value, exact + max(point, 0.0), rel_tol=4e-16, abs_tol=1e-320)
    assert softplus(torch.tensor([-torch.inf, torch.inf])).tolist() == [0.0, math.inf]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_second_derivative_of_the_normal_hazard_far_below_is_zero(dtype: torch.dtype) -> None:
    z = torch.tensor([-1e6, -60.0, -27.0, -14.0, -1.0, 5.0], dtype=dtype, requires_grad=True)
    (rate,) = torch.autograd.grad(normal_cumulative_hazard(z).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(rate.sum(), z)
    torch.testing.assert_close(second, (rate * (rate - z)).detach(), rtol=1e-4, atol=1e-10)

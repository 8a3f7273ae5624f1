"""One table of families; every test runs over it."""

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.nn import FAMILIES, make_family

FAMILY_NAMES = sorted(FAMILIES)
TWINS = {
    "weibull": lambda mu, a: scipy.stats.weibull_min(a, scale=mu),
    "log_logistic": lambda mu, a: scipy.stats.fisk(a, scale=mu),
}


def _arguments(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.linspace(-3, 2, 9, dtype=dtype)
    g = torch.tensor([[-0.5], [0.0], [0.8]], dtype=dtype)
    shape = torch.tensor([[0.4], [-0.3], [1.1]], dtype=dtype)[:, None, :]
    return y, g, shape


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_against_scipy(name: str) -> None:
    y, g, shape = _arguments()
    family = make_family(name)
    hazard, log_hazard = family.terms(y, g, shape)
    twin = TWINS[name](g.exp().numpy(), shape[..., 0].exp().numpy())
    t = y.exp().numpy()
    np.testing.assert_allclose(-hazard, twin.logsf(t), rtol=1e-12)
    np.testing.assert_allclose(log_hazard, twin.logpdf(t) - twin.logsf(t), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(hazard, family.cumulative_hazard(y, g, shape), rtol=1e-14)
    np.testing.assert_allclose(log_hazard, family.log_hazard(y, g, shape), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_hazard_is_the_derivative_of_the_cumulative_hazard(name: str) -> None:
    y, g, shape = _arguments()
    y = y.expand(3, -1).clone().requires_grad_()
    family = make_family(name)
    (slope,) = torch.autograd.grad(family.cumulative_hazard(y, g, shape).sum(), y)
    expected = slope * torch.exp(-y)  # dH/dt = dH/dy / t
    torch.testing.assert_close(family.log_hazard(y, g, shape).exp(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_gradcheck(name: str) -> None:
    y, g, shape = _arguments()
    family = make_family(name)
    g, shape = g.clone().requires_grad_(), shape.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: family.terms(y, a, b), (g, shape))


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_extreme_times_stay_in_range(name: str) -> None:
    _, g, shape = _arguments()
    y = torch.log(torch.tensor([1e-300, 1e-12, 1e12], dtype=torch.float64))
    survival = torch.exp(-make_family(name).cumulative_hazard(y, g, shape))
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (survival[:, 0] == 1).all()


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_float32_is_close(name: str) -> None:
    exact = make_family(name).terms(*_arguments())
    rough = make_family(name).terms(*_arguments(torch.float32))
    for a, b in zip(exact, rough, strict=True):
        torch.testing.assert_close(b.double(), a, rtol=1e-4, atol=1e-4)


def test_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown leaf 'gamma'; known leaves: log_logistic, weibull"):
        make_family("gamma")

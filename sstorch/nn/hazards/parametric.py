"""Hazard families with one shape at most: exponential, Weibull, log-logistic, log-normal, Gompertz."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import log_expm1_ratio, saturating_exp
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.links import EXPONENTIAL, LOGISTIC, NORMAL, Index, Link, LinkFamily


class LocationScale(LinkFamily):
    """log T = g + W / a: eta = a (y - g), with a shape parameter log a, or minus log a."""

    ratio: str | None = "time ratio"
    closed_form = True
    scaled = True
    linear_sign = -1
    own_link: Link

    @override
    def link(self, shape: Tensor) -> Link:
        return self.own_link

    def log_scale(self, shape: Tensor) -> Tensor:
        """Log of a, shape (...)."""
        return self.shape_sign * shape[..., 0]

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        log_a = self.log_scale(shape)
        return torch.exp(log_a) * (log_time + self.linear_sign * linear), log_a

    @override
    def index_at(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None) -> Index:
        log_a = self.log_scale(shape)
        a = torch.exp(log_a)
        eta = (log_time + self.linear_sign * linear).mul_(a)
        each = self.shape_names  # one, or none
        sign = torch.full_like(a, self.shape_sign)
        of_shape = eta if self.shape_sign > 0 else -eta
        return Index(eta, log_a, self.linear_sign * a, [of_shape for _ in each], [sign for _ in each])

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        eta = self.link(shape).inverse(cumulative_hazard)
        return eta * torch.exp(-self.log_scale(shape)) - self.linear_sign * linear


class Exponential(LocationScale):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name, shape_names = "exponential", ()
    ratio, of_rate = "hazard ratio", True
    linear_sign, own_link = 1, EXPONENTIAL

    @override
    def log_scale(self, shape: Tensor) -> Tensor:
        return shape.new_zeros(shape.shape[:-1])


class Weibull(LocationScale):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name, shape_names, own_link = "weibull", ("log_a",), EXPONENTIAL


class LogLogistic(LocationScale):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name, shape_names, own_link = "log_logistic", ("log_a",), LOGISTIC
    overflows = False


class LogNormal(LocationScale):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name, shape_names, own_link = "log_normal", ("log_sigma",), NORMAL
    shape_sign = -1

    @override
    def restricted_mean(
        self, log_tau: Tensor, linear: Tensor, shape: Tensor, log_after: Tensor | None = None
    ) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is exp(g + sigma^2 / 2)."""
        if log_after is not None:
            return super().restricted_mean(log_tau, linear, shape, log_after)
        finite, log_mean = log_tau < torch.inf, linear + torch.exp(2 * shape[..., 0]) / 2
        restricted = super().restricted_mean(torch.where(finite, log_tau, linear.detach()), linear, shape)
        return torch.where(finite, restricted, torch.exp(log_mean))


class Gompertz(HazardFamily):
    """h(t) = b exp(a t) with log b = g and shape parameter a, positive or negative, per unit of model time.

    With a < 0 the survival function has the limit exp(b / a) > 0, a cured share; a = 0 is exponential. The
    parametrisation is flexsurv's (a = shape, b = rate).
    """

    name, shape_names = "gompertz", ("a",)
    ratio, of_rate = "hazard ratio", True

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        # b (exp(a t) - 1) / a, smooth through a = 0.
        return saturating_exp(linear + log_time + log_expm1_ratio(shape[..., 0] * saturating_exp(log_time)))

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        hazard = self.cumulative_hazard(log_time, linear, shape)
        return hazard, linear + shape[..., 0] * saturating_exp(log_time)

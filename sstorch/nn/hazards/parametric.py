"""Hazard families with one shape at most: exponential, Weibull, log-logistic, log-normal, Gompertz."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import log_expm1_ratio, saturating_exp
from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.links import ExponentialLink, Index, Link, LinkFamily, LogisticLink, NormalLink


class RateFamily(HazardFamily):
    """A family in which g is the log of a rate: near its guess H is about exp(g) t while small."""

    ratio: str | None = "hazard ratio"

    def neutral(self, log_time: Tensor) -> Tensor:
        """See :meth:`HazardFamily.neutral`: exp(g) t = 1."""
        return -log_time

    def guess(
        self, log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.guess`: events per time at risk; shape parameters of zero."""
        rate = log_rate(log_time, event, weight, log_entry)
        return rate, rate.new_zeros(*rate.shape, len(self.shape_names))


def log_rate(log_time: Tensor, event: Tensor, weight: Tensor, log_entry: Tensor | None = None) -> Tensor:
    """Log of events per time at risk, (R, M) -> (R,); without events of half an average row."""
    if log_entry is not None:
        # log(exp(y) - exp(entry)), time at risk from the entry on.
        log_time = log_time + torch.log(-torch.expm1((log_entry - log_time).clamp(max=-1e-12)))
    at_risk = torch.logsumexp(weight.log() + log_time, dim=-1)
    events = (weight * event).sum(-1)
    half_row = 0.5 * weight.sum(-1) / (weight > 0).sum(-1)
    return torch.where(events > 0, events, half_row).log() - at_risk


class Exponential(LinkFamily, RateFamily):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name = "exponential"
    shape_names = ()
    closed_form = True

    @override
    def link(self, shape: Tensor) -> Link:
        return ExponentialLink()

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        return linear + log_time, torch.zeros_like(linear)

    @override
    def index_at(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None) -> Index:
        return Index(linear + log_time, torch.zeros_like(linear), torch.ones_like(linear), [], [])

    @override
    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return linear + torch.zeros_like(log_time)

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        return saturating_exp(linear + log_time), self.log_hazard(log_time, linear, shape)

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return cumulative_hazard.log() - linear

    @override
    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return exponential_integral(linear, torch.exp(log_tau))


def exponential_integral(log_rate: Tensor, length: Tensor) -> Tensor:
    """Integral of exp(-rate s) over s from 0 to ``length``, which may be infinite; shapes broadcast."""
    finite = torch.isfinite(length)
    span = torch.where(finite, length, torch.zeros_like(length))
    tiny = torch.finfo(span.dtype).tiny
    product = saturating_exp(log_rate + span.clamp(min=tiny).log())
    # Two forms of one value: each where it neither overflows nor loses its digits.
    long = product > 1
    short = torch.where(long, torch.ones_like(product), product).clamp(min=tiny)
    below = span * -torch.expm1(-short) / short
    rate_inverse = torch.exp(-torch.where(long | ~finite, log_rate, torch.zeros_like(log_rate)))
    above = -torch.expm1(-torch.where(long, product, torch.ones_like(product))) * rate_inverse
    return torch.where(finite, torch.where(long, above, below), rate_inverse)


class LocationScale(LinkFamily):
    """log T = g + W / a: eta = a (y - g), with a shape parameter log a, or minus log a."""

    ratio = "time ratio"
    closed_form = True
    scaled = True

    @override
    def index(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        log_a = self.shape_sign * shape[..., 0]
        return torch.exp(log_a) * (log_time - linear), log_a

    @override
    def index_at(self, log_time: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None) -> Index:
        log_a = self.shape_sign * shape[..., 0]
        a = torch.exp(log_a)
        eta = (log_time - linear).mul_(a)
        sign = torch.full_like(a, self.shape_sign)
        return Index(eta, log_a, -a, [eta if self.shape_sign > 0 else -eta], [sign])

    @override
    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        scale = torch.exp(-self.shape_sign * shape[..., 0])
        return linear + self.link(shape).index(cumulative_hazard) * scale


class Weibull(LocationScale):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name = "weibull"
    shape_names = ("log_a",)

    @override
    def link(self, shape: Tensor) -> Link:
        return ExponentialLink()

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu Gamma(1 + 1/a)."""
        if bool(torch.isposinf(log_tau).all()):
            return torch.exp(linear + torch.lgamma(1 + torch.exp(-shape[..., 0])))
        return super().restricted_mean(log_tau, linear, shape)


class LogLogistic(LocationScale):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name = "log_logistic"
    shape_names = ("log_a",)
    overflows = False

    @override
    def link(self, shape: Tensor) -> Link:
        return LogisticLink()

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu (pi/a) / sin(pi/a), +inf for a <= 1."""
        if bool(torch.isposinf(log_tau).all()):
            angle = math.pi * torch.exp(-shape[..., 0])
            exists = angle < math.pi
            angle = torch.where(exists, angle, torch.ones_like(angle))
            return torch.where(exists, torch.exp(linear) * angle / angle.sin(), torch.inf)
        return super().restricted_mean(log_tau, linear, shape)


class LogNormal(LocationScale):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name = "log_normal"
    shape_names = ("log_sigma",)
    shape_sign = -1

    @override
    def link(self, shape: Tensor) -> Link:
        return NormalLink()

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`: exp(g + sigma^2/2) Phi(z - sigma) + tau S(tau)."""
        sigma = torch.exp(shape[..., 0])
        finite = torch.isfinite(log_tau)
        log_end = torch.where(finite, log_tau, linear.detach())
        z = (log_end - linear) / sigma
        # For large sigma the mean overflows where Phi(z - sigma) underflows: there their squares cancel.
        log_mean = linear + sigma * sigma / 2
        late, gap = z > sigma, (z - sigma).abs()
        log_whole = torch.where(late, log_mean, 0.0) + torch.special.log_ndtr(gap)
        log_tail = log_end - z * z / 2 + torch.log(torch.special.erfcx(gap * math.sqrt(0.5)) / 2)
        before = torch.exp(torch.where(late, log_whole, log_tail))
        beyond = torch.exp(log_end + torch.special.log_ndtr(-z))
        return torch.where(finite, before + beyond, torch.exp(log_mean))


class Gompertz(RateFamily):
    """h(t) = b exp(a t) with log b = g and shape parameter a, positive or negative, per unit of model time.

    With a < 0 the survival function has the limit exp(b / a) > 0, a cured share; a = 0 is exponential. The
    parametrisation is flexsurv's (a = shape, b = rate).
    """

    name = "gompertz"
    shape_names = ("a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: b (exp(a t) - 1) / a, smooth through a = 0."""
        return saturating_exp(linear + log_time + log_expm1_ratio(shape[..., 0] * saturating_exp(log_time)))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g + a t."""
        return linear + shape[..., 0] * saturating_exp(log_time)

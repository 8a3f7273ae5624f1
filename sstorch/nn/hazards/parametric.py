"""Hazard families with one shape at most: exponential, Weibull, log-logistic, log-normal, Gompertz."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import (
    HALF_LOG_TWO_PI,
    log_expm1,
    log_expm1_ratio,
    log_sigmoid_pair,
    normal_cumulative_hazard,
    saturating_exp,
    sigmoid_and_softplus,
    softplus,
)
from sstorch.nn.hazards.base import HazardFamily

# Of a H / b in a Gompertz quantile: beyond, log(1 + x) is taken from log x, which does not overflow.
_FAR = 1e8


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


class Exponential(RateFamily):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name = "exponential"
    kernel = "exponential"
    shape_names = ()
    closed_form = True

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: exp(g + y)."""
        return saturating_exp(linear + log_time)

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g."""
        return linear + torch.zeros_like(log_time)

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`: exp(g + y) - c g."""
        linear = linear.detach()
        hazard = torch.exp(linear + log_time)
        return hazard.addcmul(event, linear, value=-1), hazard.sub_(event), ()

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: log H - g."""
        return cumulative_hazard.log() - linear

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`: (1 - exp(-mu tau)) / mu."""
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


class Weibull(HazardFamily):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name = "weibull"
    kernel = "weibull"
    shape_names = ("log_a",)
    ratio = "time ratio"
    closed_form = True

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return saturating_exp(torch.exp(shape[..., 0]) * (log_time - linear))

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: exp(z), and log a - y + z with z = a (y - g)."""
        log_a = shape[..., 0]
        z = torch.exp(log_a) * (log_time - linear)
        return saturating_exp(z), log_a - log_time + z

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`: with z = a (y - g), exp(z) - c (z + log a - y)."""
        log_a = shape.detach()[..., 0]
        a = torch.exp(log_a)
        z = (log_time - linear.detach()).mul_(a)
        slope = torch.exp(z)
        loss = slope.addcmul(event, z, value=-1).addcmul_(event, log_a, value=-1).add_(event * log_time)
        slope = slope.sub_(event)
        return loss, slope * -a, (z.mul_(slope).sub_(event),)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + log(H) / a."""
        return linear + cumulative_hazard.log() * torch.exp(-shape[..., 0])

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu Gamma(1 + 1/a)."""
        if bool(torch.isposinf(log_tau).all()):
            return torch.exp(linear + torch.lgamma(1 + torch.exp(-shape[..., 0])))
        return super().restricted_mean(log_tau, linear, shape)


class LogLogistic(HazardFamily):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name = "log_logistic"
    kernel = "log_logistic"
    shape_names = ("log_a",)
    ratio = "time ratio"
    closed_form = True
    overflows = False

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: softplus(a (y - g))."""
        return softplus(torch.exp(shape[..., 0]) * (log_time - linear))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: log a - y - softplus(-a (y - g))."""
        log_a = shape[..., 0]
        return log_a - log_time - softplus(-torch.exp(log_a) * (log_time - linear))

    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.survival`: sigmoid(a (g - y))."""
        return torch.sigmoid(torch.exp(shape[..., 0]) * (linear - log_time))

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both softplus values come from one exponential."""
        log_a = shape[..., 0]
        log_event, log_survival = log_sigmoid_pair(torch.exp(log_a) * (log_time - linear))
        return -log_survival, log_a - log_time + log_event

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`.

        With z = a (y - g) the loss is (1 + c) softplus(z) - c (z + log a - y).
        """
        log_a = shape.detach()[..., 0]
        a = torch.exp(log_a)
        z = (log_time - linear.detach()).mul_(a)
        slope, loss = sigmoid_and_softplus(z)
        loss.mul_(1 + event).addcmul_(event, z, value=-1).addcmul_(event, log_a, value=-1).add_(
            event * log_time
        )
        slope.mul_(1 + event).sub_(event)
        return loss, slope * -a, (z.mul_(slope).sub_(event),)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + log(exp(H) - 1) / a."""
        return linear + log_expm1(cumulative_hazard) * torch.exp(-shape[..., 0])

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu (pi/a) / sin(pi/a), +inf for a <= 1."""
        if bool(torch.isposinf(log_tau).all()):
            angle = math.pi * torch.exp(-shape[..., 0])
            exists = angle < math.pi
            angle = torch.where(exists, angle, torch.ones_like(angle))
            return torch.where(exists, torch.exp(linear) * angle / angle.sin(), torch.inf)
        return super().restricted_mean(log_tau, linear, shape)


class LogNormal(HazardFamily):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name = "log_normal"
    kernel = "log_normal"
    shape_names = ("log_sigma",)
    ratio = "time ratio"

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: -log Phi(-z), z = (y - g) / sigma."""
        return normal_cumulative_hazard((log_time - linear) * torch.exp(-shape[..., 0]))

    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.survival`: Phi(-z), z = (y - g) / sigma."""
        return normal_survival((log_time - linear) * torch.exp(-shape[..., 0]))

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both need log Phi(-z)."""
        log_sigma = shape[..., 0]
        hazard, log_rate = normal_terms((log_time - linear) * torch.exp(-log_sigma))
        return hazard, log_rate - log_sigma - log_time

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + sigma z."""
        return linear + torch.exp(shape[..., 0]) * normal_quantile(cumulative_hazard)

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


def normal_survival(z: Tensor) -> Tensor:
    """Phi(-z), any shape, with all digits of the tail, which torch's own function cuts off."""
    return torch.erfc(z * math.sqrt(0.5)) / 2


def normal_terms(z: Tensor) -> tuple[Tensor, Tensor]:
    """-log Phi(-z) and the log hazard of the standard normal at z, any shape."""
    hazard = normal_cumulative_hazard(z)
    # Far out in the tail the hazard is z, and the difference of two squares would have no digits left.
    far = z > 1e4
    near = torch.where(far, torch.zeros_like(z), z)
    near_hazard = torch.where(far, torch.zeros_like(hazard), hazard)
    log_rate = near_hazard - near * near / 2 - HALF_LOG_TWO_PI
    return hazard, torch.where(far, torch.where(far, z, torch.ones_like(z)).log(), log_rate)


def normal_quantile(cumulative_hazard: Tensor) -> Tensor:
    """Z with -log Phi(-z) = H, any shape, precise where S or 1 - S is tiny."""
    survival, failure = torch.exp(-cumulative_hazard), -torch.expm1(-cumulative_hazard)
    return torch.where(survival < 0.5, -torch.special.ndtri(survival), torch.special.ndtri(failure))


class Gompertz(RateFamily):
    """h(t) = b exp(a t) with log b = g and shape parameter a, positive or negative, per unit of model time.

    With a < 0 the survival function has the limit exp(b / a) > 0, a cured share; a = 0 is exponential. The
    parametrisation is flexsurv's (a = shape, b = rate).
    """

    name = "gompertz"
    kernel = "gompertz"
    shape_names = ("a",)

    @override
    def kernel_columns(self, log_time: Tensor) -> Tensor:
        return torch.stack([log_time, saturating_exp(log_time)], dim=-2)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: b (exp(a t) - 1) / a, smooth through a = 0."""
        return saturating_exp(linear + log_time + log_expm1_ratio(shape[..., 0] * saturating_exp(log_time)))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g + a t."""
        return linear + shape[..., 0] * saturating_exp(log_time)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: log(log(1 + a H / b) / a), +inf among the cured."""
        a, exponential = shape[..., 0], cumulative_hazard.log() - linear
        x = torch.where(a == 0, 0.0, a * exponential.exp())
        reached, beyond = x > -1, x > _FAR
        x = torch.where(reached & ~beyond, x, 0.0)
        near = x.abs() < 1e-4
        far = torch.where(near, 1.0, x)
        ratio = torch.where(near, 1 - x * (1 / 2 - x * (1 / 3 - x / 4)), torch.log1p(far) / far)
        # There x may be infinite, and its logarithm is not.
        rising = torch.where(beyond, a, 1.0)
        log_x = rising.log() + torch.where(beyond, exponential, 0.0)
        late = softplus(log_x).log() - rising.log()
        return torch.where(reached, torch.where(beyond, late, exponential + ratio.log()), torch.inf)

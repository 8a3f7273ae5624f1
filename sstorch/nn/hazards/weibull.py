"""Weibull leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import HazardFamily


class Weibull(HazardFamily):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name = "weibull"
    shape_names = ("log_a",)
    ratio = "time ratio"
    closed_form = True

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`."""
        return saturating_exp(torch.exp(shape[..., 0]) * (log_time - linear))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: log a - y + a (y - g)."""
        log_a = shape[..., 0]
        return log_a - log_time + torch.exp(log_a) * (log_time - linear)

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both hold a (y - g)."""
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

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

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + log(H) / a."""
        return linear + cumulative_hazard.log() * torch.exp(-shape[..., 0])

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu Gamma(1 + 1/a)."""
        if bool(torch.isposinf(log_tau).all()):
            return torch.exp(linear + torch.lgamma(1 + torch.exp(-shape[..., 0])))
        return super().restricted_mean(log_tau, linear, shape)

"""Log-normal leaf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sstorch.nn.hazards.base import HazardFamily

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class LogNormal(HazardFamily):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name = "log_normal"
    shape_names = ("log_sigma",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: -log Phi(-z), z = (y - g) / sigma."""
        return normal_cumulative_hazard((log_time - linear) * torch.exp(-shape[..., 0]))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`."""
        return self.terms(log_time, linear, shape)[1]

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both need log Phi(-z)."""
        log_sigma = shape[..., 0]
        z = (log_time - linear) * torch.exp(-log_sigma)
        hazard = normal_cumulative_hazard(z)
        return hazard, hazard - z * z / 2 - HALF_LOG_TWO_PI - log_sigma - log_time

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + sigma z."""
        return linear + torch.exp(shape[..., 0]) * normal_quantile(cumulative_hazard)

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`: exp(g + sigma^2/2) Phi(z - sigma) + tau S(tau)."""
        sigma = torch.exp(shape[..., 0])
        mean = torch.exp(linear + sigma * sigma / 2)
        finite = torch.isfinite(log_tau)
        z = (torch.where(finite, log_tau, linear) - linear) / sigma
        beyond = torch.exp(torch.where(finite, log_tau, 0.0) + torch.special.log_ndtr(-z))
        return torch.where(finite, mean * torch.special.ndtr(z - sigma) + beyond, mean)


def normal_cumulative_hazard(z: Tensor) -> Tensor:
    """-log Phi(-z), any shape."""
    log_survival: Tensor = torch.special.log_ndtr(-z)
    return -log_survival


def normal_quantile(cumulative_hazard: Tensor) -> Tensor:
    """Z with -log Phi(-z) = H, any shape, precise where S or 1 - S is tiny."""
    survival, failure = torch.exp(-cumulative_hazard), -torch.expm1(-cumulative_hazard)
    return torch.where(survival < 0.5, -torch.special.ndtri(survival), torch.special.ndtri(failure))

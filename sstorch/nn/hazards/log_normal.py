"""Log-normal leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import HALF_LOG_TWO_PI, normal_cumulative_hazard
from sstorch.nn.hazards.base import HazardFamily


class LogNormal(HazardFamily):
    """log T is normal with mean g and standard deviation sigma; shape parameter log sigma.

    The parametrisation is that of lifelines' ``LogNormalAFTFitter`` (g = mu_, sigma = sigma_).
    """

    name = "log_normal"
    shape_names = ("log_sigma",)
    ratio = "time ratio"

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: -log Phi(-z), z = (y - g) / sigma."""
        return normal_cumulative_hazard((log_time - linear) * torch.exp(-shape[..., 0]))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`."""
        return self.terms(log_time, linear, shape)[1]

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
        # In logarithms: for large sigma the mean overflows where Phi(z - sigma) underflows.
        log_mean = linear + sigma * sigma / 2
        before = torch.exp(log_mean + torch.special.log_ndtr(z - sigma))
        beyond = torch.exp(log_end + torch.special.log_ndtr(-z))
        return torch.where(finite, before + beyond, torch.exp(log_mean))


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

"""Exponential leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.base import HazardFamily


class Exponential(HazardFamily):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name = "exponential"
    shape_names = ()

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: exp(g + y)."""
        return saturating_exp(linear + log_time)

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g."""
        return linear + torch.zeros_like(log_time)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: log H - g."""
        return cumulative_hazard.log() - linear

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`: (1 - exp(-mu tau)) / mu."""
        return -torch.expm1(-saturating_exp(linear + log_tau)) * torch.exp(-linear)

    def guess(self, log_time: Tensor, event: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.guess`: the maximum itself, see :func:`log_rate`."""
        rate = log_rate(log_time, event, weight)
        return rate, rate.new_zeros(*rate.shape, 0)


def log_rate(log_time: Tensor, event: Tensor, weight: Tensor) -> Tensor:
    """Log of events per time at risk, (R, M) -> (R,), finite also without events.

    Problems without events count half an average row as one, so that their rate is small but not zero.
    """
    at_risk = torch.logsumexp(weight.log() + log_time, dim=-1)
    events = (weight * event).sum(-1)
    half_row = 0.5 * weight.sum(-1) / (weight > 0).sum(-1)
    return torch.where(events > 0, events, half_row).log() - at_risk

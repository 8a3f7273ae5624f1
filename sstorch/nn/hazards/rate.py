"""Families whose linear predictor is the log of a rate."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.hazards.base import HazardFamily


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
    """Log of events per time at risk, (R, M) -> (R,), finite also without events.

    Problems without events count half an average row as one, so that their rate is small but not zero.
    """
    if log_entry is not None:
        # log(exp(y) - exp(entry)), time at risk from the entry on.
        log_time = log_time + torch.log(-torch.expm1((log_entry - log_time).clamp(max=-1e-12)))
    at_risk = torch.logsumexp(weight.log() + log_time, dim=-1)
    events = (weight * event).sum(-1)
    half_row = 0.5 * weight.sum(-1) / (weight > 0).sum(-1)
    return torch.where(events > 0, events, half_row).log() - at_risk

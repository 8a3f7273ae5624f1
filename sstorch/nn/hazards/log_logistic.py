"""Log-logistic leaf."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sstorch.nn.functional import log_sigmoid_pair, softplus
from sstorch.nn.hazards.base import HazardFamily


class LogLogistic(HazardFamily):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name: ClassVar[str] = "log_logistic"
    shape_names: ClassVar[tuple[str, ...]] = ("log_a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: softplus(a (y - g))."""
        return softplus(torch.exp(shape[..., 0]) * (log_time - linear))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: log a - y - softplus(-a (y - g))."""
        log_a = shape[..., 0]
        return log_a - log_time - softplus(-torch.exp(log_a) * (log_time - linear))

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both softplus values come from one exponential."""
        log_a = shape[..., 0]
        log_event, log_survival = log_sigmoid_pair(torch.exp(log_a) * (log_time - linear))
        return -log_survival, log_a - log_time + log_event

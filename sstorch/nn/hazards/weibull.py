"""Weibull leaf."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sstorch.nn.hazards.base import HazardFamily


class Weibull(HazardFamily):
    """H(t) = (t / mu)^a with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``WeibullAFTFitter`` (mu = lambda_, a = rho_).
    """

    name: ClassVar[str] = "weibull"
    shape_names: ClassVar[tuple[str, ...]] = ("log_a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`."""
        return torch.exp(torch.exp(shape[..., 0]) * (log_time - linear))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: log a - y + a (y - g)."""
        log_a = shape[..., 0]
        return log_a - log_time + torch.exp(log_a) * (log_time - linear)

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both hold a (y - g)."""
        log_a = shape[..., 0]
        z = torch.exp(log_a) * (log_time - linear)
        return torch.exp(z), log_a - log_time + z

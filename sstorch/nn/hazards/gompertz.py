"""Gompertz leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import log_expm1_ratio, saturating_exp
from sstorch.nn.hazards.rate import RateFamily


class Gompertz(RateFamily):
    """h(t) = b exp(a t) with log b = g and shape parameter a, of either sign, per unit of model time.

    With a < 0 the survival function levels off at exp(b / a) > 0, a share of the cured; a = 0 is exponential.
    The parametrisation is flexsurv's (a = shape, b = rate).
    """

    name = "gompertz"
    shape_names = ("a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: b (exp(a t) - 1) / a, smooth through a = 0."""
        return saturating_exp(linear + log_time + log_expm1_ratio(shape[..., 0] * saturating_exp(log_time)))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: g + a t."""
        return linear + shape[..., 0] * saturating_exp(log_time)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: log(log(1 + a H / b) / a), +inf among the cured."""
        exponential = cumulative_hazard * torch.exp(-linear)
        x = shape[..., 0] * exponential
        reached = x > -1
        x = torch.where(reached, x, torch.zeros_like(x))
        near = x.abs() < 1e-4
        far = torch.where(near, torch.ones_like(x), x)
        ratio = torch.where(near, 1 - x * (1 / 2 - x * (1 / 3 - x / 4)), torch.log1p(far) / far)
        return torch.where(reached, exponential.log() + ratio.log(), torch.inf)

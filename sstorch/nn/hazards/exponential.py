"""Exponential leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import saturating_exp
from sstorch.nn.hazards.rate import RateFamily


class Exponential(RateFamily):
    """H(t) = mu t with log mu = g: a constant hazard, no shape parameter.

    flexsurv's "exp"; lifelines' ``ExponentialFitter`` has lambda_ = 1 / mu.
    """

    name = "exponential"
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

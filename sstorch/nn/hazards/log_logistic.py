"""Log-logistic leaf."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sstorch.nn.functional import log_expm1, log_sigmoid_pair, sigmoid_and_softplus, softplus
from sstorch.nn.hazards.base import HazardFamily


class LogLogistic(HazardFamily):
    """S(t) = 1 / (1 + (t / mu)^a) with log mu = g and shape parameter log a.

    The parametrisation is that of lifelines' ``LogLogisticAFTFitter`` (mu = alpha_, a = beta_).
    """

    name = "log_logistic"
    shape_names = ("log_a",)
    ratio = "time ratio"
    closed_form = True
    overflows = False

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`: softplus(a (y - g))."""
        return softplus(torch.exp(shape[..., 0]) * (log_time - linear))

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`: log a - y - softplus(-a (y - g))."""
        log_a = shape[..., 0]
        return log_a - log_time - softplus(-torch.exp(log_a) * (log_time - linear))

    def survival(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.survival`: sigmoid(a (g - y))."""
        return torch.sigmoid(torch.exp(shape[..., 0]) * (linear - log_time))

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: both softplus values come from one exponential."""
        log_a = shape[..., 0]
        log_event, log_survival = log_sigmoid_pair(torch.exp(log_a) * (log_time - linear))
        return -log_survival, log_a - log_time + log_event

    def loss_and_gradient(
        self, log_time: Tensor, event: Tensor, linear: Tensor, shape: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """See :meth:`HazardFamily.loss_and_gradient`.

        With z = a (y - g) the loss is (1 + c) softplus(z) - c (z + log a - y).
        """
        log_a = shape.detach()[..., 0]
        a = torch.exp(log_a)
        z = (log_time - linear.detach()).mul_(a)
        slope, loss = sigmoid_and_softplus(z)
        loss.mul_(1 + event).addcmul_(event, z, value=-1).addcmul_(event, log_a, value=-1).add_(
            event * log_time
        )
        slope.mul_(1 + event).sub_(event)
        return loss, slope * -a, (z.mul_(slope).sub_(event),)

    def log_quantile(self, cumulative_hazard: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_quantile`: g + log(exp(H) - 1) / a."""
        return linear + log_expm1(cumulative_hazard) * torch.exp(-shape[..., 0])

    def restricted_mean(self, log_tau: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.restricted_mean`; the mean is mu (pi/a) / sin(pi/a), +inf for a <= 1."""
        if bool(torch.isposinf(log_tau).all()):
            angle = math.pi * torch.exp(-shape[..., 0])
            exists = angle < math.pi
            angle = torch.where(exists, angle, torch.ones_like(angle))
            return torch.where(exists, torch.exp(linear) * angle / angle.sin(), torch.inf)
        return super().restricted_mean(log_tau, linear, shape)

"""Generalized gamma leaf."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.hazards.base import HazardFamily
from sstorch.nn.hazards.prentice import prentice_terms


class GeneralizedGamma(HazardFamily):
    """log T = g + sigma W with W of Prentice's distribution; shape parameters log sigma and Q.

    Q = 0 is log-normal, Q = 1 Weibull, Q = sigma gamma. The parametrisation is that of lifelines'
    ``GeneralizedGammaRegressionFitter`` (g = mu_, sigma = sigma_, Q = lambda_) and of flexsurv's "gengamma".

    References:
        Prentice (1974), Biometrika 61, 539-544; Cox et al. (2007), Statistics in Medicine 26, 4352-4374.
    """

    name = "generalized_gamma"
    shape_names = ("log_sigma", "q")
    ratio = "time ratio"
    exportable = False

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.cumulative_hazard`."""
        return prentice_terms((log_time - linear) * torch.exp(-shape[..., 0]), shape[..., 1])[0]

    def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """See :meth:`HazardFamily.log_hazard`."""
        return self.terms(log_time, linear, shape)[1]

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: one quadrature gives both."""
        log_sigma = shape[..., 0]
        hazard, log_rate = prentice_terms((log_time - linear) * torch.exp(-log_sigma), shape[..., 1])
        return hazard, log_rate - log_sigma - log_time

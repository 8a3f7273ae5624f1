"""Scales on which a spline models the survival function: eta -> H, and log dH/deta."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.nn.functional import log_sigmoid_pair, saturating_exp, softplus
from sstorch.nn.hazards.log_normal import normal_terms


def hazard_link(eta: Tensor) -> tuple[Tensor, Tensor]:
    """Proportional hazards: H = exp(eta)."""
    return saturating_exp(eta), eta


def odds_link(eta: Tensor) -> tuple[Tensor, Tensor]:
    """Proportional odds: H = log(1 + exp(eta))."""
    log_event, log_survival = log_sigmoid_pair(eta)
    return -log_survival, log_event


def normal_link(eta: Tensor) -> tuple[Tensor, Tensor]:
    """Probit: H = -log Phi(-eta)."""
    return normal_terms(eta)


def aranda_ordaz_link(eta: Tensor, log_theta: Tensor) -> tuple[Tensor, Tensor]:
    """H = log(1 + theta exp(eta)) / theta: odds at theta = 1, hazards as theta -> 0.

    References:
        Aranda-Ordaz (1981), Biometrika 68, 357-363.
    """
    z = eta + log_theta
    # Where theta exp(eta) is below rounding error the logarithm is its argument.
    small = z < -40
    hazard = torch.where(small, saturating_exp(eta), softplus(z) * torch.exp(-log_theta))
    return hazard, eta - softplus(z)

"""Restricted mean survival time by quadrature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sstorch.nn.hazards.inversion import LOG_TIME_RANGE

# Panels end where H reaches these values, so that each is smooth however sharp or flat the curve. To the left
# of the first, S is 1 to ten digits; to the right of the last it has the size of a rounding error.
_LEVELS = [
    1e-11,
    1e-9,
    1e-7,
    1e-5,
    1e-3,
    0.02,
    0.1,
    0.3,
    0.6,
    1.0,
    1.6,
    2.5,
    4.0,
    6.5,
    10.0,
    16.0,
    25.0,
    37.0,
]
_NODES, _WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(16))


def restricted_mean(
    log_quantile: Callable[[Tensor], Tensor],
    terms: Callable[[Tensor], tuple[Tensor, Tensor]],
    log_tau: Tensor,
    corners: Tensor,
) -> Tensor:
    """Integral of S over [0, tau] in log time, Gauss-Legendre on panels between quantiles.

    Beyond the last panel t S(t) is continued as the power of t that it is there: exact for families whose
    tail is one, without effect for the others.

    Args:
        log_quantile: log times at which H reaches the values (K,), shape (..., K).
        terms: H and log h at log times, both of shape (..., K).
        log_tau: log of tau, shape (...); +inf gives the mean.
        corners: log times where the curve is not smooth, shape (..., C), C >= 0.

    Returns:
        shape (...), in units of model time; +inf where the integral does not exist.
    """
    log_tau = log_tau[..., None]
    with torch.no_grad():
        ends = torch.minimum(log_quantile(log_tau.new_tensor(_LEVELS)), log_tau).clamp(min=-LOG_TIME_RANGE)
        first, final = ends[..., :1], ends[..., -1:]
        inside = torch.minimum(torch.maximum(corners, first), final)
        ends = torch.cat([ends, inside], dim=-1).sort(dim=-1).values
    left, right = ends[..., :-1], ends[..., 1:]
    # A panel that no finite time ends belongs to an infinite mean, which is set below.
    width = torch.where(torch.isfinite(right), right - left, 0.0)
    start = torch.where(torch.isfinite(left), left, 0.0)
    share = (left.new_tensor(_NODES) + 1) / 2
    y = start[..., None] + width[..., None] * share
    hazard = terms(y.flatten(-2))[0].reshape(y.shape)
    panels = (torch.exp(y - hazard) * left.new_tensor(_WEIGHTS)).sum(-1) * width / 2
    total = torch.exp(first) + panels.sum(-1, keepdim=True)

    last = torch.where(torch.isfinite(final), final, 0.0)
    hazard, log_hazard = terms(last)
    decay = torch.exp(log_hazard + last) - 1
    near = decay.abs() < 1e-12
    safe = torch.where(near, torch.ones_like(decay), decay)
    bounded = torch.isfinite(log_tau)
    width = torch.where(bounded, log_tau - last, 0.0)
    tail = torch.where(near, width, -torch.expm1(-safe * width) / safe)
    falls = decay > 1e-12
    tail = torch.where(bounded, tail, torch.where(falls, 1 / safe, 0.0))
    total = total + torch.where(final < log_tau, torch.exp(last - hazard) * tail, 0.0)
    endless = (final == torch.inf) | (~bounded & ~falls)
    return torch.where(endless, torch.inf, total).squeeze(-1)

"""Restricted mean survival time by quadrature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

# Panels end where H reaches these values, so that each is smooth however sharp or flat the curve. To the left
# of the first, S is 1 to ten digits; to the right of the last it has the size of a rounding error.
_LEVELS = (
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
)
# No finite log time is smaller in double precision.
_FAR = 700.0
_NODES, _WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(16))


def restricted_mean(
    log_quantile: Callable[[Tensor], Tensor],
    terms: Callable[[Tensor], tuple[Tensor, Tensor]],
    log_tau: Tensor,
    corners: Sequence[Tensor] = (),
) -> Tensor:
    """Integral of S over [0, tau] in log time, Gauss-Legendre on panels between quantiles.

    Beyond the last panel t S(t) is continued as the power of t that it is there: exact for families whose
    tail is one, without effect for the others.

    Args:
        log_quantile: log time at which H reaches a value, elementwise.
        terms: H and log h at log times, elementwise.
        log_tau: log of tau, shape (...); +inf gives the mean.
        corners: log times, broadcastable with shape (...), where the curve is not smooth.

    Returns:
        shape (...), in units of model time; +inf where the integral does not exist.
    """
    with torch.no_grad():
        ends = [
            torch.minimum(log_quantile(torch.full_like(log_tau, level)), log_tau).clamp(min=-_FAR)
            for level in _LEVELS
        ]
        first, final = ends[0], ends[-1]
        ends += [torch.minimum(torch.maximum(corner, first), final) for corner in corners]
        ends = list(torch.stack(ends).sort(dim=0).values) if corners else ends
    total = torch.exp(ends[0])
    for left, right in pairwise(ends):
        # A panel that no finite time ends has an infinite mean, which is set below.
        width = torch.where(torch.isfinite(right), right - left, 0.0)
        start = torch.where(torch.isfinite(left), left, 0.0)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            y = start + width * (node + 1) / 2
            total = total + weight * width / 2 * torch.exp(y - terms(y)[0])
    last = torch.where(torch.isfinite(ends[-1]), ends[-1], 0.0)
    hazard, log_hazard = terms(last)
    decay = torch.exp(log_hazard + last) - 1
    span = log_tau - last
    near = decay.abs() < 1e-12
    safe = torch.where(near, torch.ones_like(decay), decay)
    tail = torch.where(near, span, -torch.expm1(-safe * span) / safe) * torch.exp(last - hazard)
    total = total + torch.where(ends[-1] < log_tau, tail, torch.zeros_like(tail))
    return torch.where(ends[-1] == torch.inf, torch.inf, total)

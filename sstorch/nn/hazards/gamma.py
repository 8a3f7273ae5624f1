"""Generalized gamma leaves: Prentice's distribution by quadrature.

W has density f(w) = exp(-delta(1/Q^2) - w^2 psi(Q w)) / sqrt(2 pi), where psi(u) = (exp(u) - 1 - u) / u^2 and
delta is the remainder of Stirling's formula, log Gamma(k) = (k - 1/2) log k - k + log(2 pi)/2 + delta(k).
Both are smooth at Q = 0, where W is standard normal; Q = 1 is the extreme value distribution of log Weibull
times.

The upper tail is f(w) J(w), J(w) = int_0^inf exp(-A v - B v^2 psi(Q v)) dv with B = exp(Q w) and
A = (B - 1) / Q. For w >= 0 the integrand falls from 1 and is log-concave, for large -Q first in a layer of
width 1 / |Q|. Gauss and Legendre's rule for the square root of v, up to where the integrand is exp(-38),
gives log J to 1e-13 for |Q| <= 3, to 1e-11 for |Q| <= 5 and to 1e-8 beyond. For w < 0 the reflection
W(Q) = -W(-Q) is used. All operations are elementwise, so that autograd gives the derivatives.

References:
    Prentice (1974), Biometrika 61, 539-544.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import HALF_LOG_TWO_PI, readable
from sstorch.nn.hazards.base import HazardFamily

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_DEPTH = 38.0
_NEWTON_STEPS = 6
# Rows of a chunk, whose nodes stay in the processor's cache; other devices want to be filled.
_CHUNK, _OTHER_CHUNK = 2048, 2**18
# Exponents beyond which a term of the integrand is as good as infinite.
_EXPONENT = 300.0
# |Q| below which v^2 psi(Q v) comes from its series: the direct form loses 1 / |Q| of its digits.
_SMALL_Q = 3e-3
_PSI_SERIES = [1 / math.factorial(n + 2) for n in range(20)]
# Coefficients of Q^2, Q^6, Q^10 ... in delta(1 / Q^2): B_2n / (2n (2n - 1)).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


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

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.terms(log_time, linear, shape)[0]

    @override
    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        log_sigma, dtype = shape[..., 0], linear.dtype
        w, q = torch.broadcast_tensors((log_time - linear) * torch.exp(-log_sigma), shape[..., 1])
        w, q, mirrored = w.double(), q.double(), w < 0
        # From here on w >= 0 and the tail above it is meant.
        w, q = torch.where(mirrored, -w, w), torch.where(mirrored, -q, q)
        density = -HALF_LOG_TWO_PI - _stirling(q) - w * w * _psi((q * w).clamp(max=_EXPONENT))
        mills = _log_mills(w, q)
        tail = density + mills  # log of the upper tail
        # Mirrored: S = 1 - tail.
        below = torch.where(mirrored, tail, -1.0)
        small = below < -1
        log_survival = torch.where(
            small,
            torch.log1p(-torch.exp(torch.where(small, below, -1.0))),
            torch.log(-torch.expm1(torch.where(small, -1.0, below))),
        )
        hazard = -torch.where(mirrored, log_survival, tail)
        log_rate = torch.where(mirrored, density + hazard, -mills).to(dtype)
        return hazard.to(dtype), log_rate - log_sigma - log_time


def _log_mills(w: Tensor, q: Tensor) -> Tensor:
    """Log J for w >= 0; w and Q of one shape."""
    size = _CHUNK if w.device.type == "cpu" else _OTHER_CHUNK
    parts = zip(w.reshape(-1).split(size), q.reshape(-1).split(size), strict=True)
    return torch.cat([_log_mills_of(*part) for part in parts]).reshape(w.shape)


def _log_mills_of(w: Tensor, q: Tensor) -> Tensor:
    u = (q * w).clamp(max=_EXPONENT)
    b, near, small = torch.exp(u), u.abs() < 1.0, q.abs() < _SMALL_Q
    a = torch.where(near, w + q * w * w * _psi(u), torch.expm1(u) / torch.where(near, 1.0, q))
    with torch.no_grad():
        end = _depth(a, b, q)
    nodes, weights = (_rule if torch.compiler.is_compiling() else _kept_rule)(q.device)
    v = end * nodes[:, None]
    x = (q * v).clamp(max=_EXPONENT)
    v2_psi = (torch.expm1(x) - x) / torch.where(small, 1.0, q).square()
    if not (readable(small) and not bool(small.any())):
        v2_psi = torch.where(small, v * v * _horner(x, _PSI_SERIES[:7]), v2_psi)
    return torch.log(weights @ torch.exp(-a * v - b * v2_psi) * end)


def _rule(device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the integral over (0, 1), by Gauss and Legendre's rule for the square root."""
    root = (_NODES + 1) / 2
    return torch.as_tensor(root**2, device=device), torch.as_tensor(_WEIGHTS * root, device=device)


_kept_rule = lru_cache(_rule)  # a copy to another device waits


def _depth(a: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """Where A v + B v^2 psi(Q v) is about 38: Newton steps on a convex function, from an upper bound."""
    c = _DEPTH
    size = q.abs().clamp(min=1e-100)
    # Q <= 0: psi(-x) >= 1 / (2 + x). Q > 0: psi >= 1/2, and exp(x) - 1 - x >= exp(x) / 2 - 1.
    linear = 2 * a - c * size
    root = torch.sqrt(linear * linear + 8 * c * (a * size + b))
    falling = torch.where(linear > 0, 4 * c / (linear + root), (root - linear) / (2 * (a * size + b)))
    rising = torch.minimum(
        2 * c / (a + torch.sqrt(a * a + 2 * c * b)), torch.log(2 + 2 * c * q * q / b) / size
    )
    v = torch.where(q > 0, rising, falling)
    for _ in range(_NEWTON_STEPS):
        x = (q * v).clamp(max=_EXPONENT)
        psi = _psi(x)
        v = v - (a * v + b * v * v * psi - c) / (a + b * (v + x * v * psi))
    return v


def _psi(u: Tensor) -> Tensor:
    """psi(u) = (exp(u) - 1 - u) / u^2, u <= 300."""
    near = u.abs() < 1.0
    x = torch.where(near, 1.0, u)
    direct = (torch.expm1(x) - x) / (x * x)
    return torch.where(near, _horner(torch.where(near, u, 0.0), _PSI_SERIES), direct)


def _stirling(q: Tensor) -> Tensor:
    """delta(1 / Q^2)."""
    s = q * q
    near = s < 0.1
    x = torch.where(near, s, 0.0)
    k = 1 / torch.where(near, 1.0, s)
    direct = torch.lgamma(k) - (k - 0.5) * torch.log(k) + k - HALF_LOG_TWO_PI
    return torch.where(near, _horner(x * x, _STIRLING) * x, direct)


def _horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value

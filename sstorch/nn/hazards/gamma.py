"""Generalized gamma leaves: Prentice's distribution by quadrature.

W has density f(w) = exp(-delta(1/Q^2) - w^2 psi(Q w)) / sqrt(2 pi), where psi(u) = (exp(u) - 1 - u) / u^2 and
delta is the remainder of Stirling's formula, log Gamma(k) = (k - 1/2) log k - k + log(2 pi)/2 + delta(k).
Both are smooth at Q = 0, where W is standard normal; Q = 1 is the extreme value distribution of log Weibull
times.

The upper tail is f(w) J(w), J(w) = int_0^inf exp(-A v - B v^2 psi(Q v)) dv with B = exp(Q w) and
A = (B - 1) / Q. For w >= 0 the integrand falls from 1 and is log-concave: Gauss-Legendre nodes up to where it
is exp(-38) give J to rounding error, or for Q <= -1/2 a power series. For w < 0 the reflection
W(Q) = -W(-Q) is used.

References:
    Prentice (1974), Biometrika 61, 539-544.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn.functional import HALF_LOG_TWO_PI, untraceable
from sstorch.nn.hazards.base import HazardFamily

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_DEPTH = 38.0
_NEWTON_STEPS = 6
_SERIES_Q, _SERIES_TERMS = -0.5, 32
# Values of a chunk that stay in the processor's cache.
_CHUNK = 8192
# Of central differences.
_STEP = 6e-6
# Exponents beyond which a term of the integrand is as good as infinite.
_EXPONENT = 300.0
# |Q| below which v^2 psi(Q v) comes from its series: the direct form loses 1 / |Q| of its digits.
_SMALL_Q = 3e-3
_PSI_SERIES = [1 / math.factorial(n + 2) for n in range(20)]
_PSI_SLOPE_SERIES = [n / math.factorial(n + 2) for n in range(1, 20)]
# Coefficients of Q^2, Q^6, Q^10 ... in delta(1 / Q^2): B_2n / (2n (2n - 1)).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


class _PrenticeTerms(torch.autograd.Function):
    """-log S and log hazard of W, and the derivatives of both in w and Q, computed in the same pass."""

    @staticmethod
    def forward(w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        w64, q64 = torch.broadcast_tensors(w.double(), q.double())
        values = _evaluate(w64, q64)
        largest = math.sqrt(torch.finfo(w.dtype).max)
        slopes = (slope.clamp(-largest, largest) for slope in values[2:])
        return tuple(part.to(w.dtype) for part in (*values[:2], *slopes))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[2:])
        ctx.save_for_forward(*inputs)
        ctx.mark_non_differentiable(*output[2:])
        ctx.sizes = tuple(part.shape for part in inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        w, q, *slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = _PrenticeSlopes.apply(w, q)  # type: ignore[no-untyped-call]
        return _pulled_back(ctx.sizes, grads, slopes)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> tuple[Tensor | None, ...]:
        # Those of the output have no derivatives.
        slopes = _PrenticeSlopes.apply(*ctx.saved_tensors[:2])  # type: ignore[no-untyped-call]
        (hazard_w, hazard_q, log_hazard_w, log_hazard_q), (of_w, of_q) = slopes, tangents
        return hazard_w * of_w + hazard_q * of_q, log_hazard_w * of_w + log_hazard_q * of_q, *(None,) * 4

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], w: Tensor, q: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _PrenticeTerms.apply(*_aligned(in_dims, w, q)), (0,) * 6  # type: ignore[no-untyped-call]


def _pulled_back(
    sizes: Sequence[torch.Size], grads: Sequence[Tensor], slopes: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Gradients in w and Q, of their sizes, from those of -log S and of the log hazard."""
    hazard_w, hazard_q, log_hazard_w, log_hazard_q = slopes
    grad_w = grads[0] * hazard_w + grads[1] * log_hazard_w
    grad_q = grads[0] * hazard_q + grads[1] * log_hazard_q
    return grad_w.sum_to_size(sizes[0]), grad_q.sum_to_size(sizes[1])


class _PrenticeSlopes(torch.autograd.Function):
    """The derivatives of -log S and log hazard of W in w and Q; theirs are central differences."""

    @staticmethod
    def forward(w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        return _PrenticeTerms.forward(w, q)[2:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        moved = (
            torch.stack([grad * change for grad, change in zip(grads, changes, strict=True)]).sum(0)
            for changes in _PrenticeSlopes._changes(*ctx.saved_tensors)
        )
        given = zip(moved, ctx.saved_tensors, strict=True)
        return tuple(each.sum_to_size(part.shape).to(part.dtype) for each, part in given)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(*_PrenticeSlopes._changes(*ctx.saved_tensors), strict=True)
        moved = (of_w * tangents[0] + of_q * tangents[1] for of_w, of_q in pairs)
        return tuple(each.to(tangents[0].dtype) for each in moved)

    @staticmethod
    def _changes(w: Tensor, q: Tensor) -> Iterator[list[Tensor]]:
        """Derivatives of the four in w, then in Q, in double precision."""
        for step_w, step_q in ((_STEP, 0.0), (0.0, _STEP)):
            yield list(_PrenticeChanges.apply(w, q, step_w, step_q))  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], w: Tensor, q: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _PrenticeSlopes.apply(*_aligned(in_dims, w, q)), (0,) * 4  # type: ignore[no-untyped-call]


class _PrenticeChanges(torch.autograd.Function):
    """Central differences of the four slopes, in double precision: too coarse for others of their own."""

    @staticmethod
    def forward(w: Tensor, q: Tensor, step_w: float, step_q: float) -> tuple[Tensor, ...]:
        w, q = w.double(), q.double()
        ahead, behind = (_PrenticeTerms.forward(w + k * step_w, q + k * step_q)[2:] for k in (1, -1))
        return tuple((high - low) / (2 * _STEP) for high, low in zip(ahead, behind, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError("generalized_gamma has first and second derivatives, no third ones")

    jvp = backward

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], w: Tensor, q: Tensor, step_w: float, step_q: float
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        aligned = _aligned(in_dims[:2], w, q)
        changes = _PrenticeChanges.apply(*aligned, step_w, step_q)  # type: ignore[no-untyped-call]
        return changes, (0,) * 4


def _aligned(in_dims: Sequence[int | None], w: Tensor, q: Tensor) -> list[Tensor]:
    """The arguments of a vmap with its dimension first, the others as they broadcast."""
    rank = max(part.ndim - (dim is not None) for part, dim in zip((w, q), in_dims, strict=True))
    aligned = []
    for part, dim in zip((w, q), in_dims, strict=True):
        batched = part.unsqueeze(0) if dim is None else part.movedim(dim, 0)
        missing = rank + 1 - batched.ndim
        aligned.append(batched.reshape(batched.shape[0], *(1,) * missing, *batched.shape[1:]))
    return aligned


# What torch.compile calls and does not trace, since the values decide between the cases of a quadrature.
@torch.library.custom_op(
    "sstorch::prentice_terms",
    mutates_args=(),
    schema=f"(Tensor w, Tensor q) -> ({', '.join(['Tensor'] * 6)})",
)
def _compiled_terms(w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return _PrenticeTerms.forward(w, q)


@_compiled_terms.register_fake
def _(w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return tuple(w.new_empty(torch.broadcast_shapes(w.shape, q.shape)) for _ in range(6))


def _keep_slopes(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[2:])
    ctx.sizes = [part.shape for part in inputs]


_compiled_terms.register_autograd(
    lambda ctx, *grads: _pulled_back(ctx.sizes, grads, ctx.saved_tensors), setup_context=_keep_slopes
)


def prentice_terms(w: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Cumulative hazard -log S(w; Q) and log hazard of W at w; shapes broadcast; twice differentiable."""
    if torch.compiler.is_dynamo_compiling():
        return cast("tuple[Tensor, Tensor]", _compiled_terms(w, q)[:2])
    if untraceable():
        raise NotImplementedError("generalized_gamma has no derivatives by jacfwd of jacfwd: use hessian")
    return cast("tuple[Tensor, Tensor]", _PrenticeTerms.apply(w, q)[:2])  # type: ignore[no-untyped-call]


def _evaluate(w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """H, log h, and the derivatives H_w, H_q, (log h)_w, (log h)_q."""
    mirrored = w < 0
    sign = torch.where(mirrored, -1.0, 1.0).to(w)
    w, q = w * sign, q * sign  # from here on w >= 0 and the tail above it is meant
    density, density_w, density_q = _log_density(w, q)
    mills, mills_w, mills_q = _log_mills(w, q)
    tail = density + mills  # log of the upper tail
    rate = torch.exp(-mills)
    tail_q = density_q + mills_q
    # Mirrored: S = 1 - tail, and a derivative in the given w or Q is minus that in the mirrored one.
    below = torch.where(mirrored, tail, torch.full_like(tail, -1.0))
    survival = -torch.expm1(below)
    odds = torch.exp(below) / survival
    log_survival = torch.where(below < -1, torch.log1p(-torch.exp(below)), torch.log(survival))
    hazard = -torch.where(mirrored, log_survival, tail)
    hazard_w = torch.where(mirrored, odds * rate, rate)
    hazard_q = torch.where(mirrored, -odds * tail_q, -tail_q)
    log_hazard = torch.where(mirrored, density + hazard, -mills)
    log_hazard_w = torch.where(mirrored, -density_w + hazard_w, -mills_w)
    log_hazard_q = torch.where(mirrored, -density_q + hazard_q, -mills_q)
    return hazard, log_hazard, hazard_w, hazard_q, log_hazard_w, log_hazard_q


def _log_density(w: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log f and its derivatives in w and Q."""
    psi, psi_slope = _psi((q * w).clamp(max=_EXPONENT))
    delta, delta_slope = _stirling(q)
    w2 = w * w
    slope_w = -(w + q * w2 * psi)
    return -HALF_LOG_TWO_PI - delta - w2 * psi, slope_w, -delta_slope - w2 * w * psi_slope


def _log_mills(w: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log J for w >= 0, and its derivatives in w and Q; w and Q of one shape."""
    flat_w, flat_q = w.reshape(-1), q.reshape(-1)
    result = flat_w.new_empty(3, flat_w.numel())
    negative = flat_q <= _SERIES_Q
    for chosen, method, chunk in (
        (negative, _log_mills_series, _CHUNK // _SERIES_TERMS),
        (~negative, _log_mills_quadrature, _CHUNK),
    ):
        for rows in chosen.nonzero().squeeze(-1).split(chunk):
            result[:, rows] = torch.stack(method(flat_w[rows], flat_q[rows]))
    log_j, slope_w, slope_q = result.reshape(3, *w.shape)
    return log_j, slope_w, slope_q


def _log_mills_series(w: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For Q <= -1/2: the series of the lower incomplete gamma function.

    J = |Q| sum_n x^n / ((k + 1) ... (k + n)), where x = k exp(Q w) is at most 4. Quadrature would miss the
    layer of width 1 / |Q| at v = 0.
    """
    k = 1 / (q * q)
    x = k * torch.exp(q * w)
    n = torch.arange(1, _SERIES_TERMS, dtype=w.dtype, device=w.device).unsqueeze(-1)
    inverse = 1 / (k + n)
    term = torch.cumprod(x * inverse, 0)
    total = 1 + term.sum(0)
    slope_k = -(term * torch.cumsum(inverse, 0)).sum(0)
    log_x, log_k = (n * term).sum(0) / total, slope_k * k / total
    return torch.log(-q * total), q * log_x, 1 / q + (w - 2 / q) * log_x - 2 / q * log_k


def _log_mills_quadrature(w: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For Q > -1/2: Gauss-Legendre; the derivatives are moments of the same integrand."""
    u = (q * w).clamp(max=_EXPONENT)
    b = torch.exp(u)
    psi, psi_slope = _psi(u)
    near = u.abs() < 1.0
    a = torch.where(near, w + q * w * w * psi, torch.expm1(u) / torch.where(near, 1.0, q))
    end = _depth(a, b, q)
    rows = zip(*(part.split(_CHUNK // len(_NODES)) for part in (end, a, b, q)), strict=True)
    total, m1, m2, m3 = torch.cat([_moments(*part) for part in rows], -1)
    m1, m2, m3 = m1 / total, m2 / total, m3 / total
    a_q = w * w * (psi + u * psi_slope)
    return torch.log(total * end / 2), -b * (m1 + q * m2), -(a_q * m1 + b * (w * m2 + m3))


def _moments(end: Tensor, a: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """Sums over the nodes of the integrand, and of it times v, v^2 psi(Q v) and v^3 psi'(Q v), (4, rows)."""
    small = q.abs() < _SMALL_Q
    some_small = bool(small.any())
    divisor = torch.where(small, 1.0, q)
    nodes = torch.as_tensor((_NODES + 1) / 2, dtype=q.dtype, device=q.device).unsqueeze(-1)
    weights = torch.as_tensor(_WEIGHTS, dtype=q.dtype, device=q.device)
    v = end * nodes
    x = (q * v).clamp_(max=_EXPONENT)
    # v^2 psi(x) and v^3 psi'(x), which is (v^2 + (x - 2) v^2 psi(x)) / Q.
    v2_psi = (torch.expm1(x) - x) / (divisor * divisor)
    v3_slope = (v * v + (x - 2) * v2_psi) / divisor
    if some_small:
        series, slope_series = _horner(x, _PSI_SERIES[:7]), _horner(x, _PSI_SLOPE_SERIES[:7])
        v2_psi = torch.where(small, v * v * series, v2_psi)
        v3_slope = torch.where(small, v * v * v * slope_series, v3_slope)
    value = torch.exp(-a * v - b * v2_psi)
    return torch.stack([weights @ part for part in (value, value * v, value * v2_psi, value * v3_slope)])


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
        psi = _psi_value(x)
        value = a * v + b * v * v * psi - c
        slope = a + b * (v + x * v * psi)
        v = v - value / slope
    return v


def _psi(u: Tensor) -> tuple[Tensor, Tensor]:
    """psi(u) = (exp(u) - 1 - u) / u^2 and its derivative, u <= 300."""
    near = u.abs() < 1.0
    x = torch.where(near, u, 0.0)
    series, slope_series = _horner(x, _PSI_SERIES), _horner(x, _PSI_SLOPE_SERIES)
    x = torch.where(near, 1.0, u)
    exp = torch.exp(x)
    direct = (exp - 1 - x) / (x * x)
    slope = (exp * (x - 2) + x + 2) / (x * x * x)
    return torch.where(near, series, direct), torch.where(near, slope_series, slope)


def _psi_value(u: Tensor) -> Tensor:
    near = u.abs() < 1.0
    series = _horner(torch.where(near, u, 0.0), _PSI_SERIES)
    x = torch.where(near, 1.0, u)
    return torch.where(near, series, (torch.expm1(x) - x) / (x * x))


def _stirling(q: Tensor) -> tuple[Tensor, Tensor]:
    """delta(1 / Q^2) and its derivative in Q."""
    s = q * q
    near = s < 0.1
    x = torch.where(near, s, 0.0)
    series = _horner(x * x, _STIRLING)
    slope = _horner(x * x, [(2 * n + 1) * coefficient for n, coefficient in enumerate(_STIRLING)])
    k = 1 / torch.where(near, 1.0, s)
    direct = torch.lgamma(k) - (k - 0.5) * torch.log(k) + k - HALF_LOG_TWO_PI
    direct_slope = torch.digamma(k) - torch.log(k) + 0.5 / k
    # dk/dQ = -2 k / Q = -2 Q k^2
    return torch.where(near, series * x, direct), torch.where(
        near, 2 * q * slope, -2 * q * k * k * direct_slope
    )


def _horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.mul_(x).add_(coefficient)
    return value


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

    @override
    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return prentice_terms((log_time - linear) * torch.exp(-shape[..., 0]), shape[..., 1])[0]

    def terms(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`HazardFamily.terms`: one quadrature gives both."""
        log_sigma = shape[..., 0]
        hazard, log_rate = prentice_terms((log_time - linear) * torch.exp(-log_sigma), shape[..., 1])
        return hazard, log_rate - log_sigma - log_time

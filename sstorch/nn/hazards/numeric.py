"""Numerics of the families: inverses, integrals, derivatives by autograd, and points that rows place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.checks import is_number_of
from sstorch.exceptions import ConfigError, warn
from sstorch.nn.functional import readable

# Log times between which a solution is sought; exp of them neither overflows nor vanishes.
_DOUBLE_RANGE, _SINGLE_RANGE = 700.0, 80.0
_HALVINGS = 64


def log_time_limit(dtype: torch.dtype) -> float:
    """The largest log time, in model units, that families are requested in a precision."""
    return _DOUBLE_RANGE if dtype == torch.float64 else _SINGLE_RANGE


def invert(terms: Callable[[Tensor], tuple[Tensor, Tensor]], target: Tensor) -> Tensor:
    """Log time at which H, elementwise and never falling, reaches ``target`` > 0, +-inf if never."""
    # By bisection and Newton steps for log H, of which two without their values carry both derivatives.
    with torch.no_grad():
        limit = log_time_limit(target.dtype)
        low, high = torch.full_like(target, -limit), torch.full_like(target, limit)
        never, at_once = terms(high)[0] < target, terms(low)[0] > target
        solution, looking = torch.zeros_like(target), readable(target)
        rounding = 2 * torch.finfo(target.dtype).eps
        for step in range(2 * _HALVINGS if looking else _HALVINGS):
            hazard, log_hazard = terms(solution)
            below = hazard < target
            low, high = torch.where(below, solution, low), torch.where(below, high, solution)
            following = (low + high) / 2
            if looking and step % 3 < 2:
                newton = solution + (target / hazard).log() * hazard / torch.exp(log_hazard + solution)
                following = torch.where((newton > low) & (newton < high), newton, following)
            moved = (following - solution).abs() > rounding * (1 + following.abs())
            solution = following
            if looking and not bool((moved & ~never & ~at_once).any()):
                break
    for _ in range(2 if torch.is_grad_enabled() else 0):
        hazard, log_hazard = terms(solution)
        excess, slope = hazard - target, torch.exp(log_hazard + solution)
        usable = (slope > 0) & torch.isfinite(slope) & torch.isfinite(excess)
        change = (excess - excess.detach()) / torch.where(usable, slope, torch.ones_like(slope))
        solution = solution - torch.where(usable, change, torch.zeros_like(change))
    return solution.masked_fill(never, torch.inf).masked_fill(at_once, -torch.inf)


# Panels end where H reaches these values, so that each is smooth however sharp or flat the curve. To the left
# of the first, S is 1 to ten digits; to the right of the last it has the size of a rounding error.
_LEVELS = [1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 0.02, 0.1, 0.3, 0.6]
_LEVELS += [1.0, 1.6, 2.5, 4.0, 6.5, 10.0, 16.0, 25.0, 37.0]
# Other panels end so much before log tau, for curves that are flat there.
_BEFORE_TAU = [5.0, 15.0, 35.0]
# Beyond it exp(x) - 1 is exp(x).
_LARGE = 40.0
_NODES, _WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(16))


def restricted_mean(
    log_quantile: Callable[[Tensor], Tensor],  # log times (..., K) at which H reaches values (K,)
    terms: Callable[[Tensor], tuple[Tensor, Tensor]],  # H and log h at log times (..., K)
    log_tau: Tensor,  # (...), +inf for the mean
    corners: Tensor,  # (..., C), where the curve is not smooth
) -> Tensor:
    """Integral of S over [0, tau] in log time (...), Gauss-Legendre on panels between quantiles."""
    # Beyond the last panel t S(t) is continued as a power of t. +inf if the integral does not exist.
    log_tau = log_tau[..., None]
    with torch.no_grad():
        # Where a level is reached at once H is above it from this limit on, as it was for the inversion.
        limit = log_time_limit(log_tau.dtype)
        ends = torch.minimum(log_quantile(log_tau.new_tensor(_LEVELS)), log_tau).clamp(min=-limit)
        ends = ends.detach()  # from derivatives in forward mode, too
        first, final = ends[..., :1], ends[..., -1:]
        corners = torch.cat([corners, log_tau - log_tau.new_tensor(_BEFORE_TAU)], dim=-1)
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
    growth = -safe * width
    tail = torch.where(near, width, -torch.expm1(growth.clamp(max=_LARGE)) / safe)
    falls = decay > 1e-12
    tail = torch.exp(last - hazard) * torch.where(bounded, tail, torch.where(falls, 1 / safe, 0.0))
    # Where t S(t) grows over a panel so long that only its end counts, the factors apart have no number.
    tail = torch.where(bounded & ~near & (growth > _LARGE), torch.exp(last - hazard + growth) / -safe, tail)
    total = total + torch.where(final < log_tau, tail, 0.0)
    endless = (final == torch.inf) | (~bounded & ~falls)
    return torch.where(endless, torch.inf, total).squeeze(-1)


def check_placement(name: str, value: object, least: int, least_times: int) -> int | tuple[float, ...]:
    """A number of points, or increasing positive times of points; else ConfigError names the option."""
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least:
        return int(value)
    times = [*value] if isinstance(value, Iterable) else []
    if len(times) >= least_times and all(is_number_of(time, Real) for time in times):
        given = tuple(map(float, times))
        if all(a < b < math.inf for a, b in pairwise((0.0, *given))):
            return given
    raise ConfigError(
        f"{name} must be a number >= {least}, or at least {least_times} positive finite times in increasing "
        f"order, got {value!r}"
    )


def placed(
    given: int | Sequence[float],
    rows: Sequence[Tensor],
    name: str,
    choose: Callable[[FloatArray], FloatArray],
) -> list[FloatArray]:
    """Log times of points in model units, an array a problem: given ones, or chosen among those of events."""
    # Rows are arguments of :meth:`HazardFamily.prepare`. Without events, with a warning, among all times.
    log_time, event, weight, log_time_scale = rows
    if not isinstance(given, int):
        return [np.log(given) - scale for scale in log_time_scale.double().cpu().numpy()]
    times = log_time.double().cpu().numpy()
    real = (weight > 0).cpu().numpy()
    observed = real & (event > 0).cpu().numpy()
    without = ~observed.any(axis=1)
    if without.any():
        warn(
            f"no event in {without.sum()} of {len(times)} sets of training rows: "
            f"their {name} lie among the censoring times"
        )
    chosen = np.where(without[:, None], real, observed)
    return [choose(row[mask]) for row, mask in zip(times, chosen, strict=True)]


def pick(values: Tensor, number: Tensor) -> Tensor:
    """Values (..., C) at numbers 0 .. C - 1, whose shape broadcasts with (...)."""
    lead = torch.broadcast_shapes(values.shape[:-1], number.shape)
    chosen = number.expand(lead)[..., None]
    return values.expand(*lead, values.shape[-1]).gather(-1, chosen).squeeze(-1)


def derived_terms(
    cumulative_hazard: Callable[[Tensor, Tensor, Tensor], Tensor],
    log_time: Tensor,
    linear: Tensor,
    shape: Tensor,
    *others: Tensor,
) -> tuple[Tensor, Tensor]:
    """H and log h = log(dH/dy) - y by autograd, of arguments and of other tensors that H depends on."""
    # Every element needs a log time of its own, since each has a derivative of its own.
    y = log_time.expand(torch.broadcast_shapes(log_time.shape, linear.shape, shape.shape[:-1])).clone()
    transformed = torch.is_inference_mode_enabled() or torch._C._are_functorch_transforms_active()
    parts = (log_time, linear, shape, *others)
    recording = torch.is_grad_enabled() and any(part.requires_grad for part in parts)
    if transformed:
        hazard, pull = torch.func.vjp(lambda y: cumulative_hazard(y, linear, shape), y)[:2]
        (slope,) = pull(torch.ones_like(hazard))
    else:  # the same without the compiler of torch, which torch.func loads
        with torch.enable_grad():
            y = y if y.requires_grad else y.requires_grad_()
            hazard = cumulative_hazard(y, linear, shape)
            (slope,) = torch.autograd.grad(hazard.sum(), y, create_graph=recording)
    log_hazard = slope.clamp(min=torch.finfo(slope.dtype).tiny).log() - log_time
    return (hazard, log_hazard) if recording or transformed else (hazard.detach(), log_hazard.detach())

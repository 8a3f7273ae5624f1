"""Inversion of a cumulative hazard."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Log times between which a solution is sought; exp of them neither overflows nor vanishes.
LOG_TIME_RANGE, _SINGLE_RANGE = 700.0, 80.0
_HALVINGS = 64


def log_time_limit(dtype: torch.dtype) -> float:
    """The largest log time, in model units, that families are asked for in a precision."""
    return LOG_TIME_RANGE if dtype == torch.float64 else _SINGLE_RANGE


def invert(cumulative_hazard: Callable[[Tensor], Tensor], target: Tensor) -> Tensor:
    """Log time at which a cumulative hazard reaches ``target``, by bisection.

    The result has the gradient of the implicit function: a Newton step, which is zero up to rounding, is
    added.

    Args:
        cumulative_hazard: H of log times, elementwise, never falling.
        target: values of H > 0, shape (...).

    Returns:
        shape (...); +inf where H stays below the target, -inf where it is above at once.
    """
    with torch.no_grad():
        limit = log_time_limit(target.dtype)
        low, high = torch.full_like(target, -limit), torch.full_like(target, limit)
        never, at_once = cumulative_hazard(high) < target, cumulative_hazard(low) > target
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = cumulative_hazard(middle) < target
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        solution = (low + high) / 2
    at_solution = cumulative_hazard(solution)
    if at_solution.requires_grad:
        y = solution.clone().requires_grad_()
        hazard = cumulative_hazard(y)
        (slope,) = torch.autograd.grad(hazard.sum(), y)
        usable = (slope > 0) & torch.isfinite(slope) & torch.isfinite(at_solution)
        change = (at_solution - at_solution.detach()) / torch.where(usable, slope, torch.ones_like(slope))
        solution = solution - torch.where(usable, change, torch.zeros_like(change))
    return solution.masked_fill(never, torch.inf).masked_fill(at_once, -torch.inf)

"""Steps minimised in single precision and accepted in double."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from sstorch.nn import HazardFamily
from sstorch.optim.lbfgs import LBFGSOptions, minimize
from sstorch.optim.result import OptimizationResult
from sstorch.optim.sharded_step import ShardedStep

T = TypeVar("T")


def minimize_step_in_single(step: ShardedStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """Minimise a step in float32; a problem whose value in the step's own precision does not fall stays.

    Half the memory is moved and twice as many numbers fit a register, at the price of minima that are right
    to about seven digits of the value.

    Args:
        step: K problems.
        start: shape (K, d).
        options: tolerances and limits; what float32 cannot tell apart counts as converged.

    Returns:
        points, values and gradients in the precision of ``start``; evaluations are those in float32.
    """
    single, low = _in_single(step), start.float()
    found = minimize(single, low, options, single.metric(low))
    x = found.x.to(start.dtype)
    before, gradient_before = step.value_and_gradient(start)
    value, gradient = step.value_and_gradient(x)
    # Written so that nan is not an improvement.
    better = value < before
    better = better | ~torch.isfinite(before) & torch.isfinite(value)
    gradient = torch.where(better[:, None], gradient, gradient_before)
    return replace(
        found,
        x=torch.where(better[:, None], x, start),
        value=torch.where(better, value, before),
        gradient_norm=gradient.abs().amax(-1),
    )


def _in_single(part: T) -> T:
    """The same with every floating tensor of dataclasses in float32; modules of trees are left alone."""
    converted: Any = part
    if isinstance(part, Tensor):
        converted = part.float() if part.is_floating_point() else part
    elif isinstance(part, HazardFamily):
        converted = part.in_dtype(torch.float32)
    elif isinstance(part, tuple):
        converted = tuple(_in_single(item) for item in part)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        # Parameters of the tree are where a step is read from and written to, not what it computes with.
        changed = {name: _in_single(value) for name, value in fields.items() if name != "parameters"}
        converted = replace(part, **changed)
    return cast(T, converted)

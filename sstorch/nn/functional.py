"""Elementwise functions in forms that neither overflow nor lose digits."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from sstorch.exceptions import DataError

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# A cumulative hazard at which exp(-H) is 0 in every precision.
_GONE = 800.0


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp(z)) to full precision (torch's own has a threshold), any shape; 0 at -inf, +inf at +inf."""
    return -logsigmoid(-z)


def sigmoid_and_softplus(z: Tensor) -> tuple[Tensor, Tensor]:
    """Sigmoid(z) and log(1 + exp(z)) to rounding of max(|z|, 1), without a graph, four times as fast."""
    sigmoid = torch.sigmoid(z)
    least = torch.finfo(z.dtype).tiny
    # softplus(z) = z - log sigmoid(z); where sigmoid underflows both are cut off at the same z.
    return sigmoid, z.clamp(min=math.log(least)).sub_(sigmoid.clamp(min=least).log_())


def saturating_exp(z: Tensor) -> Tensor:
    """exp(z), any shape, with a gradient of 0 where it is +inf: 0 x inf would be nan."""
    if not torch.is_grad_enabled():
        return torch.exp(z)
    largest = math.log(torch.finfo(z.dtype).max) - 1e-3
    return torch.where(z > largest, torch.inf, torch.exp(z.clamp(max=largest)))


def survival_of(cumulative_hazard: Tensor) -> Tensor:
    """exp(-H), any shape; its derivatives of any order are 0 where it underflows: 0 x inf would be nan."""
    return torch.exp(-cumulative_hazard.clamp(max=_GONE))


def normal_cumulative_hazard(z: Tensor) -> Tensor:
    """-log Phi(-z), any shape, constant where it is below 1e-150 (in double precision)."""
    # Below, the derivative of torch's derivative would be inf / inf.
    least = -math.sqrt(math.log(torch.finfo(z.dtype).max) - 4)
    log_survival: Tensor = torch.special.log_ndtr(-z.clamp(min=least))
    return -log_survival


def log_expm1_ratio(z: Tensor) -> Tensor:
    """log((exp(z) - 1) / z), any shape, smooth through its value 0 at z = 0."""
    near = z.abs() < 2e-2
    # Not abs, whose second derivative loads the compiler of torch.
    size = torch.where(near, torch.ones_like(z), torch.where(z > 0, z, -z))
    far = z.clamp(min=0) + torch.log1p(-torch.exp(-size)) - torch.log(size)
    square = torch.where(near, z * z / 4, torch.zeros_like(z))
    series = z / 2 + square * (1 / 6 - square * (1 / 180 - square / 2835))
    return torch.where(near, series, far)


def log_expm1(x: Tensor) -> Tensor:
    """log(exp(x) - 1) for x > 0, any shape."""
    return x + torch.log(-torch.expm1(-x))


def gradients(value: Tensor, parts: Sequence[Tensor], create_graph: bool = False) -> Sequence[Tensor]:
    """Gradients of a number, zero for parts that it does not depend on; its graph is kept."""
    if not value.requires_grad:
        return [torch.zeros_like(part) for part in parts]
    return torch.autograd.grad(
        value, parts, retain_graph=True, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def with_own_tensors(module: ModuleT) -> ModuleT:
    """A copy of a module, with its tensors but in dictionaries of its own; itself if it has none."""
    parameters, buffers, children = module._parameters, module._buffers, module._modules
    if not (parameters or buffers or children):
        return module
    chosen = copy.copy(module)
    chosen._parameters, chosen._buffers = parameters.copy(), buffers.copy()
    chosen._modules = {name: part and with_own_tensors(part) for name, part in children.items()}
    return chosen


def log_mixture(log_weight: Tensor, losses: Tensor, dim: int) -> Tensor:
    """Log of the sum of weight x exp(-loss) over components in a dimension; -inf if all losses overflow."""
    # Where all of the terms are zero the logarithm of their sum has no gradient.
    limit = torch.finfo(losses.dtype).max / 4
    mixed = torch.logsumexp(log_weight.clamp(min=-limit) - losses.clamp(max=limit), dim=dim)
    return torch.where((losses > limit).all(dim), -torch.inf, mixed)


def log_weight_given(log_weight: Tensor, hazard: Tensor, dim: int) -> Tensor:
    """Log weights of components in a dimension, given survival to their cumulative hazards."""
    # Far out, where the survival of every component underflows, their weights are those without it.
    return (log_weight - hazard.clamp(max=torch.finfo(hazard.dtype).max / 2)).log_softmax(dim)


def readable(value: Tensor) -> bool:
    """True if values can be looked at: no device has to wait, and nothing traces or transforms them."""
    if torch.compiler.is_compiling():  # torch.compile does not know the functions below
        return False
    traced = torch._C._len_torch_dispatch_stack() > 0  # by make_fx, or by fake tensors
    return value.device.type == "cpu" and not traced and not torch._C._are_functorch_transforms_active()


def check_values(value: Tensor, good: Tensor, name: str, wanted: str) -> None:
    """Raise DataError with the first value that is not ``good``, boolean, broadcastable; rows come last."""
    if readable(good) and not bool(good.all()):
        place = (~good).nonzero()[0].tolist()
        found = float(value.detach().expand(good.shape)[tuple(place)])
        where = f" at position {', '.join(map(str, place))}" if place else ""
        raise DataError(f"`{name}` must be {wanted}, got {found:g}{where}")

"""Elementwise functions in forms that neither overflow nor lose digits."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# A cumulative hazard at which exp(-H) is 0 in every precision.
_GONE = 800.0


class _Elementwise(torch.autograd.Function):
    """A function of one tensor, which its gradient needs.

    Of a function with one value, the same product with the derivative serves both modes of differentiation.
    """

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @classmethod
    def jvp(cls, ctx: Any, *tangents: Tensor) -> Any:
        return cls.backward(ctx, *tangents)


class _LogSigmoidPair(_Elementwise):
    """log sigmoid(z) and log sigmoid(-z) from one exponential and one logarithm."""

    @staticmethod
    def forward(logit: Tensor) -> tuple[Tensor, Tensor]:
        tail = torch.log1p(torch.exp(-logit.abs()))
        below = logit.clamp(max=0)
        return below - tail, (below - logit) - tail

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (logit,) = ctx.saved_tensors
        grad_left, grad_right = grads
        return grad_left - torch.sigmoid(logit) * (grad_left + grad_right)

    @classmethod
    @override
    def jvp(cls, ctx: Any, *tangents: Tensor) -> tuple[Tensor, Tensor]:
        (logit,) = ctx.saved_tensors
        return torch.sigmoid(-logit) * tangents[0], -torch.sigmoid(logit) * tangents[0]


class _Softplus(_Elementwise):
    """log(1 + exp z), exact for every z (torch switches to the identity at a threshold)."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return z.clamp(min=0) + torch.log1p(torch.exp(-z.abs()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return grads[0] * torch.sigmoid(z)


def log_sigmoid_pair(logit: Tensor) -> tuple[Tensor, Tensor]:
    """Logs of sigmoid(z) and sigmoid(-z), any shape, exact to rounding and differentiable everywhere."""
    return cast("tuple[Tensor, Tensor]", _LogSigmoidPair.apply(logit))  # type: ignore[no-untyped-call]


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp(z)) to full precision, any shape; 0 at -inf and +inf at +inf."""
    return cast(Tensor, _Softplus.apply(z))  # type: ignore[no-untyped-call]


def sigmoid_and_softplus(z: Tensor) -> tuple[Tensor, Tensor]:
    """Sigmoid(z) and log(1 + exp(z)), any shape, without a graph, from one exponential and one logarithm.

    The second is right to rounding of max(|z|, 1) alone; it takes a quarter of the time of :func:`softplus`.
    """
    sigmoid = torch.sigmoid(z)
    least = torch.finfo(z.dtype).tiny
    # softplus(z) = z - log sigmoid(z); where sigmoid underflows both are cut off at the same z.
    return sigmoid, z.clamp(min=math.log(least)).sub_(sigmoid.clamp(min=least).log_())


class _SaturatingExp(_Elementwise):
    """exp(z), +inf if it overflows, with derivatives that stay finite there."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return torch.exp(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (value,) = ctx.saved_tensors
        # Products with the derivatives of z are finite, those of second derivatives, too.
        large = math.sqrt(torch.finfo(value.dtype).max)
        slope: Tensor = value.masked_fill(value.isinf(), large)
        return grads[0] * slope


def saturating_exp(z: Tensor) -> Tensor:
    """exp(z), any shape, with a large finite gradient where it is +inf: 0 x inf would be nan."""
    return cast(Tensor, _SaturatingExp.apply(z))  # type: ignore[no-untyped-call]


def survival_of(cumulative_hazard: Tensor) -> Tensor:
    """exp(-H), any shape; its derivatives of any order are 0 where it underflows: 0 x inf would be nan."""
    return torch.exp(-cumulative_hazard.clamp(max=_GONE))


class _NormalCumulativeHazard(_Elementwise):
    """-log Phi(-z), whose gradient, the hazard of the normal distribution, stays finite."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        log_survival: Tensor = torch.special.log_ndtr(-z)
        return -log_survival

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        largest = torch.finfo(z.dtype).max
        # Below, where the rate is smaller than 1 / sqrt(largest), its own derivative would be inf / inf.
        scaled = z.clamp(min=-math.sqrt(math.log(largest) - 4)) * math.sqrt(0.5)
        rate: Tensor = math.sqrt(2 / math.pi) / torch.special.erfcx(scaled)
        return grads[0] * rate.clamp(max=largest)


def normal_cumulative_hazard(z: Tensor) -> Tensor:
    """-log Phi(-z), any shape."""
    return cast(Tensor, _NormalCumulativeHazard.apply(z))  # type: ignore[no-untyped-call]


def log_expm1_ratio(z: Tensor) -> Tensor:
    """log((exp(z) - 1) / z), any shape, smooth through its value 0 at z = 0."""
    near = z.abs() < 2e-2
    size = torch.where(near, torch.ones_like(z), z.abs())
    far = z.clamp(min=0) + torch.log1p(-torch.exp(-size)) - torch.log(size)
    square = torch.where(near, z * z / 4, torch.zeros_like(z))
    series = z / 2 + square * (1 / 6 - square * (1 / 180 - square / 2835))
    return torch.where(near, series, far)


def log_expm1(x: Tensor) -> Tensor:
    """log(exp(x) - 1) for x > 0, any shape."""
    return x + torch.log(-torch.expm1(-x))

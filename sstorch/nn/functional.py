"""Elementwise functions in forms that neither overflow nor lose digits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import override

from sstorch.exceptions import DataError

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# A cumulative hazard at which exp(-H) is 0 in every precision.
_GONE = 800.0


class _Elementwise(torch.autograd.Function):
    """A function of one tensor, which its gradient needs.

    Of a function with one value, the same product with the derivative serves both modes of differentiation.
    Where torch takes no function with a ``jvp`` of its own, plain operations stand for it.
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


def untraceable() -> bool:
    """True where a function with derivatives of its own has to be left: torch.compile, jacfwd of jacfwd.

    Forward mode over forward mode takes the derivative of such a function for a constant, in silence.
    """
    if torch.compiler.is_dynamo_compiling():
        return True
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    return [each.key() for each in transforms].count(torch._C._functorch.TransformType.Jvp) > 1


def log_sigmoid_pair(logit: Tensor) -> tuple[Tensor, Tensor]:
    """Logs of sigmoid(z) and sigmoid(-z), any shape, exact to rounding and differentiable everywhere."""
    if untraceable():
        return logsigmoid(logit), logsigmoid(-logit)
    return cast("tuple[Tensor, Tensor]", _LogSigmoidPair.apply(logit))  # type: ignore[no-untyped-call]


def softplus(z: Tensor) -> Tensor:
    """log(1 + exp(z)) to full precision, any shape; 0 at -inf and +inf at +inf."""
    if untraceable():
        return -logsigmoid(-z)
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
    if untraceable():
        # The gradient is 0 where it is +inf.
        largest = math.log(torch.finfo(z.dtype).max) - 1e-3
        return torch.where(z > largest, torch.inf, torch.exp(z.clamp(max=largest)))
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
    if untraceable():
        log_survival: Tensor = torch.special.log_ndtr(-z)
        return -log_survival
    return cast(Tensor, _NormalCumulativeHazard.apply(z))  # type: ignore[no-untyped-call]


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


class _KnownGradient(torch.autograd.Function):
    """Values of a function of some tensors, and its gradients in them, computed beforehand."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        known: tuple[Tensor, Sequence[Tensor]],
        *inputs: Tensor,
    ) -> Tensor:
        value, ctx.gradients = known
        ctx.function = function
        ctx.save_for_backward(*inputs)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (grad,), needed = ctx.saved_tensors, grads, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again
            again = iter(
                torch.autograd.grad(
                    ctx.function(*inputs),
                    [part for part, needs in zip(inputs, needed, strict=True) if needs],
                    grad,
                    create_graph=True,
                    materialize_grads=True,
                )
            )
            return None, None, *(next(again) if needs else None for needs in needed)
        spread = (grad.reshape(*grad.shape, *(1,) * (part.ndim - grad.ndim)) for part in ctx.gradients)
        parts = zip(inputs, ctx.gradients, spread, needed, strict=True)
        return (
            None,
            None,
            *(
                (each * gradient).sum_to_size(part.shape) if needs else None
                for part, gradient, each, needs in parts
            ),
        )


def with_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], value: Tensor, gradients: Sequence[Tensor]
) -> Tensor:
    """The value of ``function(*inputs)`` as one node of the graph, whose gradients are known.

    The function is called only if a derivative is to be differentiated again (``create_graph=True``).

    Args:
        function: of the inputs, by plain operations; no other tensor that it uses may require a gradient.
        inputs: tensors.
        value: shape (...).
        gradients: derivatives of each value in each input, of the shape of the value, or with more dimensions
            behind; summed to the shape of the input.
    """
    return cast(
        Tensor,
        _KnownGradient.apply(function, (value, gradients), *inputs),  # type: ignore[no-untyped-call]
    )


def plain_operations(*tensors: Tensor | None) -> bool:
    """True if derivatives must come from plain operations, not from gradients known beforehand.

    So they must under torch.func and torch.compile, and if one of the other ``tensors`` of a function
    requires a gradient.
    """
    return (
        torch._C._are_functorch_transforms_active()
        or torch.compiler.is_compiling()
        or any(part is not None and part.requires_grad for part in tensors)
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
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return value.device.type == "cpu" and not transformed


def check_values(value: Tensor, good: Tensor, name: str, wanted: str) -> None:
    """Raise DataError with the first value that is not ``good``, boolean, broadcastable; rows come last."""
    if readable(good) and not bool(good.all()):
        place = (~good).nonzero()[0].tolist()
        found = float(value.detach().expand(good.shape)[tuple(place)])
        where = f" at position {', '.join(map(str, place))}" if place else ""
        raise DataError(f"`{name}` must be {wanted}, got {found:g}{where}")

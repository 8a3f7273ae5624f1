"""Functions of torch as expressions: the operations of a trace, each carried out on expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sstorch.deploy.expression import (
    Expression,
    as_expression,
    constant,
    equal,
    is_truth,
    maximum,
    minimum,
    pick,
    polynomial,
    unary,
    where,
)
from sstorch.exceptions import ConfigError

Array = NDArray[Any]
# Pieces of the normal tail, and the degree of the polynomial on each.
_TAIL_PIECES, _TAIL_DEGREE = 16, 11


def trace(function: Callable[..., Tensor], *args: Array, what: str = "a model") -> Array:
    """Result of a torch function, without branches on values, for arrays of expressions or numbers."""
    # ConfigError: an operation has no counterpart.
    with torch.no_grad():
        examples = [torch.full(arg.shape, 0.5, dtype=torch.float64) for arg in args]
        graph = make_fx(function)(*examples)
    values: dict[Any, Any] = {}
    inputs = iter(args)

    def resolved(node: Any) -> Any:
        return torch.fx.node.map_arg(node, lambda each: values[each])

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "get_attr":
            tensor = getattr(graph, node.target)
            values[node] = _constants(tensor)
        elif node.op == "output":
            (result,) = node.args if isinstance(node.args[0], torch.fx.Node) else node.args[0]
            return np.asarray(values[result], dtype=object)
        else:
            name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
            if name not in _OPERATIONS:
                raise ConfigError(f"{what} cannot be written as code: {name} has no counterpart")
            values[node] = _OPERATIONS[name](*resolved(node.args), **resolved(node.kwargs))
    raise AssertionError("a trace without a result")


def log_normal_tail(x: Expression) -> Expression:
    """Log Phi(x) of the standard normal, to rounding."""
    # Phi(-z) = erfcx(z / sqrt 2) exp(-z^2 / 2) / 2 for z >= 0; erfcx(u) / s is a smooth function of
    # s = 2 / (2 + u) in (0, 1], here a polynomial in each of sixteen intervals.
    size = unary("absolute", x)
    u = size * math.sqrt(0.5)
    s = 2.0 / (2.0 + u)
    ends = np.arange(1, _TAIL_PIECES) / _TAIL_PIECES
    piece = as_expression(0.0)
    for end in ends:
        piece = piece + where(s > float(end), 1.0, 0.0)
    table = _tail_table()
    local = s - pick(piece, table[0])
    scaled = polynomial(local, [pick(piece, row) for row in table[1:]]) * s
    tail = unary("log", scaled * 0.5) - u * u
    return where(x < 0.0, tail, unary("log1p", -unary("exp", tail)))


@cache
def _tail_table() -> list[list[float]]:
    """Centres of the pieces, then their coefficients by power."""
    rows = []
    for k in range(_TAIL_PIECES):
        centre, half = (k + 0.5) / _TAIL_PIECES, 0.5 / _TAIL_PIECES
        # At Chebyshev's points, of which none is at s = 0.
        local = half * np.cos(np.pi * (np.arange(40) + 0.5) / 40)
        s = centre + local
        values = torch.special.erfcx(torch.as_tensor(2 / s - 2)).numpy() / s
        fitted = np.polynomial.Chebyshev.fit(local, values, _TAIL_DEGREE, domain=[-half, half])
        rows.append([centre, *fitted.convert(kind=np.polynomial.Polynomial).coef])
    return [[*map(float, row)] for row in np.array(rows).T]


def _constants(tensor: Any) -> Array:
    values = tensor.detach().cpu().numpy() if isinstance(tensor, Tensor) else np.asarray(tensor)
    out = np.empty(values.shape, dtype=object)
    for place, value in np.ndenumerate(values):
        out[place] = constant(value.item())
    return out


def _each(function: Callable[..., Expression]) -> Callable[..., Array]:
    """The function of expressions for arrays that broadcast."""

    def apply(*args: Any, **_: Any) -> Array:
        arrays = np.broadcast_arrays(*(np.asarray(arg, dtype=object) for arg in args))
        out = np.empty(arrays[0].shape, dtype=object)
        for place in np.ndindex(out.shape):
            out[place] = function(*(as_expression(array.item(place)) for array in arrays))
        return out

    return apply


def _add(a: Any, b: Any, alpha: float = 1.0) -> Array:
    return _each(lambda x, y: x + y * alpha)(a, b)


def _clamp(a: Any, low: Any = None, high: Any = None, **bounds: Any) -> Array:
    low, high = bounds.get("min", low), bounds.get("max", high)
    if low is not None:
        a = _each(maximum)(a, low)
    return a if high is None else _each(minimum)(a, high)


def _sum(a: Array, dims: Sequence[int] | None = None, keepdim: bool = False, **_: Any) -> Array:
    numbers = _each(lambda x: where(x, 1.0, 0.0) if is_truth(x) else x)(a)
    axes = tuple(range(a.ndim)) if dims is None else tuple(dims)
    return np.asarray(np.sum(numbers, axis=axes, keepdims=keepdim), dtype=object)


def _gather(source: Array, dim: int, index: Array, **_: Any) -> Array:
    """Choices by positions that are expressions: numbers from a table, others by comparisons."""
    lines, out = np.moveaxis(source, dim, -1), np.empty(index.shape, dtype=object)
    for place in np.ndindex(out.shape):
        *others, last = line = lines[tuple(np.delete(place, dim))]
        position = as_expression(index.item(place))
        if all(choice.is_constant for choice in line):
            out[place] = pick(position, [choice.constant for choice in line])
            continue
        for k in reversed(range(len(others))):
            last = where(position <= k, others[k], last)
        out[place] = last
    return out


def _like(value: float) -> Callable[..., Array]:
    return lambda a, *_, **__: _filled(a.shape, value)


def _filled(shape: Any, value: float, **_: Any) -> Array:
    out = np.empty(tuple(shape), dtype=object)
    out.fill(constant(value))
    return out


def _pad(a: Array, widths: Sequence[int], value: float = 0.0) -> Array:
    """Numbers around an array; of each axis, the last first, how many before and behind it."""
    before, behind = ([0] * (a.ndim - len(widths) // 2) + list(widths[k::2])[::-1] for k in (0, 1))
    out = _filled([sum(each) for each in zip(before, a.shape, behind, strict=True)], value)
    out[tuple(slice(start, start + n) for start, n in zip(before, a.shape, strict=True))] = a
    return out


def _slice(a: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    where_ = [slice(None)] * a.ndim
    where_[dim] = slice(start, end, step)
    return a[tuple(where_)]


def _select(a: Array, dim: int, k: int) -> Array:
    return np.asarray(np.take(a, k, axis=dim), dtype=object)


def _stack(parts: Sequence[Array], dim: int = 0) -> Array:
    return np.stack(parts, axis=dim)


def _expand(a: Array, shape: Sequence[int], **_: Any) -> Array:
    a = a.reshape((1,) * (len(shape) - a.ndim) + a.shape)
    return np.broadcast_to(
        a, [have if want == -1 else want for want, have in zip(shape, a.shape, strict=True)]
    )


def _softplus(x: Expression) -> Expression:
    return maximum(x, 0.0) + unary("log1p", unary("exp", -unary("absolute", x)))


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": lambda a, b, alpha=1.0: _each(lambda x, y: x - y * alpha)(a, b),
    "rsub": lambda a, b, alpha=1.0: _each(lambda x, y: y - x * alpha)(a, b),
    "mul": _each(lambda x, y: x * y),
    "div": _each(lambda x, y: x / y),
    "reciprocal": _each(lambda x: 1.0 / x),
    "neg": _each(lambda x: -x),
    "abs": _each(lambda x: unary("absolute", x)),
    "exp": _each(lambda x: unary("exp", x)),
    "log": _each(lambda x: unary("log", x)),
    "log1p": _each(lambda x: unary("log1p", x)),
    "expm1": _each(lambda x: unary("expm1", x)),
    "sigmoid": _each(lambda x: unary("exp", -_softplus(-x))),
    "log_sigmoid_forward": lambda a: (_each(lambda x: -_softplus(-x))(a), a),  # the second one is not used
    "special_log_ndtr": _each(log_normal_tail),
    "clamp": _clamp,
    "clamp_min": lambda a, low: _clamp(a, low),
    "clamp_max": lambda a, high: _clamp(a, None, high),
    "minimum": _each(minimum),
    "maximum": _each(maximum),
    "lt": _each(lambda x, y: x < y),
    "le": _each(lambda x, y: x <= y),
    "gt": _each(lambda x, y: x > y),
    "ge": _each(lambda x, y: x >= y),
    "eq": _each(equal),
    "bitwise_not": _each(lambda x: ~x),
    "logical_not": _each(lambda x: ~x),
    "bitwise_and": _each(lambda x, y: x & y),
    "logical_and": _each(lambda x, y: x & y),
    "bitwise_or": _each(lambda x, y: x | y),
    "where": _each(where),
    "masked_fill": _each(lambda x, mask, value: where(mask, value, x)),
    "sum": _sum,
    "cumsum": lambda a, dim, **_: np.cumsum(a, axis=dim, dtype=object),
    "gather": _gather,
    "constant_pad_nd": _pad,
    "select": _select,
    "slice": _slice,
    "unbind": lambda a, dim=0: [_select(a, dim, k) for k in range(a.shape[dim])],
    "getitem": lambda a, k: a[k],
    "stack": _stack,
    "cat": lambda parts, dim=0: np.concatenate(parts, axis=dim),
    "view": lambda a, shape: a.reshape(shape),
    "reshape": lambda a, shape: a.reshape(shape),
    "_unsafe_view": lambda a, shape: a.reshape(shape),
    "unsqueeze": lambda a, dim: np.expand_dims(a, dim),
    "squeeze": lambda a, dim=None: np.squeeze(a, axis=dim),
    "permute": lambda a, dims: np.transpose(a, dims),
    "expand": _expand,
    "alias": lambda a: a,
    "clone": lambda a, **_: a,
    "detach": lambda a: a,
    "lift_fresh_copy": lambda a: a,
    "_to_copy": lambda a, **_: a,
    "zeros_like": _like(0.0),
    "ones_like": _like(1.0),
    "full_like": lambda a, value, **_: _filled(a.shape, value),
    "new_zeros": lambda a, shape, **_: _filled(shape, 0.0),
    "zeros": lambda shape, **_: _filled(shape, 0.0),
    "scalar_tensor": lambda value, **_: _filled((), value),
}

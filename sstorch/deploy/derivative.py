"""Derivatives of expressions, and sums of products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sstorch.deploy.expression import Expression, as_expression, unary, where

_ZERO, _ONE = as_expression(0.0), as_expression(1.0)


def derivative(a: Expression, by: Expression) -> Expression:
    """Derivative of an expression in one of its parts, which is found by identity.

    Branches, positions and ranks count as constants, as in automatic differentiation.
    """
    memo = {by: _ONE}

    def slope(a: Expression) -> Expression:
        if a not in memo:
            memo[a] = _slope(a, slope)
        return memo[a]

    return slope(a)


def _slope(a: Expression, slope: Callable[[Expression], Expression]) -> Expression:
    """Derivative of an operation, from those of its arguments."""
    match a.op, a.args:
        case "let", (x,):
            return slope(x)
        case "negative", (x,):
            return product(slope(x), -1.0)
        case "absolute", (x,):
            return product(slope(x), where(x < 0.0, -1.0, 1.0))
        case "exp", (x,):
            return product(slope(x), a)
        case "expm1", (x,):
            return product(slope(x), unary("exp", x))
        case "log", (x,):
            return _divided(slope(x), x)
        case "log1p", (x,):
            return _divided(slope(x), 1.0 + x)
        case "add", (x, y):
            return slope(x) + slope(y)
        case "subtract", (x, y):
            return slope(x) - slope(y)
        case "multiply", (x, y):
            return product(slope(x), y) + product(slope(y), x)
        case "divide", (x, y):
            return _divided(slope(x) - product(slope(y), a), y)
        case "minimum", (x, y):
            return where(y < x, slope(y), slope(x))
        case "maximum", (x, y):
            return where(x < y, slope(y), slope(x))
        case "where", (condition, x, y):
            return where(condition, slope(x), slope(y))
        case "constant" | "time" | "parameter" | "number" | "pick" | "rank", _:
            return _ZERO
    raise AssertionError(f"{a.op} has no derivative")


def product(a: Expression, b: Expression | float) -> Expression:
    """A product that is zero if a factor is the constant zero, even if the other is infinite."""
    b = as_expression(b)
    return _ZERO if a.is_number(0) or b.is_number(0) else a * b


def dot(a: Sequence[Expression], b: Sequence[Expression]) -> Expression:
    """The sum of products."""
    return balanced_sum([product(x, y) for x, y in zip(a, b, strict=True)])


def _divided(slope: Expression, by: Expression) -> Expression:
    return slope if slope.is_number(0) else slope / by


def balanced_sum(terms: Sequence[Expression]) -> Expression:
    """A sum whose depth grows with the logarithm of the number of its terms."""
    if len(terms) > 2:
        middle = len(terms) // 2
        return balanced_sum(terms[:middle]) + balanced_sum(terms[middle:])
    return terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else _ZERO

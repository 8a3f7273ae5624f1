"""Formulas of scalars: what a model computes for one patient, for other languages to print."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from sstorch.checks import is_number_of
from sstorch.exceptions import ConfigError

Value = float | bool
_LARGEST_HAZARD = 745.0
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": np.divide,
    "minimum": min,
    "maximum": max,
    "less": operator.lt,
    "less_equal": operator.le,
    "equal": operator.eq,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "negative": operator.neg,
    "absolute": abs,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "not": operator.not_,
}


@dataclass(frozen=True, eq=False)
class Expression:
    """A number or a truth value of a patient and of time; made by the functions below."""

    op: str  # of a function below, or an operation on the arguments
    args: tuple[Expression, ...] = ()
    # of a constant; a column and what replaces a missing number, or a label; numbers to pick from; a name
    value: object = None

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for equal expressions, if equal arguments are one object."""
        return (self.op, self.value, type(self.value), *(id(arg) for arg in self.args))

    @property
    def is_constant(self) -> bool:
        """True if it is a number or a truth value."""
        return self.op == "constant"

    @property
    def constant(self) -> Value:
        """The value of a constant."""
        assert isinstance(self.value, float | bool)
        return self.value

    def is_number(self, value: float) -> bool:
        """True if it is this constant."""
        return self.is_constant and self.value == value and not isinstance(self.value, bool)

    def __add__(self, other: Operand) -> Expression:
        a, b = self, as_expression(other)
        if a.is_number(0):
            return b
        return a if b.is_number(0) else _binary("add", a, b)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Expression:
        b = as_expression(other)
        return self if b.is_number(0) else _binary("subtract", self, b)

    def __rsub__(self, other: Operand) -> Expression:
        a = as_expression(other)
        return -self if a.is_number(0) else _binary("subtract", a, self)

    def __mul__(self, other: Operand) -> Expression:
        a, b = self, as_expression(other)
        if a.is_number(1):
            return b
        return a if b.is_number(1) else _binary("multiply", a, b)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Expression:
        b = as_expression(other)
        return self if b.is_number(1) else _binary("divide", self, b)

    def __rtruediv__(self, other: Operand) -> Expression:
        return as_expression(other) / self

    def __neg__(self) -> Expression:
        return unary("negative", self)

    def __lt__(self, other: Operand) -> Expression:
        return _binary("less", self, as_expression(other))

    def __le__(self, other: Operand) -> Expression:
        return _binary("less_equal", self, as_expression(other))

    def __gt__(self, other: Operand) -> Expression:
        return as_expression(other) < self

    def __ge__(self, other: Operand) -> Expression:
        return as_expression(other) <= self

    def __and__(self, other: Operand) -> Expression:
        return _binary("and", self, as_expression(other))

    def __or__(self, other: Operand) -> Expression:
        return _binary("or", self, as_expression(other))

    def __invert__(self) -> Expression:
        return unary("not", self)


Operand = Expression | float | bool


def constant(value: Value) -> Expression:
    """A number or a truth value."""
    return Expression("constant", value=value if isinstance(value, bool) else float(value))


def as_expression(value: Operand) -> Expression:
    """The expression itself, or a constant."""
    return value if isinstance(value, Expression) else constant(value)


def unary(op: str, a: Operand) -> Expression:
    """An operation on one number: ``"negative"``, ``"absolute"``, ``"exp"``, ``"log"``, ``"log1p"``, ..."""
    a = as_expression(a)
    with np.errstate(all="ignore"):
        return constant(_UNARY[op](a.constant)) if a.is_constant else Expression(op, (a,))


def _binary(op: str, a: Expression, b: Expression) -> Expression:
    if not (a.is_constant and b.is_constant):
        return Expression(op, (a, b))
    with np.errstate(all="ignore"):
        return constant(_BINARY[op](a.constant, b.constant))


def minimum(a: Operand, b: Operand) -> Expression:
    """The smaller one."""
    return _binary("minimum", as_expression(a), as_expression(b))


def maximum(a: Operand, b: Operand) -> Expression:
    """The larger one."""
    return _binary("maximum", as_expression(a), as_expression(b))


def equal(a: Operand, b: Operand) -> Expression:
    """Whether two numbers are equal."""
    return _binary("equal", as_expression(a), as_expression(b))


def where(condition: Operand, a: Operand, b: Operand) -> Expression:
    """``a`` where the condition holds, else ``b``."""
    condition, a, b = as_expression(condition), as_expression(a), as_expression(b)
    if condition.is_constant:
        return a if condition.constant else b
    if a.is_constant and b.is_constant and a.key == b.key:
        return a
    return Expression("where", (condition, a, b))


def pick(position: Operand, values: Sequence[float]) -> Expression:
    """One of some numbers, by its position 0, 1, ..."""
    position = as_expression(position)
    if all(value == values[0] for value in values):
        return constant(values[0])
    if position.is_constant:
        return constant(values[int(position.constant)])
    return Expression("pick", (position,), tuple(map(float, values)))


def rank(a: Operand, values: Sequence[float]) -> Expression:
    """Number of elements of an increasing sequence that are at most x."""
    a = as_expression(a)
    if a.is_constant:
        return constant(bisect_right(values, a.constant))
    return Expression("rank", (a,), tuple(map(float, values)))


def is_truth(a: Expression) -> bool:
    """Whether it is a truth value, not a number."""
    return a.op in ("less", "less_equal", "equal", "and", "or", "not", "known", "category") or (
        a.is_constant and isinstance(a.value, bool)
    )


def let(name: str, a: Operand) -> Expression:
    """A name that readers of the code will see."""
    a = as_expression(a)
    return a if a.is_constant else Expression("let", (a,), name)


def polynomial(x: Expression, coefficients: Sequence[Operand]) -> Expression:
    """Horner's scheme, the constant coefficient first."""
    total = as_expression(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


TIME = Expression("time")


def number(column: str, missing: float) -> Expression:
    """The value of a numeric column, or what replaces it where it is missing."""
    return Expression("number", value=(column, missing))


def known(column: str) -> Expression:
    """Whether a column has a value."""
    return Expression("known", value=column)


def is_category(column: str, label: str) -> Expression:
    """Whether the value of a column, as text, is a label."""
    return Expression("category", value=(column, label))


@dataclass(frozen=True)
class Hazards:
    """Hazards of competing causes: F_k(t) is the integral of h_k S from 0 to t, in panels of log time."""

    log_hazard: Mapping[str, Expression]  # log h_k(t) of each cause, by name
    cumulative: Expression  # H(t), the cumulative hazard of any event; S = exp(-H)
    edges: tuple[float, ...]  # of the panels, log times, increasing
    width: float  # of the only panel of a time before the first edge
    # places in (-1, 1) and weights of the nodes of a panel, by whose integrals the causes share what S loses
    rule: tuple[tuple[float, float], ...]
    doubling: tuple[float, ...]  # further edges, log times since a time at which patients are at risk

    def conditional(self, start: float) -> Hazards:
        """The same for a patient who is at risk at a time > 0, the first edge: of H what comes later."""
        first = math.log(start)
        edges = {first, *(first + each for each in self.doubling), *(e for e in self.edges if e > first)}
        left = _hazard_left(self.cumulative, TIME, start)
        return replace(self, cumulative=left, edges=tuple(sorted(edges)))


@dataclass(frozen=True)
class Formula:
    """A model for one patient."""

    # Of the training rows in their order, with their categories; numeric columns have none.
    columns: dict[str, tuple[str, ...] | None]
    group: Expression  # number of the patient's group
    survival: Expression  # S(t), ``TIME`` in original units; of several causes free of any event
    incidence: Mapping[str, Expression] = field(default_factory=dict)  # F_k(t) of several causes, by name
    cumulative: Expression | None = None  # H(t) where survival is exp(-H)
    hazards: Hazards | None = None  # of several causes, where incidences are integrals of them
    # Time at which the patient is known to be at risk, from which ``TIME`` counts (in `hazards` it counts
    # from zero all the same); None if ``TIME`` counts from zero and nothing is supposed.
    after: float | None = None
    # Whether the patient takes the first child, by the number of the node on the page.
    gates: Mapping[int, Expression] = field(default_factory=dict)

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the causes; empty if there is one event."""
        return tuple(self.incidence if self.hazards is None else self.hazards.log_hazard)

    def conditional(self, after: float | None) -> Formula:
        """Survival S(after + t) / S(after), incidences (F(after + t) - F(after)) / S(after), or nan."""
        if after is None:
            return self
        start = check_time(after, "after")
        if not start:
            return replace(self, after=start)
        if self.cumulative is not None:
            left = let("hazard_left", _hazard_left(self.cumulative, TIME + start, start))
            hazards = None if self.hazards is None else self.hazards.conditional(start)
            return replace(self, survival=unary("exp", -left), hazards=hazards, after=start)
        alive = let("survival_then", _with_time(self.survival, constant(start)))
        later = let("survival_later", _with_time(self.survival, TIME + start))
        incidence = {}
        for name, each in self.incidence.items():
            gained = _with_time(each, TIME + start) - _with_time(each, constant(start))
            incidence[name] = where(alive > 0.0, gained / alive, math.nan)
        survival = where(alive > 0.0, later / alive, math.nan)
        return replace(self, survival=survival, incidence=incidence, after=start)


def _hazard_left(cumulative: Expression, time: Expression, start: float) -> Expression:
    """H(time) - H(start), nan where exp(-H(start)) is 0 in double precision."""
    gone = let("hazard_before", _with_time(cumulative, constant(start)))
    return where(gone < _LARGEST_HAZARD, _with_time(cumulative, time) - gone, math.nan)


def check_time(value: float, name: str) -> float:
    """Check that a value is a time >= 0."""
    if not is_number_of(value, Real) or not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be a time >= 0, got {value!r}")
    return float(value)


def _with_time(a: Expression, time: Expression) -> Expression:
    """An expression with another one in place of ``TIME``, simplified."""
    memo = {TIME: time}

    def filled(a: Expression) -> Expression:
        if a not in memo:
            memo[a] = _rebuilt(a, [filled(b) for b in a.args])
        return memo[a]

    return filled(a)


def _rebuilt(a: Expression, args: Sequence[Expression]) -> Expression:
    """The same operation on other arguments, simplified."""
    match a.op:
        case "constant" | "time" | "number" | "known" | "category":
            return a
        case "pick" | "rank":
            assert isinstance(a.value, tuple)
            return (pick if a.op == "pick" else rank)(args[0], a.value)
        case "let":
            return let(str(a.value), args[0])
        case op if op in _SIMPLIFIED:
            return _SIMPLIFIED[op](*args)
        case op:
            return unary(op, *args) if op in _UNARY else _binary(op, *args)


# Operations that leave out arguments without effect.
_SIMPLIFIED: dict[str, Callable[..., Expression]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "where": where,
}

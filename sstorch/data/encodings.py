"""Encodings of numeric columns: lines, logarithms, broken lines and splines; products of columns.

What an encoding takes from the data, knots and scales, comes from the rows it is fitted to. Every curve goes
on as a straight line beyond its outermost knots, or, a logarithm, below the smallest value of these rows.

References:
    Harrell (2015), Regression Modeling Strategies, 2nd ed., 2.4, on natural ("restricted") cubic splines and
    where to put their knots; Eilers and Marx (1996), Statistical Science 11, 89-121, on penalties on
    differences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np

from sstorch._types import FloatArray
from sstorch.checks import check_integer, names_text
from sstorch.exceptions import ConfigError

# Distinct values from which a column has a curve.
MIN_DISTINCT = 5
_SKEWED = 1.5
# Distinct values, and knots, from which "smooth" has a curve besides its straight line.
_MIN_SMOOTH, _MIN_KNOTS = 7, 4
# Products of columns at most: each is a coefficient of every leaf.
_MAX_PRODUCTS = 5_000
# Shares of the rows below the outermost knots of a spline, and above: the curve is straight there.
_OUTER = 0.05
# Knots of a spline that are closer, as a share of the distance of the outermost ones, are one.
_LEAST_WIDTH = 1e-6
_NONE = np.zeros(0)


class Curves(NamedTuple):
    """Features of one column x as combinations of 1, x, (x - hinge)+ and (min(x, end) - cube)+^3."""

    mixing: FloatArray  # (2 + h + c, 1 + m): the straight feature, then the curved ones
    hinges: FloatArray = _NONE  # (h,)
    cubes: FloatArray = _NONE  # (c,)
    ends: FloatArray = _NONE  # (c,)
    log_scale: float | None = None  # x is the :func:`logarithm` of the column with this scale; None: itself

    @classmethod
    def of(
        cls,
        x: FloatArray,
        parts: FloatArray,
        hinges: FloatArray,
        cubes: FloatArray = _NONE,
        ends: FloatArray = _NONE,
    ) -> Curves:
        """Curves of coefficients (h + c, m), each without the straight line nearest to it in rows x (n,)."""
        values = function_values(x[:, None], x[:, None], hinges, cubes, ends) @ parts
        lines = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), values, rcond=None)[0]
        straight = np.zeros(2 + len(parts))
        straight[1] = 1.0
        return cls(np.column_stack([straight, np.vstack([-lines, parts])]), hinges, cubes, ends)


def function_values(
    at_hinges: FloatArray, at_cubes: FloatArray, hinges: FloatArray, cubes: FloatArray, ends: FloatArray
) -> FloatArray:
    """(x - hinge)+ of columns x (n, h), and (min(x, end) - cube)+^3 of others (n, c), in (n, h + c)."""
    above = np.maximum(np.minimum(at_cubes, ends) - cubes, 0)
    # Third powers by products: numpy's power takes ten times as long.
    return np.concatenate([np.maximum(at_hinges - hinges, 0), above * above * above], axis=1)


def logarithm(z: FloatArray, scale: float | FloatArray) -> FloatArray:
    """log(1 + z / scale), and z / scale below zero, where it goes on as a straight line."""
    return np.log1p(np.maximum(z, 0) / scale) + np.minimum(z, 0) / scale


STRAIGHT = Curves(np.array([[0.0], [1.0]]))


@dataclass(frozen=True)
class NumericEncoding:
    """Encoding of a numeric column in a linear score, with at most one option, a whole number."""

    name: ClassVar[str]
    least: ClassVar[int] = 2  # of the option

    def __post_init__(self) -> None:
        for item in fields(self):
            check_integer(item.name, getattr(self, item.name), self.least)

    @property
    def n_curved(self) -> int:
        """Features besides the straight one: bends, or degrees of freedom without the straight line's."""
        return sum(getattr(self, item.name) - 1 for item in fields(self))

    def curves(self, z: FloatArray) -> Curves:
        """The features of a column scaled to [0, 1], (n,), with at least ``MIN_DISTINCT`` distinct values."""
        return STRAIGHT

    def __str__(self) -> str:
        options = [str(getattr(self, item.name)) for item in fields(self)]
        return f"{self.name}({', '.join(options)})" if options else self.name


@dataclass(frozen=True)
class Linear(NumericEncoding):
    """A straight line: the column as it is."""

    name: ClassVar[str] = "linear"


@dataclass(frozen=True)
class Log(NumericEncoding):
    """The logarithm log(1 + (x - smallest) / s) of columns of skewness above 1.5, others as they are."""

    name: ClassVar[str] = "log"

    def curves(self, z: FloatArray) -> Curves:
        """The straight feature, scaled to [0, 1]."""
        if ((z - z.mean()) ** 3).mean() <= _SKEWED * z.std() ** 3:
            return STRAIGHT
        scale = float(np.median(z[z > 0]))  # s; the feature is in [0, 1] in the training rows
        return Curves(STRAIGHT.mixing / np.log1p(z.max() / scale), log_scale=scale)


@dataclass(frozen=True)
class Piecewise(NumericEncoding):
    """A continuous broken line with its bends at quantiles of the training rows."""

    name: ClassVar[str] = "piecewise"
    pieces: int = 4  # at most, >= 2; equal quantiles are one bend

    def curves(self, z: FloatArray) -> Curves:
        """Each curve adds one to the slope per standard deviation from a bend on."""
        knots = np.unique(np.quantile(z, np.linspace(0, 1, self.pieces + 1)))
        knots = knots[(knots > z.min()) & (knots < z.max())]
        return Curves.of(z, np.eye(len(knots)) / z.std(), knots)


@dataclass(frozen=True)
class NaturalSpline(NumericEncoding):
    """A natural cubic spline, ``df + 1`` knots at evenly spaced quantiles of training rows, .05 to .95."""

    name: ClassVar[str] = "spline"
    df: int = 4  # degrees of freedom, >= 2, the straight line's among them

    def curves(self, z: FloatArray) -> Curves:
        """Squared coefficients sum to the integral of the squared second derivative, in units of sd(z)."""
        knots = _distinct(np.quantile(z, np.linspace(_OUTER, 1 - _OUTER, self.df + 1)))
        return _natural_curves(z, knots) if len(knots) > 2 else STRAIGHT


@dataclass(frozen=True)
class Smooth(Log):
    """A natural cubic spline of the straight feature of :class:`Log`.

    The ``df + 1`` knots are at evenly spaced quantiles of the training rows on this scale, extremes included.
    Of fewer than seven distinct values, or fewer than four distinct knots, there is no curve.
    """

    name: ClassVar[str] = "smooth"
    least: ClassVar[int] = _MIN_KNOTS - 1
    df: int = 5  # degrees of freedom, >= 3, the straight line's among them

    def curves(self, z: FloatArray) -> Curves:
        """Squared coefficients sum to the roughness on the scale of the curve, in units of its deviation."""
        straight = super().curves(z)
        x = z if straight.log_scale is None else logarithm(z, straight.log_scale)
        knots = _distinct(np.quantile(x, np.linspace(0, 1, self.df + 1)))
        if len(np.unique(z)) < _MIN_SMOOTH or len(knots) < _MIN_KNOTS:
            return straight
        found = _natural_curves(x, knots)
        mixing = found.mixing.copy()
        mixing[1, 0] = straight.mixing[1, 0]
        return found._replace(mixing=mixing, log_scale=straight.log_scale)


def _distinct(knots: FloatArray) -> FloatArray:
    """Knots in order, without those that nearly equal the one before."""
    far = np.append(True, np.diff(knots) > _LEAST_WIDTH * (knots[-1] - knots[0]))
    return np.asarray(knots[far])


def _natural_curves(x: FloatArray, knots: FloatArray) -> Curves:
    """Curves of natural cubic splines with these knots, three or more, whose squares sum to the roughness."""
    # The second derivative of a natural spline is a broken line, zero at both ends: a sum of triangles
    # over the inner knots. The integrals of their products are the roughness, whose root is inverted.
    before, after = np.diff(knots)[:-1], np.diff(knots)[1:]
    roughness = np.diag((before + after) / 3) + np.diag(before[1:] / 6, 1) + np.diag(before[1:] / 6, -1)
    weights = np.linalg.inv(np.linalg.cholesky(roughness * x.std() ** 3)).T
    # A triangle integrated twice: a straight line behind it, and cubes on its two sides.
    triangle = ((before + after) / 2, 1 / (6 * before), -(1 / before + 1 / after) / 6)
    parts = np.vstack([value[:, None] * weights for value in triangle])
    return Curves.of(x, parts, knots[2:], np.append(knots[:-2], knots[1:-1]), np.tile(knots[2:], 2))


@dataclass(frozen=True)
class Automatic(Linear):
    """Smooth curves in leaves, straight lines in gates, which :meth:`ColumnEncodings.settled` puts in."""

    name: ClassVar[str] = "auto"


ENCODINGS: dict[str, type[NumericEncoding]] = {
    kind.name: kind for kind in (Linear, Log, Piecewise, NaturalSpline, Smooth, Automatic)
}

# The second spelling needs no quotes on a command line.
_TEXT = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*\)|:\s*(\d+))?\s*")


def make_encoding(value: object, what: str = "numeric") -> NumericEncoding:
    """An encoding from itself or its name, such as ``"spline"``, ``"piecewise(8)"`` or ``"piecewise:8"``."""
    if isinstance(value, NumericEncoding):
        return value
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    option = found and (found[2] or found[3])
    if found is None or found[1] not in ENCODINGS or (option and not fields(ENCODINGS[found[1]])):
        raise ConfigError(
            f"{what} must be one of {', '.join(ENCODINGS)}, such as 'piecewise(8)' with the number of pieces "
            f"and 'smooth(6)' with degrees of freedom, or a dictionary of these by column, got {value!r}"
        )
    return ENCODINGS[found[1]](*([int(option)] if option else []))


@dataclass(frozen=True)
class ColumnEncodings:
    """Encodings by column."""

    default: NumericEncoding = Linear()  # of the columns that are not named
    named: tuple[tuple[str, NumericEncoding], ...] = ()  # column and encoding of the others

    @classmethod
    def of(cls, value: object, what: str = "numeric") -> Self:
        """From one encoding for all columns, or a dictionary by column, whose other columns stay linear."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            made = {str(name): make_encoding(each, f"{what} of {name!r}") for name, each in value.items()}
            return cls(named=tuple(sorted(made.items())))
        return cls(make_encoding(value, what))

    def __getitem__(self, column: str) -> NumericEncoding:
        return dict(self.named).get(column, self.default)

    def __str__(self) -> str:
        return ", ".join(f"{name}={each}" for name, each in self.named) or str(self.default)

    @property
    def is_linear(self) -> bool:
        """True if every column stays as it is."""
        return all(type(each) is Linear for each in (self.default, *(each for _, each in self.named)))

    def settled(self, encoding: NumericEncoding) -> ColumnEncodings:
        """The same with an encoding in place of ``"auto"``."""
        of_names = [(name, encoding if isinstance(each, Automatic) else each) for name, each in self.named]
        default = encoding if isinstance(self.default, Automatic) else self.default
        return ColumnEncodings(default, tuple(of_names))


# As users give them.
NumericEncodings = str | NumericEncoding | Mapping[str, str | NumericEncoding]
Pairs = tuple[tuple[str, str], ...]
Interactions = Pairs | Literal["all"]
Monotone = tuple[tuple[str, Literal["up", "down"]], ...]


def parse_monotone(value: object) -> Monotone:
    """Columns whose effect on risk must rise, ``"up"``, or fall, ``"down"``."""
    items = sorted(value.items()) if isinstance(value, Mapping) else [] if value is None else [(None, value)]
    if not all(isinstance(name, str) and way in ("up", "down") for name, way in items):
        raise ConfigError(
            "monotone must be a dictionary of columns and 'up' or 'down', such as {'nodes': 'up'}, "
            f"got {value!r}"
        )
    return tuple(items)


def parse_interactions(value: object) -> Interactions:
    """Pairs of different columns, or ``"all"`` of them."""
    if isinstance(value, str) and value == "all":
        return "all"
    try:
        pairs = [(first, second) for first, second in value]  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # no pairs
        pairs = [(value, value)]
    if any(not isinstance(one, str) or not isinstance(other, str) or one == other for one, other in pairs):
        raise ConfigError(
            "interactions must be pairs of different columns, such as [('age', 'sex')], or 'all', "
            f"got {value!r}"
        )
    if len(set(map(frozenset, pairs))) < len(pairs):
        raise ConfigError(f"interactions must name each pair once, got {value!r}")
    return tuple(pairs)


@dataclass(frozen=True)
class Encodings:
    """Encodings of the columns in leaves and gates."""

    leaves: ColumnEncodings = ColumnEncodings()  # of the numeric columns
    gates: ColumnEncodings = ColumnEncodings()  # of the numeric columns
    interactions: Interactions = ()  # pairs of columns whose products the leaves see, or ``"all"``
    monotone: Monotone = ()  # columns with a monotone effect on risk

    @property
    def are_linear(self) -> bool:
        """True if gates and leaves see the columns as they are."""
        return self.leaves.is_linear and self.gates.is_linear and not self.interactions

    def pairs(self, columns: Sequence[str]) -> Pairs:
        """The interactions among all columns."""
        return tuple(combinations(columns, 2)) if self.interactions == "all" else self.interactions

    def check_columns(self, columns: Sequence[str], categories: Mapping[str, Sequence[str]]) -> None:
        """Refuse names that are no columns, encodings of numbers for categories, and too many products."""
        pairs, known = self.pairs(columns), set(columns)
        curved = {"numeric": self.leaves.named, "gate_numeric": self.gates.named}
        named = {what: [name for name, _ in each] for what, each in curved.items()}
        named["interactions"] = [name for pair in pairs for name in pair]
        named["monotone"] = [name for name, _ in self.monotone]
        for what, names in named.items():
            if absent := [name for name in names if name not in known]:
                raise ConfigError(f"{what} names {absent[0]!r}; the columns are {names_text(columns)}")
        for what, each in curved.items():
            if words := [name for name, own in each if name in categories and not isinstance(own, Linear)]:
                raise ConfigError(
                    f"{what}: column {words[0]!r} is categorical and has no curve; leave it out"
                )
        width = {name: len(categories[name]) if name in categories else 1 for name in columns}
        if (n_products := sum(width[first] * width[second] for first, second in pairs)) > _MAX_PRODUCTS:
            raise ConfigError(
                f"interactions give {n_products:,} products of columns and categories, more than "
                f"{_MAX_PRODUCTS:,}: name the pairs that matter, or leave out columns of many categories"
            )
        for name, _ in self.monotone:
            where = f"monotone: column {name!r}"
            if name in categories:
                raise ConfigError(f"{where} is categorical and has no direction; leave it out")
            if isinstance(self.leaves[name], NaturalSpline | Smooth):
                raise ConfigError(f"{where} is a spline, which can turn; use 'piecewise'")
            if any(name in pair for pair in pairs):
                raise ConfigError(f"{where} has interactions, in which it can turn")

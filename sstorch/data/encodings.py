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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np

from sstorch._types import FloatArray
from sstorch.checks import check_integer, names_text
from sstorch.exceptions import ConfigError

# A column of fewer distinct values stays as it is: between so few points there is no curve to be seen.
MIN_DISTINCT = 5
# Skewness from which a column is a matter of proportions rather than of differences.
SKEWED = 1.5
# Distinct values, and knots, from which "smooth" has a curve besides its straight line.
_MIN_SMOOTH, _MIN_KNOTS = 7, 4
# Products of columns at most: each is a coefficient of every leaf.
_MAX_PRODUCTS = 5_000
# Shares of the rows below the outermost knots of a spline, and above: the curve is straight there.
_OUTER = 0.05
# Knots of a spline that are closer, as a share of the distance of the outermost ones, are one.
_LEAST_WIDTH = 1e-6


@dataclass(frozen=True)
class NumericEncoding(ABC):
    """Encoding of a numeric column in a linear score. Encodings with the same options are equal."""

    name: ClassVar[str]

    @property
    def n_curved(self) -> int:
        """Features besides the straight one."""
        return 0

    @abstractmethod
    def functions(self, z: FloatArray) -> tuple[Combination | None, list[Combination]]:
        """The straight feature, None for the column itself, and the curved ones, as few as there are knots.

        `z` is the column, scaled to [0, 1], (n,), of at least ``MIN_DISTINCT`` distinct values.
        """

    def __str__(self) -> str:
        options = [str(getattr(self, item.name)) for item in fields(self)]
        return f"{self.name}({', '.join(options)})" if options else self.name


@dataclass(frozen=True)
class Combination:
    """A sum of simple functions of one column z, or of its logarithm: 1, z, (z - knot)+ and cubes of it."""

    constant: float = 0.0  # coefficient of 1
    slope: float = 0.0  # of z
    hinges: tuple[tuple[float, float], ...] = ()  # knots and coefficients of (z - knot)+
    # Knots, ends and coefficients of (min(z, end) - knot)+^3
    cubes: tuple[tuple[float, float, float], ...] = ()
    # None, or the scale of the :func:`logarithm` of the column, which then takes the place of z
    log_scale: float | None = None


def logarithm(z: FloatArray, scale: float | FloatArray) -> FloatArray:
    """log(1 + z / scale), and z / scale below zero, where it goes on as a straight line."""
    return np.log1p(np.maximum(z, 0) / scale) + np.minimum(z, 0) / scale


def cubed(values: FloatArray) -> FloatArray:
    """Third powers, by products: numpy's power takes ten times as long."""
    return values * values * values


@dataclass(frozen=True)
class Linear(NumericEncoding):
    """A straight line: the column as it is."""

    name: ClassVar[str] = "linear"

    def functions(self, z: FloatArray) -> tuple[None, list[Combination]]:
        """See :meth:`NumericEncoding.functions`."""
        return None, []


@dataclass(frozen=True)
class Log(NumericEncoding):
    """The logarithm of columns that are skewed to the right, others as they are.

    A column with skewness above 1.5 becomes log(1 + (x - smallest) / s), s the median distance of the larger
    values from the smallest, scaled to [0, 1] in the training rows.
    """

    name: ClassVar[str] = "log"

    def functions(self, z: FloatArray) -> tuple[Combination | None, list[Combination]]:
        """See :meth:`NumericEncoding.functions`."""
        if ((z - z.mean()) ** 3).mean() <= SKEWED * z.std() ** 3:
            return None, []
        scale = float(np.median(z[z > 0]))
        return Combination(slope=float(1 / np.log1p(z.max() / scale)), log_scale=scale), []


@dataclass(frozen=True)
class Piecewise(NumericEncoding):
    """A continuous broken line with its bends at quantiles of the training rows."""

    name: ClassVar[str] = "piecewise"
    pieces: int = 4  # at most, >= 2; equal quantiles are one bend

    def __post_init__(self) -> None:
        check_integer("pieces", self.pieces, 2)

    @property
    def n_curved(self) -> int:
        """See :attr:`NumericEncoding.n_curved`."""
        return self.pieces - 1

    def functions(self, z: FloatArray) -> tuple[None, list[Combination]]:
        """See :meth:`NumericEncoding.functions`: each adds one to the slope per sd from a bend on."""
        knots = np.unique(np.quantile(z, np.linspace(0, 1, self.pieces + 1)))
        knots = knots[(knots > z.min()) & (knots < z.max())]
        bends = np.maximum(z[:, None] - knots, 0) / z.std()
        constants, slopes = _nearest_lines(z, bends)
        hinges = [((float(knot), float(1 / z.std())),) for knot in knots]
        parts = zip(constants, slopes, hinges, strict=True)
        return None, [Combination(-constant, -slope, hinge) for constant, slope, hinge in parts]


@dataclass(frozen=True)
class NaturalSpline(NumericEncoding):
    """A natural cubic spline: smooth, and straight beyond its outermost knots.

    The ``df + 1`` knots are at evenly spaced quantiles of the training rows from .05 to .95.
    """

    name: ClassVar[str] = "spline"
    df: int = 4  # degrees of freedom, >= 2, the straight line's among them

    def __post_init__(self) -> None:
        check_integer("df", self.df, 2)

    @property
    def n_curved(self) -> int:
        """See :attr:`NumericEncoding.n_curved`."""
        return self.df - 1

    def functions(self, z: FloatArray) -> tuple[None, list[Combination]]:
        """See :meth:`NumericEncoding.functions`: such that their squared coefficients sum to the roughness.

        That is the integral of the squared second derivative, z in units of its standard deviation.
        """
        knots = _distinct(np.quantile(z, np.linspace(_OUTER, 1 - _OUTER, self.df + 1)))
        return None, _natural_curves(z, knots) if len(knots) > 2 else []


@dataclass(frozen=True)
class Smooth(Log):
    """A natural cubic spline, of the logarithm of columns that are skewed to the right, of others themselves.

    The straight feature is that of :class:`Log`. The ``df + 1`` knots are at evenly spaced quantiles of the
    training rows on this scale, smallest and largest value included. A column of fewer than seven distinct
    values, or fewer than four distinct knots, has no curve.

    Attributes:
        df: degrees of freedom, >= 3, the straight line's among them.
    """

    name: ClassVar[str] = "smooth"
    df: int = 5

    def __post_init__(self) -> None:
        check_integer("df", self.df, _MIN_KNOTS - 1)

    @property
    def n_curved(self) -> int:
        """See :attr:`NumericEncoding.n_curved`."""
        return self.df - 1

    def functions(self, z: FloatArray) -> tuple[Combination | None, list[Combination]]:
        """See :meth:`NumericEncoding.functions`: squared coefficients as those of :class:`NaturalSpline`.

        Their sum is the roughness on the scale of the curve, in units of the standard deviation there.
        """
        straight, _ = super().functions(z)
        scale = None if straight is None else straight.log_scale
        x = z if scale is None else logarithm(z, scale)
        knots = _distinct(np.quantile(x, np.linspace(0, 1, self.df + 1)))
        if len(np.unique(z)) < _MIN_SMOOTH or len(knots) < _MIN_KNOTS:
            return straight, []
        return straight, [replace(curve, log_scale=scale) for curve in _natural_curves(x, knots)]


def _distinct(knots: FloatArray) -> list[float]:
    """Knots in order, without those that nearly equal the one before."""
    kept: list[float] = knots[:1].tolist()
    for knot in knots[1:].tolist():
        if knot - kept[-1] > _LEAST_WIDTH * (knots[-1] - knots[0]):
            kept.append(knot)
    return kept


def _natural_curves(z: FloatArray, knots: Sequence[float]) -> list[Combination]:
    """Curves whose combinations are all natural cubic splines with these knots, three or more, but for lines.

    The squared coefficients of a combination sum to its roughness; its nearest straight line is taken off.
    """
    # The second derivative of a natural spline is a broken line, zero at both ends: a sum of triangles
    # over the inner knots. The integrals of their products are the roughness, whose root is inverted.
    width = np.diff(knots)
    roughness = np.diag((width[:-1] + width[1:]) / 3) + np.diag(width[1:-1] / 6, 1)
    roughness += np.triu(roughness, 1).T
    weights = np.linalg.inv(np.linalg.cholesky(roughness * z.std() ** 3))
    # A triangle integrated twice, cubes on it and a straight line behind it.
    triangles, values = [], np.empty((len(z), len(width) - 1))
    for k, (before, after) in enumerate(pairwise(width)):
        first, top, last = knots[k : k + 3]
        up_and_down = ((first, last, 1 / (6 * before)), (top, last, -(1 / before + 1 / after) / 6))
        triangles.append((up_and_down, (last, (before + after) / 2)))
        values[:, k] = (before + after) / 2 * np.maximum(z - last, 0)
        for knot, _, coefficient in up_and_down:
            values[:, k] += coefficient * cubed(np.maximum(np.minimum(z, last) - knot, 0))
    constants, slopes = _nearest_lines(z, values @ weights.T)
    curved = []
    for row, constant, slope in zip(weights.tolist(), constants, slopes, strict=True):
        parts = list(zip(row, triangles, strict=True))
        hinges = tuple((knot, w * value) for w, (_, (knot, value)) in parts)
        cubes = tuple((knot, last, w * value) for w, (three, _) in parts for knot, last, value in three)
        curved.append(Combination(-constant, -slope, hinges, cubes))
    return curved


def _nearest_lines(z: FloatArray, values: FloatArray) -> tuple[list[float], list[float]]:
    """Constant and slope of the straight line nearest to each column of values (n, m), by least squares.

    With it taken off, the coefficient of the straight feature is the slope of the line nearest to the curve.
    """
    lines = np.linalg.lstsq(np.column_stack([np.ones(len(z)), z]), values, rcond=None)[0]
    return lines[0].tolist(), lines[1].tolist()


@dataclass(frozen=True)
class Automatic(Linear):
    """Smooth curves in leaves, straight lines in gates: :attr:`Encodings.settled` puts them in its place."""

    name: ClassVar[str] = "auto"

    def functions(self, z: FloatArray) -> tuple[None, list[Combination]]:
        """Refused."""
        raise ConfigError("encoding 'auto' is one for leaves and another for gates: use Encodings.settled")


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

        def settle(each: NumericEncoding) -> NumericEncoding:
            return encoding if isinstance(each, Automatic) else each

        return ColumnEncodings(settle(self.default), tuple((name, settle(each)) for name, each in self.named))

    @property
    def plain(self) -> str | dict[str, str]:
        """As text, which :meth:`of` takes back."""
        return {name: str(each) for name, each in self.named} if self.named else str(self.default)


# As users give them.
NumericEncodings = str | NumericEncoding | Mapping[str, str | NumericEncoding]
Pairs = tuple[tuple[str, str], ...]
Interactions = Pairs | Literal["all"]
Monotone = tuple[tuple[str, Literal["up", "down"]], ...]


def parse_monotone(value: object) -> Monotone:
    """Columns whose effect on risk must rise, ``"up"``, or fall, ``"down"``."""
    if value is None:
        return ()
    items = sorted(value.items()) if isinstance(value, Mapping) else None
    if items is None or not all(isinstance(name, str) and way in ("up", "down") for name, way in items):
        raise ConfigError(
            "monotone must be a dictionary of columns and 'up' or 'down', such as {'nodes': 'up'}, "
            f"got {value!r}"
        )
    return tuple(items)


def parse_interactions(value: object) -> Interactions:
    """Pairs of different columns, or ``"all"`` of them."""
    if isinstance(value, str) and value == "all":
        return "all"
    pairs: list[tuple[str, str]] = []
    given: Iterable[Any] = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for pair in given:
        names = [pair] if isinstance(pair, str) or not isinstance(pair, Iterable) else list(pair)
        if len(names) != 2 or not all(isinstance(name, str) for name in names) or names[0] == names[1]:
            raise ConfigError(
                "interactions must be pairs of different columns, such as [('age', 'sex')], or 'all', "
                f"got {value!r}"
            )
        if tuple(names) in pairs or (names[1], names[0]) in pairs:
            raise ConfigError(f"interactions name the pair {names[0]!r}, {names[1]!r} twice")
        pairs.append((names[0], names[1]))
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

    @property
    def settled(self) -> Encodings:
        """The same with what ``"auto"`` represents: smooth curves in leaves, straight lines in gates."""
        return replace(self, leaves=self.leaves.settled(Smooth()), gates=self.gates.settled(Linear()))

    def pairs(self, columns: Sequence[str]) -> Pairs:
        """The interactions among all columns."""
        return tuple(combinations(columns, 2)) if self.interactions == "all" else self.interactions

    def check_columns(self, columns: Sequence[str], categories: Mapping[str, Sequence[str]]) -> None:
        """Refuse names that are no columns, encodings of numbers for categories, and too many products."""
        for what, encodings in (("numeric", self.leaves), ("gate_numeric", self.gates)):
            for name, each in encodings.named:
                if name not in columns:
                    raise ConfigError(f"{what} names {name!r}; the columns are {names_text(columns)}")
                if name in categories and not isinstance(each, Linear):
                    raise ConfigError(
                        f"{what}: column {name!r} is categorical and has no curve; leave it out"
                    )
        pairs = self.pairs(columns)
        for pair in pairs:
            for name in pair:
                if name not in columns:
                    raise ConfigError(f"interactions name {name!r}; the columns are {names_text(columns)}")
        width = {name: len(categories[name]) if name in categories else 1 for name in columns}
        if (n_products := sum(width[first] * width[second] for first, second in pairs)) > _MAX_PRODUCTS:
            raise ConfigError(
                f"interactions give {n_products:,} products of columns and categories, more than "
                f"{_MAX_PRODUCTS:,}: name the pairs that matter, or leave out columns of many categories"
            )
        for name, _ in self.monotone:
            if name not in columns:
                raise ConfigError(f"monotone names {name!r}; the columns are {names_text(columns)}")
            if name in categories:
                raise ConfigError(
                    f"monotone: column {name!r} is categorical and has no direction; leave it out"
                )
            if isinstance(self.leaves[name], NaturalSpline | Smooth):
                raise ConfigError(f"monotone: column {name!r} is a spline, which can turn; use 'piecewise'")
            if any(name in pair for pair in pairs):
                raise ConfigError(f"monotone: column {name!r} has interactions, in which it can turn")

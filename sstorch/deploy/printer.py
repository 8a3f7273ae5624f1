"""Expressions as text of a language."""

from __future__ import annotations

import keyword
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from sstorch.deploy.expression import Expression, Formula
from sstorch.deploy.steps import Steps

# How strongly operations bind. Comparisons stand in parentheses wherever they stand in something.
_STRENGTH = {
    "or": 1,
    "and": 2,
    "less": 4,
    "less_equal": 4,
    "equal": 4,
    "add": 6,
    "subtract": 6,
    "multiply": 7,
    "divide": 7,
    "negative": 8,
    "not": 8,
}
SIGNS = {
    "less": "<",
    "less_equal": "<=",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "negative": "-",
}
# Operations that SQL and Excel print with their arguments more than once: these are steps of their own.
REPEATING = ("minimum", "maximum", "exp", "expm1", "log", "log1p")
INCIDENCE = "Probability by cause that it has come by a time, and no other cause before."
# A number is compared with a constant, not a constant with a number.
_MIRRORED = {"less": ">", "less_equal": ">="}


class Printer(ABC):
    """Expressions in one language."""

    truths: tuple[str, str]
    infinity: str
    nan: str
    time = "time"
    words: ClassVar[Mapping[str, str]]
    signs: ClassVar[Mapping[str, str]]
    # Of ``where``, ``pick``, ``rank``, ``number``, ``known`` and ``category``, those that are no methods.
    forms: ClassVar[Mapping[str, str]]

    def text(self, a: Expression, within: int = 0) -> str:
        """An expression, in parentheses where what is around it binds more strongly."""
        match a.op:
            case "constant":
                return self.constant(a.constant)
            case "step":
                return self.name(str(a.value))
            case "time":
                return self.time
            case "number" | "category":
                assert isinstance(a.value, tuple)
                return self.number(*a.value) if a.op == "number" else self.category(*a.value)
            case "known":
                return self.known(str(a.value))
            case "where":
                return self.where(*(self.text(b) for b in a.args))
            case "pick":
                assert isinstance(a.value, tuple)
                return self.pick(self.text(a.args[0]), [self.constant(value) for value in a.value])
            case "rank":
                assert isinstance(a.value, tuple)
                return self.rank(self.text(a.args[0]), [self.constant(value) for value in a.value])
            case op if op in self.signs and op not in self.words:
                strength = _STRENGTH[op]
                if len(a.args) == 1:
                    text = self.signs[op] + self.text(a.args[0], strength + 1)
                else:
                    sign, (left, right) = self.signs[op], a.args
                    if op in _MIRRORED and left.is_constant:
                        sign, left, right = _MIRRORED[op], right, left
                    # From left to right: what is on the right needs its parentheses also at equal strength.
                    text = f"{self.text(left, strength)} {sign} {self.text(right, strength + 1)}"
                return f"({text})" if strength < within else text
            case op:
                return self.call(op, [self.text(b) for b in a.args])

    def constant(self, value: float | bool) -> str:
        """A number with all its digits, or a truth value."""
        if isinstance(value, bool):
            return self.truths[value]
        if math.isnan(value):
            return self.nan
        if math.isinf(value):
            return self.infinity if value > 0 else f"(-{self.infinity})"
        return f"(-{self.digits(-value)})" if value < 0 else self.digits(value)

    def digits(self, value: float) -> str:
        """A number >= 0 with all its digits."""
        return repr(value).removesuffix(".0") if value < 1e15 else repr(value)

    def name(self, name: str) -> str:
        """A step's name as the language can have it."""
        return name

    @abstractmethod
    def quoted(self, text: str) -> str:
        """The name of a column, or a label, as a literal."""

    def where(self, condition: str, a: str, b: str) -> str:
        """By a condition."""
        return self.forms["where"].format(condition, a, b)

    def pick(self, position: str, values: Sequence[str]) -> str:
        """By a position."""
        return self.forms["pick"].format(", ".join(values), position)

    def rank(self, a: str, values: Sequence[str]) -> str:
        """Number of elements that are at most x."""
        return self.forms["rank"].format(", ".join(values), a)

    def number(self, column: str, missing: float) -> str:
        """A column's value, or what replaces it."""
        return self.forms["number"].format(self.quoted(column), self.constant(missing))

    def known(self, column: str) -> str:
        """Whether there is one."""
        return self.forms["known"].format(self.quoted(column))

    def category(self, column: str, label: str) -> str:
        """Whether it is a label."""
        return self.forms["category"].format(self.quoted(column), self.quoted(label))

    def call(self, op: str, args: Sequence[str]) -> str:
        """A function."""
        return f"{self.words.get(op, op)}({', '.join(args)})"


def identifiers(steps: Steps, taken: Sequence[str] = ()) -> dict[str, str]:
    """A name for each step that every language accepts."""
    names: dict[str, str] = {}
    used = {*_RESERVED, *taken}
    for name, _ in steps.steps:
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        plain = f"v_{plain}" if plain[0].isdigit() else plain
        free, k = plain, 2
        while free.lower() in used:
            free, k = f"{plain}_{k}", k + 1
        used.add(free.lower())
        names[name] = free
    return names


def facts_of(formula: Formula, title: str) -> list[str]:
    """Notes for readers of the code."""
    lines = [title, *([formula.condition] if formula.condition else []), "Columns of a patient:"]
    for name, categories in formula.columns.items():
        lines.append(
            f"  {name}: " + ("a number" if categories is None else f"one of {', '.join(categories)}")
        )
    lines.append("A value that is missing is filled as in the training rows. This is no medical device.")
    return [line.replace("\n", " ") for line in lines]


# Names that a step must not have, in any of the languages.
_RESERVED = [
    *map(str.lower, keyword.kwlist),
    *re.findall(
        r"\w+",
        "patient time math min max abs int float str const var let new this function typeof null undefined "
        "switch case default do enum export extends catch throw void delete super interface package private "
        "protected public static eval arguments nan infinity number string next repeat inf na",
    ),
]

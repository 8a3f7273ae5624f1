"""Formulas printed as Python, JavaScript and SQL."""

from __future__ import annotations

import json
import keyword
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, get_args

from typing_extensions import override

from sstorch.deploy.expression import Expression, Formula, Steps
from sstorch.exceptions import ConfigError

Language = Literal["python", "javascript", "sql"]
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
_SIGNS = {
    "less": "<",
    "less_equal": "<=",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "negative": "-",
}
# A number is compared with a constant, not a constant with a number.
_MIRRORED = {"less": ">", "less_equal": ">="}


def source_code(formula: Formula, language: Language, title: str, horizon: float | None = None) -> str:
    """A formula as source code that needs nothing but the language.

    Args:
        formula: of the model.
        language: ``"python"`` and ``"javascript"`` give functions ``group(patient)`` and ``survival(patient,
            time)`` of a dictionary of columns; ``"sql"`` a query with a row for each of a table ``patients``.
        title: what the model is, for the comment above.
        horizon: original units; the time of the query, or of functions that are called without one.

    Raises:
        ConfigError: there is no such language, or a query without a horizon.
    """
    if language not in get_args(Language):
        raise ConfigError(f"language must be one of {', '.join(get_args(Language))}, got {language!r}")
    if language == "sql":
        if horizon is None:
            raise ConfigError("a query is for one time: give horizon, in the time unit of the training rows")
        return SQL().source(formula.at(horizon), title)
    if horizon is not None:
        formula.at(horizon)  # checks it
    printer = Python() if language == "python" else JavaScript()
    return printer.source(formula, title, horizon)


class Printer(ABC):
    """Expressions in one language."""

    truths: tuple[str, str]
    infinity: str
    nan: str
    words: ClassVar[Mapping[str, str]]
    signs: ClassVar[Mapping[str, str]]

    def text(self, a: Expression, within: int = 0) -> str:
        """An expression, in parentheses where what is around it binds more strongly."""
        match a.op:
            case "constant":
                return self.constant(a.constant)
            case "step":
                return self.name(str(a.value))
            case "time":
                return "time"
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
        text = repr(value)
        text = text.removesuffix(".0") if abs(value) < 1e15 and not isinstance(self, SQL) else text
        return f"({text})" if value < 0 else text

    def name(self, name: str) -> str:
        """A step's name as the language can have it."""
        return name

    @abstractmethod
    def where(self, condition: str, a: str, b: str) -> str:
        """By a condition."""

    @abstractmethod
    def pick(self, position: str, values: Sequence[str]) -> str:
        """By a position."""

    @abstractmethod
    def rank(self, a: str, values: Sequence[str]) -> str:
        """How many of some numbers are no larger."""

    @abstractmethod
    def number(self, column: str, missing: float) -> str:
        """A column's value, or what replaces it."""

    @abstractmethod
    def known(self, column: str) -> str:
        """Whether there is one."""

    @abstractmethod
    def category(self, column: str, label: str) -> str:
        """Whether it is a label."""

    def call(self, op: str, args: Sequence[str]) -> str:
        """A function."""
        return f"{self.words.get(op, op)}({', '.join(args)})"


def _identifiers(steps: Steps, taken: Sequence[str] = ()) -> dict[str, str]:
    """A name for each step that every language accepts."""
    names: dict[str, str] = {}
    used = {*_RESERVED, *taken}
    for name, _ in steps.steps:
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        free, k = plain, 2
        while free.lower() in used:
            free, k = f"{plain}_{k}", k + 1
        used.add(free.lower())
        names[name] = free
    return names


def _facts(formula: Formula, title: str) -> list[str]:
    """What a reader of the code should know."""
    lines = [title, *([formula.condition] if formula.condition else []), "Columns of a patient:"]
    for name, categories in formula.columns.items():
        lines.append(
            f"  {name}: " + ("a number" if categories is None else f"one of {', '.join(categories)}")
        )
    lines.append("A column that is missing is filled as in the training rows. This is no medical device.")
    return [" ".join(line.split("\n")) if line[0] != " " else line.replace("\n", " ") for line in lines]


_PYTHON = """
import bisect
import math


def _number(patient, column, missing):
    value = patient.get(column)
    return missing if value is None or value != value else float(value)


def _label(patient, column):
    value = patient.get(column)
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _exp(x):
    return math.exp(x) if x < 709.78 else math.inf


def _expm1(x):
    return math.expm1(x) if x < 709.78 else math.inf


def _log(x):
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _log1p(x):
    return math.log1p(x) if x > -1 else -math.inf if x == -1 else math.nan


def _divide(x, y):
    return x / y if y else math.nan if x == 0 else math.copysign(math.inf, x)
"""
# Names that a step must not have, in any of the languages.
_RESERVED = [
    *map(str.lower, keyword.kwlist),
    *re.findall(
        r"\w+",
        "patient time math min max abs int float str const var let new this function typeof null undefined "
        "switch case default do enum export extends catch throw void delete super interface package private "
        "protected public static eval arguments nan infinity number string",
    ),
]


class Python(Printer):
    """Python, its standard library alone."""

    truths = ("False", "True")
    infinity = "math.inf"
    nan = "math.nan"
    signs: ClassVar = {**_SIGNS, "and": "and", "or": "or", "not": "not ", "equal": "=="}
    words: ClassVar = {
        "divide": "_divide",  # a division by zero would raise
        "exp": "_exp",
        "expm1": "_expm1",
        "log": "_log",
        "log1p": "_log1p",
        "absolute": "abs",
        "minimum": "min",
        "maximum": "max",
    }
    names: dict[str, str]

    def source(self, formula: Formula, title: str, horizon: float | None) -> str:
        """A module."""
        group, survival = Steps.of(formula.group), Steps.of(formula.survival)
        default = "" if horizon is None else f"={horizon!r}"
        parts = [
            '"""' + "\n".join(_facts(formula, title)).replace("\\", "\\\\").replace('"', "'") + '\n"""',
            _PYTHON,
        ]
        for head, steps, says in (
            ("group(patient)", group, "Group of a patient, 0 ... from the left of the tree."),
            (
                f"survival(patient, time{default})",
                survival,
                "Probability of being free of the event at a time.",
            ),
        ):
            body = [f'    """{says}"""', *self._body(steps), f"    return {self.text(steps.results[0])}"]
            parts.append(f"\n\ndef {head}:\n" + "\n".join(body) + "\n")
        return "".join(parts)

    def _body(self, steps: Steps) -> list[str]:
        self.names = _identifiers(steps)
        return [f"    {self.names[name]} = {self.text(a)}" for name, a in steps.steps]

    @override
    def name(self, name: str) -> str:
        return self.names[name]

    @override
    def where(self, condition: str, a: str, b: str) -> str:
        return f"({a} if {condition} else {b})"

    @override
    def pick(self, position: str, values: Sequence[str]) -> str:
        return f"({', '.join(values)})[int({position})]"

    @override
    def rank(self, a: str, values: Sequence[str]) -> str:
        return f"bisect.bisect_right(({', '.join(values)},), {a})"

    @override
    def number(self, column: str, missing: float) -> str:
        return f"_number(patient, {column!r}, {self.constant(missing)})"

    @override
    def known(self, column: str) -> str:
        return f"(_label(patient, {column!r}) is not None)"

    @override
    def category(self, column: str, label: str) -> str:
        return f"(_label(patient, {column!r}) == {label!r})"


_JAVASCRIPT = """
function _number(patient, column, missing) {
  const value = patient[column];
  const empty = value === undefined || value === null || value === "" || Number.isNaN(value);
  return empty ? missing : Number(value);
}

function _rank(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x < values[middle]) high = middle; else low = middle + 1;
  }
  return low;
}

function _label(patient, column) {
  const value = patient[column];
  if (value === undefined || value === null || value === "" || Number.isNaN(value)) return null;
  return value === true ? "True" : value === false ? "False" : String(value);
}
"""


class JavaScript(Printer):
    """JavaScript of any browser."""

    truths = ("false", "true")
    infinity = "Infinity"
    nan = "NaN"
    signs: ClassVar = {**_SIGNS, "and": "&&", "or": "||", "not": "!", "equal": "==="}
    words: ClassVar = {
        "exp": "Math.exp",
        "expm1": "Math.expm1",
        "log": "Math.log",
        "log1p": "Math.log1p",
        "absolute": "Math.abs",
        "minimum": "Math.min",
        "maximum": "Math.max",
    }
    names: dict[str, str]

    def source(self, formula: Formula, title: str, horizon: float | None = None) -> str:
        """A script."""
        group, survival = Steps.of(formula.group), Steps.of(formula.survival)
        default = "" if horizon is None else f" = {horizon!r}"
        parts = ["".join(f"// {line}\n" for line in _facts(formula, title)), _JAVASCRIPT]
        for head, steps, says in (
            ("group(patient)", group, "Group of a patient, 0 ... from the left of the tree."),
            (
                f"survival(patient, time{default})",
                survival,
                "Probability of being free of the event at a time.",
            ),
        ):
            self.names = _identifiers(steps)
            body = [f"  const {self.names[name]} = {self.text(a)};" for name, a in steps.steps]
            last = f"  return {self.text(steps.results[0])};"
            parts.append(f"\n// {says}\nfunction {head} {{\n" + "\n".join([*body, last]) + "\n}\n")
        return "".join(parts)

    @override
    def name(self, name: str) -> str:
        return self.names[name]

    @override
    def where(self, condition: str, a: str, b: str) -> str:
        return f"({condition} ? {a} : {b})"

    @override
    def pick(self, position: str, values: Sequence[str]) -> str:
        return f"[{', '.join(values)}][{position}]"

    @override
    def rank(self, a: str, values: Sequence[str]) -> str:
        return f"_rank([{', '.join(values)}], {a})"

    @override
    def number(self, column: str, missing: float) -> str:
        return f"_number(patient, {json.dumps(column)}, {self.constant(missing)})"

    @override
    def known(self, column: str) -> str:
        return f"(_label(patient, {json.dumps(column)}) !== null)"

    @override
    def category(self, column: str, label: str) -> str:
        return f"(_label(patient, {json.dumps(column)}) === {json.dumps(label)})"


class SQL(Printer):
    """A query that SQLite, PostgreSQL and DuckDB run: common table expressions, one for what each needs."""

    truths = ("(1 = 0)", "(1 = 1)")
    infinity = "9e999"
    nan = "NULL"
    signs: ClassVar = {**_SIGNS, "and": "AND", "or": "OR", "not": "NOT ", "equal": "="}
    words: ClassVar = {"exp": "EXP", "log": "LN", "absolute": "ABS"}
    names: dict[str, str]

    def source(self, formula: Formula, title: str) -> str:
        """A query of the table ``patients``; its rows with two columns more."""
        steps = Steps.of(formula.group, formula.survival)
        columns = [name.lower() for name in formula.columns]
        self.names = _identifiers(steps, [*columns, "predicted_group", "predicted_survival"])
        level: dict[str, int] = {}
        for name, a in steps.steps:
            level[name] = 1 + max((level[b] for b in _used(a)), default=0)
        parts, before = [], "patients"
        for depth in range(1, max(level.values(), default=0) + 1):
            new = [f"    {self.text(a)} AS {self.name(n)}" for n, a in steps.steps if level[n] == depth]
            parts.append(
                f"step_{depth} AS MATERIALIZED (\n  SELECT *,\n" + ",\n".join(new) + f"\n  FROM {before}\n)"
            )
            before = f"step_{depth}"
        group, survival = (self.text(a) for a in steps.results)
        head = "".join(f"-- {line}\n" for line in _facts(formula, title))
        head += (
            f"-- predicted_survival: probability of being free of the event at time {formula.horizon:g}.\n"
        )
        kept = "*" if before == "patients" else ", ".join(f'"{_doubled(name)}"' for name in formula.columns)
        with_ = "WITH " + ",\n".join(parts) + "\n" if parts else ""
        return (
            f"{head}{with_}SELECT {kept},\n  CAST({group} AS INTEGER) AS predicted_group,\n"
            f"  {survival} AS predicted_survival\nFROM {before};\n"
        )

    @override
    def name(self, name: str) -> str:
        return f'"{self.names[name]}"'

    @override
    def where(self, condition: str, a: str, b: str) -> str:
        return f"CASE WHEN {condition} THEN {a} ELSE {b} END"

    @override
    def pick(self, position: str, values: Sequence[str]) -> str:
        cases = " ".join(f"WHEN {k} THEN {value}" for k, value in enumerate(values[:-1]))
        return f"CASE {position} {cases} ELSE {values[-1]} END"

    @override
    def rank(self, a: str, values: Sequence[str]) -> str:
        return " + ".join(f"CASE WHEN {value} <= {a} THEN 1.0 ELSE 0.0 END" for value in values)

    @override
    def number(self, column: str, missing: float) -> str:
        return f'COALESCE("{_doubled(column)}", {self.constant(missing)})'

    @override
    def known(self, column: str) -> str:
        return f'("{_doubled(column)}" IS NOT NULL)'

    @override
    def category(self, column: str, label: str) -> str:
        quoted = label.replace("'", "''")
        same = [f"'{quoted}'", f"'{quoted}.0'"] if re.fullmatch(r"-?\d+", label) else [f"'{quoted}'"]
        given = f'CAST("{_doubled(column)}" AS VARCHAR)'
        # A missing value is no label, and neither is its comparison with one.
        return f"COALESCE({given} IN ({', '.join(same)}), (1 = 0))"

    @override
    def call(self, op: str, args: Sequence[str]) -> str:
        a = args[0]
        match op:
            case "minimum" | "maximum":
                return (
                    f"CASE WHEN {a} {'<' if op == 'minimum' else '>'} {args[1]} THEN {a} ELSE {args[1]} END"
                )
            # Kahan's forms, exact where 1 + x or exp(x) - 1 would lose the digits.
            case "log1p":
                return (
                    f"CASE WHEN 1.0 + {a} = 1.0 THEN {a} ELSE LN(1.0 + {a}) * {a} / ((1.0 + {a}) - 1.0) END"
                )
            case "expm1":
                e = f"EXP({a})"
                return (
                    f"CASE WHEN {e} = 1.0 THEN {a} WHEN {e} - 1.0 = -1.0 THEN -1.0 "
                    f"ELSE ({e} - 1.0) * {a} / LN({e}) END"
                )
        return super().call(op, args)


def _doubled(name: str) -> str:
    return name.replace('"', '""')


def _used(a: Expression) -> list[str]:
    """Steps inside an expression."""
    return [str(a.value)] if a.op == "step" else [name for b in a.args for name in _used(b)]

"""Formulas printed in a language of statements: functions of a patient."""

from __future__ import annotations

import keyword
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sstorch.deploy.expression import Expression, Formula, Hazards

# What a patient without a column, or with an unknown category, is: an error, or one with a missing value.
Missing = Literal["raise", "typical"]
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
# Signs that the languages have in common.
SIGNS = {
    "less": "<",
    "less_equal": "<=",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "negative": "-",
}
# A number is compared with a constant, not a constant with a number.
_MIRRORED = {"less": ">", "less_equal": ">="}


@dataclass(frozen=True)
class Steps:
    """Formulas in the order in which they are computed: each step is a name and what it represents.

    Expressions that several others need, and those that have a name, are steps; others stand inside them.
    """

    # name and expression; arguments that are steps themselves are ``"step"`` expressions
    steps: tuple[tuple[str, Expression], ...]
    results: tuple[Expression, ...]  # the results, as expressions of steps

    @classmethod
    def of(cls, *results: Expression) -> Steps:
        """Find what is shared."""
        interned = _interned(results)
        count: dict[int, int] = {}
        for a in _in_order(interned):
            for b in a.args:
                count[id(b)] = count.get(id(b), 0) + 1
        steps: list[tuple[str, Expression]] = []
        taken: set[str] = set()
        done: dict[int, Expression] = {}
        for a in _in_order(interned):
            new = Expression(a.op, tuple(done[id(b)] for b in a.args), a.value)
            named = a.op == "let"
            if named:
                new = new.args[0]
            plain = new.op in ("constant", "time", "step", "number")
            if (named or count.get(id(a), 0) > 1) and not plain:
                name = _free(str(a.value) if named else f"v{len(steps) + 1}", taken)
                steps.append((name, new))
                new = Expression("step", value=name)
            done[id(a)] = new
        return cls(tuple(steps), tuple(done[id(a)] for a in interned))

    def moving(self) -> set[str]:
        """Names of the steps that depend on time."""
        found: set[str] = set()
        for name, a in self.steps:
            if _depends_on_time(a, found):
                found.add(name)
        return found


def used_columns(formula: Formula) -> list[str]:
    """Names of the columns that a formula reads, in their order."""
    hazards = formula.hazards
    results = [formula.group, formula.survival, *formula.incidence.values()]
    results += [] if hazards is None else [*hazards.log_hazard.values(), hazards.cumulative]
    found = set()
    for a in _in_order(results):
        if a.op == "known":
            found.add(a.value)
        elif a.op in ("number", "category"):
            assert isinstance(a.value, tuple)
            found.add(a.value[0])
    return [name for name in formula.columns if name in found]


def _depends_on_time(a: Expression, moving: Collection[str]) -> bool:
    """Whether an expression depends on time, or on one of the steps that do."""
    if a.op == "step":
        return a.value in moving
    return a.op == "time" or any(_depends_on_time(b, moving) for b in a.args)


def _interned(results: Sequence[Expression]) -> list[Expression]:
    """The same expressions, equal parts being one object."""
    known: dict[tuple[object, ...], Expression] = {}
    done: dict[int, Expression] = {}
    for a in _in_order(results):
        new = Expression(a.op, tuple(done[id(b)] for b in a.args), a.value)
        done[id(a)] = known.setdefault(new.key, new)
    return [done[id(a)] for a in results]


def _in_order(results: Sequence[Expression]) -> Iterator[Expression]:
    """Every expression once, after its arguments; without recursion, since sums are long."""
    seen: set[int] = set()
    stack = [(a, False) for a in reversed(results)]
    while stack:
        a, ready = stack.pop()
        if ready:
            yield a
        elif id(a) not in seen:
            seen.add(id(a))
            stack.append((a, True))
            stack.extend((b, False) for b in reversed(a.args))


def _free(name: str, taken: set[str]) -> str:
    free, k = name, 2
    while free in taken:
        free, k = f"{name}_{k}", k + 1
    taken.add(free)
    return free


class Script(ABC):
    """Functions of a patient in a language of statements."""

    truths: tuple[str, str]
    infinity: str
    nan: str
    words: ClassVar[Mapping[str, str]]
    signs: ClassVar[Mapping[str, str]]
    # Of ``where``, ``pick``, ``rank``, ``number``, ``known`` and ``category``, of a step and of a default.
    forms: ClassVar[Mapping[str, str]]
    names: dict[str, str]  # of the steps, as the language can have them
    _reading: str
    _check: str
    _checking: str
    _quadrature: str

    def source(
        self, formula: Formula, title: str, horizon: float | None = None, missing: Missing = "raise"
    ) -> str:
        """A module with ``group``, ``survival`` and, of several causes, ``incidence``."""
        time = "time" if horizon is None else self.forms["default"].format("time", repr(horizon))
        event = "any event" if formula.causes else "the event"
        parts = [
            self._head(_facts_of(formula, title)),
            self._values(missing, {name: formula.columns[name] or () for name in used_columns(formula)}),
            self._of_results("group(patient)", _GROUP, formula.group),
            self._of_results(
                f"survival(patient, {time})", f"Probability of no event by a time: {event}.", formula.survival
            ),
        ]
        head = f"incidence(patient, {time})"
        if formula.hazards is not None:
            parts += self._of_hazards(formula.hazards, head, formula.after)
        elif formula.causes:
            incidences = formula.incidence.values()
            parts.append(self._of_results(head, _INCIDENCE, *incidences, names=formula.causes))
        return "".join(parts)

    def gates(self, formula: Formula) -> str:
        """A function of the answers at all gates, for code that has :meth:`source` above it."""
        if not formula.gates:
            return ""
        names = [str(node) for node in formula.gates]
        return self._of_results("gates(patient)", _GATES, *formula.gates.values(), names=names)

    def _of_results(self, head: str, says: str, *results: Expression, names: Sequence[str] = ()) -> str:
        """A function of one result, or of several by name."""
        steps = Steps.of(*results)
        self.names = _identifiers(steps)
        texts = [self._text(each) for each in steps.results]
        result = self._pairs(dict(zip(names, texts, strict=True))) if names else texts[0]
        return self._function(head, says, [*self._checks, *self._lines(steps)], result)

    def _of_hazards(self, hazards: Hazards, head: str, after: float | None) -> list[str]:
        """The functions by which incidences are integrated."""
        curves = [*hazards.log_hazard.values(), hazards.cumulative]
        constants = {
            "EDGES": _list(map(repr, hazards.edges)),
            "RULE": _list(_list(map(repr, each)) for each in hazards.rule),
            "WIDTH": repr(hazards.width),
            "CAUSES": str(len(hazards.log_hazard)),
        }
        shares = {name: f"found[{k}]" for k, name in enumerate(hazards.log_hazard)}
        time = f"{after!r} + time" if after else "time"
        lines = [self._step("found", f"_integrals(_hazards(patient), {time})")]
        return [
            self._of_curves("_hazards(patient)", _HAZARDS, curves),
            re.sub("@([A-Z]+)@", lambda found: constants[found[1]], self._quadrature),
            self._function(head, _INCIDENCE, lines, self._pairs(shares)),
        ]

    def _of_curves(self, head: str, says: str, curves: Sequence[Expression]) -> str:
        """A function that returns a function ``at`` of time with a list of curves."""
        steps = Steps.of(*curves)
        self.names = _identifiers(steps, ["at"])
        moving = steps.moving()
        fixed = self._lines(steps, [name for name, _ in steps.steps if name not in moving])
        at = self._curves(self._lines(steps, moving), _list(map(self._text, steps.results)))
        return self._function(head, says, [*self._checks, *fixed, *at], "at")

    def _lines(self, steps: Steps, chosen: Collection[str] | None = None) -> list[str]:
        """Statements of the steps, or of some."""
        return [
            self._step(self.names[name], self._text(a))
            for name, a in steps.steps
            if chosen is None or name in chosen
        ]

    def _text(self, a: Expression, within: int = 0) -> str:
        """An expression, in parentheses where what is around it binds more strongly."""
        match a.op:
            case "constant":
                return self._constant(a.constant)
            case "step":
                return self.names[str(a.value)]
            case "time":
                return "time"
            case "number":
                assert isinstance(a.value, tuple)
                column, missing = a.value
                return self.forms["number"].format(self._quoted(column), self._constant(missing))
            case "category":
                assert isinstance(a.value, tuple)
                return self.forms["category"].format(*map(self._quoted, a.value))
            case "known":
                return self.forms["known"].format(self._quoted(str(a.value)))
            case "where":
                return self.forms["where"].format(*map(self._text, a.args))
            case "pick" | "rank":
                assert isinstance(a.value, tuple)
                values = ", ".join(map(self._constant, a.value))
                return self.forms[a.op].format(values, self._text(a.args[0]))
            case op if op in self.signs:
                strength = _STRENGTH[op]
                if len(a.args) == 1:
                    text = self.signs[op] + self._text(a.args[0], strength + 1)
                else:
                    sign, (left, right) = self.signs[op], a.args
                    if op in _MIRRORED and left.is_constant:
                        sign, left, right = _MIRRORED[op], right, left
                    # From left to right: what is on the right needs its parentheses also at equal strength.
                    text = f"{self._text(left, strength)} {sign} {self._text(right, strength + 1)}"
                return f"({text})" if strength < within else text
            case op:
                return f"{self.words[op]}({', '.join(map(self._text, a.args))})"

    def _constant(self, value: float | bool) -> str:
        """A number with all its digits, or a truth value."""
        if isinstance(value, bool):
            return self.truths[value]
        if math.isnan(value):
            return self.nan
        if value < 0:
            return f"(-{self._constant(-value)})"
        if math.isinf(value):
            return self.infinity
        return repr(value).removesuffix(".0") if value < 1e15 else repr(value)

    def _values(self, missing: Missing, columns: Mapping[str, Sequence[str]]) -> str:
        """Functions that read a patient, and from now on the statement that checks one."""
        self._checks = [] if missing == "typical" else [self._checking]
        return self._reading + (self._known_columns(columns) + self._check if self._checks else "")

    def _step(self, name: str, text: str) -> str:
        """A statement that names a value."""
        return self.forms["step"].format(name, text)

    def _pairs(self, pairs: Mapping[str, str]) -> str:
        """Values by name."""
        return "{" + ", ".join(f"{self._quoted(name)}: {text}" for name, text in pairs.items()) + "}"

    @abstractmethod
    def _quoted(self, text: str) -> str:
        """The name of a column, or a label, as a literal."""

    @abstractmethod
    def _head(self, facts: Sequence[str]) -> str:
        """Comments and helpers."""

    @abstractmethod
    def _known_columns(self, columns: Mapping[str, Sequence[str]]) -> str:
        """The columns with their categories, none of numbers, as a constant."""

    @abstractmethod
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        """A function with its comment."""

    @abstractmethod
    def _curves(self, lines: Sequence[str], result: str) -> list[str]:
        """Statements that define ``at``, a list of curves at a time."""


def indented(lines: Sequence[str], by: int) -> str:
    """Lines of code, further to the right."""
    return "".join(" " * by + line + "\n" for line in lines)


def _list(items: Iterable[str]) -> str:
    """Values in their order."""
    return f"[{', '.join(items)}]"


def _identifiers(steps: Steps, taken: Sequence[str] = ()) -> dict[str, str]:
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


def _facts_of(formula: Formula, title: str) -> list[str]:
    """Notes for readers of the code."""
    lines = [title, *([formula.condition] if formula.condition else []), "Columns of a patient:"]
    for name, categories in formula.columns.items():
        lines.append(
            f"  {name}: " + ("a number" if categories is None else f"one of {', '.join(categories)}")
        )
    lines.append("A value that is missing is filled as in the training rows. This is no medical device.")
    return [line.replace("\n", " ") for line in lines]


# Names that a step must not have, in any of the languages, whatever their case.
_RESERVED = [
    *map(str.lower, keyword.kwlist),
    *re.findall(
        r"\w+",
        "patient time math min max abs int float str const var let new this function typeof null undefined "
        "switch case default do enum export extends catch throw void delete super interface package private "
        "protected public static eval arguments nan infinity number string",
    ),
]
_GROUP = "Group of a patient: 1 has the longest survival."
_GATES = "Whether a patient takes the first child, by node."
_INCIDENCE = "Probability by cause that it has come by a time, and no other cause before."
_HAZARDS = "Log hazards of the causes, and the cumulative hazard of any event, as a function of time."

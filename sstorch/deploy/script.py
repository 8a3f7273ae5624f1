"""Formulas printed as Python, its standard library alone, and as JavaScript of any browser.

What the code of every formula has in common are the files runtime.py.txt and runtime.js.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

from sstorch.deploy.expression import Expression, Formula, Hazards

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
_SIGNS = {
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
    """Formulas as steps: what several expressions need, and what has a name; others stand inside them."""

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


@dataclass(frozen=True)
class Script:
    """A language of statements, in which a formula is printed as functions of a patient."""

    literal: Callable[[Any], str]  # a text, or columns with their categories, as a literal
    truths: tuple[str, str]
    infinity: str
    nan: str
    words: Mapping[str, str]  # functions, by operation
    signs: Mapping[str, str]  # operators, by operation
    forms: Mapping[str, str]  # other operations and statements, with gaps
    line: str  # a line of the head
    indent: str
    runtime: Mapping[str, str]  # functions that read and check a patient, and integrate hazards
    checking: str  # the statement that checks a patient

    def source(self, formula: Formula, title: str) -> str:
        """A module with ``group``, ``survival`` and, of several causes, ``incidence``."""
        survives = f"Probability of no event by a time: {'any' if formula.causes else 'the'} event."
        columns = {name: [*(formula.columns[name] or ())] for name in used_columns(formula)}
        parts = [
            self.forms["head"].format("\n".join(map(self.line.format, _facts_of(formula, title)))),
            self.runtime["reading"],
            self.forms["columns"].format(self.literal(columns)),
            self.runtime["check"],
            self._of_results("group(patient)", _GROUP, [formula.group]),
            self._of_results("survival(patient, time)", survives, [formula.survival]),
        ]
        head = "incidence(patient, time)"
        if formula.hazards is not None:
            parts += self._of_hazards(formula.hazards, head, formula.after)
        elif formula.causes:
            parts.append(self._of_results(head, _INCIDENCE, [*formula.incidence.values()], formula.causes))
        return "".join(parts)

    def gates(self, formula: Formula) -> str:
        """A function of the answers at all gates, for code that has :meth:`source` above it."""
        names = [str(node) for node in formula.gates]
        return self._of_results("gates(patient)", _GATES, [*formula.gates.values()], names) if names else ""

    def _of_results(
        self, head: str, says: str, results: Sequence[Expression], names: Sequence[str] = ()
    ) -> str:
        """A function of one result, or of several by name."""
        steps = Steps.of(*results)
        known = _identifiers(steps)
        texts = [self._text(each, known) for each in steps.results]
        result = self._pairs(dict(zip(names, texts, strict=True))) if names else texts[0]
        return self._function(head, says, [self.checking, *self._lines(steps, known)], result)

    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        body = [*lines, self.forms["return"].format(result)]
        return self.forms["function"].format(head, says, _indented(body, self.indent))

    def _of_hazards(self, hazards: Hazards, head: str, after: float | None) -> list[str]:
        """The functions by which incidences are integrated: the first returns curves, a function of time."""
        constants = {
            "EDGES": _list(map(repr, hazards.edges)),
            "RULE": _list(_list(map(repr, each)) for each in hazards.rule),
            "WIDTH": repr(hazards.width),
            "CAUSES": str(len(hazards.log_hazard)),
        }
        steps = Steps.of(*hazards.log_hazard.values(), hazards.cumulative)
        known, moving = _identifiers(steps, ["at"]), steps.moving()
        fixed = self._lines(steps, known, [name for name, _ in steps.steps if name not in moving])
        curves = _list(self._text(each, known) for each in steps.results)
        body = [*self._lines(steps, known, moving), self.forms["return"].format(curves)]
        at = self.forms["curves"].format(_indented(body, self.indent)).splitlines()
        shares = {name: f"found[{k}]" for k, name in enumerate(hazards.log_hazard)}
        time = f"{after!r} + time" if after else "time"
        found = self.forms["step"].format("found", f"_integrals(_hazards(patient), {time})")
        return [
            self._function("_hazards(patient)", _HAZARDS, [self.checking, *fixed, *at], "at"),
            re.sub("@([A-Z]+)@", lambda found: constants[found[1]], self.runtime["quadrature"]),
            self._function(head, _INCIDENCE, [found], self._pairs(shares)),
        ]

    def _lines(
        self, steps: Steps, names: Mapping[str, str], chosen: Collection[str] | None = None
    ) -> list[str]:
        """Statements of the steps, or of some."""
        return [
            self.forms["step"].format(names[name], self._text(a, names))
            for name, a in steps.steps
            if chosen is None or name in chosen
        ]

    def _text(self, a: Expression, names: Mapping[str, str], within: int = 0) -> str:
        """An expression, in parentheses where what is around it binds more strongly."""
        match a.op:
            case "constant":
                return self._constant(a.constant)
            case "step":
                return names[str(a.value)]
            case "time":
                return "time"
            case "number":
                assert isinstance(a.value, tuple)
                column, missing = a.value
                return self.forms["number"].format(self.literal(column), self._constant(missing))
            case "category":
                assert isinstance(a.value, tuple)
                return self.forms["category"].format(*map(self.literal, a.value))
            case "known":
                return self.forms["known"].format(self.literal(str(a.value)))
            case "where":
                return self.forms["where"].format(*(self._text(b, names) for b in a.args))
            case "pick" | "rank":
                assert isinstance(a.value, tuple)
                values = ", ".join(map(self._constant, a.value))
                return self.forms[a.op].format(values, self._text(a.args[0], names))
            case op if op in self.signs:
                strength = _STRENGTH[op]
                if len(a.args) == 1:
                    text = self.signs[op] + self._text(a.args[0], names, strength + 1)
                else:
                    sign, (left, right) = self.signs[op], a.args
                    if op in _MIRRORED and left.is_constant:
                        sign, left, right = _MIRRORED[op], right, left
                    # From left to right: what is on the right needs its parentheses also at equal strength.
                    left_text = self._text(left, names, strength)
                    text = f"{left_text} {sign} {self._text(right, names, strength + 1)}"
                return f"({text})" if strength < within else text
            case op:
                return f"{self.words[op]}({', '.join(self._text(b, names) for b in a.args)})"

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

    def _pairs(self, pairs: Mapping[str, str]) -> str:
        """Values by name."""
        return "{" + ", ".join(f"{self.literal(name)}: {text}" for name, text in pairs.items()) + "}"


def _indented(lines: Sequence[str], by: str) -> str:
    """Lines of code, further to the right."""
    return "".join(by + line + "\n" for line in lines)


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
    lines = [title, "Columns of a patient:"]
    for name, categories in formula.columns.items():
        lines.append(
            f"  {name}: " + ("a number" if categories is None else f"one of {', '.join(categories)}")
        )
    lines.append("A value that is missing is filled as in the training rows. This is no medical device.")
    # In a comment or docstring of any language.
    return [line.replace("\n", " ").replace("\\", "\\\\").replace('"', "'") for line in lines]


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


def _runtime(file: str) -> dict[str, str]:
    """Parts of a file of this folder by name, each below a line ``# ---- NAME``."""
    text = resources.files("sstorch.deploy").joinpath(file).read_text("utf-8")
    _, *parts = re.split(r"^(?:#|//) ---- (\w+)\n", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


_PARTS = _runtime("runtime.py.txt")
PYTHON = Script(
    literal=repr,
    truths=("False", "True"),
    infinity="math.inf",
    nan="math.nan",
    signs={**_SIGNS, "and": "and", "or": "or", "not": "not ", "equal": "=="},
    words={
        "divide": "_divide",  # a division by zero would raise
        "exp": "_exp",
        "expm1": "_expm1",
        "log": "_log",
        "log1p": "_log1p",
        "absolute": "abs",
        "minimum": "min",
        "maximum": "max",
    },
    forms={
        "where": "({1} if {0} else {2})",
        "pick": "({})[int({})]",
        "rank": "bisect.bisect_right(({},), {})",
        "number": "_number(patient, {}, {})",
        "known": "(_value(patient, {}) is not None)",
        "category": "(_label(patient, {}) == {})",
        "step": "{} = {}",
        "return": "return {}",
        "head": '"""{}\n"""' + _PARTS["head"].replace("{", "{{").replace("}", "}}"),
        "columns": "\n\n_COLUMNS = {}\n",
        "function": '\n\ndef {0}:\n    """{1}"""\n{2}',
        "curves": "def at(time):\n{}",
    },
    line="{}",
    indent="    ",
    runtime=_PARTS,
    checking="_check(patient)",
)
JAVASCRIPT = Script(
    literal=partial(json.dumps, ensure_ascii=False),
    truths=("false", "true"),
    infinity="Infinity",
    nan="NaN",
    signs={**_SIGNS, "divide": "/", "and": "&&", "or": "||", "not": "!", "equal": "==="},
    words={
        "exp": "Math.exp",
        "expm1": "Math.expm1",
        "log": "Math.log",
        "log1p": "Math.log1p",
        "absolute": "Math.abs",
        "minimum": "Math.min",
        "maximum": "Math.max",
    },
    forms={
        "where": "({} ? {} : {})",
        "pick": "[{}][{}]",
        "rank": "_rank([{}], {})",
        "number": "_number(patient, {}, {})",
        "known": "(_value(patient, {}) !== null)",
        "category": "(_label(patient, {}) === {})",
        "step": "const {} = {};",
        "return": "return {};",
        "head": "{}\n",
        "columns": "\nconst _COLUMNS = {};\n",
        "function": "\n// {1}\nfunction {0} {{\n{2}}}\n",
        "curves": "const at = (time) => {{\n{}}};\n",
    },
    line="// {}",
    indent="  ",
    runtime=_runtime("runtime.js"),
    checking="_check(patient);",
)

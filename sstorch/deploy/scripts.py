"""Formulas printed as Python and JavaScript: functions of a patient."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.expression import Expression, Formula, Hazards, Steps
from sstorch.deploy.printer import INCIDENCE, SIGNS, Printer, facts_of, identifiers


class Script(Printer):
    """Functions of a patient in a language of statements."""

    names: dict[str, str]
    _quadrature: str

    def source(self, formula: Formula, title: str, horizon: float | None = None) -> str:
        """A module of functions: ``group``, ``survival``, and of several causes ``incidence``."""
        time = "time" if horizon is None else self._optional("time", horizon)
        event = "any event" if formula.causes else "the event"
        parts = [
            self._head(facts_of(formula, title)),
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
            parts.append(self._of_results(head, INCIDENCE, *incidences, names=formula.causes))
        return "".join(parts)

    def _of_results(self, head: str, says: str, *results: Expression, names: Sequence[str] = ()) -> str:
        """A function of one result, or of several by name."""
        steps = Steps.of(*results)
        self.names = identifiers(steps)
        texts = [self.text(each) for each in steps.results]
        result = self._pairs(dict(zip(names, texts, strict=True))) if names else texts[0]
        return self._function(head, says, self._lines(steps), result)

    def _of_hazards(self, hazards: Hazards, head: str, after: float | None) -> list[str]:
        """The functions by which incidences are integrated."""
        causes = [*hazards.log_hazard]
        steps = Steps.of(*hazards.log_hazard.values(), hazards.cumulative)
        self.names = identifiers(steps, ["at"])
        moving, texts = steps.moving(), [self.text(each) for each in steps.results]
        fixed = self._lines(steps, [name for name, _ in steps.steps if name not in moving])
        curves = self._curves(self._lines(steps, moving), texts[:-1], texts[-1])
        parts = [self._function("_hazards(patient)", _HAZARDS, [*fixed, *curves], "at")]
        constants = {
            "EDGES": ", ".join(map(repr, hazards.edges)),
            "RULE": ", ".join(f"[{place!r}, {weight!r}]" for place, weight in hazards.rule),
            "WIDTH": repr(hazards.width),
            "CAUSES": str(len(causes)),
        }
        parts.append(re.sub("@([A-Z]+)@", lambda found: constants[found[1]], self._quadrature))
        start = repr(after or 0.0)
        shares = {name: f"found[{k}]" for k, name in enumerate(causes)}
        lines = [self._step("found", f"_incidences(_hazards(patient), {start}, time)")]
        parts.append(self._function(head, INCIDENCE, lines, self._pairs(shares)))
        return parts

    def _lines(self, steps: Steps, chosen: Collection[str] | None = None) -> list[str]:
        """Statements of the steps, or of some."""
        return [
            self._step(self.names[name], self.text(a))
            for name, a in steps.steps
            if chosen is None or name in chosen
        ]

    @override
    def name(self, name: str) -> str:
        return self.names[name]

    @abstractmethod
    def _head(self, facts: Sequence[str]) -> str:
        """Comments and helpers."""

    @abstractmethod
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        """A function with its comment."""

    @abstractmethod
    def _step(self, name: str, text: str) -> str:
        """A statement that names a value."""

    @abstractmethod
    def _optional(self, argument: str, value: float) -> str:
        """An argument with a default value."""

    @abstractmethod
    def _pairs(self, pairs: Mapping[str, str]) -> str:
        """Values by name."""

    @abstractmethod
    def _curves(self, lines: Sequence[str], log_hazards: Sequence[str], total: str) -> list[str]:
        """Statements that define ``at``, the log hazards and the cumulative hazard at a time."""


def _indented(lines: Sequence[str], by: int) -> str:
    return "".join(" " * by + line + "\n" for line in lines)


_GROUP = "Group of a patient: 1 has the longest survival."
_SURVIVAL = "Probability of being free of {} at a time."
_HAZARDS = "Log hazards of the causes, and the cumulative hazard of any event, as a function of time."

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
_PYTHON_QUADRATURE = """

_EDGES = [@EDGES@]
_RULE = [@RULE@]


def _incidences(at, start, time):
    '''Probabilities of the causes between a time and a later one, for those without an event by then.'''
    alive = math.exp(-at(start)[1]) if start > 0 else 1.0
    before, found = _integrals(at, start), _integrals(at, start + time)
    return [(b - a) / alive if alive > 0 else math.nan for a, b in zip(before, found)]


def _integrals(at, time):
    '''Integrals of hazard times survival up to a time: in each panel causes share what survival loses.'''
    found = [0.0] * @CAUSES@
    if not time > 0:
        return found
    end, alive = math.log(time), 1.0
    edges = [edge for edge in _EDGES if edge < end] or [end - @WIDTH@]
    for left, right in zip(edges, [*edges[1:], end]):
        density = []
        for place, weight in _RULE:
            log_time = left + (right - left) / 2 * (1 + place)
            hazards, total = at(math.exp(log_time))
            density.append((weight, [hazard + log_time - total for hazard in hazards]))
        largest = max(-1e300, *(max(each) for _, each in density))
        masses = [sum(w * math.exp(each[k] - largest) for w, each in density) for k in range(@CAUSES@)]
        left_alive = math.exp(-at(math.exp(right))[1])
        for k, mass in enumerate(masses):
            share = mass / sum(masses) if sum(masses) > 0 else 1 / @CAUSES@
            found[k] += share * max(alive - left_alive, 0.0)
        alive = left_alive
    return found
"""


class Python(Script):
    """Python, its standard library alone."""

    truths = ("False", "True")
    infinity = "math.inf"
    nan = "math.nan"
    signs: ClassVar = {**SIGNS, "and": "and", "or": "or", "not": "not ", "equal": "=="}
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
    _quadrature = _PYTHON_QUADRATURE

    @override
    def _head(self, facts: Sequence[str]) -> str:
        return '"""' + "\n".join(facts).replace("\\", "\\\\").replace('"', "'") + '\n"""' + _PYTHON

    @override
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        body = [f'"""{says}"""', *lines, f"return {result}"]
        return f"\n\ndef {head}:\n" + _indented(body, 4)

    @override
    def _step(self, name: str, text: str) -> str:
        return f"{name} = {text}"

    @override
    def _optional(self, argument: str, value: float) -> str:
        return f"{argument}={value!r}"

    @override
    def _pairs(self, pairs: Mapping[str, str]) -> str:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in pairs.items()) + "}"

    @override
    def _curves(self, lines: Sequence[str], log_hazards: Sequence[str], total: str) -> list[str]:
        body = [*lines, f"return [{', '.join(log_hazards)}], {total}"]
        return ["def at(time):", *("    " + line for line in body)]

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


_JAVASCRIPT_QUADRATURE = """
const _EDGES = [@EDGES@];
const _RULE = [@RULE@];

// Probabilities of the causes between a time and a later one, for those without an event by then.
function _incidences(at, start, time) {
  const alive = start > 0 ? Math.exp(-at(start)[1]) : 1;
  const before = _integrals(at, start);
  return _integrals(at, start + time).map((each, k) => alive > 0 ? (each - before[k]) / alive : NaN);
}

// Integrals of hazard times survival up to a time: in each panel the causes share what survival loses.
function _integrals(at, time) {
  const found = new Array(@CAUSES@).fill(0);
  if (!(time > 0)) return found;
  const end = Math.log(time), below = _EDGES.filter((edge) => edge < end);
  const edges = below.length ? [...below, end] : [end - @WIDTH@, end];
  let alive = 1;
  for (let panel = 1; panel < edges.length; panel++) {
    const left = edges[panel - 1], right = edges[panel];
    const density = _RULE.map(([place]) => {
      const logTime = left + (right - left) / 2 * (1 + place);
      const [hazards, total] = at(Math.exp(logTime));
      return hazards.map((hazard) => hazard + logTime - total);
    });
    const largest = Math.max(-1e300, ...density.flat());
    const masses = found.map((_, k) =>
      density.reduce((sum, each, i) => sum + _RULE[i][1] * Math.exp(each[k] - largest), 0));
    const total = masses.reduce((a, b) => a + b, 0), later = Math.exp(-at(Math.exp(right))[1]);
    masses.forEach((mass, k) => {
      found[k] += (total > 0 ? mass / total : 1 / @CAUSES@) * Math.max(alive - later, 0);
    });
    alive = later;
  }
  return found;
}
"""


class JavaScript(Script):
    """JavaScript of any browser."""

    truths = ("false", "true")
    infinity = "Infinity"
    nan = "NaN"
    signs: ClassVar = {**SIGNS, "and": "&&", "or": "||", "not": "!", "equal": "==="}
    words: ClassVar = {
        "exp": "Math.exp",
        "expm1": "Math.expm1",
        "log": "Math.log",
        "log1p": "Math.log1p",
        "absolute": "Math.abs",
        "minimum": "Math.min",
        "maximum": "Math.max",
    }
    _quadrature = _JAVASCRIPT_QUADRATURE

    @override
    def _head(self, facts: Sequence[str]) -> str:
        return "".join(f"// {line}\n" for line in facts) + _JAVASCRIPT

    @override
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        return f"\n// {says}\nfunction {head} {{\n" + _indented([*lines, f"return {result};"], 2) + "}\n"

    @override
    def _step(self, name: str, text: str) -> str:
        return f"const {name} = {text};"

    @override
    def _optional(self, argument: str, value: float) -> str:
        return f"{argument} = {value!r}"

    @override
    def _pairs(self, pairs: Mapping[str, str]) -> str:
        return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in pairs.items()) + "}"

    @override
    def _curves(self, lines: Sequence[str], log_hazards: Sequence[str], total: str) -> list[str]:
        body = [*lines, f"return [[{', '.join(log_hazards)}], {total}];"]
        return ["const at = (time) => {", *("  " + line for line in body), "};"]

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

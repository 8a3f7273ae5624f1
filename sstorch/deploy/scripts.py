"""Formulas printed as Python and JavaScript: functions of a patient."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.expression import Expression, Formula, Hazards, Matrix, Slopes
from sstorch.deploy.printer import INCIDENCE, SIGNS, Printer, facts_of, identifiers
from sstorch.deploy.steps import Steps


class Script(Printer):
    """Functions of a patient in a language of statements."""

    names: dict[str, str]
    _quadrature: str
    _limits: str
    _complement: str

    def source(self, formula: Formula, title: str, horizon: float | None = None) -> str:
        """A module: ``group``, ``survival``, of several causes ``incidence``, and confidence limits."""
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
        if formula.slopes is not None:
            parts += self._of_slopes(formula.slopes, time, formula.causes)
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
        curves = [[each] for each in hazards.log_hazard.values()]
        parts = [self._of_curves("_hazards(patient)", _HAZARDS, [*curves, [hazards.cumulative]])]
        constants = {
            "EDGES": ", ".join(map(repr, hazards.edges)),
            "RULE": ", ".join(f"[{place!r}, {weight!r}]" for place, weight in hazards.rule),
            "WIDTH": repr(hazards.width),
            "CAUSES": str(len(curves)),
        }
        parts.append(re.sub("@([A-Z]+)@", lambda found: constants[found[1]], self._quadrature))
        start = repr(after or 0.0)
        shares = {name: f"found[{k}]" for k, name in enumerate(hazards.log_hazard)}
        lines = [self._step("found", f"_incidences(_hazards(patient), {start}, time)")]
        parts.append(self._function(head, INCIDENCE, lines, self._pairs(shares)))
        return parts

    def _of_slopes(self, slopes: Slopes, time: str, causes: Sequence[str]) -> list[str]:
        """The functions that compute confidence limits."""
        level = f"{100 * slopes.level:.4g} %"
        says = f"Confidence limits ({level}) of the mean {{}} of patients with these values."
        row, result = self._step("row", "_slopes(patient)"), f"_limits(row[0](time)[{len(causes)}], row[1])"
        parts = [
            self._of_curves("_slopes(patient)", _SLOPES, slopes.curves, slopes.covariance),
            self._limits.replace("@CRITICAL@", repr(slopes.critical)),
            self._function(f"survival_limits(patient, {time})", says.format("survival"), [row], result),
        ]
        if causes:
            lines = [row, self._step("found", "_integrals(row[0], time)")]
            shares = {name: f"_complement(found[{k}], row[1])" for k, name in enumerate(causes)}
            head, text = f"incidence_limits(patient, {time})", says.format("incidence")
            parts += [self._complement, self._function(head, text, lines, self._pairs(shares))]
        return parts

    def _of_curves(self, head: str, says: str, curves: Matrix, covariance: Matrix = ()) -> str:
        """A function that returns a function ``at`` of time with lists of curves, and what is constant."""
        steps = Steps.of(*(each for row in (*curves, *covariance) for each in row))
        self.names = identifiers(steps, ["at"])
        moving, texts = steps.moving(), iter([self.text(each) for each in steps.results])
        fixed = self._lines(steps, [name for name, _ in steps.steps if name not in moving])
        rows = [f"[{', '.join(next(texts) for _ in row)}]" for row in (*curves, *covariance)]
        at = self._curves(self._lines(steps, moving), rows[: len(curves)])
        result = f"[at, [{', '.join(rows[len(curves) :])}]]" if covariance else "at"
        return self._function(head, says, [*fixed, *at], result)

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
    def _curves(self, lines: Sequence[str], rows: Sequence[str]) -> list[str]:
        """Statements that define ``at``, lists of curves at a time."""


def _indented(lines: Sequence[str], by: int) -> str:
    return "".join(" " * by + line + "\n" for line in lines)


_GROUP = "Group of a patient: 1 has the longest survival."
_SURVIVAL = "Probability of being free of {} at a time."
_HAZARDS = "Log hazards of the causes, and the cumulative hazard of any event, as a function of time."
_SLOPES = "Curves with their derivatives in the parameters of the patient's hazards, and their covariance."

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
    return math.inf if x >= 709.78 else math.exp(x)


def _expm1(x):
    return math.inf if x >= 709.78 else math.expm1(x)


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
    alive = math.exp(-at(start)[-1][0]) if start > 0 else 1.0
    before, found = _integrals(at, start), _integrals(at, start + time)
    return [(b[0] - a[0]) / alive if alive > 0 else math.nan for a, b in zip(before, found)]


def _integrals(at, time):
    '''Integrals of hazard times survival up to a time: in each panel causes share what survival loses.

    Each is followed by its derivatives, if the curves are.
    '''
    size = len(at(time)[-1])
    found = [[0.0] * size for _ in range(@CAUSES@)]
    if not time > 0:
        return found
    end, alive = math.log(time), [1.0] + [0.0] * (size - 1)
    edges = [edge for edge in _EDGES if edge < end] or [end - @WIDTH@]
    for left, right in zip(edges, [*edges[1:], end]):
        density = []
        for place, weight in _RULE:
            log_time = left + (right - left) / 2 * (1 + place)
            *hazards, total = at(math.exp(log_time))
            logs = [[a - b for a, b in zip(hazard, total)] for hazard in hazards]
            density.append((weight, [[each[0] + log_time, *each[1:]] for each in logs]))
        largest = max(-1e300, *(each[0] for _, logs in density for each in logs))
        masses = [[0.0] * size for _ in found]
        for weight, logs in density:
            for mass, each in zip(masses, logs):
                part = weight * math.exp(each[0] - largest)
                for q in range(size):
                    mass[q] += part * each[q] if q else part
        whole = [sum(parts) for parts in zip(*masses)]
        total = at(math.exp(right))[-1]
        later = [-math.exp(-total[0]) * each for each in [-1.0, *total[1:]]]
        lost = [max(alive[0] - later[0], 0.0), *(a - b for a, b in zip(alive[1:], later[1:]))]
        for sums, mass in zip(found, masses):
            share = mass[0] / whole[0] if whole[0] > 0 else 1 / @CAUSES@
            sums[0] += share * lost[0]
            for q in range(1, size):
                slope = (mass[q] - share * whole[q]) / whole[0] if whole[0] > 0 else 0.0
                sums[q] += share * lost[q] + slope * lost[0]
        alive = later
    return found
"""
_PYTHON_LIMITS = '''

def _limits(hazard, covariance):
    """Limits of S = exp(-hazard), symmetric for log(-log S); derivatives follow the hazard."""
    hazard, *slopes = hazard
    variance = sum(a * b * each for a, row in zip(slopes, covariance) for b, each in zip(slopes, row))
    width = @CRITICAL@ * math.sqrt(variance) / hazard if hazard > 0 and not variance <= 0 else 0.0
    return {"lower": math.exp(-hazard * _exp(width)), "upper": math.exp(-hazard * _exp(-width))}
'''
_PYTHON_COMPLEMENT = '''

def _complement(share, covariance):
    """Limits of F, symmetric for log(-log(1 - F)); derivatives follow the share."""
    share, *slopes = share
    ends = _limits([-_log1p(-share), *(_divide(slope, 1 - share) for slope in slopes)], covariance)
    return {"lower": 1 - ends["upper"], "upper": 1 - ends["lower"]}
'''


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
    _limits = _PYTHON_LIMITS
    _complement = _PYTHON_COMPLEMENT

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
    def _curves(self, lines: Sequence[str], rows: Sequence[str]) -> list[str]:
        body = [*lines, f"return [{', '.join(rows)}]"]
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
  const alive = start > 0 ? Math.exp(-at(start)[@CAUSES@][0]) : 1;
  const before = _integrals(at, start);
  return _integrals(at, start + time).map((each, k) => alive > 0 ? (each[0] - before[k][0]) / alive : NaN);
}

// Integrals of hazard times survival up to a time: in each panel the causes share what survival loses.
// Each is followed by its derivatives, if the curves are.
function _integrals(at, time) {
  const size = at(time)[@CAUSES@].length;
  const found = Array.from({ length: @CAUSES@ }, () => new Array(size).fill(0));
  if (!(time > 0)) return found;
  const end = Math.log(time), below = _EDGES.filter((edge) => edge < end);
  const edges = below.length ? [...below, end] : [end - @WIDTH@, end];
  let alive = new Array(size).fill(0);
  alive[0] = 1;
  for (let panel = 1; panel < edges.length; panel++) {
    const left = edges[panel - 1], right = edges[panel];
    const density = _RULE.map(([place]) => {
      const logTime = left + (right - left) / 2 * (1 + place);
      const hazards = at(Math.exp(logTime)), total = hazards.pop();
      return hazards.map((hazard) => hazard.map((each, q) => each - total[q] + (q ? 0 : logTime)));
    });
    const largest = Math.max(-1e300, ...density.flat().map((each) => each[0]));
    const masses = found.map(() => new Array(size).fill(0));
    density.forEach((logs, i) => logs.forEach((each, k) => {
      const part = _RULE[i][1] * Math.exp(each[0] - largest);
      for (let q = 0; q < size; q++) masses[k][q] += q ? part * each[q] : part;
    }));
    const whole = masses[0].map((_, q) => masses.reduce((sum, mass) => sum + mass[q], 0));
    const total = at(Math.exp(right))[@CAUSES@], survival = Math.exp(-total[0]);
    const later = total.map((each, q) => q ? -survival * each : survival);
    const lost = alive.map((each, q) => q ? each - later[q] : Math.max(each - later[q], 0));
    masses.forEach((mass, k) => {
      const share = whole[0] > 0 ? mass[0] / whole[0] : 1 / @CAUSES@;
      found[k][0] += share * lost[0];
      for (let q = 1; q < size; q++) {
        const slope = whole[0] > 0 ? (mass[q] - share * whole[q]) / whole[0] : 0;
        found[k][q] += share * lost[q] + slope * lost[0];
      }
    });
    alive = later;
  }
  return found;
}
"""
_JAVASCRIPT_LIMITS = """
// Limits of S = exp(-hazard), symmetric for log(-log S); derivatives follow the hazard.
function _limits([hazard, ...slopes], covariance) {
  let variance = 0;
  slopes.forEach((a, k) => slopes.forEach((b, j) => { variance += a * b * covariance[k][j]; }));
  const width = hazard > 0 && !(variance <= 0) ? @CRITICAL@ * Math.sqrt(variance) / hazard : 0;
  return { lower: Math.exp(-hazard * Math.exp(width)), upper: Math.exp(-hazard * Math.exp(-width)) };
}
"""
_JAVASCRIPT_COMPLEMENT = """
// Limits of F, symmetric for log(-log(1 - F)); derivatives follow the share.
function _complement([share, ...slopes], covariance) {
  const ends = _limits([-Math.log1p(-share), ...slopes.map((slope) => slope / (1 - share))], covariance);
  return { lower: 1 - ends.upper, upper: 1 - ends.lower };
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
    _limits = _JAVASCRIPT_LIMITS
    _complement = _JAVASCRIPT_COMPLEMENT

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
    def _curves(self, lines: Sequence[str], rows: Sequence[str]) -> list[str]:
        body = [*lines, f"return [{', '.join(rows)}];"]
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

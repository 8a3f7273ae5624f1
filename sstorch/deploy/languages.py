"""Formulas printed as Python, its standard library alone, and as JavaScript of any browser."""

from __future__ import annotations

import json
from functools import partial

from sstorch.deploy.script import SIGNS, Script

_PYTHON_HEAD = """
import bisect
import math


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
_PYTHON_READING = """

def _value(patient, column):
    value = patient.get(column)
    return None if value is None or value != value else value


def _number(patient, column, missing):
    value = _value(patient, column)
    try:
        return missing if value is None else float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{column!r} must be a number, got {value!r}") from None


def _label(patient, column):
    value = _value(patient, column)
    if value is None:
        return None
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
"""
_PYTHON_CHECK = """

def _check(patient):
    for column, categories in _COLUMNS.items():
        if column not in patient:
            raise ValueError(
                f"the patient has no column {column!r}, got {', '.join(map(repr, patient))}: correct the "
                "name, or give None where the value is unknown"
            )
        label = _label(patient, column)
        if categories and label is not None and label not in categories:
            raise ValueError(
                f"{column!r} must be one of {', '.join(map(repr, categories))}, got {label!r}: correct the "
                "category, or give None where it is unknown"
            )
"""
_PYTHON_QUADRATURE = """

_EDGES = @EDGES@
_RULE = @RULE@


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
            *hazards, total = at(math.exp(log_time))
            density.append((weight, [hazard - total + log_time for hazard in hazards]))
        largest = max(-1e300, *(each for _, logs in density for each in logs))
        masses = [0.0] * @CAUSES@
        for weight, logs in density:
            masses = [mass + weight * math.exp(each - largest) for mass, each in zip(masses, logs)]
        whole = sum(masses)
        later = math.exp(-at(math.exp(right))[-1])
        lost = max(alive - later, 0.0)
        shares = [mass / whole if whole > 0 else 1 / @CAUSES@ for mass in masses]
        found = [each + share * lost for each, share in zip(found, shares)]
        alive = later
    return found
"""


PYTHON = Script(
    literal=repr,
    truths=("False", "True"),
    infinity="math.inf",
    nan="math.nan",
    signs={**SIGNS, "and": "and", "or": "or", "not": "not ", "equal": "=="},
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
        "default": "{}={}",
        "return": "return {}",
        "head": '"""{}\n"""' + _PYTHON_HEAD.replace("{", "{{").replace("}", "}}"),
        "columns": "\n\n_COLUMNS = {}\n",
        "function": '\n\ndef {0}:\n    """{1}"""\n{2}',
        "curves": "def at(time):\n{}",
    },
    line="{}",
    indent="    ",
    reading=_PYTHON_READING,
    check=_PYTHON_CHECK,
    checking="_check(patient)",
    quadrature=_PYTHON_QUADRATURE,
)


_JS_READING = """
function _value(patient, column) {
  const value = patient[column];
  const empty = value === undefined || value === null || value === "" || Number.isNaN(value);
  return empty ? null : value;
}

function _number(patient, column, missing) {
  const value = _value(patient, column);
  if (value === null) return missing;
  const number = Number(value);
  if (Number.isNaN(number)) throw new Error(`${column} must be a number, got ${value}`);
  return number;
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
  const value = _value(patient, column);
  if (value === null) return null;
  return value === true ? "True" : value === false ? "False" : String(value);
}
"""
_JS_CHECK = """
function _check(patient) {
  for (const [column, categories] of Object.entries(_COLUMNS)) {
    if (!(column in patient)) {
      throw new Error(`the patient has no column ${column}, got ${Object.keys(patient).join(", ")}: correct `
        + "the name, or give null where the value is unknown");
    }
    const label = _label(patient, column);
    if (categories.length && label !== null && !categories.includes(label)) {
      throw new Error(`${column} must be one of ${categories.join(", ")}, got ${label}: correct the `
        + "category, or give null where it is unknown");
    }
  }
}
"""
_JS_QUADRATURE = """
const _EDGES = @EDGES@;
const _RULE = @RULE@;

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
      const hazards = at(Math.exp(logTime)), total = hazards.pop();
      return hazards.map((hazard) => hazard - total + logTime);
    });
    const largest = Math.max(-1e300, ...density.flat());
    const masses = new Array(@CAUSES@).fill(0);
    density.forEach((logs, i) => logs.forEach((each, k) => {
      masses[k] += _RULE[i][1] * Math.exp(each - largest);
    }));
    const whole = masses.reduce((sum, mass) => sum + mass, 0);
    const later = Math.exp(-at(Math.exp(right))[@CAUSES@]), lost = Math.max(alive - later, 0);
    masses.forEach((mass, k) => { found[k] += (whole > 0 ? mass / whole : 1 / @CAUSES@) * lost; });
    alive = later;
  }
  return found;
}
"""


JAVASCRIPT = Script(
    literal=partial(json.dumps, ensure_ascii=False),
    truths=("false", "true"),
    infinity="Infinity",
    nan="NaN",
    signs={**SIGNS, "divide": "/", "and": "&&", "or": "||", "not": "!", "equal": "==="},
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
        "default": "{} = {}",
        "return": "return {};",
        "head": "{}\n",
        "columns": "\nconst _COLUMNS = {};\n",
        "function": "\n// {1}\nfunction {0} {{\n{2}}}\n",
        "curves": "const at = (time) => {{\n{}}};\n",
    },
    line="// {}",
    indent="  ",
    reading=_JS_READING,
    check=_JS_CHECK,
    checking="_check(patient);",
    quadrature=_JS_QUADRATURE,
)

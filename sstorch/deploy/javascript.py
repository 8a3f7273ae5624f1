"""Formulas printed as JavaScript of any browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.printer import SIGNS
from sstorch.deploy.script import Script, indented

_READING = """
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
_CHECK = """
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
_JAVASCRIPT_QUADRATURE = """
const _EDGES = @EDGES@;
const _RULE = @RULE@;

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
    forms: ClassVar = {
        "where": "({} ? {} : {})",
        "pick": "[{}][{}]",
        "rank": "_rank([{}], {})",
        "number": "_number(patient, {}, {})",
        "known": "(_value(patient, {}) !== null)",
        "category": "(_label(patient, {}) === {})",
        "step": "const {} = {};",
        "default": "{} = {}",
    }
    _reading, _check, _checking = _READING, _CHECK, "_check(patient);"
    _quadrature = _JAVASCRIPT_QUADRATURE
    _limits = _JAVASCRIPT_LIMITS
    _complement = _JAVASCRIPT_COMPLEMENT

    @override
    def quoted(self, text: str) -> str:
        return json.dumps(text)

    @override
    def _head(self, facts: Sequence[str]) -> str:
        return "".join(f"// {line}\n" for line in facts)

    @override
    def _constant(self, columns: Mapping[str, Sequence[str]]) -> str:
        return f"\nconst _COLUMNS = {json.dumps(columns, ensure_ascii=False)};\n"

    @override
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        return f"\n// {says}\nfunction {head} {{\n" + indented([*lines, f"return {result};"], 2) + "}\n"

    @override
    def _curves(self, lines: Sequence[str], result: str) -> list[str]:
        body = [*lines, f"return {result};"]
        return ["const at = (time) => {", *("  " + line for line in body), "};"]

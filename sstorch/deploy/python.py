"""Formulas printed as Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.script import SIGNS, Script, indented

_PYTHON = """
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
_READING = """

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
_CHECK = """

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
_QUADRATURE = """

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
    forms: ClassVar = {
        "where": "({1} if {0} else {2})",
        "pick": "({})[int({})]",
        "rank": "bisect.bisect_right(({},), {})",
        "number": "_number(patient, {}, {})",
        "known": "(_value(patient, {}) is not None)",
        "category": "(_label(patient, {}) == {})",
        "step": "{} = {}",
        "default": "{}={}",
    }
    _reading, _check, _checking = _READING, _CHECK, "_check(patient)"
    _quadrature = _QUADRATURE

    @override
    def _quoted(self, text: str) -> str:
        return repr(text)

    @override
    def _head(self, facts: Sequence[str]) -> str:
        return '"""' + "\n".join(facts).replace("\\", "\\\\").replace('"', "'") + '\n"""' + _PYTHON

    @override
    def _known_columns(self, columns: Mapping[str, Sequence[str]]) -> str:
        return f"\n\n_COLUMNS = { ({name: [*labels] for name, labels in columns.items()})!r}\n"

    @override
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        body = [f'"""{says}"""', *lines, f"return {result}"]
        return f"\n\ndef {head}:\n" + indented(body, 4)

    @override
    def _curves(self, lines: Sequence[str], result: str) -> list[str]:
        body = [*lines, f"return {result}"]
        return ["def at(time):", *("    " + line for line in body)]

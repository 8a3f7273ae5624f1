"""Formulas printed as SQL: a query of a table of patients."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.expression import Expression, Formula
from sstorch.deploy.printer import SIGNS, Printer, facts_of, identifiers
from sstorch.deploy.steps import Steps

# Columns of the nodes of a quadrature, those that are no integers, and names that a step must not have.
_NUMBERS = ("q_later", "q_earlier", "q_weight", "q_log_time", "q_time")
_NODES = ("q_panel", "q_side", *_NUMBERS)
_NAMES = (*_NODES, "q_patient", "q_largest", "q_lost", "q_hazard")


class SQL(Printer):
    """A query that SQLite, PostgreSQL and DuckDB run: common table expressions, one for what each needs."""

    truths = ("(1 = 0)", "(1 = 1)")
    infinity = "9e999"
    nan = "NULL"
    time = "q_time"
    decimals = True
    signs: ClassVar = {**SIGNS, "and": "AND", "or": "OR", "not": "NOT ", "equal": "="}
    words: ClassVar = {"exp": "EXP", "log": "LN", "absolute": "ABS"}
    names: dict[str, str]

    def source(self, formula: Formula, title: str) -> str:
        """A query of the table ``patients``; its rows with two columns more, and one for each cause."""
        hazards, start = formula.hazards, formula.after or 0.0
        curves = [] if hazards is None else [*hazards.log_hazard.values(), hazards.cumulative]
        alive = [hazards.survival_at(start)] if hazards is not None and start else []
        steps = Steps.of(formula.group, formula.survival, *formula.incidence.values(), *alive, *curves)
        added = ["predicted_group", "predicted_survival"]
        added += [f"predicted_incidence_{name}" for name in formula.causes]
        self.names = identifiers(steps, [*map(str.lower, [*formula.columns, *added]), *_NAMES])
        moving = steps.moving()
        fixed = [each for each in steps.steps if each[0] not in moving]
        parts: list[str] = []
        if hazards is None:
            from_ = self._levels(parts, "step", "patients", fixed)
            columns = list(map(self.text, steps.results))
        else:
            parts.append(_table("numbered", ["*", "ROW_NUMBER() OVER () AS q_patient"], "patients"))
            last = self._levels(parts, "step", "numbered", fixed)
            later = [each for each in steps.steps if each[0] in moving]
            self._integrals(parts, last, later, steps.results[-len(curves) :], formula)
            from_ = f"{last} JOIN incidences USING (q_patient)\nORDER BY q_patient"
            columns = list(map(self.text, steps.results[:2]))
            at_start = [self.text(each, 8) for each in steps.results[2 : -len(curves)]]
            for k in range(len(formula.causes)):
                gained = f"q_later_{k}" if not at_start else f"(q_later_{k} - q_earlier_{k}) / {at_start[0]}"
                columns.append(gained if not at_start else f"CASE WHEN {at_start[0]} > 0.0 THEN {gained} END")
        columns[0] = f"CAST({columns[0]} AS INTEGER)"
        kept = "*" if from_ == "patients" else ", ".join(map(_quoted, formula.columns))
        with_ = "WITH " + ",\n".join(parts) + "\n" if parts else ""
        named = ",\n  ".join(f"{text} AS {_quoted(n)}" for text, n in zip(columns, added, strict=True))
        return f"{self._head(formula, title)}{with_}SELECT {kept},\n  {named}\nFROM {from_};\n"

    def _head(self, formula: Formula, title: str) -> str:
        event, at = "any event" if formula.causes else "the event", f"at time {formula.horizon:g}"
        lines = [*facts_of(formula, title), f"predicted_survival: probability of being free of {event} {at}."]
        if formula.causes:
            lines.append("predicted_incidence_CAUSE: probability that it came by then, and no other before.")
        return "".join(f"-- {line}\n" for line in lines)

    def _levels(
        self, parts: list[str], prefix: str, before: str, steps: Sequence[tuple[str, Expression]]
    ) -> str:
        """Add a table for the steps that need equally many levels of others; the name of the last table."""
        level: dict[str, int] = {}
        for name, a in steps:
            level[name] = 1 + max((level.get(b, 0) for b in _used(a)), default=0)
        for depth in range(1, max(level.values(), default=0) + 1):
            new = [f"{self.text(a)} AS {self.name(n)}" for n, a in steps if level[n] == depth]
            parts.append(_table(f"{prefix}_{depth}", ["*", *new], before))
            before = f"{prefix}_{depth}"
        return before

    def _integrals(
        self,
        parts: list[str],
        before: str,
        moving: Sequence[tuple[str, Expression]],
        curves: Sequence[Expression],
        formula: Formula,
    ) -> None:
        """Add tables of nodes, of densities there, of panels, and of incidences, a row for each patient.

        Args:
            parts: tables so far.
            before: the last of them.
            moving: steps that depend on time.
            curves: log hazard of each cause, and the cumulative hazard of any event.
            formula: of the model, at a horizon.
        """
        causes, expressions = range(len(formula.causes)), [*(a for _, a in moving), *curves]
        ours = {name for name, _ in moving}
        used = sorted({self.name(name) for a in expressions for name in _used(a) if name not in ours})
        nodes = ",\n    ".join(self._nodes(formula))
        parts.append(f"nodes({', '.join(_NODES)}) AS (\n  VALUES {nodes}\n)")
        cast = [f"CAST({each} AS DOUBLE PRECISION) AS {each}" for each in _NUMBERS]
        moments = ["q_patient", *used, "q_panel", "q_side", *cast]
        parts.append(_table("moments", moments, f"{before} CROSS JOIN nodes"))
        last = self._levels(parts, "moment", "moments", moving)
        *log_hazards, total = (self.text(a, 7) for a in curves)
        densities = [f"{each} + q_log_time - {total} AS density_{k}" for k, each in enumerate(log_hazards)]
        of_panel = ["q_patient", "q_panel", "q_later", "q_earlier"]
        parts.append(
            _table("densities", [*of_panel, "q_side", "q_weight", f"{total} AS q_hazard", *densities], last)
        )
        largest = "density_0"
        for k in causes[1:]:
            largest = f"CASE WHEN density_{k} > {largest} THEN density_{k} ELSE {largest} END"
        largest = f"MAX(CASE WHEN q_side = 0 THEN {largest} END) OVER (PARTITION BY q_patient, q_panel)"
        parts.append(_table("scaled", ["*", f"{largest} AS q_largest"], "densities"))
        sums = []
        for k in causes:
            mass = f"q_weight * {_exp(f'density_{k} - q_largest')}"
            sums.append(f"SUM(CASE WHEN q_side = 0 THEN {mass} ELSE 0.0 END) AS mass_{k}")
        left, right = (f"MAX(CASE WHEN q_side = {side} THEN {_exp('-q_hazard')} END)" for side in (-1, 1))
        sums.append(f"COALESCE({left}, 1.0) - {right} AS q_lost")
        by_panel = f"scaled\n  GROUP BY {', '.join(of_panel)}"
        parts.append(_table("panels", [*of_panel, *sums], by_panel))
        mass = " + ".join(f"mass_{k}" for k in causes)
        shares = []
        for k in causes:
            share = f"CASE WHEN {mass} > 0.0 THEN mass_{k} / ({mass}) ELSE 1.0 / {len(causes)} END"
            gained = f"CASE WHEN q_lost > 0.0 THEN q_lost * {share} ELSE 0.0 END"
            shares += [f"SUM({which} * {gained}) AS {which}_{k}" for which in ("q_later", "q_earlier")]
        by_patient = "panels\n  GROUP BY q_patient"
        parts.append(_table("incidences", ["q_patient", *shares], by_patient))

    def _nodes(self, formula: Formula) -> list[str]:
        """Rows of the quadrature: nodes and ends of each panel, and the integrals to which it belongs."""
        hazards, start = formula.hazards, formula.after or 0.0
        assert hazards is not None
        assert formula.horizon is not None
        counted: dict[tuple[float, float, bool], list[float]] = {}
        for which, time in enumerate((start + formula.horizon, start)):
            for number, (left, right) in enumerate(hazards.panels(time)):
                counted.setdefault((left, right, number == 0), [0.0, 0.0])[which] = 1.0
        if not counted:  # nothing has come by time zero
            counted[-1.0, 0.0, True] = [0.0, 0.0]
        rows = []
        for panel, ((left, right, is_first), integrals) in enumerate(counted.items()):
            inner = [(0, left + (right - left) / 2 * (1 + place), weight) for place, weight in hazards.rule]
            # Before the first panel no survival is lost.
            ends = [(side, end, 0.0) for side, end in ((-1, left), (1, right))[is_first:]]
            for side, log_time, weight in inner + ends:
                values = (panel, side, *integrals, weight, log_time, math.exp(log_time))
                rows.append(f"({', '.join(map(repr, values))})")
        return rows

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
        return f"COALESCE({_quoted(column)}, {self.constant(missing)})"

    @override
    def known(self, column: str) -> str:
        return f"({_quoted(column)} IS NOT NULL)"

    @override
    def category(self, column: str, label: str) -> str:
        quoted = label.replace("'", "''")
        same = [f"'{quoted}'", f"'{quoted}.0'"] if re.fullmatch(r"-?\d+", label) else [f"'{quoted}'"]
        given = f"CAST({_quoted(column)} AS VARCHAR)"
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


def _used(a: Expression) -> list[str]:
    """Steps inside an expression."""
    return [str(a.value)] if a.op == "step" else [name for b in a.args for name in _used(b)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(name: str, columns: Sequence[str], source: str) -> str:
    """A common table expression."""
    chosen = ",\n    ".join(columns)
    return f"{name} AS MATERIALIZED (\n  SELECT {chosen}\n  FROM {source}\n)"


def _exp(x: str) -> str:
    """The exponential, zero where it underflows: an error in PostgreSQL."""
    return f"CASE WHEN {x} < -700.0 THEN 0.0 ELSE EXP({x}) END"

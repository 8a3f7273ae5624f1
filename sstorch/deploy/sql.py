"""Formulas printed as SQL: a query of a table of patients."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.dialects import Dialect
from sstorch.deploy.expression import Expression, Formula, Hazards, is_truth
from sstorch.deploy.printer import REPEATING, SIGNS, Printer, facts_of, identifiers
from sstorch.deploy.steps import Steps, used_columns
from sstorch.exceptions import ConfigError

# Columns of the nodes of a quadrature that are not integers, and names that a step must not have.
_NUMBERS = ("q_weight", "q_log_time", "q_time")
_LARGEST = "1e300"  # cumulative hazard of a density
_NAMES = ("q_panel", "q_side", *_NUMBERS, "q_row", "q_rows", "q_largest", "q_lost", "q_hazard")


class SQL(Printer):
    """A query with a common table expression for each level of what is computed.

    Conditions stand only after WHEN: not every database has columns of truth values.
    """

    truths = ("(1 = 0)", "(1 = 1)")
    nan = "NULL"
    time = "q_time"
    signs: ClassVar = {**SIGNS, "and": "AND", "or": "OR", "not": "NOT ", "equal": "="}
    words: ClassVar = {"absolute": "ABS"}
    forms: ClassVar = {"known": "({} IS NOT NULL)"}
    names: dict[str, str]

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.infinity = dialect, dialect.infinity
        self.chains: set[str] = set()

    def source(
        self,
        formula: Formula,
        title: str,
        horizons: Mapping[str, float],
        table: str = "patients",
        key: Sequence[str] = (),
    ) -> str:
        """A query with a row for each of a table: its key or columns, the group, and predictions.

        Horizons are times by the end of the names of their columns. Raises ConfigError if incidences have no
        key in a database that may evaluate row numbers again.
        """
        hazards, start = formula.hazards, formula.after or 0.0
        at = [formula.at(time) for time in horizons.values()]
        curves = [] if hazards is None else [*hazards.log_hazard.values(), hazards.cumulative]
        rows = [[each.survival, *each.incidence.values()] for each in at]
        results = [formula.group, *(each for row in rows for each in row)]
        steps = Steps.of(*results, *curves, repeating=REPEATING)
        added = ["predicted_group"]
        for suffix in horizons:
            names = ["survival", *(f"incidence_{name}" for name in formula.causes)]
            added += [f"predicted_{name}{suffix}" for name in names]
        columns = [*dict.fromkeys([*key, *(used_columns(formula) if key else formula.columns)])]
        self.names = identifiers(steps, [*map(str.lower, [*columns, *added]), *_NAMES])
        self.conditions = {name for name, a in steps.steps if is_truth(a)}
        moving = steps.moving()
        fixed = [each for each in steps.steps if each[0] not in moving]
        quoted = [self.quoted(name) for name in columns]
        if len({each.lower() for each in quoted}) < len(quoted):
            raise ConfigError("names of columns must differ in more than upper and lower case; rename them")
        parts = [self._table("q_source", quoted, f"{self.dialect.table(table)} q_table")]
        texts = iter(steps.results)
        if hazards is None:
            from_ = self._levels(parts, "q_step", "q_source", fixed)
            found = [self.text(each) for each in texts]
        else:
            ids = self._identified(parts, [self.quoted(name) for name in key])
            last = self._levels(parts, "q_step", "q_numbered", fixed)
            found = [self.text(next(texts)) for _ in results]
            later = [each for each in steps.steps if each[0] in moving]
            times = [start + time for time in horizons.values()]
            self._integrals(parts, last, later, [*texts], hazards, times, ids)
            for position in range(len(horizons)):
                place, causes = 2 + position * (1 + len(formula.causes)), range(len(formula.causes))
                found[place:place] = [self._gained(k, position, ids) for k in causes]
            matched = " AND ".join(f"{last}.{each} = q_incidences.{each}" for each in ids)
            from_ = f"{last} JOIN q_incidences ON {matched}"
            from_ += f"\nORDER BY {last}.q_row" if ids == ["q_row"] else ""
        found[0] = f"CAST({found[0]} AS {self.dialect.integer})"
        owner = from_.split(" ")[0]
        kept = [f"{owner}.{self.quoted(name)}" for name in (key or formula.columns)]
        kept += [f"{text} AS {self.quoted(n)}" for text, n in zip(found, added, strict=True)]
        chosen = ",\n  ".join(kept)
        with_ = "WITH " + ",\n".join(parts) + "\n"
        return f"{self._head(formula, title, horizons)}{with_}SELECT {chosen}\nFROM {from_};\n"

    def _head(self, formula: Formula, title: str, horizons: Mapping[str, float]) -> str:
        event, times = "any event" if formula.causes else "the event", [f"{t:g}" for t in horizons.values()]
        at = f"at time {', '.join(times)}"
        lines = [*facts_of(formula, title), f"predicted_survival: probability of being free of {event} {at}."]
        if formula.causes:
            lines.append("predicted_incidence_CAUSE: probability that it came by then, and no other before.")
        return "".join(f"-- {line}\n" for line in lines)

    def _table(self, name: str, columns: Sequence[str], source: str) -> str:
        """A common table expression; the first column may be *, all columns of its source."""
        first = [f"{source}.*"] if columns[0] == "*" else [columns[0]]
        chosen = ",\n    ".join([*first, *columns[1:]])
        return f"{name} {self.dialect.once} (\n  SELECT {self.dialect.hint}{chosen}\n  FROM {source}\n)"

    def _levels(
        self, parts: list[str], prefix: str, before: str, steps: Sequence[tuple[str, Expression]]
    ) -> str:
        """Add a table for the steps that need equally many levels of others; the name of the last table."""
        level: dict[str, int] = {}
        for name, a in steps:
            level[name] = 1 + max((level.get(b, 0) for b in _used(a)), default=0)
        for depth in range(1, max(level.values(), default=0) + 1):
            new = [f"{self._column(a)} AS {self._named(n)}" for n, a in steps if level[n] == depth]
            parts.append(self._table(f"{prefix}_{depth}", ["*", *new], before))
            before = f"{prefix}_{depth}"
        return before

    def _column(self, a: Expression) -> str:
        """A step as a number: 1 or 0 of a condition."""
        text = self.text(a)
        return f"CASE WHEN {text} THEN 1 ELSE 0 END" if is_truth(a) else text

    def _identified(self, parts: list[str], key: Sequence[str]) -> list[str]:
        """Add a table whose rows can be found again; the columns that identify them."""
        if self.dialect.evaluates_once:
            parts.append(self._table("q_numbered", ["*", "ROW_NUMBER() OVER () AS q_row"], "q_source"))
            return ["q_row"]
        if not key:
            raise ConfigError(
                "key must name the columns that identify a row: in this dialect the incidences of competing "
                "causes are joined by it"
            )
        rows = f"COUNT(*) OVER (PARTITION BY {', '.join(key)}) AS q_rows"
        parts.append(self._table("q_numbered", ["*", rows], "q_source"))
        return [*key]

    def _gained(self, cause: int, horizon: int, ids: Sequence[str]) -> str:
        """The incidence of a cause; NULL where several rows have one key."""
        text = f"q_until_{horizon}_{cause}"
        return text if [*ids] == ["q_row"] else f"CASE WHEN q_rows = 1 THEN {text} END"

    def _integrals(
        self,
        parts: list[str],
        before: str,
        moving: Sequence[tuple[str, Expression]],
        curves: Sequence[Expression],
        hazards: Hazards,
        times: Sequence[float],
        ids: Sequence[str],
    ) -> None:
        """Add tables of nodes, of densities there, of panels, and of incidences, a row for each patient.

        `parts` are the tables so far, `before` the last of them, `moving` the steps that depend on time,
        `curves` the log hazard of each cause and the cumulative hazard of any event, and `ids` columns that
        identify a row.
        """
        causes, expressions = range(len(curves) - 1), [*(a for _, a in moving), *curves]
        ours = {name for name, _ in moving}
        used = sorted({self._named(name) for a in expressions for name in _used(a) if name not in ours})
        until = [f"q_until_{j}" for j in range(len(times))]
        parts.append(self._nodes(hazards, times, ["q_panel", "q_side", *until, *_NUMBERS]))
        cast = [f"CAST({each} AS {self.dialect.number}) AS {each}" for each in (*until, *_NUMBERS)]
        moments = [*ids, *used, "q_panel", "q_side", *cast]
        parts.append(self._table("q_moments", moments, f"{before} CROSS JOIN q_nodes"))
        last = self._levels(parts, "q_moment", "q_moments", moving)
        *log_hazards, total = (self.text(a, 7) for a in curves)
        # Of an infinite hazard all densities would be -inf, and differences of two of them no numbers.
        finite = self.call("minimum", [total, _LARGEST])
        densities = [f"{each} + q_log_time - {finite} AS q_density_{k}" for k, each in enumerate(log_hazards)]
        of_panel = [*ids, "q_panel", *until]
        found = [*of_panel, "q_side", "q_weight", f"{total} AS q_hazard", *densities]
        parts.append(self._table("q_densities", found, last))
        largest = "q_density_0"
        for k in causes[1:]:
            largest = self.call("maximum", [f"q_density_{k}", largest])
        panel = f"PARTITION BY {', '.join(ids)}, q_panel"
        largest = f"MAX(CASE WHEN q_side = 0 THEN {largest} END) OVER ({panel})"
        parts.append(self._table("q_scaled", ["*", f"{largest} AS q_largest"], "q_densities"))
        sums = []
        for k in causes:
            mass = f"q_weight * {self.call('exp', [f'(q_density_{k} - q_largest)'])}"
            sums.append(f"SUM(CASE WHEN q_side = 0 THEN {mass} ELSE 0.0 END) AS q_mass_{k}")
        alive = self.call("exp", ["(-q_hazard)"])
        left, right = (f"MAX(CASE WHEN q_side = {side} THEN {alive} END)" for side in (-1, 1))
        sums.append(f"COALESCE({left}, 1.0) - {right} AS q_lost")
        by_panel = f"q_scaled\n  GROUP BY {', '.join(of_panel)}"
        parts.append(self._table("q_panels", [*of_panel, *sums], by_panel))
        mass = " + ".join(f"q_mass_{k}" for k in causes)
        shares = []
        for k in causes:
            share = f"CASE WHEN {mass} > 0.0 THEN q_mass_{k} / ({mass}) ELSE {1 / len(causes)!r} END"
            gained = f"CASE WHEN q_lost <= 0.0 THEN 0.0 ELSE q_lost * {share} END"
            shares += [f"SUM({which} * {gained}) AS {which}_{k}" for which in until]
        by_patient = f"q_panels\n  GROUP BY {', '.join(ids)}"
        parts.append(self._table("q_incidences", [*ids, *shares], by_patient))

    def _nodes(self, hazards: Hazards, times: Sequence[float], names: Sequence[str]) -> str:
        """A table of the nodes and ends of each panel, and of the integrals to which it belongs."""
        counted = hazards.panels_of(times)
        if not counted:  # nothing has come by time zero
            counted[-1.0, 0.0, True] = [0.0] * len(times)
        rows = []
        for panel, ((left, right, is_first), integrals) in enumerate(counted.items()):
            for side, log_time, weight in hazards.nodes(left, right, is_first):
                rows.append([*map(repr, (panel, side, *integrals, weight, log_time, math.exp(log_time)))])
        if self.dialect.has_values:
            values = ",\n    ".join(f"({', '.join(row)})" for row in rows)
            return f"q_nodes({', '.join(names)}) AS (\n  VALUES {values}\n)"
        first = ", ".join(f"{value} AS {name}" for value, name in zip(rows[0], names, strict=True))
        lines = [f"SELECT {each}{self.dialect.dual}" for each in (first, *map(", ".join, rows[1:]))]
        return "q_nodes AS (\n  " + " UNION ALL\n  ".join(lines) + "\n)"

    def _named(self, step: str) -> str:
        return self.quoted(self.names[step])

    @override
    def quoted(self, text: str) -> str:
        return self.dialect.quoted(text)

    @override
    def name(self, name: str) -> str:
        return f"({self._named(name)} = 1)" if name in self.conditions else self._named(name)

    @override
    def digits(self, value: float) -> str:
        # Without an exponent it is a decimal number of few digits in some databases.
        return text if "e" in (text := repr(value)) else f"{text}e0"

    @override
    def where(self, condition: str, a: str, b: str) -> str:
        # One CASE for a chain: parsers allow few of them inside each other.
        rest = b.removeprefix("CASE ") if b in self.chains else f"ELSE {b} END"
        self.chains.add(text := f"CASE WHEN {condition} THEN {a} {rest}")
        return text

    @override
    def pick(self, position: str, values: Sequence[str]) -> str:
        cases = " ".join(f"WHEN {k} THEN {value}" for k, value in enumerate(values[:-1]))
        return f"CASE {position} {cases} ELSE {values[-1]} END"

    @override
    def rank(self, a: str, values: Sequence[str]) -> str:
        passed = (f"CASE WHEN {value} <= {a} THEN 1.0 ELSE 0.0 END" for value in values)
        return f"({' + '.join(passed)})"

    @override
    def number(self, column: str, missing: float) -> str:
        given = self.dialect.castable.replace("{}", self.quoted(column))
        return f"COALESCE(CAST({given} AS {self.dialect.number}), {self.constant(missing)})"

    @override
    def category(self, column: str, label: str) -> str:
        same = [label]
        if re.fullmatch(r"-?\d+", label):
            same.append(f"{label}.0")  # of a column of numbers
        elif label in ("True", "False"):
            same += [label.lower(), str(int(label == "True"))]
        given = f"CAST({self.quoted(column)} AS {self.dialect.text}){self.dialect.exact}"
        # A missing value is not a label, and neither is its comparison with one.
        return f"({self.known(column)[1:-1]} AND {given} IN ({', '.join(map(self.dialect.label, same))}))"

    @override
    def call(self, op: str, args: Sequence[str]) -> str:
        a, log = args[0], self.dialect.log
        match op:
            case "minimum" | "maximum":
                sign = "<" if op == "minimum" else ">"
                return f"CASE WHEN {a} {sign} {args[1]} THEN {a} ELSE {args[1]} END"
            # Where a result is no number of double precision many databases stop with an error.
            case "exp":
                return (
                    f"CASE WHEN {a} < -700.0 THEN 0.0 WHEN {a} > 700.0 THEN {self.infinity} ELSE EXP({a}) END"
                )
            case "log":
                return f"CASE WHEN {a} > 0.0 THEN {log}({a}) WHEN {a} = 0.0 THEN -{self.infinity} END"
            # Kahan's forms, exact where 1 + x or exp(x) - 1 would lose the digits.
            case "log1p":
                return (
                    f"CASE WHEN 1.0 + {a} = 1.0 THEN {a} "
                    f"ELSE {log}(1.0 + {a}) * {a} / ((1.0 + {a}) - 1.0) END"
                )
            case "expm1":
                e = f"EXP({a})"
                return (
                    f"CASE WHEN {a} < -40.0 THEN -1.0 WHEN {a} > 700.0 THEN {self.infinity} "
                    f"WHEN {e} = 1.0 THEN {a} ELSE ({e} - 1.0) * {a} / {log}({e}) END"
                )
        return super().call(op, args)


def _used(a: Expression) -> list[str]:
    """Steps inside an expression."""
    return [str(a.value)] if a.op == "step" else [name for b in a.args for name in _used(b)]

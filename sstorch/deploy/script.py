"""Formulas printed in a language of statements: functions of a patient."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from typing_extensions import override

from sstorch.deploy.expression import Expression, Formula, Hazards, Matrix, Slopes
from sstorch.deploy.printer import INCIDENCE, Printer, facts_of, identifiers
from sstorch.deploy.steps import Steps, used_columns

# What a patient without a column, or with an unknown category, is: an error, or one with a missing value.
Missing = Literal["raise", "typical"]


class Script(Printer):
    """Functions of a patient in a language of statements."""

    names: dict[str, str]
    private = "_"  # first character of the names of what is no result
    _reading: str
    _check: str
    _checking: str
    _quadrature: str
    _limits: str
    _complement: str

    def source(
        self, formula: Formula, title: str, horizon: float | None = None, missing: Missing = "raise"
    ) -> str:
        """A module with ``group``, ``survival``, of several causes ``incidence``, and confidence limits."""
        time = "time" if horizon is None else self.forms["default"].format("time", repr(horizon))
        event = "any event" if formula.causes else "the event"
        parts = [
            self._head(facts_of(formula, title)),
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
            parts.append(self._of_results(head, INCIDENCE, *incidences, names=formula.causes))
        if formula.slopes is not None:
            parts += self._of_slopes(formula.slopes, time, formula.causes)
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
        self.names = identifiers(steps)
        texts = [self.text(each) for each in steps.results]
        result = self._pairs(dict(zip(names, texts, strict=True))) if names else texts[0]
        return self._function(head, says, [*self._checks, *self._lines(steps)], result)

    def _of_hazards(self, hazards: Hazards, head: str, after: float | None) -> list[str]:
        """The functions by which incidences are integrated."""
        curves = [[each] for each in hazards.log_hazard.values()]
        p = self.private
        parts = [self._of_curves(f"{p}hazards(patient)", _HAZARDS, [*curves, [hazards.cumulative]])]
        constants = {
            "EDGES": self._list(map(repr, hazards.edges)),
            "RULE": self._list(self._list(map(repr, each)) for each in hazards.rule),
            "WIDTH": repr(hazards.width),
            "CAUSES": str(len(curves)),
        }
        parts.append(re.sub("@([A-Z]+)@", lambda found: constants[found[1]], self._quadrature))
        shares = {name: self._item(self._item("found", k), 0) for k, name in enumerate(hazards.log_hazard)}
        time = f"{after!r} + time" if after else "time"
        lines = [self._step("found", f"{p}integrals({p}hazards(patient), {time})")]
        parts.append(self._function(head, INCIDENCE, lines, self._pairs(shares)))
        return parts

    def _of_slopes(self, slopes: Slopes, time: str, causes: Sequence[str]) -> list[str]:
        """The functions that compute confidence limits."""
        level = f"{100 * slopes.level:.4g} %"
        says = f"Confidence limits ({level}) of the mean {{}} of patients with these values."
        p, row = self.private, self._step("row", f"{self.private}slopes(patient)")
        at, covariance = self._item("row", 0), self._item("row", 1)
        result = f"{p}limits({self._item(f'{at}(time)', len(causes))}, {covariance})"
        parts = [
            self._of_curves(f"{p}slopes(patient)", _SLOPES, slopes.curves, slopes.covariance),
            self._limits.replace("@CRITICAL@", repr(slopes.critical)),
            self._function(f"survival_limits(patient, {time})", says.format("survival"), [row], result),
        ]
        if causes:
            lines = [row, self._step("found", f"{p}integrals({at}, time)")]
            shares = {
                name: f"{p}complement({self._item('found', k)}, {covariance})"
                for k, name in enumerate(causes)
            }
            head, text = f"incidence_limits(patient, {time})", says.format("incidence")
            parts += [self._complement, self._function(head, text, lines, self._pairs(shares))]
        return parts

    def _of_curves(self, head: str, says: str, curves: Matrix, covariance: Matrix = ()) -> str:
        """A function that returns a function ``at`` of time with lists of curves, and what is constant."""
        steps = Steps.of(*(each for row in (*curves, *covariance) for each in row))
        self.names = identifiers(steps, ["at"])
        moving, texts = steps.moving(), iter([self.text(each) for each in steps.results])
        fixed = self._lines(steps, [name for name, _ in steps.steps if name not in moving])
        rows = [self._list(next(texts) for _ in row) for row in (*curves, *covariance)]
        at = self._curves(self._lines(steps, moving), self._list(rows[: len(curves)]))
        result = self._list(["at", self._list(rows[len(curves) :])]) if covariance else "at"
        return self._function(head, says, [*self._checks, *fixed, *at], result)

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

    def _values(self, missing: Missing, columns: Mapping[str, Sequence[str]]) -> str:
        """Functions that read a patient, and from now on the statement that checks one."""
        self._checks = [] if missing == "typical" else [self._checking]
        return self._reading + (self._constant(columns) + self._check if self._checks else "")

    def _list(self, items: Iterable[str]) -> str:
        """Values in their order."""
        return f"[{', '.join(items)}]"

    def _item(self, of: str, k: int) -> str:
        """One of the values, the first being 0."""
        return f"{of}[{k}]"

    @abstractmethod
    def _constant(self, columns: Mapping[str, Sequence[str]]) -> str:
        """The columns with their categories, none of numbers, as a constant."""

    @abstractmethod
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        """A function with its comment."""

    def _step(self, name: str, text: str) -> str:
        """A statement that names a value."""
        return self.forms["step"].format(name, text)

    def _pairs(self, pairs: Mapping[str, str]) -> str:
        """Values by name."""
        return "{" + ", ".join(f"{self.quoted(name)}: {text}" for name, text in pairs.items()) + "}"

    @abstractmethod
    def _curves(self, lines: Sequence[str], result: str) -> list[str]:
        """Statements that define ``at``, lists of curves at a time."""


def indented(lines: Sequence[str], by: int) -> str:
    """Lines of code, further to the right."""
    return "".join(" " * by + line + "\n" for line in lines)


_GROUP = "Group of a patient: 1 has the longest survival."
_GATES = "Whether a patient takes the first child, by node."
_HAZARDS = "Log hazards of the causes, and the cumulative hazard of any event, as a function of time."
_SLOPES = "Curves with their derivatives in the parameters of the patient's hazards, and their covariance."

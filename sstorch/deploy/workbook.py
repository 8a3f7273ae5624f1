"""A formula as a workbook: cells for the values of a patient, and formulas of cells that compute the results.

Sheets: ``Calculator``, inputs and results; ``Steps``, what does not depend on time, a row each; ``Times``,
what does, a row for each time, of competing causes for each node of the integrals too; ``Panels``, the
integrals; ``Tables``, lists of numbers and texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, ClassVar

from typing_extensions import override

from sstorch.deploy.calculator import Front
from sstorch.deploy.expression import Expression, Formula, Hazards
from sstorch.deploy.printer import SIGNS, Printer
from sstorch.deploy.steps import Steps, used_columns
from sstorch.exceptions import ConfigError
from sstorch.installing import install_extra

# Characters that Excel takes in a formula.
_LONGEST = 8192
# Operations that are printed with their argument more than once.
_REPEATING = ("exp", "log", "log1p", "expm1")
_FIRST_FIELD = 6


def workbook(formula: Formula, front: Front, checked: bool = True) -> bytes:
    """The file (.xlsx); with `checked` an unknown category is an error, else it counts as none."""
    try:
        from openpyxl import Workbook
    except ImportError as error:
        raise ImportError(f"export_workbook needs openpyxl: {install_extra('files')}") from error
    book = Workbook()
    _Writer(book, formula, front, checked).write()
    book.calculation.fullCalcOnLoad = True
    book.save(content := BytesIO())
    return content.getvalue()


class _Cells(Printer):
    """Expressions as formulas of cells: `inputs` by column, and of a category that of its text."""

    truths = ("FALSE", "TRUE")
    infinity = "1E+300"  # sums of it, and products with coefficients, are numbers still
    nan = "NA()"
    signs: ClassVar = {**SIGNS, "equal": "="}
    words: ClassVar = {"minimum": "MIN", "maximum": "MAX", "absolute": "ABS", "and": "AND", "or": "OR"}
    forms: ClassVar = {
        "where": "IF({},{},{})",
        "number": 'IF(({0}<>""),{0},{1})',
        "known": '({}<>"")',
    }

    def __init__(self, inputs: Mapping[str, str], table: Any) -> None:
        self.inputs, self.table = inputs, table
        self.places: dict[str, str] = {}
        self.unknown: set[str] = set()  # steps that are NA() where a value is missing
        self.row = 0

    def formula(self, a: Expression, row: int = 0) -> str:
        """The content of a cell, in a row of ``Times`` where it depends on time."""
        self.row = row
        if len(text := f"={self.text(a)}") > _LONGEST:
            raise ConfigError(
                f"a formula has {len(text)} characters and Excel takes {_LONGEST}: export_code writes models "
                "of so many columns as functions or queries"
            )
        return text

    @property
    @override
    def time(self) -> str:  # type: ignore[override]
        return f"$A{self.row}"

    @override
    def text(self, a: Expression, within: int = 0) -> str:
        text = super().text(a, within)
        # As elsewhere no comparison with a missing value is true.
        if a.op in ("less", "less_equal", "equal") and any(map(self.is_unknown, a.args)):
            return f"IFERROR({text},FALSE)"
        return text

    def is_unknown(self, a: Expression) -> bool:
        """Whether a number, or a step, is NA() where a value is missing."""
        if a.op == "step":
            return a.value in self.unknown
        return a.op == "number" and isinstance(a.value, tuple) and math.isnan(a.value[1])

    @override
    def name(self, name: str) -> str:
        place = self.places[name]
        return place if "!" in place else f"${place}{self.row}"

    @override
    def pick(self, position: str, values: Sequence[str]) -> str:
        return f"INDEX({self.table(tuple(map(_number, values)))},{position}+1)"

    @override
    def rank(self, a: str, values: Sequence[str]) -> str:
        return f"IF({a}<{values[0]},0,MATCH({a},{self.table(tuple(map(_number, values)))},1))"

    @override
    def quoted(self, text: str) -> str:
        return self.inputs[text]

    @override
    def category(self, column: str, label: str) -> str:
        text = label.replace('"', '""')
        return f'EXACT({self.inputs[column]},"{text}")'

    @override
    def call(self, op: str, args: Sequence[str]) -> str:
        a = args[0]
        match op:
            case "not":
                return f"NOT({a})"
            # Where a result is no number of double precision the cell would have an error.
            case "exp":
                return f"IF({a}>709,{self.infinity},EXP({a}))"
            case "log":
                return f"IF({a}>0,LN({a}),IF({a}=0,-{self.infinity},NA()))"
            # Kahan's forms, exact where 1 + x or exp(x) - 1 would lose the digits.
            case "log1p":
                return f"IF(1+{a}=1,{a},LN(1+{a})*{a}/((1+{a})-1))"
            case "expm1":
                e = f"EXP({a})"
                return f"IF({a}<-40,-1,IF({a}>709,{self.infinity},IF({e}=1,{a},({e}-1)*{a}/LN({e}))))"
        return super().call(op, args)


def _number(text: str) -> float:
    """A constant of a table: tables hold numbers with all their digits."""
    return float(text.strip("()"))


class _Writer:
    """Sheets of a workbook as they are filled."""

    def __init__(self, book: Any, formula: Formula, front: Front, checked: bool) -> None:
        self.formula, self.horizons, self.page, self.say = formula, front.horizons, front, front.language
        self.checked = checked
        self.front = book.active
        self.front.title = "Calculator"
        self.steps, self.times, self.panels, self.tables = map(
            book.create_sheet, ("Steps", "Times", "Panels", "Tables")
        )
        self.ranges: dict[tuple[float | str, ...], str] = {}
        self.used = [each for each in front.fields if each.name in used_columns(formula)]
        self.first = _FIRST_FIELD + len(self.used) + 2  # row of the group
        inputs = {each.name: f"Calculator!$G${row}" for row, each in enumerate(self.used, _FIRST_FIELD)}
        self.cells = _Cells(inputs, self.table)

    def write(self) -> None:
        """Fill all sheets."""
        hazards, start = self.formula.hazards, self.formula.after or 0.0
        curves = [] if hazards is None else [*hazards.log_hazard.values(), hazards.cumulative]
        results = [self.formula.survival, *self.formula.incidence.values()]
        steps = Steps.of(self.formula.group, *results, *curves, repeating=_REPEATING)
        self._fixed_steps(steps)
        found = iter(steps.results)
        group, survival, *incidences = (next(found) for _ in range(1 + len(results)))
        for row in range(2, len(self.horizons) + 2):
            # Times of integrals are part of the panels: cells for them would suggest that they can change.
            cell = f"=Calculator!{_letter(row)}${self.first + 1}"
            self.times.cell(row, 1, cell if hazards is None else self.horizons[row - 2])
            self._row(row, [survival, *incidences])
        shown = [
            [f"Times!${_letter(self.results + k)}${row}" for row in range(2, len(self.horizons) + 2)]
            for k in range(len(results))
        ]
        if hazards is not None:
            shown += self._integrals(hazards, [*found], start)
        self._inputs()
        names = [*self.formula.causes, self.page.outcome]
        self._results(self.cells.formula(group)[1:], dict(zip(names, [*shown[1:], shown[0]], strict=True)))

    def table(self, values: tuple[float | str, ...]) -> str:
        """The range of some numbers or texts, in a column of their own."""
        if values not in self.ranges:
            column = len(self.ranges) + 1
            for row, value in enumerate(values, 1):
                cell = self.tables.cell(row, column, value)
                if isinstance(value, str):
                    cell.data_type = "s"  # never a formula
            name = _letter(column)
            self.ranges[values] = f"Tables!${name}$1:${name}${len(values)}"
        return self.ranges[values]

    def _fixed_steps(self, steps: Steps) -> None:
        """Fill ``Steps``, and name the columns of ``Times``."""
        moving = steps.moving()
        self.later = [each for each in steps.steps if each[0] in moving]
        self.cells.unknown |= {name for name, a in steps.steps if self.cells.is_unknown(a)}
        for row, (name, a) in enumerate((each for each in steps.steps if each[0] not in moving), 1):
            self._text(self.steps, row, 1, name)
            self.steps.cell(row, 2, self.cells.formula(a))
            self.cells.places[name] = f"Steps!$B${row}"
        self._text(self.times, 1, 1, "time")
        for column, (name, _) in enumerate(self.later, 2):
            self._text(self.times, 1, column, name)
            self.cells.places[name] = _letter(column)
        self.results = len(self.later) + 2

    def _row(self, row: int, results: Sequence[Expression]) -> None:
        """Fill a row of ``Times``: the steps that the results need, then the results."""
        needed = {name for a in results for name in _steps_in(a)}
        for name, a in reversed(self.later):
            if name in needed:
                needed.update(_steps_in(a))
        for column, (name, a) in enumerate(self.later, 2):
            if name in needed:
                self.times.cell(row, column, self.cells.formula(a, row))
        for column, a in enumerate(results, self.results):
            self.times.cell(row, column, self.cells.formula(a, row))

    def _integrals(self, hazards: Hazards, curves: Sequence[Expression], start: float) -> list[list[str]]:
        """Fill ``Panels``; formulas of the incidence of each cause at each horizon."""
        row, n_causes, base = len(self.horizons) + 2, len(curves) - 1, self.results
        # After the curves: log hazards + log time - H of each cause, S, and the weight of the node.
        density, survival, weight = base + n_causes + 1, base + 2 * n_causes + 1, base + 2 * n_causes + 2
        times = [start + time for time in self.horizons]
        panels = hazards.panels_of(times)
        flag = [_letter(1 + k) for k in range(len(times))]
        largest, mass = len(times) + 1, len(times) + 2
        gained = mass + n_causes + 1
        for line, ((left, right, is_first), inside) in enumerate(panels.items(), 1):
            first, ends = row, {}
            for side, log_time, share in hazards.nodes(left, right, is_first):
                self.times.cell(row, 1, math.exp(log_time))
                self._row(row, curves)
                place = [_letter(base + k) for k in range(n_causes + 1)]
                for k in range(n_causes):
                    text = f"={place[k]}{row}+{log_time!r}-{place[-1]}{row}"
                    self.times.cell(row, density + k, text)
                self.times.cell(row, survival, f"=EXP(-{place[-1]}{row})")
                self.times.cell(row, weight, share)
                if side:
                    ends[side] = f"Times!${_letter(survival)}${row}"
                else:
                    last = row
                row += 1
            for k, value in enumerate(inside, 1):
                self.panels.cell(line, k, value)
            *here, weights = [
                f"Times!${_letter(c)}${first}:${_letter(c)}${last}"
                for c in (*range(density, density + n_causes), weight)
            ]
            self.panels.cell(line, largest, f"=MAX({','.join(here)})")
            for k, each in enumerate(here):
                scaled = f"EXP({each}-{_letter(largest)}{line})"
                self.panels.cell(line, mass + k, f"=SUMPRODUCT({weights},{scaled})")
            lost = f"{_letter(mass + n_causes)}{line}"
            self.panels.cell(line, mass + n_causes, f"={ends.get(-1, '1')}-{ends[1]}")
            whole = f"SUM({_letter(mass)}{line}:{_letter(mass + n_causes - 1)}{line})"
            for k in range(n_causes):
                part = f"IF({whole}>0,{_letter(mass + k)}{line}/{whole},1/{n_causes})"
                self.panels.cell(line, gained + k, f"=IF({lost}>0,{lost}*{part},0)")

        def until(k: int, time: int) -> str:
            column, n = _letter(gained + k), max(len(panels), 1)
            return f"SUMPRODUCT(Panels!${flag[time]}$1:${flag[time]}${n},Panels!${column}$1:${column}${n})"

        return [[until(k, time) for time in range(len(times))] for k in range(n_causes)]

    def _inputs(self) -> None:
        """Fill the upper part of ``Calculator``: a row for each column of the model.

        Hidden are whether the input is wrong (F), and what the formulas read (G): a number, or a text.
        """
        from openpyxl.styles import Font, PatternFill, Protection
        from openpyxl.worksheet.datavalidation import DataValidation

        say, sheet = self.say, self.front
        for row, text in enumerate((self.page.title, self.page.subtitle, say("warning")), 1):
            self._text(sheet, row, 1, text)
        sheet["A1"].font = Font(name="Calibri", bold=True, size=14)
        for column, key in enumerate(("column", "value", "unit", "training_range", "note"), 1):
            self._text(sheet, _FIRST_FIELD - 1, column, say(key)).font = Font(name="Calibri", bold=True)
        for row, field in enumerate(self.used, _FIRST_FIELD):
            cell, words = f"$B${row}", field.categories
            self._text(sheet, row, 1, field.label)
            self._text(sheet, row, 3, field.unit or "")
            typical = sheet.cell(row, 2, field.typical)
            typical.fill, typical.protection = PatternFill("solid", "FFF4E5"), Protection(locked=False)
            out = "FALSE"
            if words is None:
                wrong = f'AND({cell}<>"",NOT(ISNUMBER({cell})),NOT(ISLOGICAL({cell})))'
                sheet.cell(row, 7, f'=IF(ISLOGICAL({cell}),IF({cell},1,0),IF(ISNUMBER({cell}),{cell},""))')
                message = say("must_be_number", column=field.label)
                if field.low is not None and field.high is not None:
                    low, high = (say.number(f"{end:.4g}") for end in (field.low, field.high))
                    self._text(sheet, row, 4, say("interval_of", lower=low, upper=high))
                    out = f"OR({cell}<{field.low!r},{cell}>{field.high!r})"
            else:
                typical.data_type = "s" if field.typical is not None else "n"
                listed = self.table(words)
                choices = DataValidation(
                    "list", formula1=f"={listed}", allow_blank=True, showErrorMessage=False
                )
                choices.add(f"B{row}")
                sheet.add_data_validation(choices)
                sheet.cell(row, 7, f'=IF(ISLOGICAL({cell}),IF({cell},"True","False"),{cell}&"")')
                known = f"SUMPRODUCT(--EXACT($G${row},{listed}))>0"
                wrong = f'AND($G${row}<>"",NOT({known}))' if self.checked else "FALSE"
                message = say("must_be_category", column=field.label, values=", ".join(words))
            sheet.cell(row, 6, f"=IF({wrong},1,0)")
            notes = [self.table((text,)) for text in (message, say("filled"), say("outside"))]
            note = f'IF($F${row}=1,{notes[0]},IF($G${row}="",{notes[1]},IF({out},{notes[2]},"")))'
            sheet.cell(row, 5, f"={note}").font = Font(name="Calibri", color="9A4B00")

    def _results(self, group: str, rows: Mapping[str, Sequence[str]]) -> None:
        """Fill the lower part of ``Calculator``: the group, and a row for each probability."""
        from openpyxl.styles import Font, Protection
        from openpyxl.worksheet.properties import PageSetupProperties

        say, sheet, first = self.say, self.front, self.first
        wrong = f"SUM($F${_FIRST_FIELD}:$F${first - 2})>0" if self.used else "FALSE"
        correct, undefined = (self.table((say(key),)) for key in ("correct_inputs", "undefined"))
        self._text(sheet, first - 1, 1, say("result")).font = Font(name="Calibri", bold=True)
        self._text(sheet, first, 1, say("group"))
        sheet.cell(first, 2, f"=IF({wrong},{correct},{group})")
        _, several = say.unit(self.page.time_unit)
        self._text(sheet, first + 1, 1, say("time_in", unit=several) if several else say("time"))
        for column, time in enumerate(self.horizons, 2):
            cell = sheet.cell(first + 1, column, time)
            cell.font = Font(name="Calibri", bold=True)
            cell.protection = Protection(locked=self.formula.hazards is not None)
        for row, (name, texts) in enumerate(rows.items(), first + 2):
            self._text(sheet, row, 1, name)
            for column, text in enumerate(texts, 2):
                shown = f"IF(ISNA({text}),{undefined},{text})"
                sheet.cell(row, column, f"=IF({wrong},{correct},{shown})").number_format = "0.0%"
        for name, width in {"A": 34, "B": 16, "C": 16, "D": 24, "E": 50}.items():
            sheet.column_dimensions[name].width = width
        for name in "FG":
            sheet.column_dimensions[name].hidden = True
        sheet.page_setup.orientation, sheet.page_setup.fitToHeight = "landscape", 0
        sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
        sheet.protection.sheet = True  # without a password: against slips of the hand

    def _text(self, sheet: Any, row: int, column: int, text: str) -> Any:
        """Write a text, which is never a formula; the cell."""
        cell = sheet.cell(row, column, text)
        cell.data_type = "s"
        return cell


def _letter(column: int) -> str:
    """The name of a column, the first being 1."""
    name = ""
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name


def _steps_in(a: Expression) -> Iterator[str]:
    """Steps inside an expression."""
    if a.op == "step":
        yield str(a.value)
    for b in a.args:
        yield from _steps_in(b)

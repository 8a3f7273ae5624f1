"""A look at a file before a run: roles, oddities, columns, and the command that runs it."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace

import pandas as pd

from sstorch.checks import option_text, shell_word, wording
from sstorch.data.columns import clean_features
from sstorch.data.file_options import FileOptions, in_file
from sstorch.data.formats import typed_table
from sstorch.data.guesses import Guess, guesses, other_outcomes, with_guess
from sstorch.data.oddities import constant_columns, odd_columns, repeated_rows
from sstorch.data.oddity import Oddity
from sstorch.data.surv import Surv
from sstorch.data.table import Table
from sstorch.exceptions import ConfigError, DataError, DataWarning, Faults

# Rounds of remedies: a column that is read as numbers may have codes for missing values, and so on.
_ROUNDS = 6
_LEVELS_SHOWN = 5


@dataclass(frozen=True)
class FileCheck:
    """Result of :func:`check`: findings about a file or a frame.

    Attributes:
        path: Path of the file; None for a frame.
        n_rows: Number of rows.
        guesses: Guessed options, with reasons.
        stops: Errors with the given options, with lines and remedies.
        left: Errors that no option corrects; they also stop the proposed run.
        notes: Other findings, which do not stop a run.
        columns: One row per column: kind, missing values, range or levels.
        options: Given options, guesses and remedies.
        data: Description of the rows of the proposed run; empty if it cannot run.
    """

    path: str | None
    n_rows: int
    guesses: tuple[Guess, ...]
    stops: tuple[str, ...]
    left: tuple[str, ...]
    notes: tuple[str, ...]
    columns: pd.DataFrame
    options: FileOptions
    data: str

    @property
    def exit_code(self) -> int:
        """0 if a run with the given options and the guessed outcome columns can start, else 1."""
        return int(bool(self.stops))

    @property
    def command(self) -> str:
        """The command that runs the file."""
        words = ["sstorch", "dataset=csv", shell_word(f"dataset.path={self.path or 'FILE'}")]
        with wording(options="dataset."):
            return " ".join([*words, *(option_text(k, v, "") for k, v in self.options.to_dict().items())])

    @property
    def call(self) -> str:
        """The call that loads the file in Python."""
        given = "".join(f", {name}={value!r}" for name, value in self.options.to_dict().items())
        return f"sstorch.data.load_file({self.path or 'FILE'!r}{given})"

    def __str__(self) -> str:
        parts = [f"{self.path or 'frame'}: {self.n_rows} rows, {len(self.columns)} columns"]
        parts += ["", *(f"guess  {g.option}={g.value}: {g.reason}" for g in self.guesses)]
        for title, texts in (("stops", self.stops), ("left", self.left), ("note", self.notes)):
            parts += [f"{title:<6} {text}" for text in texts]
        parts += ["", self.columns.to_string()]
        if self.data:
            parts += ["", f"This runs, with {self.data}:", f"  {self.command}", f"  {self.call}"]
        else:
            parts += [
                "",
                "What is left has to be corrected in the file, or by an option that it names; then:",
                f"  {self.command}",
            ]
        return "\n".join(parts)


def check(source: str | os.PathLike[str] | pd.DataFrame, **options: object) -> FileCheck:
    """Check a file or a frame for problems that stop a run or invalidate its results.

    The file is read once. Outcome columns, dates, codes for missing values and detection limits are guessed
    if not given.

    Args:
        source: File, as for `load_file`, or a frame.
        **options: Options of `load_file`.

    Raises:
        DataError: The file cannot be read.
        ConfigError: An option is unknown.

    >>> frame = pd.DataFrame({"age": range(40, 70), "days": range(1, 31), "died": ["no", "yes"] * 15})
    >>> found = check(frame.assign(age=frame["age"] % 7))
    >>> [guess.option for guess in found.guesses], found.exit_code
    (['event', 'event_value', 'time', 'time_unit'], 0)
    """
    try:
        given = FileOptions(**options)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(f"no such option of a file: {error}") from error
    if isinstance(source, pd.DataFrame):
        return _checked(None, typed_table(source), given, [])
    with in_file(source), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DataWarning)
        table = given.table_of(source)
        return _checked(os.fspath(source), table, given, [str(w.message) for w in said])


def _checked(path: str | None, table: Table, given: FileOptions, notes: list[str]) -> FileCheck:
    decimal = given.decimal or table.found.get("decimal") or _decimal(table)
    found = list(guesses(table.frame, given, decimal))
    # Of a text file both are detected, also in later files for the model, which may have others.
    found_sign = decimal if decimal != "." and "decimal" not in table.found else None
    options = replace(given, decimal=given.decimal or found_sign)
    # Guesses of roles stop nothing; those of codes, dates and limits mend what would.
    roles = [guess for guess in found if guess.option not in ("missing", "drop", "limits")]
    mending = [guess for guess in found if guess not in roles]
    for guess in roles:
        options = with_guess(options, guess)
    stops: list[str] = []
    odd_notes: list[str] = []
    left: list[str] = []
    with table.wording("dataset."):
        notes += [text] if (text := other_outcomes(table.frame, options, decimal)) else []
        for turn in range(_ROUNDS):
            faults, oddities = _faults(table, options)
            texts = [*faults, *(f"{o.text}: {o.remedy}" for o in oddities if o.accident)]
            stops += [text for text in texts if text not in stops]
            odd_notes += [
                text for o in oddities if (text := f"{o.text}: {o.remedy}") not in odd_notes + stops
            ]
            left = texts
            before = options
            for guess in mending if turn == 0 else []:
                options = with_guess(options, guess)
            for oddity in oddities:
                for option, values in (("drop", oddity.drop), ("missing", oddity.missing)):
                    if oddity.accident and values:
                        options = with_guess(options, Guess(option, list(values), oddity.text))
            if options == before:
                break
        data = ""
        if not left:
            try:
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always", DataWarning)
                    data = options.data_of(table.missing(options.missing)).describe()
                odd_notes += [str(w.message) for w in said]
            except DataError as error:
                left, stops = [str(error)], [*stops, str(error)]
    return FileCheck(
        path=path,
        n_rows=len(table.frame),
        guesses=tuple(found),
        stops=tuple(stops),
        left=tuple(left),
        notes=tuple(dict.fromkeys([*notes, *(text for text in odd_notes if text not in stops)])),
        columns=_columns(table.frame),
        options=options,
        data=data,
    )


def _decimal(table: Table) -> str:
    """Decimal sign in the texts of a non-text file: a comma if cells have commas and no points."""
    cells = [
        cell for name in table.frame.select_dtypes("object") for cell in table.frame[name].dropna().unique()
    ]
    texts = pd.Series([cell for cell in cells if isinstance(cell, str)], dtype=object).astype(str)
    comma = texts.str.fullmatch(r"[+-]?\d+,\d{1,2}").any()
    return "," if comma and not texts.str.fullmatch(r"[+-]?\d*\.\d+").any() else "."


def _faults(table: Table, options: FileOptions) -> tuple[list[str], list[Oddity]]:
    """Errors by column, and other findings about readable columns."""
    faults: list[str] = []
    table = table.missing(options.missing)
    try:
        frame = options.resolved(table).transformed(table)
    except DataError as error:
        faults.append(str(error))
        frame = replace(options, date=[], limits=None).transformed(table)
    y = None
    try:
        y = Surv.of(frame, **options.roles)
    except DataError as error:
        if not faults:
            faults.append(str(error))
    kept = [n for n in map(str, frame.columns) if n not in options.taken]
    of_columns = Faults()
    features = clean_features(frame[kept], of_columns) if kept else pd.DataFrame()
    faults += [str(error) for error in of_columns.errors]
    if y is None or y.time is None or y.event is None or features.empty:
        return faults, []
    found = constant_columns(features) + odd_columns(features, y.time, y.event)
    return faults, found + (repeated_rows(features, y.time, y.event) if y.id is None else [])


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for name in map(str, frame.columns):
        column = frame[name].dropna()
        numeric = pd.api.types.is_numeric_dtype(column.dtype) and len(column)
        if numeric or pd.api.types.is_datetime64_any_dtype(column.dtype):
            values = f"{column.min()} to {column.max()}" if len(column) else ""
        else:
            words = column.astype(str).unique()
            values = ", ".join(words[:_LEVELS_SHOWN])
            values += f", ... ({len(words)} levels)" if len(words) > _LEVELS_SHOWN else ""
        kind = "numeric" if numeric else "dates" if column.dtype.kind == "M" else "text"
        rows.append({"column": name, "kind": kind, "missing": len(frame) - len(column), "values": values})
    return pd.DataFrame(rows).set_index("column")

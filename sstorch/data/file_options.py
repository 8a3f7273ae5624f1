"""Options for reading a file: separators, roles of columns, and transforms."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from sstorch.checks import check_columns_exist
from sstorch.data.column_rules import (
    follow_up,
    numbers_of_text,
    resolved_limits,
    with_categories,
    with_limits,
)
from sstorch.data.survival_data import SurvivalData
from sstorch.data.table import Table
from sstorch.data.tables import read_table
from sstorch.exceptions import ConfigError, FormatError, named
from sstorch.files import write_whole

# File in the folder of a saved model: options by which new rows are read as the training rows were.
FILE_NAME = "file_options.json"


def option(default: Any, text: str) -> Any:
    """A field with its default and its meaning; a list or a mapping is copied."""
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata={"text": text})
    return field(default=default, metadata={"text": text})


@dataclass(kw_only=True)
class FileOptions:
    """Options of `load_file`, which explains them; they are the settings ``dataset.NAME`` of a run."""

    time: str = option("time", "column of the times")
    event: str = option("event", "column of the events")
    event_coding: str = option("auto", "auto (0/1, 1 = event), or 1/2 (1 = censored, 2 = event)")
    drop: list[str] = option([], "columns that are not features")
    sep: str | None = option(None, "separator of the cells; null detects it")
    strict: bool = option(True, "error for suspicious columns, such as identifiers")
    entry: str | None = option(None, "column of the entry times (left truncation)")
    id: str | None = option(None, "column of the subjects, for several rows per subject")
    event_value: str | None = option(None, "value of the event column for an event, such as yes")
    missing: list[Any] = option([], "codes of missing values, such as [-999,unknown]; of a column: [nodes=9]")
    decimal: str | None = option(None, "decimal sign; null detects it")
    weight: str | None = option(None, "column of the weights")
    cause: str | None = option(None, "column of competing causes, in place of event")
    causes: Any = option("auto", "names of the causes by value, such as {1: relapse, 2: death}")
    time_unit: str | None = option(None, "unit of the times, for texts and figures, such as days")
    encoding: str | None = option(None, "encoding of a text file; null detects it")
    table: str | None = option(None, "sheet of a workbook, table of a database, or a query")
    date: list[str] = option([], "columns of the start and end of follow-up, in place of time")
    date_format: str | None = option(None, "format of dates, such as %d/%m/%Y; null detects it")
    censored_at: float | None = option(None, "time at which follow-up is censored")
    category: list[str] = option([], "numeric columns with codes of categories")
    limits: Any = option(None, "detection limits such as >300: value, indicator or missing; or by column")
    units: dict[str, str] = option({}, "units of columns, such as {age: years}")

    def read(self, path: str | os.PathLike[str], texts: Collection[str] = ()) -> Table:
        """Read a file whose rows need not have the columns of the outcome.

        Columns named in `texts` stay as a text file has them.

        Returns:
            The rows with the transforms of the training rows; a time of follow-up where its dates are there.
        """
        table = self.table_of(path, texts)
        with table.wording():
            known = [str(name) for name in table.frame.columns]
            dated = bool(self.date) and set(self.date) <= set(known)
            own = self if dated else replace(self, date=[])
            kept = {name: table.frame[name] for name in texts if name in known}
            return replace(table, frame=own.transformed(table).assign(**kept))

    def table_of(self, path: str | os.PathLike[str], texts: Collection[str] = ()) -> Table:
        """The rows of a file before any transform; see `read_table`."""
        return read_table(
            path,
            sep=self.sep,
            missing=self.missing,
            decimal=self.decimal,
            encoding=self.encoding,
            table=self.table,
            texts=texts,
        )

    def transformed(self, table: Table) -> pd.DataFrame:
        """Rows with numbers for texts and detection limits, categories for codes, a time for two dates."""
        frame, sign = table.frame, self._decimal_sign(table)
        if isinstance(self.limits, Mapping):
            frame = with_limits(frame, self.limits, sign)
        frame = with_categories(numbers_of_text(frame, sign), self.category)
        if not self.date:
            return frame
        if self.time in frame:
            raise ConfigError(
                f"date gives the times, and so does column {self.time!r}: leave one of them out"
            )
        time = follow_up(frame, self.date, self.date_format, self.time_unit or "days")
        return frame.drop(columns=self.date).assign(**{self.time: time})

    def resolved(self, table: Table) -> Self:
        """The same options with what training rows decide: unit of dates, columns with detection limits."""
        check_columns_exist(self.category, [str(name) for name in table.frame.columns])
        unit = self.time_unit or ("days" if self.date else None)
        limits = resolved_limits(table.frame, self.limits, self._decimal_sign(table))
        return replace(self, limits=limits or None, time_unit=unit)

    def _decimal_sign(self, table: Table) -> str:
        return self.decimal or table.found.get("decimal") or "."

    def data_of(self, table: Table) -> SurvivalData:
        """Rows of a table as data, which keep these options as `file_options`."""
        own = self.resolved(table)
        names = ("drop", "strict", "time_unit", "censored_at")
        options = {name: getattr(own, name) for name in names}
        data = SurvivalData.from_frame(own.transformed(table), **own.roles, **options)
        data.file_options = own.to_dict()
        return data

    def rows_of(self, path: str | os.PathLike[str]) -> SurvivalData:
        """Read the rows of a file as `load_file` does; they keep these options as `file_options`."""
        with in_file(path):
            table = self.table_of(path)
            with table.wording():
                return self.data_of(table)

    @property
    def roles(self) -> dict[str, Any]:
        """Columns and coding of the outcome, as `Surv.of` takes them."""
        names = ("entry", "id", "weight", "event_value", "event_coding")
        event, causes = (self.event, None) if self.cause is None else (self.cause, self.causes)
        columns: dict[str, str | None] = {"time": self.time, "event": event}
        return {name: getattr(self, name) for name in names} | columns | {"causes": causes}

    @property
    def taken(self) -> set[str]:
        """Columns that are not features: of the outcome, of dates, and those that are excluded."""
        roles = {
            k: name for k, name in self.roles.items() if k not in ("event_value", "event_coding", "causes")
        }
        return {name for name in (*roles.values(), *self.drop, *self.date) if name is not None}

    # --------------------------------------------------------------- saved with a model

    def to_dict(self) -> dict[str, Any]:
        """Options that differ from their defaults, as JSON can hold them."""
        usual = type(self)()
        own = {item.name for item in fields(FileOptions)}
        return {k: v for k, v in asdict(self).items() if k in own and v != getattr(usual, k)}

    @classmethod
    def saved_with(cls, folder: Path) -> FileOptions:
        """Options that were saved with a model; the defaults if there are none."""
        file = folder / FILE_NAME
        if not file.is_file():
            return FileOptions()
        try:
            return FileOptions(**json.loads(file.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise FormatError(f"{file} is incomplete or altered: {error}") from error


def save_options(folder: Path, options: Mapping[str, Any]) -> None:
    """Write the options of a file to the folder of the model that was trained on its rows."""
    text = json.dumps(dict(options), indent=1, ensure_ascii=False)
    write_whole(folder / FILE_NAME, f"{text}\n".encode())


def in_file(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Begin the message of a `DataError` in the body with the path of a file."""
    return named(os.path.expanduser(os.fspath(path)))

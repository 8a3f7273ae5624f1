"""Tables from spreadsheets, statistics packages and databases.

Columns whose values all have labels become categories; dates become timestamps.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from sstorch.checks import names_text
from sstorch.data.columns import label
from sstorch.data.table import Table
from sstorch.data.text_files import MISSING, check_header
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.installing import install_extra

URL = re.compile(r"[a-z][a-z0-9+]*://")
_QUERY = re.compile(r"\s*(select|with|from)\b", re.IGNORECASE)


def _package(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise  # the package is there but lacks something itself
        raise ConfigError(
            f"{what} are read with the package {name}; install the extra that holds it: "
            f"{install_extra('files')}"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


# ---------------------------------------------------------------------- files


def _stata(file: Path, table: str | None) -> pd.DataFrame:
    plain: pd.DataFrame = pd.read_stata(file, convert_categoricals=False)
    try:
        labelled: pd.DataFrame = pd.read_stata(file)
    except ValueError:  # two values of one label
        return plain
    for name in labelled.select_dtypes("category"):
        words = labelled[name].cat.categories
        if all(isinstance(word, str) for word in words):
            plain[name] = labelled[name].cat.remove_unused_categories().cat.as_unordered()
    return plain


def _spss(file: Path, table: str | None) -> pd.DataFrame:
    frame, meta = _package("pyreadstat", "files of SPSS").read_sav(str(file))
    return _labelled(frame, meta.variable_value_labels)


def _sas(file: Path, table: str | None) -> pd.DataFrame:
    package = _package("pyreadstat", "files of SAS")
    read = package.read_xport if file.suffix.lower() == ".xpt" else package.read_sas7bdat
    frame, meta = read(str(file))
    return _labelled(frame, meta.variable_value_labels)


def _labelled(frame: pd.DataFrame, labels: Mapping[str, Mapping[Any, str]]) -> pd.DataFrame:
    """With categories in place of values that all have labels; of others, such as -9, numbers stay."""
    frame = frame.copy()
    for name, words in labels.items():
        if name not in frame or not words:
            continue
        named = {label(value): str(word) for value, word in words.items()}
        codes = frame[name].map(label, na_action="ignore")
        if codes.notna().any() and codes.dropna().isin(named).all():
            present = set(codes.dropna().map(named))
            order = [word for word in dict.fromkeys(named.values()) if word in present]
            frame[name] = pd.Categorical(codes.map(named), categories=order)
    return frame


def _r(file: Path, table: str | None) -> pd.DataFrame:
    objects = _package("pyreadr", "files of R").read_r(str(file))
    frames = {name: value for name, value in objects.items() if isinstance(value, pd.DataFrame)}
    if table is not None:
        if table not in frames:
            raise DataError(f"it holds no data frame {table!r}, but {names_text(frames) or 'none'}")
        return frames[table]
    if len(frames) != 1:
        raise DataError(
            f"it holds {len(frames)} data frames"
            + (f", {names_text(frames)}; choose one with table=NAME" if frames else "; save one with saveRDS")
        )
    return next(iter(frames.values()))


_READERS: dict[str, tuple[str, Callable[[Path, str | None], pd.DataFrame]]] = {
    ".parquet": ("parquet", lambda file, _: pd.read_parquet(file)),
    ".feather": ("feather", lambda file, _: pd.read_feather(file)),
    ".dta": ("Stata", _stata),
    ".sav": ("SPSS", _spss),
    ".zsav": ("SPSS", _spss),
    ".sas7bdat": ("SAS", _sas),
    ".xpt": ("SAS", _sas),
    ".rds": ("R", _r),
    ".rdata": ("R", _r),
}
SHEETS = (".xlsx", ".xlsm")
DATABASES = {".duckdb": "duckdb", ".sqlite": "sqlite", ".db": "sqlite"}
SUFFIXES = (*_READERS, *SHEETS, *DATABASES)


def read_typed(file: Path, table: str | None) -> Table:
    """Read a file whose columns have types, of an ending that `SUFFIXES` has, no database.

    `table` is a sheet of a workbook, or a data frame of a file of R; None for the first, or the only one.
    """
    if file.stat().st_size == 0:
        raise DataError("the file is empty")
    suffix = file.suffix.lower()
    if suffix in SHEETS:
        return _sheet(file, table)
    name, read = _READERS[suffix]
    try:
        with warnings.catch_warnings():
            # Of the packages: fragmented frames, and labels of Stata that represent some values only.
            warnings.simplefilter("ignore")
            frame = read(file, table)
    except (ConfigError, DataError):
        raise
    except Exception as error:  # each package has errors of its own
        raise DataError(f"not a readable {name} file ({_one_line(error)})") from error
    return typed_table(frame)


def typed_table(frame: pd.DataFrame) -> Table:
    """The table of a frame whose rows are numbered from 1."""
    frame = frame.reset_index(drop=True)
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    for name in frame.select_dtypes("object"):
        if pd.api.types.infer_dtype(frame[name], skipna=True) in ("date", "datetime", "datetime64"):
            frame[name] = pd.to_datetime(frame[name], errors="coerce")
    return Table(frame, np.arange(1, len(frame) + 1), "row")


def _sheet(file: Path, table: str | None) -> Table:
    _package("openpyxl", "workbooks of Excel")
    try:
        with warnings.catch_warnings(), pd.ExcelFile(file, engine="openpyxl") as book:
            warnings.simplefilter("ignore", UserWarning)  # of styles and extensions that have no values
            sheets = [str(name) for name in book.sheet_names]
            if table is not None and table not in sheets:
                raise DataError(f"it has no sheet {table!r}, but {names_text(sheets)}")
            cells = book.parse(table or sheets[0], header=None, dtype=object, keep_default_na=False)
    except (ConfigError, DataError):
        raise
    except Exception as error:  # of zipfile, openpyxl and its XML
        raise DataError(f"not a readable workbook of Excel ({_one_line(error)})") from error
    if table is None and len(sheets) > 1:
        warnings.warn(
            f"{file}: the sheet {sheets[0]!r} of {names_text(sheets)} is read (table={sheets[0]})",
            DataWarning,
            stacklevel=4,
        )
    blank = cells.map(lambda cell: isinstance(cell, str) and not cell.strip())
    cells = cells.mask(blank | cells.isna(), np.nan)
    cells = cells[cells.notna().any(axis=1)].dropna(axis=1, how="all")
    if len(cells) < 2:
        other = f"; choose one of {names_text(sheets)} with table=NAME" if len(sheets) > 1 else ""
        raise DataError(f"the sheet {table or sheets[0]!r} has no rows below its header{other}")
    header = check_header(["" if pd.isna(cell) else label(cell) for cell in cells.iloc[0]])
    frame = cells.iloc[1:].set_axis(header, axis=1)
    lines = frame.index.to_numpy(dtype=np.int64) + 1
    frame = frame.mask(frame.isin(MISSING), np.nan).reset_index(drop=True)
    typed = typed_table(frame.infer_objects())
    return Table(typed.frame, lines, "row")


# ---------------------------------------------------------------------- databases


def read_database(url: str, table: str | None) -> Table:
    """Read a table of a database, or what a query that begins with SELECT, WITH or FROM gives.

    URLs are ``sqlite:///FILE`` or ``duckdb:///FILE``, with a fourth slash where the path is absolute; others
    are those of SQLAlchemy, where it is installed.
    """
    if not table or not table.strip():
        raise ConfigError("name a table or a query of the database with table=NAME or table='SELECT ...'")
    query = table if _QUERY.match(table) else f'SELECT * FROM "{table.strip()}"'
    kind, _, rest = url.partition("://")
    file = Path(rest.removeprefix("/")).expanduser()
    if kind in ("sqlite", "duckdb") and not file.is_file():
        raise DataError("a folder, not a file" if file.is_dir() else "no such file")
    try:
        if kind == "sqlite":
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                return typed_table(pd.read_sql_query(query, connection))
        if kind == "duckdb":
            duckdb = _package("duckdb", "databases of DuckDB")
            with closing(duckdb.connect(str(file), read_only=True)) as connection:
                return typed_table(connection.execute(query).df())
        _package("sqlalchemy", f"databases at {kind}://")
        return typed_table(pd.read_sql_query(query, url))
    except (ConfigError, DataError):
        raise
    except Exception as error:  # each driver has errors of its own
        raise DataError(f"the query {query!r} failed ({_one_line(error)})") from error

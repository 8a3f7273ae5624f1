"""Files, read by pandas."""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from sstorch.checks import DATA_ROW, check_unique, option_text, rows_text, wording
from sstorch.data.columns import MISSING
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.usage import install_extra

# Files by their suffix; those of `_TEXTS` may be packed, such as .csv.gz.
READERS: dict[str, Callable[..., Any]] = {
    ".csv": pd.read_csv,
    ".tsv": pd.read_csv,
    ".txt": pd.read_csv,
    ".parquet": pd.read_parquet,
    ".xlsx": pd.read_excel,
    ".dta": pd.read_stata,
    ".sas7bdat": pd.read_sas,
    ".sav": pd.read_spss,
}
_TEXTS = (".csv", ".tsv", ".txt")
_OPTIONS: dict[str, dict[str, Any]] = {".tsv": {"sep": "\t"}, ".sas7bdat": {"encoding": "infer"}}
# What stands between thousands in files.
_SIGN = "[.,' \u00a0\u202f\u2019]"
# Rows that show of most columns that their numbers are not ambiguous.
_FIRST = 100


def load_file(
    path: str | os.PathLike[str],
    time: str = "time",
    event: str = "event",
    *,
    read: Mapping[str, Any] | None = None,
    strict: bool = True,
    **options: Any,
) -> SurvivalData:
    """Read survival data from a file with a header and one row per subject, or several with `id`.

    Args:
        path: File, as for :func:`read_file`.
        time: Column of the times.
        event: Column of the event indicators, or with `causes` of the causes.
        read: Options of the function of pandas, as for :func:`read_file`.
        strict: Raise an error for suspicious features, as :meth:`SurvivalData.from_frame` does.
        **options: Other options of :meth:`SurvivalData.from_frame`, such as `drop`, `entry` and `id`.

    Raises:
        DataError: The file cannot be read or its data are invalid; the message starts with the path.
        ConfigError: An option is unknown.

    Warns:
        DataWarning: Findings about the rows, as for :meth:`SurvivalData.from_frame`.
    """
    frame = read_file(path, read)
    with named(os.path.expanduser(os.fspath(path))):
        return SurvivalData.from_frame(frame, time, event, strict=strict, **options)


def read_file(path: str | os.PathLike[str], read: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read the rows of a file by pandas, such as new rows to predict.

    The separator of a text file is the most frequent one of comma, semicolon, tab and bar in its first line.
    Blanks around texts and names of columns are removed. Missing values of a text file are empty cells, NA,
    NaN, NULL and a single point; the word None is a category.

    Args:
        path: Text (.csv, .tsv, .txt, also .csv.gz), .parquet, Excel (.xlsx), Stata (.dta), SAS (.sas7bdat)
            or SPSS (.sav). ``~`` is the home folder.
        read: Options of ``pandas.read_csv``, ``read_parquet``, ``read_excel``, ``read_stata``, ``read_sas``
            or ``read_spss``, such as ``{"sep": ";", "decimal": ","}`` or ``{"na_values": [-999]}``.

    Returns:
        Rows, numbered from 1 in the index, which is what messages call them.

    Raises:
        DataError: The file cannot be read, or a text file has one column or ambiguous numbers: a column whose
            only numbers with a point (or a comma) are of the kind 1.970, where others are 658. Then
            `thousands` or `decimal` in `read` chooses.
        ConfigError: A package is not installed.
    """
    if not isinstance(read, Mapping | None):
        raise ConfigError(f"read must be a mapping of options, got {read!r}")
    file, given = Path(path).expanduser(), dict(read or {})
    suffix = Path(file.name.lower().removesuffix(".gz")).suffix
    with named(str(file)), wording(options=""):
        if not file.is_file():
            raise DataError("a folder, not a file" if file.is_dir() else "no such file")
        if suffix not in READERS:
            raise DataError(f"unknown kind of file; readable are {', '.join(READERS)}")
        if file.stat().st_size == 0:
            raise DataError("the file is empty")
        try:
            options = {**_OPTIONS.get(suffix, {}), **given}
            if suffix in _TEXTS:
                frame = _read_text(file, options, given)
            else:
                frame = (_read_excel if suffix == ".xlsx" else READERS[suffix])(file, **options)
        except DataError:
            raise
        except ImportError as error:
            text = f"{suffix} files need a package of the extra that holds it: {install_extra('files')}"
            raise ConfigError(f"{text} ({error})") from error
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise DataError(
                f"not every row has the cells of the header ({' '.join(str(error).split())}): correct it, or "
                f"where lines stand above the names of the columns, give {_option(given, skiprows=1)}"
            ) from error
        except UnicodeError as error:
            remedy = _option(given, encoding="latin-1")
            raise DataError(f"not in the encoding expected ({error}): give {remedy}, or utf-16") from error
        except Exception as error:  # each reader has errors of its own
            text = f"cannot be read{f' with read={given}' if given else ''} ({' '.join(str(error).split())})"
            raise DataError(text) from error
        frame = _stripped(frame)
        if frame.empty:
            raise DataError("the file has no rows below its header")
        return frame


def _option(given: Mapping[str, Any], **more: Any) -> str:
    """The option `read` with more in it, as it is written where the file came from."""
    return option_text("read", {**given, **more}, "")


def _read_text(file: Path, options: dict[str, Any], given: Mapping[str, Any]) -> pd.DataFrame:
    # Without index_col=False pandas takes cells beyond the header for an index, and names move.
    options = {"index_col": False, "skipinitialspace": True, **options}
    known = {k: given[k] for k in ("skiprows", "encoding", "compression", "comment") if k in given}
    first = pd.read_csv(file, sep="\x01", header=None, nrows=1, dtype=str, quoting=csv.QUOTE_NONE, **known)
    line = str(first.iloc[0, 0])
    if not {"sep", "delimiter"} & set(options):
        # csv.Sniffer, which pandas asks for sep=None, takes letters for separators too. The comma wins a tie.
        options["sep"] = max(",;\t|", key=re.sub(r'"[^"]*"', "", line).count)
    if len(sep := options.get("sep", "")) == 1 and not {"header", "names"} & set(given):
        names = next(csv.reader([line], delimiter=sep, skipinitialspace=True))
        check_unique([name.strip() for name in names if name])  # pandas would number them
    if "engine" not in given:
        # Reading in pieces can give one column two types; pandas' C parser overlooks signs beyond ASCII.
        simple = str(given.get("thousands", "")).isascii()
        options.update({"low_memory": False} if simple else {"engine": "python"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # cells beyond the header
        plain = {k: v for k, v in options.items() if k not in ("converters", "parse_dates", "na_values")}
        texts = pd.read_csv(file, **{**plain, "dtype": str, "keep_default_na": False})
        if texts.shape[1] == 1:
            sep, skip = _option(given, sep=";"), _option(given, skiprows=1)
            raise DataError(
                f"it has one column, {str(texts.columns[0])!r}: give the separator, such as {sep}, or where "
                f"lines stand above the names of the columns, {skip}"
            )
        if "keep_default_na" not in given:
            own = given.get("na_values", [])
            options |= {"keep_default_na": False, "na_values": _missing(own, list(texts.columns))}
        frame: pd.DataFrame = pd.read_csv(file, **options)
    typed = given.get("dtype", {})
    with wording(rows=_numbered(texts)):
        for name in texts.columns.intersection(frame.columns) if isinstance(typed, Mapping) else []:
            if name not in typed and pdt.infer_dtype(texts[name]) == "string":  # else it is dates
                cells = texts[name].where(frame[name].notna(), "")
                _check_numbers(cells, pdt.is_numeric_dtype(frame[name]), given)
    return frame


def _missing(own: Any, columns: list[Any]) -> Any:
    """Codes of missing values, with those of the user, of all columns or by column."""
    if isinstance(own, Mapping):
        return {name: _missing(own.get(name, []), []) for name in columns}
    return [*MISSING, *([own] if pdt.is_scalar(own) else own)]


def _check_numbers(texts: pd.Series, numeric: bool, given: Mapping[str, Any]) -> None:
    """Refuse numbers with signs that separate thousands or decimals, and numbers that are read as text."""
    where = f"column {str(texts.name)!r}"
    for sign in () if {"decimal", "thousands"} & set(given) else "." if numeric else ".,":
        number = re.compile(rf"[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}}")
        for part in (texts.iloc[:_FIRST], texts):
            cells = part.str.strip()
            with_sign = cells.str.contains(sign, regex=False).to_numpy(dtype=bool)
            if not cells[with_sign].str.fullmatch(number).all():
                break
        else:
            if with_sign.any():
                raise DataError(
                    f"{where} holds numbers such as {cells[with_sign].iloc[0]!r} in {rows_text(with_sign)}, "
                    f"all with three digits behind the sign: give {_option(given, thousands=sign)} if it "
                    f"separates thousands, or {_option(given, decimal=sign)} if decimals"
                )
    cells = texts.str.strip()
    form = rf"^[+-]?\d+(?:({_SIGN})\d{{3}}(?:\1\d{{3}})*)??(?:([.,])\d+)?$"
    if numeric or 2 * cells.str.fullmatch(form).sum() <= (cells != "").sum():
        return
    found = cells.str.extract(form, expand=True).set_axis(["thousands", "decimal"], axis=1)
    found = found.where(found.ne([given.get("thousands"), given.get("decimal", ".")]))
    if (signs := found.notna().any(axis=1).to_numpy()).any():
        more = {str(name): sign for name, sign in found.mode().iloc[0].items() if isinstance(sign, str)}
        if more.get("thousands") == more.get("decimal"):  # 1,970,000 and 1,970
            del more["decimal"]
        raise DataError(
            f"{where} holds {cells[signs].iloc[0]!r} in {rows_text(signs)}, which is text with decimal sign "
            f"{given.get('decimal', '.')!r}: give {_option(given, **more)}"
        )


def _read_excel(file: Path, **options: Any) -> pd.DataFrame:
    """Read a sheet; pandas alone would read a text cell 1.970 as 1.97."""
    if {"decimal", "thousands", "dtype", "converters"} & set(options):
        return READERS[".xlsx"](file, **options)  # type: ignore[no-any-return]
    frame: pd.DataFrame = READERS[".xlsx"](file, **options, dtype=object)
    with wording(rows=_numbered(frame)):
        for name in frame:
            texts = frame[name].map(lambda cell: cell if isinstance(cell, str) else "")
            column = pd.to_numeric(frame[name], errors="coerce")
            numeric = column.isna().equals(frame[name].isna())
            _check_numbers(texts, numeric, options)
            if numeric:
                frame[name] = column
    return frame.infer_objects()


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name=DATA_ROW), axis=0)


def _stripped(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows numbered from 1, texts and names without blanks around them; empty ones are missing."""
    frame = _numbered(frame).rename(columns=lambda name: str(name).strip())
    for place, kind in enumerate(frame.dtypes):
        if pdt.is_object_dtype(kind) or isinstance(kind, pd.StringDtype):
            cut = frame.iloc[:, place].map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
            frame.isetitem(place, cut.mask(cut == "", np.nan).array)
    return frame

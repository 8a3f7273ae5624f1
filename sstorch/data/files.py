"""Files, read by pandas."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from sstorch.checks import DATA_ROW, check_unique, rows_text, wording
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
_OPTIONS: dict[str, dict[str, Any]] = {
    **{suffix: {"index_col": False, "skipinitialspace": True} for suffix in _TEXTS},
    ".xlsx": {"dtype": object},  # else a text cell 1.970 is 1.97
    ".sas7bdat": {"encoding": "infer"},
}
# Options of a text file by which its cells are found.
_CELLS = (
    "sep",
    "delimiter",
    "skiprows",
    "encoding",
    "compression",
    "comment",
    "quotechar",
    "engine",
    "nrows",
)
# A number with signs between thousands and before decimals, and one that is read either way.
_NUMBER = r"[+-]?\d+(?:(?:[.,' \u00a0\u202f\u2019]\d{3})+)?(?:[.,]\d+)?"
_EITHER = r"[+-]?[1-9]\d{0,2}\.\d{3}"


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

    The separator of a text file is a comma, or a tab in a .tsv file, unless `read` has another one.
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
        DataError: The file cannot be read, a text file has one column, or numbers are ambiguous: all with
            three digits behind the point, such as 1.970, or with signs that `decimal` and `thousands` do not
            name.
        ConfigError: A package is not installed.
    """
    if not isinstance(read, Mapping | None):
        raise ConfigError(f"read must be a mapping of options, got {read!r}")
    file, given = Path(path).expanduser(), dict(read or {})
    suffix = Path(file.name.lower().removesuffix(".gz")).suffix
    with named(str(file)):
        if not file.is_file():
            raise DataError("a folder, not a file" if file.is_dir() else "no such file")
        if suffix not in READERS:
            raise DataError(f"unknown kind of file; readable are {', '.join(READERS)}")
        if file.stat().st_size == 0:
            raise DataError("the file is empty")
        try:
            read_rows = READERS[suffix]
            options = {"sep": "\t"} if suffix == ".tsv" else {}
            options |= _OPTIONS.get(suffix, {}) | given
            if (
                suffix == ".xlsx"
                and {"decimal", "thousands", "converters"} & given.keys()
                and "dtype" not in given
            ):
                del options["dtype"]  # texts are numbers with these signs
            frame = _read_text(file, options) if suffix in _TEXTS else read_rows(file, **options)
            frame = _stripped(frame.infer_objects())
            _check_texts(frame, given)
        except DataError:
            raise
        except ImportError as error:
            text = f"{suffix} files need a package of the extra that holds it: {install_extra('files')}"
            raise ConfigError(f"{text} ({error})") from error
        except pd.errors.ParserError as error:
            raise DataError(
                f"not every row has the cells of the header ({' '.join(str(error).split())}): correct it, "
                "give the separator, such as read={'sep': ';'}, or where lines stand above the names of the "
                "columns, read={'skiprows': 1}"
            ) from error
        except UnicodeError as error:
            raise DataError(
                f"not in the encoding expected ({error}): give read={{'encoding': 'latin-1'}}, or utf-16"
            ) from error
        except Exception as error:  # each reader has errors of its own
            text = f"cannot be read{f' with read={given}' if given else ''} ({' '.join(str(error).split())})"
            raise DataError(text) from error
        if frame.empty:
            raise DataError("the file has no rows below its header")
        return frame


def _read_text(file: Path, options: dict[str, Any]) -> pd.DataFrame:
    cells = {name: options[name] for name in _CELLS if name in options} | {"skipinitialspace": True}
    texts = pd.read_csv(file, header=None, dtype=str, keep_default_na=False, **cells)
    if texts.shape[1] == 1:
        raise DataError(
            f"it has one column, {texts.iloc[0, 0]!r}: give the separator, such as read={{'sep': ';'}}, or "
            "where lines stand above the names of the columns, read={'skiprows': 1}"
        )
    names, texts = texts.iloc[0].str.strip(), texts.iloc[1:]
    if not {"header", "names"} & set(options):
        check_unique([name for name in names if name])  # pandas would number them
    texts = texts.set_axis(names.to_list(), axis=1)
    if "keep_default_na" not in options:
        missing = _missing(options.get("na_values", []), list(texts.columns))
        options = {**options, "keep_default_na": False, "na_values": missing}
    if "engine" not in options:
        # Reading in pieces can give one column two types; pandas' C parser overlooks signs beyond ASCII.
        simple = str(options.get("thousands", "")).isascii()
        options |= {"low_memory": False} if simple else {"engine": "python"}
    frame: pd.DataFrame = pd.read_csv(file, **options)
    # The signs of a number are those of `options`, or those of pandas where they cannot be others.
    if not {"decimal", "thousands", "dtype", "header", "names"} & set(options):
        with wording(_numbered(texts)):
            for name in texts.columns.intersection(frame.columns):
                if pdt.is_numeric_dtype(frame[name]):
                    _check_either(texts[name].str.strip())
    return frame


def _missing(own: Any, columns: list[Any]) -> Any:
    """Codes of missing values, with those of the user, of all columns or by column."""
    if isinstance(own, Mapping):
        return {name: _missing(own.get(name, []), []) for name in columns}
    return [*MISSING, *([own] if pdt.is_scalar(own) else own)]


def _check_either(cells: pd.Series) -> None:
    """Refuse numbers whose points all separate three digits: thousands or decimals."""
    with_point = cells.str.contains(".", regex=False).to_numpy(dtype=bool)
    if with_point.any() and cells[with_point].str.fullmatch(_EITHER).all():
        raise DataError(
            f"column {str(cells.name)!r} holds numbers such as {cells[with_point].iloc[0]!r} in "
            f"{rows_text(with_point)}, all with three digits behind the sign: give read={{'thousands': '.'}} "
            "if it separates thousands, or read={'decimal': '.'} if decimals"
        )


def _check_texts(frame: pd.DataFrame, given: Mapping[str, Any]) -> None:
    """Refuse numbers that are text by signs of other countries."""
    plain = re.compile(rf"[+-]?\d+(?:[{given.get('decimal', '.')}]\d+)?")
    with wording(frame):
        for name, column in frame.items():
            if pdt.infer_dtype(column, skipna=True) != "string":
                continue
            cells = column.astype(str).where(column.notna(), "")
            numbers = cells.str.fullmatch(_NUMBER).to_numpy(dtype=bool)
            if 2 * numbers.sum() <= (cells != "").sum():
                continue
            if (signed := numbers & ~cells.str.fullmatch(plain).to_numpy(dtype=bool)).any():
                raise DataError(
                    f"column {str(name)!r} holds {cells[signed].iloc[0]!r} in {rows_text(signed)}, which is "
                    "text: name the signs of its numbers, such as read={'decimal': ',', 'thousands': '.'}"
                )
            if not {"decimal", "thousands", "dtype"} & given.keys():
                _check_either(cells)


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

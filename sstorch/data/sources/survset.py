"""Data sets inside the SurvSet wheel."""

import functools
import warnings
from collections.abc import Iterable

import pandas as pd

from sstorch.data.sources.entry import Entry
from sstorch.data.sources.package import SURVSET
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wording import check_columns_exist

_LICENCE = "GPL-3.0; none stated for the data"
TARGET = ("pid", "event", "time")


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
    check_columns_exist(TARGET, list(frame.columns))
    return frame.rename(columns=lambda column: str(column).removeprefix("num_").removeprefix("fac_"))


def _load(name: str, *, complete: bool = False, drop: Iterable[str] = ()) -> SurvivalData:
    """Load a data set.

    Args:
        name: Its name in SurvSet.
        complete: Leave out rows with missing values.
        drop: Columns left out.
    """
    frame = read_survset(name)
    if complete:
        frame = frame.dropna()
    return SurvivalData.from_frame(frame, drop=["pid", *drop])


def _aids2() -> SurvivalData:
    return _load("Aids2")


def _dialysis() -> SurvivalData:
    return _load("Dialysis")


def _framingham() -> SurvivalData:
    return _load("Framingham", complete=True)


def _unempdur() -> SurvivalData:
    return _load("UnempDur")


def _unemployment(sex: bool = False) -> SurvivalData:
    """Load Unemployment; `sex` adds the sensitive attribute to the features."""
    return _load("Unemployment", drop=[] if sex else ["sex"])


_entry = functools.partial(Entry, licence=_LICENCE, packages=(SURVSET,))

ENTRIES = (
    _entry(
        name="aids2",
        loader=_aids2,
        n=2839,
        p=4,
        events=1761,
        time_unit="days",
        source="SurvSet: Aids2",
        notes="AIDS in Australia; death",
        pitfalls="29 times of zero, 28 of them events; 20 rows repeat others",
    ),
    _entry(
        name="dialysis",
        loader=_dialysis,
        n=6805,
        p=4,
        events=1603,
        time_unit="months",
        source="SurvSet: Dialysis",
        notes="dialysis in Rio de Janeiro; death",
        pitfalls="begin, the month of entry, fixes when follow-up ends: censoring depends on a feature; "
        "center has 67 levels, 3 of fewer than ten rows; 42 different event times",
    ),
    _entry(
        name="framingham",
        loader=_framingham,
        n=4658,
        p=7,
        events=1465,
        time_unit="days",
        source="SurvSet: Framingham, complete rows",
        notes="Framingham Heart Study; coronary heart disease",
        pitfalls="41 of 4699 rows lack scl or bmi and are left out",
    ),
    _entry(
        name="unempdur",
        loader=_unempdur,
        n=3241,
        p=6,
        events=1986,
        time_unit="two weeks",
        source="SurvSet: UnempDur",
        notes="unemployment in the United States; any new job",
        pitfalls="26 different event times; the 102 spells of unknown end are not in the source",
    ),
    _entry(
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

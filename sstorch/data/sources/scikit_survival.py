"""Data sets inside the scikit-survival wheel."""

import functools
from collections.abc import Iterable

from sstorch.data.sources.entry import Entry
from sstorch.data.sources.package import SKSURV
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wording import check_columns_exist

_LICENCE = "GPL-3.0-or-later; none stated for the data"


def _load(
    function: str, *, numbers: Iterable[str] = (), drop: Iterable[str] = (), **options: str
) -> SurvivalData:
    """Load a data set.

    Args:
        function: Name of its loader in scikit-survival.
        numbers: Columns that are numbers, kept there as categories whose labels are their digits.
        drop: Columns left out.
        **options: For that loader.
    """
    frame, target = getattr(SKSURV.load("datasets"), function)(**options)
    check_columns_exist([*numbers, *drop], list(frame.columns))
    for name in numbers:
        frame[name] = frame[name].astype(str).astype(float)
    event, time = target.dtype.names
    return SurvivalData(frame.drop(columns=list(drop)), (target[time], target[event]))


def _aids() -> SurvivalData:
    return _load("load_aids", endpoint="aids", numbers=["karnof"])


def _aids_death() -> SurvivalData:
    return _load("load_aids", endpoint="death", numbers=["karnof"])


def _flchain() -> SurvivalData:
    return _load("load_flchain", numbers=["flc.grp", "sample.yr"])


def _flchain_no_chapter() -> SurvivalData:
    return _load("load_flchain", numbers=["flc.grp", "sample.yr"], drop=["chapter"])


def _veterans() -> SurvivalData:
    return _load("load_veterans_lung_cancer")


def _whas500() -> SurvivalData:
    return _load("load_whas500")


_entry = functools.partial(Entry, licence=_LICENCE, packages=(SKSURV,), time_unit="days")

_RARE = "txgrp and ivdrug have levels of 1 to 4 rows; tx and txgrp are nearly the same"
_ZERO = "3 times of zero, all events; creatinine missing in 1350 rows"

ENTRIES = (
    _entry(
        name="aids",
        loader=_aids,
        n=1151,
        p=11,
        events=96,
        source="scikit-survival: load_aids",
        notes="HIV, AIDS Clinical Trials Group study 320; AIDS-defining event",
        pitfalls=_RARE,
    ),
    _entry(
        name="aids_death",
        loader=_aids_death,
        n=1151,
        p=11,
        events=26,
        source="scikit-survival: load_aids, endpoint death",
        notes="the patients and features of aids; death",
        pitfalls=f"about five events in a fifth of the rows; {_RARE}",
    ),
    _entry(
        name="flchain",
        loader=_flchain,
        n=7874,
        p=9,
        events=2169,
        source="scikit-survival: load_flchain",
        notes="serum free light chains, Olmsted County; death",
        pitfalls="chapter, the cause of death, is missing exactly where nobody died: a leak of the outcome; "
        f"{_ZERO}",
    ),
    _entry(
        name="flchain_no_chapter",
        loader=_flchain_no_chapter,
        n=7874,
        p=8,
        events=2169,
        source="scikit-survival: load_flchain, without chapter",
        notes="flchain without its leak; death",
        pitfalls=_ZERO,
    ),
    _entry(
        name="veterans",
        loader=_veterans,
        n=137,
        p=6,
        events=128,
        source="scikit-survival: load_veterans_lung_cancer",
        notes="lung cancer, Veterans' Administration trial; death",
        pitfalls="9 censored rows; the last time is an event",
    ),
    _entry(
        name="whas500",
        loader=_whas500,
        n=500,
        p=14,
        events=215,
        source="scikit-survival: load_whas500",
        notes="heart attack, Worcester Heart Attack Study; death",
        pitfalls="los, the days in hospital, is not known at admission; the last time is an event",
    ),
)

"""Data sets inside the PySurvival wheel.

The one wheel of PySurvival on the package index, made for macOS and Python 3.7, is downloaded for the CSV
files inside; PySurvival itself is neither installed nor needed.
"""

import functools
import io

import pandas as pd

from sstorch.data.sources.entry import Entry
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wheel import Wheel

PYSURVIVAL = Wheel(
    requirement="pysurvival==0.1.2",
    file="pysurvival-0.1.2-cp37-cp37m-macosx_10_13_x86_64.whl",
    sha256="a75621083781d32125e351b3c2159d328c838bff64a3c3ffd0192c3e5944b6b8",
    tags=(
        "--python-version=37",
        "--implementation=cp",
        "--abi=cp37m",
        "--platform=macosx_10_13_x86_64",
    ),
)


def _read(name: str, sep: str = ",") -> pd.DataFrame:
    content = PYSURVIVAL.read(f"pysurvival/datasets/{name}.csv")
    # No cell is missing; pandas would take the category None for a missing one.
    frame = pd.read_csv(io.BytesIO(content), sep=sep, keep_default_na=False)
    for column in frame.select_dtypes(exclude="number").columns:
        # Some categories carry blanks at the end: "real_estate ".
        frame[column] = frame[column].str.strip().astype("category")
    return frame


def _churn() -> SurvivalData:
    return SurvivalData.from_frame(_read("churn"), time="months_active", event="churned")


def _credit() -> SurvivalData:
    return SurvivalData.from_frame(_read("credit_risk"), time="duration", event="full_repaid")


def _employee() -> SurvivalData:
    frame = _read("employee_attrition").drop_duplicates()
    return SurvivalData.from_frame(frame, time="time_spend_company", event="left")


def _maintenance() -> SurvivalData:
    return SurvivalData.from_frame(_read("maintenance", sep=";"), time="lifetime", event="broken")


_entry = functools.partial(
    Entry, licence="Apache-2.0; none stated for the data", download="one download of 1.2 MB"
)

ENTRIES = (
    _entry(
        name="churn",
        loader=_churn,
        n=2000,
        p=12,
        events=932,
        time_unit="months",
        source="PySurvival: churn.csv",
        notes="customers of a software service; end of the subscription",
        pitfalls="42 times of zero, all censored; 11 different event times; the last time is an event",
    ),
    _entry(
        name="credit",
        loader=_credit,
        n=1000,
        p=19,
        events=700,
        time_unit="months",
        source="PySurvival: credit_risk.csv",
        notes="German credits; full repayment",
        pitfalls="31 different event times",
    ),
    _entry(
        name="employee",
        loader=_employee,
        n=11991,
        p=8,
        events=1991,
        time_unit="years",
        source="PySurvival: employee_attrition.csv, without repeated rows",
        notes="employees of a firm; leaving it",
        pitfalls="5 different event times; 3008 of 14999 rows repeat others and are left out",
    ),
    _entry(
        name="maintenance",
        loader=_maintenance,
        n=1000,
        p=5,
        events=397,
        time_unit="weeks",
        source="PySurvival: maintenance.csv",
        notes="machines; breakdown",
        pitfalls="16 different event times, none before week 60; the last time is an event",
    ),
)

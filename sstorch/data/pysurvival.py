"""Data sets of PySurvival, read from its wheel.

The one wheel of PySurvival on the package index, made for macOS and Python 3.7, is downloaded for the CSV
files inside; PySurvival itself is neither installed nor needed.
"""

import io

import pandas as pd

from sstorch.data.sources import entries
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wheels import Wheel

PYSURVIVAL = Wheel(
    requirement="pysurvival==0.1.2",
    file="pysurvival-0.1.2-cp37-cp37m-macosx_10_13_x86_64.whl",
    sha256="a75621083781d32125e351b3c2159d328c838bff64a3c3ffd0192c3e5944b6b8",
    tags=("--python-version=37", "--implementation=cp", "--abi=cp37m", "--platform=macosx_10_13_x86_64"),
)


def _load(name: str, time: str, event: str, sep: str = ",", distinct: bool = False) -> SurvivalData:
    """Load a data set, ``distinct`` without repeated rows."""
    content = PYSURVIVAL.read(f"pysurvival/datasets/{name}.csv")
    # No cell is missing; pandas would take the category None for a missing one.
    frame = pd.read_csv(io.BytesIO(content), sep=sep, keep_default_na=False)
    for column in frame.select_dtypes(exclude="number").columns:
        # Some categories carry blanks at the end: "real_estate ".
        frame[column] = frame[column].str.strip().astype("category")
    return SurvivalData.from_frame(frame.drop_duplicates() if distinct else frame, time=time, event=event)


PYSURVIVAL_SETS = entries(
    {
        "churn": lambda: _load("churn", "months_active", "churned"),
        "credit": lambda: _load("credit_risk", "duration", "full_repaid"),
        "employee": lambda: _load("employee_attrition", "time_spend_company", "left", distinct=True),
        "maintenance": lambda: _load("maintenance", "lifetime", "broken", sep=";"),
    },
    licence="Apache-2.0; none stated for the data",
    download="one download of 1.2 MB",
)

"""Data sets read from wheels of the package index.

The one wheel of PySurvival, made for macOS and Python 3.7, and that of survivors are downloaded for the files
inside; neither package is installed or needed.
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


def _pysurvival(name: str, time: str, event: str, sep: str = ",", distinct: bool = False) -> SurvivalData:
    """Load a data set, ``distinct`` without repeated rows."""
    content = PYSURVIVAL.read(f"pysurvival/datasets/{name}.csv")
    # No cell is missing; pandas would take the category None for a missing one.
    frame = pd.read_csv(io.BytesIO(content), sep=sep, keep_default_na=False)
    for column in frame.select_dtypes(exclude="number").columns:
        # Some categories carry blanks at the end: "real_estate ".
        frame[column] = frame[column].str.strip().astype("category")
    return SurvivalData.from_frame(frame.drop_duplicates() if distinct else frame, time=time, event=event)


SURVIVORS = Wheel(
    requirement="survivors==1.8.0",
    file="survivors-1.8.0-py3-none-any.whl",
    sha256="f283085cd5605fa22cd2ffe5d2fe42b07eb286c07e2edfe2dd86afa709e9fdc3",
)

# Not features of METABRIC: the identifier, what came after the diagnosis, and the sex, which is the same in
# all rows.
_NOT_OF_METABRIC = ["patient_id", "vital_status", "rfs_status", "rfs_months", "sex"]


def _metabric() -> SurvivalData:
    """Load the clinical features of METABRIC, of the patients whose time is known."""
    content = SURVIVORS.read("survivors/datasets/data/metabric.tsv")
    # Four lines describe the columns before the fifth names them.
    frame = pd.read_csv(io.BytesIO(content), sep="\t", skiprows=4).rename(columns=str.lower)
    frame = frame.dropna(subset=["os_months", "os_status"]).drop(columns=_NOT_OF_METABRIC)
    frame["os_status"] = frame["os_status"].map({"0:LIVING": 0, "1:DECEASED": 1})
    # The cohorts of the study are numbers in the file.
    frame["cohort"] = frame["cohort"].astype(int).astype("category")
    for column in frame.select_dtypes(exclude=["number", "category"]).columns:
        frame[column] = frame[column].astype("category")
    return SurvivalData.from_frame(frame, time="os_months", event="os_status")


WHEEL_SETS = (
    *entries(
        {
            "churn": lambda: _pysurvival("churn", "months_active", "churned"),
            "credit": lambda: _pysurvival("credit_risk", "duration", "full_repaid"),
            "employee": lambda: _pysurvival(
                "employee_attrition", "time_spend_company", "left", distinct=True
            ),
            "maintenance": lambda: _pysurvival("maintenance", "lifetime", "broken", sep=";"),
        },
        licence="Apache-2.0; none stated for the data",
        download="one download of 1.2 MB",
    ),
    *entries(
        {"metabric": _metabric},
        licence="BSD-3-Clause; none stated for the data",
        download="one download of 11.1 MB",
    ),
)

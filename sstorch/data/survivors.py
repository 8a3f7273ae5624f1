"""A data set of survivors, read from its wheel: survivors itself is neither installed nor needed."""

import io

import pandas as pd

from sstorch.data.sources import entries
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wheels import Wheel

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


SURVIVORS_SETS = entries(
    {"metabric": _metabric},
    licence="BSD-3-Clause; none stated for the data",
    download="one download of 11.1 MB",
)

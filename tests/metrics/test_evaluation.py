import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from sstorch import Surv, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import evaluate
from sstorch.metrics.registry import METRICS, names_of
from sstorch.metrics.scored import Scored


class Exponential:
    """S = exp(-rate t) with the rate in the first column; counts how often it is asked."""

    asked = 0

    def predict_survival_function(self, X, times):
        self.asked += 1
        return np.exp(-np.outer(np.asarray(X)[:, 0], times))

    def log_likelihood(self, X, y):
        rate = np.asarray(X)[:, 0]
        return float(np.mean(y.event * np.log(rate) - rate * y.time))


class CurvesOnly:
    log_likelihood = -3.0  # no method

    def predict_survival_function(self, X, times):
        return Exponential().predict_survival_function(X, times)


def rows(n, seed, scale=20.0):
    rng = np.random.default_rng(seed)
    rate = rng.gamma(3.0, 1 / 3.0, n) / scale
    life, censoring = rng.exponential(1 / rate), rng.uniform(0.5 * scale, 3 * scale, n)
    return rate[:, None], (np.minimum(life, censoring), life <= censoring)


TRAIN, TEST = rows(300, 0), rows(120, 1)


def test_every_metric_of_an_estimator_that_is_asked_once():
    model = Exponential()
    table = evaluate(model, TRAIN, TEST)
    assert model.asked == 1
    assert table.index.tolist() == names_of("event")
    assert np.isfinite(table["value"].to_numpy()).all()
    time, event = TEST[1]
    graf = metrics.evaluation_times(time, TRAIN[1][0])
    curves = model.predict_survival_function(TEST[0], graf)
    assert table.loc["c_harrell", "value"] == metrics.concordance_harrell((time, event), curves, graf)
    assert table.loc["ibs_graf", "value"] == pytest.approx(
        metrics.integrated_brier_score((time, event), curves, graf, train=TRAIN[1]), rel=1e-12
    )
    for convention in ("sksurv", "surtree", "osst"):
        grid = metrics.evaluation_times(time, TRAIN[1][0], convention)
        own = model.predict_survival_function(TEST[0], grid)
        expected = metrics.integrated_brier_score(
            (time, event), own, grid, train=TRAIN[1], convention=convention
        )
        assert table.loc[f"ibs_{convention}", "value"] == pytest.approx(expected, rel=1e-12)
    assert table.loc["negative_log_likelihood", "value"] == -model.log_likelihood(TEST[0], Surv(*TEST[1]))
    assert table["higher_is_better"].tolist().count(None) == 1
    assert (table["reason"] == "").all()
    assert "negative_log_likelihood" not in evaluate(CurvesOnly(), TRAIN, TEST).index


def test_tau_cuts_the_concordance():
    tau = float(np.median(TEST[1][0]))
    got = evaluate(Exponential(), TRAIN, TEST, metrics=["c_harrell"], tau=tau).loc["c_harrell", "value"]
    assert got == metrics.concordance_harrell(TEST[1], TEST[0][:, 0], tau=tau)


def test_rows_beyond_the_training_rows_are_scored():
    train = (TRAIN[0], (np.minimum(TRAIN[1][0], 15.0), TRAIN[1][1] & (TRAIN[1][0] <= 15.0)))
    table = evaluate(Exponential(), train, TEST)
    assert np.isfinite(table["value"].to_numpy()).all()


def test_refusals():
    with pytest.raises(ConfigError, match="got 'c_index'"):
        evaluate(Exponential(), TRAIN, TEST, metrics=["c_index"])
    with pytest.raises(ConfigError, match="one or more different names"):
        evaluate(Exponential(), TRAIN, TEST, metrics=[])
    with pytest.raises(
        DataError, match=r"model must be an estimator with predict_survival_function.*ndarray"
    ):
        evaluate(np.zeros(3), TRAIN, TEST)
    with pytest.raises(DataError, match=r"train must be SurvivalData, or \(X, y\) with y a Surv, got"):
        evaluate(Exponential(), [1, 2, 3], TEST)
    with pytest.raises(DataError, match="test: y is a plain array"):
        evaluate(Exponential(), TRAIN, (TEST[0], TEST[1][0]))
    with pytest.raises(DataError, match="negative_log_likelihood must be an estimator with log_likelihood"):
        evaluate(CurvesOnly(), TRAIN, TEST, metrics=["negative_log_likelihood"])
    with pytest.raises(DataError, match=r"^c_harrell: no comparable pair among 2 rows"):
        evaluate(Exponential(), TRAIN, (TEST[0][:2], ([3.0, 4.0], [0, 0])), metrics=["c_harrell"])
    with pytest.raises(DataError, match=r"^cd_auc: times: no time has both cases and controls"):
        evaluate(Exponential(), TRAIN, (TEST[0][:2], ([3.0, 4.0], [0, 1])), metrics=["cd_auc"])
    with pytest.raises(DataError, match="survival must be curves that do not increase"):
        evaluate((np.array([[0.1, 0.9]] * 120), [1.0, 2.0]), TRAIN, TEST)
    with pytest.raises(ConfigError, match="tau must be one finite time"):
        evaluate(Exponential(), TRAIN, TEST, tau=-1.0)


def test_one_curve_for_all_rows_is_scored():
    """Kaplan-Meier of the training rows: a regression on equal predictions has its mean."""
    grid = metrics.evaluation_times(TEST[1][0], TRAIN[1][0])
    km = np.tile(metrics.KaplanMeier.fit(TRAIN[1]).at(grid), (120, 1))
    table = evaluate((km, grid), TRAIN, TEST)
    assert table.index.tolist() == [name for name in names_of("event") if METRICS[name].value]
    assert table["value"].notna().all()
    assert table.loc["c_harrell", "value"] == 0.5
    assert table.loc["ici_pseudo", "value"] < 0.2


def test_the_horizon_is_the_median_event_time_and_tau_belongs_to_the_window():
    time, event = TEST[1]
    grid = np.unique(time)
    curves = Exponential().predict_survival_function(TEST[0], grid)
    t = float(np.median(time[event]))
    assert t != np.median(time)
    at = curves[:, np.searchsorted(grid, t, side="right") - 1]
    table = evaluate((curves, grid), TRAIN, TEST, metrics=["ici_pseudo"])
    index = metrics.calibration_errors(metrics.HorizonRows.of((time, event), at, t)).ici
    assert table.loc["ici_pseudo", "value"] == pytest.approx(index, rel=1e-12)

    tau = float(np.sort(time[event])[40])
    inside = (grid >= time[event].min()) & (grid <= tau)
    auc = metrics.cumulative_dynamic_auc((time, event), curves[:, inside], grid[inside], train=TRAIN[1])
    expected = metrics.mean_cumulative_dynamic_auc((time, event), auc, grid[inside])
    assert evaluate((curves, grid), TRAIN, TEST, metrics=["cd_auc"], tau=tau).loc[
        "cd_auc", "value"
    ] == pytest.approx(expected, abs=1e-14)


class StepFunction:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __call__(self, t):
        if np.min(t) < self.x[0] or np.max(t) > self.x[-1]:
            raise ValueError("outside the domain")
        return self.y[np.searchsorted(self.x, t, side="right") - 1]


class StepModel:
    """As scikit-survival: step functions on the training times."""

    def predict_survival_function(self, X, return_array=False):
        x = np.linspace(2.0, 40.0, 50)
        return [StepFunction(x, np.exp(-rate * x)) for rate in np.asarray(X)[:, 0]]


class NoTimes:
    def predict_survival_function(self, X):
        return None


def test_step_functions_are_read_and_other_forms_are_refused():
    rows = Scored.of(StepModel(), TRAIN, TEST)
    survival = rows.curves()
    assert (survival[:, rows.times < 2.0] == 1.0).all()
    np.testing.assert_array_equal(survival[:, rows.times > 40.0][:, 0], np.exp(-40.0 * TEST[0][:, 0]))
    k = int(np.searchsorted(rows.times, 20.0))
    x = np.linspace(2.0, 40.0, 50)
    before = x[x <= rows.times[k]][-1]
    np.testing.assert_array_equal(survival[:, k], np.exp(-before * TEST[0][:, 0]))
    for wrong in (NoTimes(), NoTimes):
        with pytest.raises(DataError, match="model must"):
            evaluate(wrong, TRAIN, TEST)
    with pytest.raises(DataError, match=r"NoTimes.*\(X, times\).*scikit-survival.*takes \(X\)"):
        evaluate(NoTimes(), TRAIN, TEST)
    with pytest.raises(DataError, match="got the class StepModel itself"):
        evaluate(StepModel, TRAIN, TEST)


def test_labels_in_another_order_are_refused():
    X, (time, event) = TEST
    frame = pd.DataFrame(X, columns=["rate"])
    target = pd.DataFrame({"time": time, "event": event})
    with pytest.raises(DataError, match="X and y: the same row labels in a different order"):
        evaluate(CurvesOnly(), TRAIN, (frame, target.iloc[::-1]))
    grid = np.unique(time)
    curves = pd.DataFrame(Exponential().predict_survival_function(X, grid), columns=grid)
    names = ["c_harrell"]
    got = evaluate((curves, grid), TRAIN, (frame, (target["time"], target["event"])), metrics=names)
    assert got.equals(evaluate((curves.to_numpy(), grid), TRAIN, TEST, metrics=names))
    with pytest.raises(DataError, match="survival: the same row labels in a different order"):
        evaluate((curves[::-1], grid), TRAIN, (frame, (target["time"], target["event"])), metrics=names)


def test_a_model_of_lifelines_is_scored_as_its_curves() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=120)
    frame = pd.DataFrame({"x": x, "time": rng.exponential(np.exp(-x)), "event": rng.random(120) < 0.8})
    model = CoxPHFitter().fit(frame, "time", "event")
    rows = (frame[["x"]], (frame["time"], frame["event"]))
    names = ["c_harrell", "c_uno"]
    times = np.unique(frame["time"])
    curves = model.predict_survival_function(frame[["x"]], times=times).to_numpy().T
    expected = evaluate((curves, times), rows, rows, metrics=names)
    pd.testing.assert_frame_equal(evaluate(model, rows, rows, metrics=names), expected)

"""Regressions, trees and forests, compared with lifelines and scikit-survival, and their parts by hand."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter, LogLogisticAFTFitter, WeibullAFTFitter
from lifelines.exceptions import ConvergenceError
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from sksurv.tree import SurvivalTree
from sksurv.util import Surv as Structured

from sstorch import Surv, SurvivalData
from sstorch.bench import make_baseline
from sstorch.bench.baselines import models as cox
from sstorch.bench.baselines.base import BreslowBaseline, checked_curves, steps, straight_lines
from sstorch.bench.baselines.models import Cox, grouped_times, partial_log_likelihood
from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import DataWarning, TrainingError


def encoded(data: SurvivalData) -> pd.DataFrame:
    preprocessor = Preprocessor(Schema.of(data.frame)).fit(data.frame)
    frame = pd.DataFrame(preprocessor.transform(data.frame), columns=preprocessor.feature_names_out)
    return frame.assign(time=data.time, event=data.event)


def test_kaplan_meier_with_entry_and_weights_equals_lifelines(small_data: SurvivalData) -> None:
    entry, weight = 0.4 * small_data.time, np.arange(len(small_data)) % 3 + 1.0
    y = Surv(small_data.time, small_data.event, entry=entry, weight=weight)
    rows = SurvivalData(small_data.frame, y)
    fitted = make_baseline("kaplan_meier").fit(rows.frame, rows.weighted_y)
    times = np.r_[np.unique(rows.time), 1e5]
    peer = KaplanMeierFitter().fit(rows.time, rows.event, entry=entry, weights=weight.astype(int))
    expected = peer.survival_function_at_times(times)
    np.testing.assert_allclose(fitted.falling_curves(rows.frame[:1], times)[0], expected, rtol=1e-9)


def test_cox_equals_lifelines_with_the_same_ridge(gbsg2: SurvivalData) -> None:
    penalty, times = 4.0, [365.0, 1000.0, 2000.0]
    fitted = Cox(penalties=(penalty,)).fit(gbsg2.frame, gbsg2.y)
    table = encoded(gbsg2)
    # lifelines scales features to unit variance, and its likelihood and penalty are a mean over rows.
    scale = table.drop(columns=["time", "event"]).std().to_numpy()
    peer = CoxPHFitter(penalizer=penalty / len(gbsg2) / scale**2).fit(table, "time", "event")
    curves = fitted.falling_curves(gbsg2.frame, times)
    # Their baseline hazards differ where events are tied, but not their ratios.
    np.testing.assert_allclose(curves, peer.predict_survival_function(table, times=times).T, atol=2e-3)
    log_risk = np.log(-np.log(curves[:, 2]))
    expected = np.log(peer.predict_partial_hazard(table))
    np.testing.assert_allclose(log_risk - log_risk.mean(), expected - expected.mean(), atol=1e-4)


def test_cox_chooses_by_held_out_rows() -> None:
    """Noise needs a large penalty, a strong effect a small one."""
    rng = np.random.default_rng(5)
    x, chosen = rng.uniform(size=(200, 6)), []
    for effect in (0.0, 6.0):
        time = rng.exponential(size=200) * np.exp(-effect * x[:, 0])
        data = SurvivalData(x, (time, rng.uniform(size=200) < 0.7))
        chosen.append(Cox(penalties=(0.01, 1.0, 1000.0))._chosen(x, data).alpha)
    assert chosen[0] == 1000.0
    assert chosen[1] < 1000.0


def test_cox_passes_over_penalties_that_do_not_converge(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cox.fit_cox

    def stubborn(x, time, event, penalty):
        fails = penalty < 1.0 or (penalty < 5.0 and len(x) == len(small_data))
        return None if fails else real(x, time, event, penalty)

    monkeypatch.setattr(cox, "fit_cox", stubborn)
    x = small_data.frame.to_numpy()
    assert Cox(penalties=(0.1, 2.0, 50.0))._chosen(x, small_data).alpha == 50.0
    with pytest.raises(TrainingError, match="none of the ridge penalties"):
        Cox(penalties=(0.1, 2.0))._chosen(x, small_data)


def test_cox_with_entry_and_weights_by_its_definition(small_data: SurvivalData) -> None:
    n, x = len(small_data), small_data.frame.to_numpy()
    time = small_data.time + 1e-3 * np.arange(n)  # without ties
    entry, weight = np.where(np.arange(n) % 2, 0.5 * time, 0.0), np.arange(n) % 3 + 1.0
    rows = SurvivalData(small_data.frame, Surv(time, small_data.event, entry=entry, weight=weight))
    fitted = make_baseline("cox_lifelines").fit(rows.frame, rows.weighted_y)
    hazard_at_60 = -np.log(fitted.falling_curves(rows.frame, [60.0])[:, 0])
    beta = np.linalg.lstsq(np.column_stack([np.ones(n), x]), np.log(hazard_at_60), rcond=None)[0][1:]
    # Gradient of the log partial likelihood: that of the ridge on standardised features.
    risk, gradient, hazard = np.exp(x @ beta), np.zeros(x.shape[1]), 0.0
    for row in np.flatnonzero(small_data.event):
        at_risk = (entry < time[row]) & (time >= time[row])
        total = (weight * risk)[at_risk].sum()
        gradient += weight[row] * (x[row] - (weight * risk)[at_risk] @ x[at_risk] / total)
        hazard += weight[row] / total * (time[row] <= 60.0)
    np.testing.assert_allclose(gradient, 10 * beta * x.var(axis=0, ddof=1), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(hazard_at_60, hazard * risk, rtol=1e-6)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("name", "fitter"), [("weibull_aft", WeibullAFTFitter), ("log_logistic_aft", LogLogisticAFTFitter)]
)
def test_aft_equals_lifelines(gbsg2: SurvivalData, name: str, fitter: type, late: bool) -> None:
    data = gbsg2.subset(np.arange(0, 686, 2))
    entry = 0.3 * data.time * (data.frame["age"] > 50) * late
    rows = SurvivalData(data.frame, Surv(data.time, data.event, entry=entry.to_numpy()))
    fitted = make_baseline(name, penalizer=0.02).fit(rows.frame, rows.weighted_y)
    table = encoded(data).assign(entry=entry.to_numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = fitter(penalizer=0.02).fit(table, "time", "event", entry_col="entry")
    times = np.array([0.0, 100.0, 1000.0, 2500.0])
    curves = peer.predict_survival_function(table, times=times).T
    np.testing.assert_allclose(fitted.falling_curves(data.frame, times), curves, atol=5e-4)
    mean = peer.score(table, scoring_method="log_likelihood")
    assert fitted.log_likelihood(data.frame, rows.y) == pytest.approx(mean, abs=2e-4)


def test_aft_uses_larger_penalties_with_a_warning(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WeibullAFTFitter.fit

    def stubborn(self, *args, **kwargs):
        if self.penalizer < limit:
            raise ConvergenceError("no")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(WeibullAFTFitter, "fit", stubborn)
    limit = 0.05
    with pytest.warns(DataWarning, match=r"converges only with penalizer=0.1, not with 0.01"):
        fitted = make_baseline("weibull_aft").fit(small_data.frame, small_data.y)
    assert fitted._fitted.penalizer == pytest.approx(0.1)
    limit = 1e9
    with pytest.raises(TrainingError, match="does not converge, even with penalizer=10"):
        make_baseline("weibull_aft").fit(small_data.frame, small_data.y)


@pytest.mark.parametrize("name", ["sksurv", "rsf", "gradient_boosting"])
def test_trees_equal_scikit_survival(gbsg2: SurvivalData, name: str) -> None:
    settings, peer = {
        "sksurv": ({"depth": 3}, SurvivalTree(max_depth=3)),
        "rsf": ({"n_trees": 5}, RandomSurvivalForest(5, min_samples_leaf=15)),
        "gradient_boosting": ({"n_trees": 5}, GradientBoostingSurvivalAnalysis(n_estimators=5)),
    }[name]
    peer.set_params(random_state=2)
    train, test = gbsg2.subset(range(500)), gbsg2.subset(range(500, 686))
    times = np.linspace(0.0, 2000.0, 50)
    fitted = make_baseline(name, random_state=2, **settings).fit(train.frame, train.y)
    curves = fitted.falling_curves(test.frame, times)
    preprocessor = Preprocessor(Schema.of(gbsg2.frame)).fit(train.frame)
    peer.fit(preprocessor.transform(train.frame), Structured.from_arrays(train.event, train.time))
    functions = peer.predict_survival_function(preprocessor.transform(test.frame))
    expected = np.array([f(np.clip(times, *f.domain)) for f in functions])
    expected[:, times < functions[0].x[0]] = 1.0
    np.testing.assert_allclose(curves, expected, atol=1e-10)


# ------------------------------------------------------------------ parts, by hand

KNOTS, VALUES = np.array([2.0, 5.0]), np.array([[0.8, 0.4], [1.0, 0.0]])


def test_breslow_hazard_is_events_over_risks() -> None:
    time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    risk = np.array([1.0, 2.0, 4.0, 8.0])
    baseline = BreslowBaseline.of(np.log(risk), (time, event))
    hazard = np.cumsum([1 / 15, 1 / 14, 1 / 8])
    np.testing.assert_array_equal(baseline.jumps, [1, 2, 3])
    np.testing.assert_allclose(baseline.survival(np.log([1.0, 3.0])), np.exp(-np.outer([1, 3], hazard)))


def test_breslow_of_risks_of_very_different_size_has_no_rounding_noise() -> None:
    """Subtracted from the sum of all, the large risks would leave nothing of the small ones."""
    time, log_risk = np.arange(1.0, 7.0), np.array([60.0, 40.0, 0.0, -10.0, -20.0, -40.0])
    baseline = BreslowBaseline.of(log_risk, (time, np.ones(6, dtype=bool)))
    assert (np.diff(baseline.survival(log_risk), axis=1) <= 0).all()
    # Each row is nearly alone at risk at its own time, when its hazard grows by one.
    step = np.diff(baseline.hazard, prepend=0.0) * np.exp(log_risk - baseline.largest)
    np.testing.assert_allclose(step, 1.0, atol=1e-3)


def test_infinite_risks_are_not_nan() -> None:
    baseline = BreslowBaseline(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 0.0)
    curves = baseline.survival(np.array([1e6, -1e6, np.log(2.0)]))
    np.testing.assert_allclose(curves, [[1, 0], [1, 1], [1, np.exp(-2.0)]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (steps, [[1, 1, 0.8, 0.8, 0.4, 0.4], [1, 1, 1, 1, 0, 0]]),
        (straight_lines, [[1, 0.9, 0.8, 0.6, 0.4, 0.4], [1, 1, 1, 0.5, 0, 0]]),
    ],
)
def test_curves_between_knots(kind: Any, expected: list[list[float]]) -> None:
    predict = kind(KNOTS, lambda _: VALUES)
    np.testing.assert_allclose(predict(None, np.array([0.0, 1.0, 2.0, 3.5, 5.0, 99.0])), expected)


def test_rounding_is_removed_and_more_raises() -> None:
    np.testing.assert_array_equal(checked_curves([[1.0 + 1e-7, 0.5, 0.5 + 1e-7]]), [[1.0, 0.5, 0.5]])
    for bad in ([[0.5, 0.6]], [[1.1, 0.5]], [[0.5, -0.1]], [[1.0, np.nan]]):
        with pytest.raises(TrainingError):
            checked_curves(bad)


def test_grouped_times_keep_the_order_and_the_risk_sets() -> None:
    time = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 9.0])
    event = np.array([0, 0, 1, 0, 0, 1, 0], dtype=bool)
    grouped = grouped_times(time, event)
    np.testing.assert_array_equal(grouped, [1, 1, 3, 3, 3, 5, 5])
    for t in time[event]:
        np.testing.assert_array_equal(grouped >= t, time >= t)


def test_partial_likelihood_equals_lifelines_with_ties(small_data: SurvivalData) -> None:
    table = small_data.frame.assign(time=np.ceil(small_data.time / 10), event=small_data.event)
    assert table.loc[table["event"], "time"].duplicated().sum() > 20
    peer = CoxPHFitter().fit(table, "time", "event")
    linear = small_data.frame.to_numpy() @ peer.params_.to_numpy()
    own = partial_log_likelihood(linear + 800.0, table["time"].to_numpy(), small_data.event)
    assert own == pytest.approx(peer.log_likelihood_, rel=1e-8)

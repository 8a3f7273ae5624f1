"""Kaplan-Meier, Cox and accelerated failure time models beside lifelines."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import (
    CoxPHFitter,
    CoxTimeVaryingFitter,
    KaplanMeierFitter,
    LogLogisticAFTFitter,
    WeibullAFTFitter,
)
from lifelines.exceptions import ConvergenceError

from sstorch import Surv, SurvivalData
from sstorch.bench import make_baseline
from sstorch.bench.baselines import regressions as cox
from sstorch.bench.baselines.regressions import Cox, partial_log_likelihood
from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import ConfigError, DataError, DataWarning, TrainingError
from tests.histories import halved


def encoded(data: SurvivalData) -> pd.DataFrame:
    preprocessor = Preprocessor(Schema.of(data.frame)).fit(data.frame)
    frame = pd.DataFrame(preprocessor.transform(data.frame), columns=preprocessor.feature_names_out)
    return frame.assign(time=data.time, event=data.event)


def test_kaplan_meier_equals_lifelines(gbsg2: SurvivalData) -> None:
    fitted = make_baseline("kaplan_meier").fit(gbsg2, Schema.of(gbsg2.frame))
    times = np.r_[0.0, np.unique(gbsg2.time), 1e5]
    peer = KaplanMeierFitter().fit(gbsg2.time, gbsg2.event).survival_function_at_times(times)
    curves = fitted.falling_curves(gbsg2.frame[:3], times)
    np.testing.assert_allclose(curves, np.tile(peer, (3, 1)), rtol=1e-12)


def test_cox_equals_lifelines_with_the_same_ridge(gbsg2: SurvivalData) -> None:
    pytest.importorskip("sksurv")
    penalty = 4.0
    fitted = Cox(penalties=(penalty,)).fit(gbsg2, Schema.of(gbsg2.frame))
    table = encoded(gbsg2)
    # lifelines scales features to unit variance, and its likelihood and penalty are a mean over rows.
    scale = table.drop(columns=["time", "event"]).std().to_numpy()
    peer = CoxPHFitter(penalizer=penalty / len(gbsg2) / scale**2).fit(table, "time", "event")
    np.testing.assert_allclose(fitted.coefficients, peer.params_, rtol=1e-4, atol=1e-5)
    # Their baseline hazards differ where events are tied.
    curves = peer.predict_survival_function(table, times=[365.0, 1000.0, 2000.0]).T
    np.testing.assert_allclose(fitted.falling_curves(gbsg2.frame, [365.0, 1000.0, 2000.0]), curves, atol=2e-3)


def test_partial_likelihood_equals_lifelines_with_ties(small_data: SurvivalData) -> None:
    table = small_data.frame.assign(time=np.ceil(small_data.time / 10), event=small_data.event)
    assert table.loc[table["event"], "time"].duplicated().sum() > 20
    peer = CoxPHFitter().fit(table, "time", "event")
    linear = small_data.frame.to_numpy() @ peer.params_.to_numpy()
    own = partial_log_likelihood(linear + 800.0, table["time"].to_numpy(), small_data.event)
    assert own == pytest.approx(peer.log_likelihood_, rel=1e-8)


def test_cox_chooses_by_the_rows_left_out() -> None:
    """Noise asks for a large penalty, a strong effect for a small one."""
    pytest.importorskip("sksurv")
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(200, 6))
    chosen = []
    for effect in (0.0, 6.0):
        time = rng.exponential(size=200) * np.exp(-effect * x[:, 0])
        data = SurvivalData(x, (time, rng.uniform(size=200) < 0.7))
        chosen.append(Cox(penalties=(0.01, 1.0, 1000.0)).fit(data, Schema.of(data.frame)).penalty)
    assert chosen[0] == 1000.0
    assert chosen[1] < 1000.0


def test_cox_passes_over_penalties_that_do_not_converge(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sksurv")
    real = cox.fit_cox

    def stubborn(x, time, event, penalty):
        fails = penalty < 1.0 or (penalty < 5.0 and len(x) == len(small_data))
        return None if fails else real(x, time, event, penalty)

    monkeypatch.setattr(cox, "fit_cox", stubborn)
    schema = Schema.of(small_data.frame)
    assert Cox(penalties=(0.1, 2.0, 50.0)).fit(small_data, schema).penalty == 50.0
    with pytest.raises(TrainingError, match="none of the ridge penalties"):
        Cox(penalties=(0.1, 2.0)).fit(small_data, schema)


@pytest.mark.parametrize(
    ("name", "fitter"), [("weibull_aft", WeibullAFTFitter), ("log_logistic_aft", LogLogisticAFTFitter)]
)
def test_aft_equals_lifelines(gbsg2: SurvivalData, name: str, fitter: type) -> None:
    fitted = make_baseline(name, penalizer=0.02).fit(gbsg2, Schema.of(gbsg2.frame))
    table = encoded(gbsg2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = fitter(penalizer=0.02).fit(table, "time", "event")
    times = [100.0, 1000.0, 2500.0]
    curves = peer.predict_survival_function(table, times=times).T
    np.testing.assert_allclose(fitted.falling_curves(gbsg2.frame, times), curves, atol=2e-4)
    assert fitted.log_likelihood(gbsg2.frame, (gbsg2.time, gbsg2.event)) == pytest.approx(
        peer.score(table, scoring_method="log_likelihood"), abs=2e-4
    )
    assert fitted.penalizer == 0.02


def test_aft_of_late_entries_equals_lifelines(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(np.arange(0, 686, 3))
    entry, schema, table = 0.3 * data.time * (data.frame["age"] > 50), Schema.of(data.frame), encoded(data)
    late = SurvivalData(data.frame, Surv(data.time, data.event, entry=entry))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = WeibullAFTFitter(penalizer=0.02).fit(
            table.assign(entry=entry.to_numpy()), "time", "event", entry_col="entry"
        )
    times = np.array([100.0, 1000.0, 2500.0])
    fitted = make_baseline("weibull_aft", penalizer=0.02).fit(late, schema)
    curves = peer.predict_survival_function(table, times=times).T
    np.testing.assert_allclose(fitted.falling_curves(data.frame, times), curves, atol=5e-4)
    mean = fitted.log_likelihood(data.frame, late.y)
    with_entry = table.assign(entry=entry.to_numpy())
    assert mean == pytest.approx(peer.score(with_entry, scoring_method="log_likelihood"), abs=2e-4)


def test_cox_of_rows_that_begin_and_end_equals_lifelines(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(np.arange(0, 686, 3))
    frame = pd.concat([data.frame, data.frame.assign(pnodes=data.frame["pnodes"] + 3.0)], ignore_index=True)
    rows = SurvivalData(frame, halved(data.y))
    fitted = make_baseline("cox_time_varying").fit(rows, Schema.of(rows.frame))
    table = encoded(rows).assign(id=rows.subject, start=rows.entry, stop=rows.time).drop(columns="time")
    columns = {"id_col": "id", "event_col": "event", "start_col": "start", "stop_col": "stop"}
    peer = CoxTimeVaryingFitter(penalizer=0.01).fit(table, **columns)
    hazard = peer.baseline_cumulative_hazard_["baseline hazard"]
    expected = np.exp(-np.outer(peer.predict_partial_hazard(table), hazard))
    np.testing.assert_allclose(fitted.falling_curves(frame, hazard.index), expected, atol=1e-6)


def test_kaplan_meier_with_entry_and_weights_equals_lifelines(small_data: SurvivalData) -> None:
    entry, weight = 0.4 * small_data.time, np.arange(len(small_data)) % 3 + 1.0
    y = Surv(small_data.time, small_data.event, entry=entry, weight=weight)
    rows = SurvivalData(small_data.frame, y)
    fitted = make_baseline("kaplan_meier").fit(rows, Schema.of(rows.frame))
    times = np.unique(rows.time)
    peer = KaplanMeierFitter().fit(rows.time, rows.event, entry=entry, weights=weight.astype(int))
    expected = peer.survival_function_at_times(times)
    np.testing.assert_allclose(fitted.falling_curves(rows.frame[:1], times)[0], expected, rtol=1e-9)


def test_others_refuse_late_entries_and_intervals(small_data: SurvivalData) -> None:
    schema = Schema.of(small_data.frame)
    y = Surv(small_data.time, small_data.event, entry=0.5 * small_data.time)
    late = SurvivalData(small_data.frame, y)
    with pytest.raises(DataError, match=r"takes every row as observed from time zero.*cox_time_varying"):
        make_baseline("cox").fit(late, schema)
    seen = SurvivalData(small_data.frame, Surv.interval(0.5 * small_data.time, small_data.time))
    with pytest.raises(DataError, match="interval-censored"):
        make_baseline("cox_time_varying").fit(seen, schema)


def test_aft_tries_larger_penalties_aloud(small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch) -> None:
    real = WeibullAFTFitter.fit

    def stubborn(self, *args, **kwargs):
        if self.penalizer < limit:
            raise ConvergenceError("no")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(WeibullAFTFitter, "fit", stubborn)
    schema = Schema.of(small_data.frame)
    limit = 0.05
    with pytest.warns(DataWarning, match=r"converges only with penalizer=0.1, not with 0.01"):
        fitted = make_baseline("weibull_aft").fit(small_data, schema)
    assert fitted.penalizer == pytest.approx(0.1)
    limit = 1e9
    with pytest.raises(TrainingError, match="does not converge, even with penalizer=10"):
        make_baseline("weibull_aft").fit(small_data, schema)


def test_penalties_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="penalizer"):
        make_baseline("weibull_aft", penalizer=0.0)
    with pytest.raises(ConfigError, match="penalties"):
        make_baseline("cox", penalties=[0.0])

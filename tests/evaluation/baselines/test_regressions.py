"""Kaplan-Meier, Cox and accelerated failure time models beside lifelines."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter, LogLogisticAFTFitter, WeibullAFTFitter
from lifelines.exceptions import ConvergenceError

from sstorch import SurvivalData
from sstorch.data import Preprocessor, Schema
from sstorch.evaluation import make_baseline
from sstorch.evaluation.baselines import regressions as cox
from sstorch.evaluation.baselines.regressions import Cox, partial_log_likelihood
from sstorch.exceptions import ConfigError, DataWarning, TrainingError


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

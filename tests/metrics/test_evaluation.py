import numpy as np
import pandas as pd
import pytest

from sstorch import metrics
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import compare, evaluate
from sstorch.metrics.evaluation import METRICS


class Exponential:
    """S = exp(-rate t) with the rate in the first column; counts how often it is asked."""

    asked = 0

    def predict_survival_function(self, X, times):
        self.asked += 1
        return np.exp(-np.outer(np.asarray(X)[:, 0], times))

    def log_likelihood(self, X, y):
        rate = np.asarray(X)[:, 0]
        return float(np.mean(y[1] * np.log(rate) - rate * y[0]))


class CurvesOnly:
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
    assert table.index.tolist() == [*METRICS, "negative_log_likelihood"]
    assert np.isfinite(table["value"].to_numpy()).all()
    time, event = TEST[1]
    graf = metrics.evaluation_times(time, TRAIN[1][0])
    curves = model.predict_survival_function(TEST[0], graf)
    assert table.loc["c_harrell", "value"] == metrics.concordance_harrell(time, event, curves, graf)
    assert table.loc["ibs_graf", "value"] == pytest.approx(
        metrics.integrated_brier_score(time, event, curves, graf, train=TRAIN[1]), rel=1e-12
    )
    for convention in ("sksurv", "surtree", "osst"):
        grid = metrics.evaluation_times(time, TRAIN[1][0], convention)
        own = model.predict_survival_function(TEST[0], grid)
        expected = metrics.integrated_brier_score(
            time, event, own, grid, train=TRAIN[1], convention=convention
        )
        assert table.loc[f"ibs_{convention}", "value"] == pytest.approx(expected, rel=1e-12)
    assert table.loc["negative_log_likelihood", "value"] == -model.log_likelihood(*TEST)
    assert table["higher_is_better"].tolist().count(None) == 2
    assert table.loc["c_uno", "n_floored"] == metrics.count_floored(time, train=TRAIN[1])
    assert "negative_log_likelihood" not in evaluate(CurvesOnly(), TRAIN, TEST).index


def test_curves_and_survival_data_give_the_same_table():
    grid = metrics.evaluation_times(TEST[1][0], TRAIN[1][0])
    curves = Exponential().predict_survival_function(TEST[0], grid)
    names = ["c_harrell", "c_uno", "ibs_graf", "ici", "mae_pseudo", "rmst_error", "d_calibration_p"]
    got = evaluate((curves, grid), (None, TRAIN[1]), (None, TEST[1]), metrics=names)
    train, test = SurvivalData(*TRAIN), SurvivalData(*TEST)
    expected = evaluate(Exponential(), train, test, metrics=names)
    np.testing.assert_allclose(got["value"], expected["value"], atol=2e-3, rtol=2e-2)
    pd.testing.assert_series_equal(
        got.loc[["c_harrell", "c_uno"], "value"], expected.loc[["c_harrell", "c_uno"], "value"]
    )


def test_tau_cuts_the_concordance():
    tau = float(np.median(TEST[1][0]))
    got = evaluate(Exponential(), TRAIN, TEST, metrics=["c_harrell"], tau=tau).loc["c_harrell", "value"]
    assert got == metrics.concordance_harrell_risk(*TEST[1], TEST[0][:, 0], tau=tau)


def test_rows_beyond_the_training_rows_are_reported_and_not_refused():
    train = (TRAIN[0], (np.minimum(TRAIN[1][0], 15.0), TRAIN[1][1] & (TRAIN[1][0] <= 15.0)))
    table = evaluate(Exponential(), train, TEST)
    assert table.loc["c_uno", "n_floored"] > 0
    assert table.loc["ibs_sksurv", "n_floored"] == 0
    assert np.isfinite(table["value"].to_numpy()).all()


def test_refusals():
    with pytest.raises(ConfigError, match="metrics: 'c_index' is unknown; the known ones are 'c_harrell', "):
        evaluate(Exponential(), TRAIN, TEST, metrics=["c_index"])
    with pytest.raises(ConfigError, match="one or more different names"):
        evaluate(Exponential(), TRAIN, TEST, metrics=[])
    with pytest.raises(
        DataError, match=r"model: expected an estimator with predict_survival_function.*ndarray"
    ):
        evaluate(np.zeros(3), TRAIN, TEST)
    with pytest.raises(
        DataError, match=r"train: expected SurvivalData or the pair \(X, \(time, event\)\); got"
    ):
        evaluate(Exponential(), [1, 2, 3], TEST)
    with pytest.raises(DataError, match="test: y is a plain array"):
        evaluate(Exponential(), TRAIN, (TEST[0], TEST[1][0]))
    with pytest.raises(DataError, match="negative_log_likelihood: expected an estimator with log_likelihood"):
        evaluate(CurvesOnly(), TRAIN, TEST, metrics=["negative_log_likelihood"])
    with pytest.raises(DataError, match=r"^c_harrell: no comparable pair among 2 rows"):
        evaluate(Exponential(), TRAIN, (TEST[0][:2], ([3.0, 4.0], [0, 0])), metrics=["c_harrell"])
    with pytest.raises(DataError, match=r"^cd_auc: times: no time has both cases and controls"):
        evaluate(Exponential(), TRAIN, (TEST[0][:2], ([3.0, 4.0], [0, 1])), metrics=["cd_auc"])
    with pytest.raises(DataError, match="survival: expected curves that do not rise"):
        evaluate((np.array([[0.1, 0.9]] * 120), [1.0, 2.0]), TRAIN, TEST)
    with pytest.raises(ConfigError, match="tau: expected one finite time"):
        evaluate(Exponential(), TRAIN, TEST, tau=-1.0)


def test_comparison_of_a_model_with_itself_and_with_noise():
    grid = metrics.evaluation_times(TEST[1][0], TRAIN[1][0])
    good = Exponential().predict_survival_function(TEST[0], grid)
    noise = Exponential().predict_survival_function(TEST[0][::-1], grid)
    names = ["c_harrell", "ibs_graf"]
    table = compare((good, grid), (noise, grid), TRAIN, TEST, metrics=names, n_resamples=200)
    assert (table["p_value"] < 0.05).all()
    assert table.loc["c_harrell", "lower"] > 0 > table.loc["ibs_graf", "upper"]
    for side, curves in (("first", good), ("second", noise)):
        np.testing.assert_array_equal(
            table[side], evaluate((curves, grid), TRAIN, TEST, metrics=names)["value"]
        )
    np.testing.assert_allclose(table["difference"], table["first"] - table["second"])
    again = compare((good, grid), (noise, grid), TRAIN, TEST, metrics=names, n_resamples=200)
    pd.testing.assert_frame_equal(table, again)
    same = compare((good, grid), (good, grid), TRAIN, TEST, metrics=names, n_resamples=30)
    assert (same["p_value"] == 1.0).all()
    assert (same["difference"] == 0.0).all()

"""Comparison of several models: scores, paired differences, resampling, and the text that names the best."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sksurv.linear_model import CoxPHSurvivalAnalysis

from sstorch import Columns, Surv, SurvivalData, SurvivalRegression
from sstorch.data.folds import folds_of
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.comparison import corrected_resampled_t_test
from sstorch.validation import compare, validate
from tests.conftest import nightly
from tests.histories import halved

T = 1.0


class Known:
    """Exponential times whose hazard is exp(slope x + noise z)."""

    def __init__(self, slope: float = 1.0, noise: float = 0.0) -> None:
        self.slope, self.noise = slope, noise

    def predict_survival_function(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        hazard = np.exp(self.slope * X["x"].to_numpy() + self.noise * X["z"].to_numpy())
        return np.exp(-hazard[:, None] * np.asarray(times))

    def predict_cumulative_incidence(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        half = 0.5 * (1.0 - self.predict_survival_function(X, times))
        return np.stack([half, half], axis=1)


def _rows(n: int = 150, seed: int = 3) -> tuple[pd.DataFrame, Surv]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["x", "z"])
    failed, left = rng.exponential(np.exp(-X["x"])), rng.exponential(2.0, n)
    return X, Surv(np.minimum(failed, left), failed <= left)


def _plain_scores(time: np.ndarray, event: np.ndarray, survival: np.ndarray, own: np.ndarray) -> np.ndarray:
    """AUC and Brier score at T by their definitions, row by row, G from these rows, of weight `own`."""

    def censoring(t: float, before: bool) -> float:
        value = 1.0
        for u in np.sort(time[~event]):  # times are distinct
            if u < t or (u == t and not before):
                value *= 1.0 - own[time == u].sum() / own[time >= u].sum()
        return value

    weight = np.zeros(len(time))
    for i in np.flatnonzero(time <= T):
        weight[i] = event[i] / censoring(time[i], before=True)
    weight[time > T] = 1.0 / censoring(T, before=False)
    weight *= own
    case, control = (time <= T) & event, time > T
    pairs = np.outer(weight[case], weight[control])
    right = survival[case][:, None] < survival[control]
    return np.array([(pairs * right).sum() / pairs.sum(), weight @ (control - survival) ** 2 / own.sum()])


def test_differences_and_errors_equal_numeric_derivatives_of_the_definition() -> None:
    X, y = _rows(60)
    models = {"true": Known(), "noisy": Known(0.7, 0.6)}
    found = compare(models, X, y, times=T).differences
    time, event, _ = y.right_censored("test")
    one, two = (model.predict_survival_function(X, [T])[:, 0] for model in models.values())

    def difference(own: np.ndarray) -> np.ndarray:
        return _plain_scores(time, event, one, own) - _plain_scores(time, event, two, own)

    n, step = len(time), 1e-5
    each = np.array([difference(1.0 + step * row) - difference(1.0 - step * row) for row in np.eye(n)])
    error, value = np.sqrt(((each / (2.0 * step)) ** 2).sum(axis=0)), difference(np.ones(n))
    for k, name in enumerate(("auc", "brier")):
        row = found.loc[(T, name, "true", "noisy")]
        assert row["difference"] == pytest.approx(value[k], abs=1e-12)
        assert row["upper"] - row["lower"] == pytest.approx(2 * 1.959963985 * error[k], rel=1e-6)
        assert row["p"] == pytest.approx(2 * norm.sf(abs(value[k]) / error[k]), rel=1e-5)


def test_several_times_and_models_give_scores_of_validate_and_all_pairs() -> None:
    X, y = _rows()
    models = {"true": Known(), "turned": Known(-1.0), "same": Known()}
    found = compare(models, X, y, times=[0.5, T], scores=["auc", "brier", "oe_ratio"], n_resamples=20)
    alone = validate(Known(-1.0), X, y, horizon=0.5, n_resamples=0).to_frame()
    for name in ("auc", "brier", "oe_ratio"):
        here = found.scores.loc[(0.5, name, "turned")]
        assert here["lower"] == pytest.approx(alone["lower"][name], abs=1e-12)
        assert here["method"] == alone["method"][name]
    assert found.differences.shape == (2 * 3 * 3, 6)
    same = found.differences.loc[(T, "auc", "true", "same")]
    assert same[["difference", "lower", "upper", "p"]].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert found.differences.loc[(T, "oe_ratio", "true", "turned"), "method"] == "bootstrap"
    assert set(found.best()) == {""}  # two models are equal, so that none is better than all others
    pair = compare(
        {"turned": Known(-1.0), "true": Known()}, X, y, times=T, scores=["auc", "brier", "oe_ratio"]
    )
    assert pair.best().tolist() == ["true", "true", ""]
    assert "AUC at the horizon at 1: true is best" in repr(pair)
    ax = found.plot("brier")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(models)
    with pytest.raises(ConfigError, match="score must be one of"):
        found.plot("ici")


def test_competing_causes_have_rows_of_each_cause() -> None:
    X, right = _rows()
    time, event, _ = right.right_censored("test")
    cause = np.where(event, 1 + np.arange(len(time)) % 2, 0)
    y = Surv(time, cause, causes=("relapse", "death"))
    models = {"true": Known(), "turned": Known(-1.0)}
    found = compare(models, X, y, times=T, scores=["auc", "c_wolbers"], n_resamples=20)
    assert found.differences.index.names[0] == "cause"
    assert found.differences.loc[("relapse", T, "auc", "true", "turned"), "lower"] > 0
    assert found.differences.loc[("death", T, "c_wolbers", "true", "turned"), "method"] == "bootstrap"
    assert found.best()["relapse", T, "auc"] == "true"
    one = compare(models, X, y, times=T, cause="death")
    assert list(one.scores.index.unique("cause")) == ["death"]
    assert found.plot("auc", cause="death").get_ylabel() == "AUC at the horizon"


@pytest.mark.parametrize("by", ["folds", nightly("bootstrap")])
def test_models_are_refitted_outside_the_rows_that_are_scored(by: Any) -> None:
    X, y = _rows(120)
    models = {
        "x": SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")),
        "cox": CoxPHSurvivalAnalysis(),
    }
    found = compare(models, X, y, times=T, by=by, n_folds=3, n_resamples=20)
    row = found.differences.loc[(T, "auc", "x", "cox")]
    assert row["method"] == "corrected resampled t"
    assert row["lower"] < row["difference"] < row["upper"]
    assert not hasattr(models["cox"], "coef_")
    again = compare(models, X, y, times=T, by=by, n_folds=3, n_resamples=20)
    pd.testing.assert_frame_equal(found.scores, again.scores)


class OneRate(BaseEstimator):
    """Events over person-time, from histories that are checked."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def fit(self, X: pd.DataFrame, y: Surv) -> "OneRate":
        data = SurvivalData(X, y)
        self.rate_ = self.factor * data.event.sum() / (data.time - data.entry).sum()
        return self

    def predict_survival_function(self, X: pd.DataFrame, times: Any) -> np.ndarray:
        return np.exp(-self.rate_ * np.exp(X["x"].to_numpy())[:, None] * np.asarray(times))


@pytest.mark.parametrize("by", ["folds", "bootstrap"])
def test_models_are_refitted_to_subjects(by: Any) -> None:
    """A subject that a resample draws twice is two subjects: its rows overlapped, which raised."""
    X, y = _rows(80)
    options = {"times": [T], "scores": ["c_harrell_t", "oe_hazard"], "by": by, "n_resamples": 20}
    models = {"one": OneRate(), "half": OneRate(0.5)}
    named = Surv(y.time, y.event, entry=y.entry, id=np.arange(80))
    found, expected = compare(models, X, named, **options), compare(models, X, y, **options)
    numbers = ["value", "lower", "upper"]
    np.testing.assert_allclose(found.scores[numbers], expected.scores[numbers], rtol=1e-9)
    with pytest.raises(DataError, match="hold for each row only"):
        compare(models, pd.concat([X, X], ignore_index=True), halved(y), **options)


def test_fold_differences_are_those_of_the_corrected_t_test() -> None:
    X, y = _rows(90)
    models = {"a": SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")), "b": _Constant()}
    found = compare(models, X, y, times=T, scores=["brier"], by="folds", n_folds=3)
    folds, scores = folds_of(y, 3, 0), []
    for k in range(3):
        out, test = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        fitted = SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear")).fit(
            X.iloc[out], y[out]
        )
        options = {"horizon": T, "n_resamples": 0}
        each = [validate(m, X.iloc[test], y[test], **options).to_frame() for m in (fitted, _Constant())]
        scores.append([table["value"]["brier"] for table in each])
    first, second = np.transpose(scores)
    expected = corrected_resampled_t_test(first, second, n_train=60, n_test=30)
    row = found.differences.loc[(T, "brier", "a", "b")]
    assert row["difference"] == pytest.approx(expected.difference, abs=1e-12)
    assert row["p"] == pytest.approx(expected.p_value, abs=1e-9)


class _Constant:
    """The same survival for all; fitting changes nothing."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def fit(self, X: Any, y: Any) -> "_Constant":
        return self

    def predict_survival_function(self, X: Any, times: Any) -> np.ndarray:
        return np.full((len(X), len(times)), 0.6)


def test_what_cannot_be_compared_raises() -> None:
    X, y = _rows()
    models = {"a": Known(), "b": Known(0.5)}
    with pytest.raises(ConfigError, match="two or more models"):
        compare({"a": Known()}, X, y, times=T)
    with pytest.raises(DataError, match=r"model 'new' is not fitted.*by=\"folds\""):
        compare({"a": Known(), "new": SurvivalRegression()}, X, y, times=T)
    with pytest.raises(ConfigError, match="refits need an estimator"):
        compare(models, X, y, times=T, by="folds")
    with pytest.raises(ConfigError, match="after must be None"):
        compare(models, X, y, times=T, by="folds", after=0.1)
    with pytest.raises(ConfigError, match="c_wolbers"):
        compare(models, X, y, times=T, scores=["c_wolbers"])
    weighted = y.weighted(np.linspace(1, 2, len(y)))
    with pytest.raises(ConfigError, match="right-censored rows without weights"):
        compare({"a": CoxPHSurvivalAnalysis(), "b": SurvivalRegression()}, X, weighted, times=T, by="folds")

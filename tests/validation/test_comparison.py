"""Comparison of several models: scores, paired differences, and folds."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sksurv.linear_model import CoxPHSurvivalAnalysis as Cox

from sstorch import Columns, Surv, SurvivalData, SurvivalRegression
from sstorch.data.folds import folds_of
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.comparison import corrected_resampled_t_test
from sstorch.validation import compare, validate
from tests.histories import halved
from tests.metrics.test_measures import LOOPS
from tests.metrics.test_measures import T as OF_LOOPS
from tests.validation.models import Known, KnownCauses, rows, rows_of_causes

T = 1.0
MODELS = {"true": Known(), "turned": Known(-1.0), "same": Known()}
PAIR = {"true": Known(), "turned": Known(-1.0)}
OF_PAIR = ["difference", "lower", "upper", "p"]


def regression() -> SurvivalRegression:
    return SurvivalRegression(leaf="weibull", columns=Columns(numeric="linear"))


def test_differences_and_errors_equal_numeric_derivatives_of_the_definition() -> None:
    X, y = rows(40)
    models = {"true": Known(), "noisy": Known(0.7, noise=0.6)}
    found = compare(models, X, y, times=OF_LOOPS).differences
    time, event, _ = y.right_censored("test")
    one, two = (model.predict_survival_function(X, [OF_LOOPS])[:, 0] for model in models.values())

    def difference(own: np.ndarray) -> np.ndarray:
        plain = (LOOPS["auc"], LOOPS["brier"])
        return np.array([loop(time, event, one, own) - loop(time, event, two, own) for loop in plain])

    n, step = len(time), 1e-5
    each = np.array([difference(1.0 + step * row) - difference(1.0 - step * row) for row in np.eye(n)])
    error, value = np.linalg.norm(each / (2.0 * step), axis=0), difference(np.ones(n))
    for k, name in enumerate(("auc", "brier")):
        half, p = 1.959963985 * error[k], 2 * norm.sf(abs(value[k]) / error[k])
        expected = [value[k], value[k] - half, value[k] + half, p]
        row = found.loc[(OF_LOOPS, name, "true", "noisy"), OF_PAIR].astype(float)
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-8)


def test_several_times_and_models_give_scores_of_validate_and_all_pairs() -> None:
    X, y = rows(150)
    names = ["auc", "brier", "oe_ratio"]
    found = compare(MODELS, X, y, times=[0.5, T], scores=names, n_resamples=20)
    alone = validate(Known(-1.0), X, y, horizon=0.5, n_resamples=0).to_frame()
    columns = ["value", "lower", "method"]
    here = found.scores.loc[0.5].xs("turned", level="model").loc[names, columns]
    pd.testing.assert_frame_equal(here, alone.loc[names, columns], check_names=False)
    assert found.differences.shape == (2 * 3 * 3, 6)
    assert found.differences.loc[(T, "auc", "true", "same"), OF_PAIR].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert found.differences.loc[(T, "oe_ratio", "true", "turned"), "method"] == "bootstrap"


def test_competing_causes_have_rows_of_each_cause() -> None:
    X, y = rows_of_causes(150)
    models = {"true": KnownCauses(), "turned": KnownCauses(-1.0)}
    found = compare(models, X, y, times=T, scores=["auc", "c_wolbers"], n_resamples=20)
    assert found.differences.index.names[0] == "cause"
    assert found.differences.loc[("relapse", T, "auc", "true", "turned"), "lower"] > 0
    assert found.differences.loc[("death", T, "c_wolbers", "true", "turned"), "method"] == "bootstrap"


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


def test_models_are_refitted_to_subjects() -> None:
    X, y = rows(80)
    options = {"times": [T], "scores": ["c_harrell_t"], "by": "folds"}
    models = {"one": OneRate(), "half": OneRate(0.5)}
    named = Surv(y.time, y.event, entry=y.entry, id=np.arange(80))
    found, expected = (compare(models, X, each, **options).scores[["value", "lower"]] for each in (named, y))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(DataError, match="hold for each row only"):
        compare(models, pd.concat([X, X], ignore_index=True), halved(y), **options)


def test_fold_differences_are_those_of_the_corrected_t_test() -> None:
    X, y = rows(90)
    X, models = X[["x", "z"]], {"a": regression(), "b": OneRate()}
    found = compare(models, X, y, times=T, scores=["brier"], by="folds", n_folds=3)
    folds, scores = folds_of(y, 3, 0), []
    for k in range(3):
        out, test = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        fitted = [model.fit(X.iloc[out], y[out]) for model in (regression(), OneRate())]
        tables = [validate(m, X.iloc[test], y[test], horizon=T, n_resamples=0).to_frame() for m in fitted]
        scores.append([table["value"]["brier"] for table in tables])
    expected = corrected_resampled_t_test(*np.transpose(scores), n_train=60, n_test=30)
    row = found.differences.loc[(T, "brier", "a", "b")]
    assert row["difference"] == pytest.approx(expected.difference, abs=1e-12)
    assert row["p"] == pytest.approx(expected.p_value, abs=1e-9)
    assert not hasattr(models["a"], "tree_")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"models": {"a": Known()}}, ConfigError, "two or more models"),
        ({"models": {"a": Known(), "new": SurvivalRegression()}}, DataError, "model 'new' is not fitted"),
        ({"by": "folds"}, ConfigError, "refits need an estimator"),
        ({"by": "folds", "after": 0.1}, ConfigError, "after must be None"),
        ({"scores": ["c_wolbers"]}, ConfigError, "c_wolbers"),
        (
            {"models": {"a": Cox(), "b": OneRate()}, "by": "folds", "sample_weight": np.linspace(1, 2, 60)},
            ConfigError,
            "right-censored rows without weights",
        ),
    ],
)
def test_what_cannot_be_compared_raises(change: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = rows(60)
    with pytest.raises(error, match=message):
        compare(**{"models": PAIR, "X": X[["x"]], "y": y, "times": T} | change)

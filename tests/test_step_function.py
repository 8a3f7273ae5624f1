"""Step functions, and the tools of scikit-survival that ask for them."""

from typing import Any

import numpy as np
import pytest
from sksurv import metrics as peers

from sstorch import OptimalSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.base import StepFunction
from sstorch.exceptions import ConfigError, DataError

ESTIMATORS = [SurvivalRegression(), OptimalSurvivalTree(1)]


class WithStepFunctions(SurvivalRegression):
    def predict_survival_function(self, X: Any) -> Any:  # type: ignore[override]
        return super().predict_survival_function(X, return_array=False)


@pytest.fixture(scope="module")
def target(small_data: SurvivalData) -> np.ndarray:
    return np.rec.fromarrays([small_data.event, small_data.time], names="event,time")


def test_values_jump_at_their_times() -> None:
    hazard = StepFunction(np.array([2.0, 5.0]), np.array([0.5, 0.75]), start=0.0)
    assert hazard([[0.0, 1.99], [2.0, 1e9]]).tolist() == [[0.0, 0.0], [0.5, 0.75]]
    for wrong in (-1.0, np.nan):
        with pytest.raises(DataError, match="times must be numbers >= 0"):
            hazard(wrong)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_curves_as_scikit_survival_asks_for_them(
    estimator: Any, small_data: SurvivalData, target: np.ndarray
) -> None:
    fitted, rows = estimator.fit(small_data.frame, target), small_data.frame[:5]
    assert fitted.unique_times_ is fitted.event_times_
    for name, start in (("survival", 1.0), ("cumulative_hazard", 0.0)):
        predict = getattr(fitted, f"predict_{name}_function")
        curves, functions = predict(rows, return_array=True), predict(rows, return_array=False)
        np.testing.assert_array_equal(curves, predict(rows, "events"))
        assert functions.shape == (5,)
        np.testing.assert_array_equal([f(fitted.unique_times_) for f in functions], curves)
        assert functions[0](0.0) == start
    with pytest.raises(ConfigError, match="as_frame asks for a DataFrame, and return_array for none"):
        fitted.predict_survival_function(rows, as_frame=True, return_array=True)
    with pytest.raises(DataError, match="times must be numbers, got True"):
        fitted.predict_survival_function(rows, True)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_its_scorers_of_risks(estimator: Any, small_data: SurvivalData, target: np.ndarray) -> None:
    X, times = small_data.frame, [10.0, 20.0]
    risk = estimator.fit(X, target).predict(X)
    uno = peers.as_concordance_index_ipcw_scorer(estimator).fit(X, target).score(X, target)
    assert uno == pytest.approx(peers.concordance_index_ipcw(target, target, risk)[0], abs=1e-12)
    auc = peers.as_cumulative_dynamic_auc_scorer(estimator, times).fit(X, target).score(X, target)
    assert auc == pytest.approx(peers.cumulative_dynamic_auc(target, target, risk, times)[1], abs=1e-12)


def test_its_scorer_of_curves(small_data: SurvivalData, target: np.ndarray) -> None:
    """It calls the method with rows alone, and wants functions back."""
    X, times = small_data.frame, np.unique(small_data.time[small_data.event])[:20]
    regression = WithStepFunctions()
    found = peers.as_integrated_brier_score_scorer(regression, times).fit(X, target).score(X, target)
    curves = SurvivalRegression().fit(X, target).predict_survival_function(X, times)
    assert found == pytest.approx(-peers.integrated_brier_score(target, target, curves, times), abs=1e-12)

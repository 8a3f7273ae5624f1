"""Survival at one time in the tools of scikit-learn, shap and survshap that explain any model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.inspection import PartialDependenceDisplay, permutation_importance

from sstorch import OptimalSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.reading import SurvivalAt

TIME = 1825.0


@pytest.fixture(scope="module")
def frame(gbsg2: SurvivalData) -> pd.DataFrame:
    few = gbsg2.frame[["age", "pnodes", "horTh"]].copy()
    few.loc[5, "age"] = np.nan
    few.loc[6, "horTh"] = None
    return few


@pytest.fixture(scope="module")
def survival(gbsg2: SurvivalData, frame: pd.DataFrame) -> SurvivalAt:
    return SurvivalAt(SurvivalRegression().fit(frame, gbsg2.y), TIME)


def test_predictions_are_survival_of_rows_and_of_encoded_rows(
    survival: SurvivalAt, frame: pd.DataFrame, gbsg2: SurvivalData
) -> None:
    expected = survival.model.predict_survival_function(frame, TIME)[:, 0]
    np.testing.assert_array_equal(survival.predict(frame), expected)
    codes = survival.encode(frame)
    assert codes.shape == frame.shape
    assert np.isnan([codes[5, 0], codes[6, 2]]).all()
    np.testing.assert_array_equal(survival.predict(codes), expected)
    numbers = frame.to_numpy()[:, :2].astype(float)
    tree = SurvivalAt(OptimalSurvivalTree(max_depth=1).fit(numbers, gbsg2.y), TIME)
    np.testing.assert_array_equal(
        tree.predict(numbers), tree.model.predict_survival_function(numbers, TIME)[:, 0]
    )


def test_partial_dependence_and_permutation_importance(survival: SurvivalAt, frame: pd.DataFrame) -> None:
    rows = frame.dropna()[:100]
    display = PartialDependenceDisplay.from_estimator(
        survival, rows, ["pnodes", "horTh"], categorical_features=["horTh"], grid_resolution=3
    )
    by_hand = [survival.predict(rows.assign(horTh=value)).mean() for value in ("no", "yes")]
    np.testing.assert_allclose(display.pd_results[1]["average"][0], by_hand, rtol=1e-12)
    curve = display.pd_results[0]["average"][0]
    assert curve[0] > curve[-1]
    found = permutation_importance(survival, rows, survival.predict(rows), n_repeats=2, random_state=0)
    assert found.importances_mean.argmax() == 1


def test_a_model_that_is_not_fitted_raises(frame: pd.DataFrame) -> None:
    with pytest.raises(NotFittedError):
        PartialDependenceDisplay.from_estimator(SurvivalAt(SurvivalRegression(), TIME), frame, ["age"])


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_shap_values_add_up_to_survival(survival: SurvivalAt, frame: pd.DataFrame) -> None:
    shap = pytest.importorskip("shap", reason="the extra peers installs it")
    x = survival.encode(frame.dropna())
    found = shap.PermutationExplainer(survival.predict, x[:30], seed=0)(x[:3], silent=True)
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, survival.predict(x[:3]))
    kernel = shap.KernelExplainer(survival.predict, x[:30])
    values = kernel.shap_values(x[:3], silent=True)
    np.testing.assert_allclose(values.sum(1) + kernel.expected_value, survival.predict(x[:3]))
    np.testing.assert_allclose(values, found.values, atol=0.02)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_survshap_values_add_up_to_the_curve(
    survival: SurvivalAt, frame: pd.DataFrame, gbsg2: SurvivalData
) -> None:
    survshap = pytest.importorskip("survshap", reason="the extra peers installs it")
    known = frame.notna().all(axis=1).to_numpy()
    x = pd.DataFrame(survival.encode(frame[known]), columns=list(frame))[:40]

    def curves(model: SurvivalRegression, rows: pd.DataFrame) -> np.ndarray:
        return model.predict_survival_function(survival.decode(rows), return_array=False)

    explainer = survshap.SurvivalModelExplainer(
        survival.model, x, gbsg2.y[known].to_structured()[:40], predict_survival_function=curves
    )
    found = survshap.PredictSurvSHAP(calculation_method="kernel")
    found.fit(explainer, x[:1])
    times = survival.model.unique_times_
    values = found.result.filter(like="t = ").to_numpy()
    predicted = survival.model.predict_survival_function(survival.decode(x), times)
    np.testing.assert_allclose(values.sum(0), predicted[0] - predicted.mean(0), atol=1e-8)

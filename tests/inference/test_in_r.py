"""Covariances, degrees of freedom, p-values, strata and offsets against survreg, coxph and mgcv in R."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, Penalties, PrognosticTree, Surv, SurvivalRegression, inference
from sstorch.deploy import export_code
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.coefficients import term_test
from sstorch.nn import Spline

# script and values: tests/inference/inference.R
HERE = Path(__file__).parent
IN_R: dict[str, Any] = json.loads((HERE / "inference_in_r.json").read_text())
ROWS = pd.read_csv(HERE / "inference_in_r.csv")
PLAIN, Y = ROWS[["age", "marker", "arm"]], Surv(ROWS["time"], ROWS["event"])
TERMS = [("Intercept", ""), ("age", "per unit"), ("marker", "per unit")]
TERMS += [("arm", "both vs control"), ("arm", "drug vs control")]
NO_PENALTY = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


def with_penalties_known(model: SurvivalRegression) -> SurvivalRegression:
    """A copy that uses the inverse of Hessian and penalties."""
    covariance, new = model.covariance_, copy.copy(model)
    hazards = {name: replace(each, adjusted=None) for name, each in covariance.hazards.items()}
    new.covariance_ = replace(covariance, hazards=hazards)
    return new


@pytest.mark.parametrize("leaf", IN_R["survreg"])
def test_estimates_errors_and_tests_are_those_of_survreg(leaf: str) -> None:
    expected = IN_R["survreg"][leaf]
    model = SurvivalRegression(leaf, **NO_PENALTY).fit(PLAIN, Y)
    shape = model.module_.family.shape_names[0]
    table = model.coefficients().loc[[*TERMS, (shape, "")]]
    sign = np.where(np.arange(6) == 5, 1.0 if leaf == "log_normal" else -1.0, 1.0)  # a = 1 / scale
    covariance = np.array(expected["vcov"]).reshape(6, 6)
    assert table["estimate"].to_numpy() == pytest.approx(sign * expected["coef"], abs=1e-5)
    assert table["standard error"].to_numpy() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-5)
    assert model.log_likelihood(PLAIN, Y) * len(PLAIN) == pytest.approx(expected["loglik"][1], rel=1e-9)
    robust = inference.with_sandwich(model, PLAIN, Y, cluster=ROWS["centre"])
    errors = np.sqrt(np.diag(np.array(expected["robust"]).reshape(6, 6)))
    table = inference.coefficients(robust).loc[[*TERMS, (shape, "")]]
    assert table["standard error"].to_numpy() == pytest.approx(errors, rel=1e-5)
    assert robust.covariance_.clusters == 40


def test_covariance_of_contrasts_is_that_of_survreg() -> None:
    covariance = np.array(IN_R["survreg"]["weibull"]["vcov"]).reshape(6, 6)
    model = SurvivalRegression("weibull", **NO_PENALTY).fit(PLAIN, Y)
    found = inference.effect(model, "arm", "both", "drug")
    variance = covariance[3, 3] + covariance[4, 4] - 2 * covariance[3, 4]
    width = np.log(found.upper / found.lower) / 2 / 1.959963985
    assert width == pytest.approx(np.sqrt(variance), rel=1e-5)


def test_errors_and_freedom_with_estimated_penalties_are_those_of_mgcv() -> None:
    rows = pd.read_csv(HERE.parent / "optim" / "penalties_in_r.csv")
    features = rows[["x", "z1", "z2", "g"]]
    model = SurvivalRegression("exponential", columns=Columns(numeric={"x": "spline(4)"}))
    model.fit(features, Surv(rows["time"], rows["event"]))
    given = with_penalties_known(model)
    found = inference.predict(given, features[:12], times=[1.0])
    error = found.standard_error / (-np.log(found.estimate) * found.estimate)  # of the log hazard
    assert error.ravel() == pytest.approx(IN_R["columns"]["se"], rel=0.02)
    edf = inference.terms(given)["edf"]
    expected = IN_R["columns"]
    assert edf["g"] == pytest.approx(expected["category"], rel=0.02)
    assert edf[["x", "z1", "z2"]].sum() == pytest.approx(expected["line"] + expected["curve"], rel=0.02)
    wider = inference.predict(model, features[:12], times=[1.0])
    assert (wider.standard_error > found.standard_error).all()


@pytest.mark.parametrize("term", IN_R["smooth"])
def test_p_value_of_a_smooth_term_is_that_of_mgcv(term: dict[str, Any]) -> None:
    k = len(term["coef"])
    covariance, gram = (np.array(term[name]).reshape(k, k) for name in ("vp", "gram"))
    _, p = term_test(np.array(term["coef"]), covariance, gram, min(term["edf1"], k))
    assert p == pytest.approx(term["p"], rel=2e-3)


SEX = np.where(ROWS["centre"] % 2 == 0, "f", "m")
EXPOSURE = np.round(0.3 * np.sin(np.arange(1, len(ROWS) + 1)), 3)
X = PLAIN.assign(sex=SEX, exposure=EXPOSURE)
FIXED = {"strata": "sex", "offset": "exposure"}
GIVEN = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear", **FIXED)}
TERMS_OF_STRATA = [("Intercept", "sex = f"), *TERMS[1:], ("Intercept", "sex = m")]


@pytest.fixture(scope="module")
def weibull() -> SurvivalRegression:
    return SurvivalRegression("weibull", **GIVEN).fit(X, Y)


@pytest.mark.parametrize("leaf", IN_R["strata"])
def test_strata_and_offset_are_those_of_survreg(leaf: str) -> None:
    expected = IN_R["strata"][leaf]
    model = SurvivalRegression(leaf, **GIVEN).fit(X, Y)
    shape = model.module_.family.shape_names[0]
    table = model.coefficients().loc[[*TERMS_OF_STRATA, (shape, "sex = f"), (shape, "sex = m")]]
    # R has the difference of the intercepts.
    to_ours = np.eye(8)
    to_ours[5, 0] = 1.0
    to_ours[6:, 6:] *= 1.0 if leaf == "log_normal" else -1.0  # a = 1 / scale
    covariance = to_ours @ np.array(expected["vcov"]).reshape(8, 8) @ to_ours.T
    assert table["estimate"].to_numpy() == pytest.approx(to_ours @ expected["coef"], abs=1e-5)
    assert table["standard error"].to_numpy() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-5)
    assert model.log_likelihood(X, Y) * len(X) == pytest.approx(expected["loglik"], rel=1e-9)


def test_spline_with_strata_is_near_coxph() -> None:
    columns = Columns(numeric="linear", strata="sex")
    model = SurvivalRegression(Spline("hazard", knots=8), Penalties(ridge=0), columns)
    model.fit(X.drop(columns="exposure"), Y)
    found = model.coefficients()["estimate"].loc[TERMS[1:]]
    cox = np.array(IN_R["cox"])
    assert found.to_numpy() == pytest.approx(cox, rel=0.02)
    assert "Baseline of each stratum of sex" in model.summary(details=True)
    assert "gates" not in model.summary(details=True)


def test_estimated_penalties_without_differences_between_strata_shrink_shapes() -> None:
    model = SurvivalRegression("log_logistic", columns=Columns(**FIXED)).fit(X, Y)
    leaf = model.module_.leaf(1)
    place = [feature.columns[0] for feature in model.preprocessor_.leaf_features].index("exposure")
    assert float(leaf.slope[place].detach()) == 1.0
    assert model.choice_.penalties.loc["own shape", "edf"] < 0.5
    assert set(model.choice_.terms.index) == {"age", "marker", "arm"}
    assert set(inference.terms(model).index) == {"age", "marker", "arm"}


def test_offset_shifts_predictions_in_the_direction_of_the_family(weibull: SurvivalRegression) -> None:
    times = np.array([20.0, 60.0])
    later = weibull.predict_survival_function(X.assign(exposure=X["exposure"] + np.log(2)), times=2 * times)
    assert later == pytest.approx(weibull.predict_survival_function(X, times=times), abs=1e-12)


def test_saved_model_has_offset_and_strata(weibull: SurvivalRegression, tmp_path: Path) -> None:
    weibull.save(tmp_path / "model")
    again = SurvivalRegression.load(tmp_path / "model")
    assert again.columns == weibull.columns
    curves = [each.predict_survival_function(X, times=[50.0, 200.0]) for each in (weibull, again)]
    assert (curves[0] == curves[1]).all()


def test_exported_code_has_offset_and_strata(weibull: SurvivalRegression) -> None:
    names: dict[str, Any] = {}
    exec(export_code(weibull, "python"), names)
    row, survival = X.iloc[1].to_dict(), names["survival"]
    expected = weibull.predict_survival_function(X[1:2], times=[50.0])[0, 0]
    assert survival(row, 50.0) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(survival(row | {"exposure": None}, 50.0))
    with pytest.raises(ValueError, match="'sex' must be one of 'f', 'm'"):
        survival(row | {"sex": "x"}, 50.0)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [("sex", "x", r"'sex' \(strata"), ("sex", None, "missing"), ("exposure", np.nan, r"'exposure' \(the")],
)
def test_unknown_stratum_or_missing_offset_raises(
    weibull: SurvivalRegression, column: str, value: object, told: str
) -> None:
    with pytest.raises(DataError, match=told):
        weibull.predict_survival_function(X[:3].assign(**{column: value}), times=[50.0])


def test_stratum_without_events_raises() -> None:
    site = np.where(np.arange(len(X)) < 5, "small", "large")
    y = Surv(ROWS["time"], np.where(np.arange(len(X)) < 5, 0, ROWS["event"]))
    with pytest.raises(DataError, match=r"no event in 'small' \(5 rows\) of column 'site'"):
        SurvivalRegression(columns=Columns(strata="site")).fit(X.assign(site=site), y)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (SurvivalRegression(columns=Columns(strata="age")), "numeric"),
        (SurvivalRegression(columns=Columns(offset="arm")), "categorical"),
        (SurvivalRegression(columns=Columns(offset="weight")), "names 'weight'"),
        (SurvivalRegression(columns=Columns(offset="exposure", interactions="all")), "interactions"),
        (PrognosticTree(columns=Columns(strata="sex")), "teacher=SurvivalRegression"),
    ],
)
def test_offset_or_strata_that_cannot_be_raise(model: SurvivalRegression, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        model.fit(X, Y)


def test_tree_of_a_teacher_with_strata_has_groups() -> None:
    teacher = SurvivalRegression("weibull", columns=Columns(**FIXED))
    tree = PrognosticTree(teacher=teacher).fit(X, Y)
    assert len(np.unique(tree.apply(X))) > 1

"""Covariances, effective degrees of freedom and p-values against survreg and mgcv in R."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, Penalties, Surv, SurvivalRegression, inference
from sstorch.inference.coefficients import term_test

# script and values: tests/inference/inference.R
HERE = Path(__file__).parent
IN_R: dict[str, Any] = json.loads((HERE / "inference_in_r.json").read_text())
ROWS = pd.read_csv(HERE / "inference_in_r.csv")
X, Y = ROWS[["age", "marker", "arm"]], Surv(ROWS["time"], ROWS["event"])
TERMS = [("Intercept", ""), ("age", "per unit"), ("marker", "per unit")]
TERMS += [("arm", "both vs control"), ("arm", "drug vs control")]
NO_PENALTY = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


def with_penalties_known(model: SurvivalRegression) -> SurvivalRegression:
    """A copy that uses the inverse of Hessian and penalties."""
    covariance, new = model.covariance_, copy.copy(model)
    hazards = {name: replace(each, robust=each.posterior) for name, each in covariance.hazards.items()}
    new.covariance_ = replace(covariance, hazards=hazards)
    return new


@pytest.mark.parametrize("leaf", IN_R["survreg"])
def test_estimates_errors_and_tests_are_those_of_survreg(leaf: str) -> None:
    expected = IN_R["survreg"][leaf]
    model = SurvivalRegression(leaf, **NO_PENALTY).fit(X, Y)
    shape = model.module_.family.shape_names[0]
    table = model.coefficients().loc[[*TERMS, (shape, "")]]
    sign = np.where(np.arange(6) == 5, 1.0 if leaf == "log_normal" else -1.0, 1.0)  # a = 1 / scale
    covariance = np.array(expected["vcov"]).reshape(6, 6)
    assert table["estimate"].to_numpy() == pytest.approx(sign * expected["coef"], abs=1e-5)
    assert table["standard error"].to_numpy() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-5)
    assert model.log_likelihood(X, Y) * len(X) == pytest.approx(expected["loglik"][1], rel=1e-9)
    robust = inference.with_sandwich(model, X, Y, cluster=ROWS["centre"])
    errors = np.sqrt(np.diag(np.array(expected["robust"]).reshape(6, 6)))
    table = inference.coefficients(robust).loc[[*TERMS, (shape, "")]]
    assert table["standard error"].to_numpy() == pytest.approx(errors, rel=1e-5)
    assert robust.covariance_.clusters == 40


def test_covariance_of_contrasts_is_that_of_survreg() -> None:
    covariance = np.array(IN_R["survreg"]["weibull"]["vcov"]).reshape(6, 6)
    model = SurvivalRegression("weibull", **NO_PENALTY).fit(X, Y)
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

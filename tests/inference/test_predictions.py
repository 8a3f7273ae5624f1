"""Predictions and contrasts with intervals, against closed forms and finite differences."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logit
from scipy.stats import norm

from sstorch import Columns, Penalties, Surv, SurvivalRegression, inference, load_dataset
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.predictions import Quantity, derivatives
from sstorch.validation import contrast
from tests.conftest import nightly
from tests.histories import halved

DATA = load_dataset("gbsg2")
ROWS = DATA.frame[:4]
TIMES = [200.0, 800.0, 2000.0]


@pytest.fixture(scope="module")
def spline() -> SurvivalRegression:
    return SurvivalRegression().fit(DATA.frame, DATA.y)


@pytest.fixture(scope="module")
def weibull() -> SurvivalRegression:
    return SurvivalRegression("weibull", Penalties(ridge=0), Columns(numeric="linear")).fit(
        DATA.frame, DATA.y
    )


@pytest.fixture(scope="module")
def competing() -> SurvivalRegression:
    cause = np.where(DATA.event, 1 + (DATA.frame["age"] > 55), 0)
    y = Surv(DATA.time, cause, causes=("early", "late"))
    return SurvivalRegression(columns=Columns(numeric="linear")).fit(DATA.frame.drop(columns="age"), y)


def check_derivatives(model: SurvivalRegression, what: str) -> None:
    x = model.tree_.encode(DATA.frame[list(model.feature_names_in_)][:3])
    quantity = Quantity.of(model, what, TIMES, 0.2, 1500.0)
    parameters, _ = quantity.parameters(x)
    value, found = derivatives(quantity.prediction, parameters)
    for k in range(parameters.shape[1]):
        step = torch.zeros_like(parameters)
        step[:, k] = 1e-5
        with torch.no_grad():
            ahead, behind = (quantity.prediction(parameters + sign * step) for sign in (1, -1))
        expected = (ahead - behind) / 2e-5
        assert torch.allclose(found[:, k], expected, rtol=1e-5, atol=1e-7 * float(value.abs().max()))


@pytest.mark.parametrize(
    "leaf",
    ["spline_ph", nightly("spline"), nightly("generalized_gamma"), "gompertz", "piecewise_exponential"],
)
def test_derivatives_of_families_are_those_of_differences(leaf: str) -> None:
    model = SurvivalRegression(leaf, columns=Columns(numeric="linear")).fit(DATA.frame, DATA.y)
    for what in ("survival", "quantile", "rmst"):
        check_derivatives(model, what)


@pytest.mark.parametrize("what", ["survival", "incidence", "quantile", "rmst"])
def test_derivatives_of_causes_are_those_of_differences(competing: SurvivalRegression, what: str) -> None:
    check_derivatives(competing, what)


# By quantity: the predictions of models, and the scale on which its limits are symmetric.
QUANTITIES: dict[str, tuple[Callable[..., np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "survival": (lambda m, X: m.predict_survival_function(X, TIMES), lambda v: np.log(-np.log(v))),
    "incidence": (lambda m, X: m.predict_cumulative_incidence(X, TIMES), lambda v: np.log(-np.log1p(-v))),
    "quantile": (lambda m, X: m.predict_quantile(X), np.log),
    "rmst": (lambda m, X: m.predict_rmst(X, 1500.0), lambda v: logit(v / 1500.0)),
}


@pytest.mark.parametrize("what", QUANTITIES)
def test_limits_are_symmetric_about_predictions_on_their_scale(
    spline: SurvivalRegression, competing: SurvivalRegression, what: Any
) -> None:
    model, (predicted, scale) = competing if what == "incidence" else spline, QUANTITIES[what]
    X = ROWS[list(model.feature_names_in_)].set_axis(list("abcd"))
    found = inference.predict(model, X, what, TIMES, tau=1500.0)
    assert found.estimate == pytest.approx(predicted(model, X), rel=1e-9)
    assert (found.lower < found.upper).all()
    assert scale(found.lower) + scale(found.upper) == pytest.approx(2 * scale(found.estimate), rel=1e-9)
    near = inference.predict(model, X, what, TIMES, tau=1500.0, level=0.001)
    assert near.upper - near.lower == pytest.approx(2 * norm.ppf(0.5005) * near.standard_error, rel=1e-4)
    axes = [X.index, *([["early", "late"]] * (what == "incidence")), *([TIMES] * (found.times is not None))]
    assert list(found.to_frame().index) == (list(product(*axes)) if len(axes) > 1 else list(X.index))


def test_weibull_survival_has_the_error_of_the_closed_form(weibull: SurvivalRegression) -> None:
    covariance, tree = weibull.covariance_.hazards["event"], weibull.tree_
    x, leaf = tree.encode(ROWS), tree.module.leaf_parameters()
    linear, a = (x @ leaf.slope[0] + leaf.intercept[0]).detach(), float(leaf.shape[0, 0].detach().exp())
    z = a * (torch.tensor(TIMES).log() - float(tree.module.log_time_scale) - linear[:, None])
    # log H = a (log t - g): derivatives -a in g and z in log a; coefficients are intercept, slopes, log a.
    of_linear = -a * torch.cat([torch.ones(len(x), 1).double(), x], 1)[:, None].expand(-1, 3, -1)
    gradient = torch.cat([of_linear, z[..., None]], -1)
    error = (gradient @ covariance.covariance * gradient).sum(-1).sqrt() * z.exp() * (-z.exp()).exp()
    found = inference.predict(weibull, ROWS, times=TIMES)
    assert found.standard_error == pytest.approx(error.numpy(), rel=1e-6)


def test_causes_are_independent() -> None:
    frame, late = DATA.frame[["pnodes", "horTh"]], (DATA.frame["age"] > 55).to_numpy()
    outcomes = [Surv(DATA.time, np.where(DATA.event, 1 + late, 0), causes=("early", "late"))]
    outcomes += [Surv(DATA.time, DATA.event & own) for own in (late, ~late)]
    variances = []
    for y in outcomes:
        model = SurvivalRegression("weibull", Penalties(ridge=0), Columns(numeric="linear")).fit(frame, y)
        found = inference.predict(model, frame[:4], times=TIMES)
        variances.append((found.standard_error / found.estimate) ** 2)  # of the log survival
    assert variances[0] == pytest.approx(variances[1] + variances[2], rel=1e-5)


def test_contrast_of_equal_rows_is_zero_and_of_others_their_difference(spline: SurvivalRegression) -> None:
    treated, untreated = (ROWS.assign(horTh=value) for value in ("yes", "no"))
    none = contrast(spline, treated, treated, TIMES)
    assert (none.estimate == 0).all()
    assert none.standard_error == pytest.approx(0.0, abs=1e-12)
    found = contrast(spline, treated, untreated, TIMES)
    parts = [inference.predict(spline, each, times=TIMES) for each in (treated, untreated)]
    assert found.estimate == pytest.approx(parts[0].estimate - parts[1].estimate)
    independent = np.hypot(parts[0].standard_error, parts[1].standard_error)
    assert (found.standard_error < independent).all()
    mean = contrast(spline, treated, untreated, TIMES, average=True)
    assert mean.estimate[0] == pytest.approx(found.estimate.mean(0))
    assert (mean.standard_error[0] <= found.standard_error.mean(0) + 1e-12).all()
    assert mean.to_frame().index[0] == ("mean", TIMES[0])


@pytest.mark.filterwarnings("ignore:column 'tsize'")
def test_limits_at_time_zero_and_where_survival_underflows(weibull: SurvivalRegression) -> None:
    found = inference.predict(weibull, ROWS[:2].assign(tsize=[20.0, 1500.0]), times=[0.0, 4000.0])
    assert (found.lower[:, 0] == 1).all()
    assert (found.upper[:, 0] == 1).all()
    assert found.estimate[1, 1] == 0
    np.testing.assert_array_equal(np.isnan(found.upper), [[False, False], [False, True]])


def test_sandwich_of_start_stop_rows_is_by_subject() -> None:
    frame = pd.concat([DATA.frame, DATA.frame.assign(age=DATA.frame["age"] + 1)], ignore_index=True)
    y = halved(DATA.y)
    model = SurvivalRegression("weibull", Penalties(ridge=0), Columns(numeric="linear")).fit(frame, y)
    robust = inference.with_sandwich(model, frame, y)
    assert robust.covariance_.clusters == len(DATA)
    ratio = inference.coefficients(robust)["standard error"] / model.coefficients()["standard error"]
    assert ratio.between(0.5, 2).all()


def test_bad_arguments_raise(spline: SurvivalRegression) -> None:
    none, predict = ROWS[:0], inference.predict
    for error, message, call in (
        (ConfigError, "times must be given", lambda: predict(spline, ROWS)),
        (ConfigError, "needs competing causes", lambda: predict(spline, ROWS, "incidence", TIMES)),
        (ConfigError, "tau must be a finite time", lambda: predict(spline, ROWS, "rmst")),
        (ConfigError, "what must be one of", lambda: predict(spline, ROWS, "hazard", TIMES)),
        (DataError, "a row of X_b for each of X_a", lambda: contrast(spline, ROWS, ROWS[:2], TIMES)),
        (DataError, "no rows", lambda: predict(spline, none, times=TIMES)),
        (DataError, "no rows", lambda: contrast(spline, none, none, TIMES)),
        (ConfigError, "must be a fitted soft survival tree", lambda: predict(None, ROWS, times=TIMES)),
    ):
        with pytest.raises(error, match=message):
            call()

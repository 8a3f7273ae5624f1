"""A tree of depth 0 is a plain regression: every family against lifelines or SciPy on three data sets.

One case of each comparison is in every run, the others are nightly.
"""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from lifelines import (
    GeneralizedGammaRegressionFitter,
    LogLogisticAFTFitter,
    LogNormalAFTFitter,
    PiecewiseExponentialFitter,
    WeibullAFTFitter,
)
from lifelines.datasets import load_gbsg2, load_lung, load_rossi
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from sstorch import Columns, Penalties, SoftSurvivalTree, SurvivalRegression
from sstorch.nn import HazardFamily, LogisticHazard, PiecewiseExponential, make_family
from sstorch.optim import LBFGSOptions, Nodec
from tests.conftest import nightly

EXACT = Nodec(
    macro_iterations=1,
    lbfgs=LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0, max_evaluations=5000),
)
# At its default tolerance lifelines stops short of the optimum by up to 4e-3 in a coefficient.
TIGHT = {"ftol": 1e-14, "maxiter": 2000}
DATA = (nightly("gbsg2"), nightly("rossi"), "lung")


@cache
def rows(name: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Features scaled to [0, 1], times and events; reference categories dropped: there is no penalty."""
    if name == "gbsg2":
        frame, time, event = load_gbsg2(), "time", "cens"
    elif name == "rossi":
        frame, time, event = load_rossi(), "week", "arrest"
    else:
        frame, time, event = load_lung().drop(columns="inst").dropna(), "time", "status"
    x = pd.get_dummies(frame.drop(columns=[time, event]), drop_first=True, dtype=float)
    x = (x - x.min()) / (x.max() - x.min())
    events = frame[event].to_numpy()
    return x.reset_index(drop=True), frame[time].to_numpy(float), events == events.max()


def exact(leaf: HazardFamily) -> SoftSurvivalTree:
    """A model without gates or penalties."""
    return SoftSurvivalTree(
        depth=0, leaf=leaf, trainer=EXACT, init="random", n_starts=1, penalties=Penalties(ridge=0.0)
    )


def fit(leaf: HazardFamily, name: str, covariates: bool = True) -> tuple[SoftSurvivalTree, float]:
    """The regression and its log-likelihood; without covariates x is one constant column."""
    x, time, event = rows(name)
    if not covariates:
        x = pd.DataFrame({"one": np.ones(len(time))})
    tree = exact(leaf)
    tree.fit(x, (time, event))
    return tree, tree.log_likelihood(x, (time, event)) * len(time)


def parameters(tree: SoftSurvivalTree) -> tuple[np.ndarray, float, np.ndarray]:
    """Slopes, intercept in model time and shapes."""
    leaf = tree.module_.leaf(1)
    return leaf.slope.detach().numpy(), float(leaf.intercept.detach()), leaf.shape.detach().numpy()


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize(
    ("leaf", "fitter", "location", "shape", "sign"),
    [
        nightly("weibull", WeibullAFTFitter, "lambda_", "rho_", 1),
        nightly("log_logistic", LogLogisticAFTFitter, "alpha_", "beta_", 1),
        ("log_normal", LogNormalAFTFitter, "mu_", "sigma_", 1),
    ],
)
@pytest.mark.parametrize("ancillary", [nightly("constant"), "linear"])
def test_accelerated_failure_time_models(
    name: str, leaf: str, fitter: type, location: str, shape: str, sign: int, ancillary: str
) -> None:
    x, time, event = rows(name)
    tree, log_likelihood = fit(make_family(leaf, ancillary=ancillary), name)
    peer = fitter().fit(
        x.assign(t=time, e=event), "t", "e", ancillary=ancillary == "linear", fit_options=TIGHT
    )
    assert log_likelihood == pytest.approx(peer.log_likelihood_, rel=1e-6)
    assert log_likelihood > peer.log_likelihood_ - 1e-7 * abs(peer.log_likelihood_)
    slope, intercept, constant = parameters(tree)
    expected = peer.params_[location]
    np.testing.assert_allclose(slope, expected[x.columns], atol=2e-3)
    assert intercept + float(tree.module_.log_time_scale) == pytest.approx(expected["Intercept"], abs=2e-3)
    assert constant[0] == pytest.approx(peer.params_[shape, "Intercept"], abs=2e-3)
    curves = peer.predict_survival_function(x, times=np.quantile(time, [0.1, 0.5, 0.9])).to_numpy().T
    ours = tree.predict_survival_function(x, np.quantile(time, [0.1, 0.5, 0.9]))
    np.testing.assert_allclose(ours, curves, atol=1e-4)
    by_default = SurvivalRegression(tree.leaf, Penalties(ridge=0.0), columns=Columns(numeric="linear"))
    value = by_default.fit(x, (time, event)).log_likelihood(x, (time, event)) * len(x)
    assert value == pytest.approx(peer.log_likelihood_, rel=1e-6)
    if ancillary == "linear":
        slopes = tree.module_.leaf(1).shape_slope
        assert slopes is not None
        np.testing.assert_allclose(slopes.detach().numpy()[0], peer.params_[shape][x.columns], atol=2e-3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", DATA)
def test_generalized_gamma(name: str) -> None:
    x, time, event = rows(name)
    _, log_likelihood = fit(make_family("generalized_gamma"), name)
    frame = x.assign(t=time, e=event)
    every = " + ".join(["1", *(f"`{c}`" for c in x.columns)])
    regressors = {"mu_": every, "sigma_": "1", "lambda_": "1"}
    fitter = GeneralizedGammaRegressionFitter()
    peer = fitter.fit(frame, "t", "e", regressors=regressors, fit_options=TIGHT)
    assert log_likelihood == pytest.approx(peer.log_likelihood_, rel=1e-6)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("leaf", [nightly("exponential"), "gompertz"])
def test_hazard_models_against_scipy(name: str, leaf: str) -> None:
    x, time, event = rows(name)
    tree, log_likelihood = fit(make_family(leaf), name)
    slope, intercept, shape = parameters(tree)
    unit = float(tree.module_.log_time_scale.exp())
    design, t = np.column_stack([np.ones(len(x)), x]), time / unit

    def negative(theta: np.ndarray) -> float:
        linear, a = design @ theta[: design.shape[1]], theta[-1]
        growth = t if leaf == "exponential" else np.expm1(a * t) / a
        log_hazard = linear if leaf == "exponential" else linear + a * t
        return float((np.exp(linear) * growth).sum() - (event * (log_hazard - math.log(unit))).sum())

    ours = np.r_[intercept, slope, shape]
    assert -negative(ours) == pytest.approx(log_likelihood, rel=1e-10)
    start = np.r_[np.log(event.sum() / t.sum()), np.zeros(x.shape[1]), np.full(len(shape), 0.1)]
    peer = minimize(negative, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    assert log_likelihood == pytest.approx(-peer.fun, rel=1e-6)
    np.testing.assert_allclose(ours, peer.x, atol=2e-3)


@pytest.mark.parametrize("name", DATA)
def test_piecewise_exponential_without_covariates(name: str) -> None:
    _, time, event = rows(name)
    # Between the times of the data: the peers differ in which piece an event at a breakpoint belongs to.
    breaks = [float(value) + 0.5 for value in np.quantile(time[event], [0.3, 0.6]).round()]
    tree, log_likelihood = fit(PiecewiseExponential(breaks), name, covariates=False)
    peer = PiecewiseExponentialFitter(breaks).fit(time, event)
    assert log_likelihood == pytest.approx(peer.log_likelihood_, rel=1e-6)
    _, intercept, shape = parameters(tree)
    unit = float(tree.module_.log_time_scale.exp())
    rates = np.exp(intercept + np.r_[0.0, shape]) / unit
    np.testing.assert_allclose(rates, 1 / peer.params_, rtol=2e-3)


def test_logistic_hazard_is_a_logistic_regression_of_persons_and_periods() -> None:
    """Rossi's weeks in quarters: a row per subject and quarter at risk, an indicator per quarter."""
    x, week, event = rows("rossi")
    quarter = np.ceil(week / 13)
    tree = exact(LogisticHazard())
    tree.fit(x, (quarter, event))
    subject = np.repeat(np.arange(len(x)), quarter.astype(int))
    period = np.concatenate([np.arange(1, last + 1) for last in quarter.astype(int)])
    design = np.hstack([x.to_numpy()[subject], period[:, None] == np.arange(1, 5)])
    peer = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12, max_iter=10000)
    peer.fit(design, event[subject] & (period == quarter[subject]))
    slope, intercept, shape = parameters(tree)
    np.testing.assert_allclose(slope, peer.coef_[0, : x.shape[1]], atol=1e-6)
    np.testing.assert_allclose(intercept + shape[:4], peer.coef_[0, x.shape[1] :], atol=1e-6)
    hazard = peer.predict_proba(design)[:, 1]
    survival = pd.Series(1 - hazard).groupby([subject, period]).first().groupby(level=0).cumprod()
    ours = tree.predict_survival_function(x, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(ours[subject, period - 1], survival, atol=1e-6)

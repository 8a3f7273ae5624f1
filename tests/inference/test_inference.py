"""Coefficients, terms, predictions, contrasts, likelihood ratios, and the covariance they use."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import LogLogisticAFTFitter, WeibullAFTFitter
from scipy.special import logit
from scipy.stats import chi2, norm

from sstorch import (
    Columns,
    Penalties,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    inference,
    load_dataset,
)
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference import likelihood_ratio_test
from sstorch.inference.covariance import marginal_covariance
from sstorch.inference.predictions import Quantity, derivatives
from sstorch.optim import Nodec
from sstorch.validation import contrast
from tests.conftest import nightly
from tests.histories import halved
from tests.inference.test_in_r import with_penalties_known

DATA = load_dataset("gbsg2")
ROWS, TIMES = DATA.frame[:4], [200.0, 800.0, 2000.0]
LINES = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


@pytest.fixture(scope="module")
def curved() -> SurvivalRegression:
    return SurvivalRegression().fit(DATA.frame, DATA.y)


@pytest.fixture(scope="module")
def lines() -> SurvivalRegression:
    return SurvivalRegression("weibull", **LINES).fit(DATA.frame, DATA.y)


@pytest.fixture(scope="module")
def competing() -> SurvivalRegression:
    cause = np.where(DATA.event, 1 + (DATA.frame["age"] > 55), 0)
    y = Surv(DATA.time, cause, causes=("early", "late"))
    return SurvivalRegression(columns=Columns(numeric="linear")).fit(DATA.frame.drop(columns="age"), y)


def test_terms_come_in_the_order_of_their_contrasts(curved: SurvivalRegression) -> None:
    table = curved.coefficients()
    assert list(table.columns) == ["estimate", "standard error", "odds ratio", "lower", "upper", "p"]
    assert table.index[0] == ("pnodes", "16 vs 1")
    terms = inference.terms(curved)
    assert list(terms.index) == list(dict.fromkeys(table.index.get_level_values("term")))
    assert terms["change"].is_monotonic_decreasing
    assert terms["edf"].to_dict() == pytest.approx(curved.choice_.terms["event"].to_dict(), abs=1e-6)
    assert terms.loc["pnodes", "p"] < 1e-6 < 0.05 < terms.loc["estrec", "p"]


def test_contrast_between_two_values_is_the_difference_of_predictions(curved: SurvivalRegression) -> None:
    found = inference.effect(curved, "pnodes", 10, 1)
    rows = pd.concat([DATA.frame[:1].assign(pnodes=value) for value in (10, 1)])
    odds = 1 / curved.predict_survival_function(rows, [1000.0])[:, 0] - 1
    assert found["odds ratio"] == pytest.approx(odds[0] / odds[1])
    assert found.lower < found["odds ratio"] < found.upper
    assert found.name == "pnodes 10 vs 1"
    back = inference.effect(curved, "pnodes", 1, 10)
    assert (1 / back.upper, 1 / back.lower) == pytest.approx((found.lower, found.upper))


def test_variance_estimated_as_zero_leaves_an_interval() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=300), "g": pd.Categorical(rng.choice(["a", "b"], 300))})
    model = SurvivalRegression("weibull").fit(frame, Surv(rng.weibull(1.0, 300), rng.random(300) < 0.7))
    marginal = inference.effect(model, "g", "b", "a")
    given = inference.effect(with_penalties_known(model), "g", "b", "a")
    assert np.log(marginal.upper / marginal.lower) > 2 * np.log(given.upper / given.lower)


def test_directions_without_information_have_no_estimate() -> None:
    frame = DATA.frame.assign(twice=2 * DATA.frame["age"], constant=1.0)
    model = SurvivalRegression("weibull", **LINES).fit(frame, DATA.y)
    table, alike = model.coefficients(), ["age", "twice", "constant"]
    errors = table["standard error"].unstack("contrast").min(axis=1)
    assert errors[alike].isna().all()
    assert errors.drop(alike).notna().all()
    assert table.loc["age", "p"].isna().all()
    assert inference.terms(model).loc[alike, "edf"].tolist() == [0.0, 0.0, 0.0]


def test_unpenalised_terms_have_the_degrees_of_freedom_of_their_rank(lines: SurvivalRegression) -> None:
    table = inference.terms(lines)
    assert table.loc["tgrade", ["edf", "reference df"]].tolist() == pytest.approx([2.0, 2.0])  # edf was 2.25
    assert table.loc["tgrade", "p"] == pytest.approx(0.0109, abs=5e-5)  # it was NaN


def test_product_of_categories_has_the_degrees_of_freedom_of_lifelines() -> None:
    frame = DATA.frame[["age", "tgrade", "horTh"]].reset_index(drop=True)
    keep = ((frame["tgrade"] != "III") | (frame["horTh"] != "yes")).to_numpy()  # a cell without rows
    frame, y = frame[keep], DATA.y[keep]
    columns = Columns(numeric="linear", interactions=[("tgrade", "horTh")])
    model = SurvivalRegression("weibull", Penalties(ridge=0), columns).fit(frame, y)
    dummies = pd.DataFrame(
        {
            "age": frame["age"],
            "I": frame["tgrade"] == "I",  # compared with II, the most frequent
            "III": frame["tgrade"] == "III",
            "yes": frame["horTh"] == "yes",
            "I:yes": (frame["tgrade"] == "I") & (frame["horTh"] == "yes"),
        }
    ).astype(float)
    fit = WeibullAFTFitter().fit(dummies.assign(time=y.time, event=y.event), "time", "event")
    table = inference.terms(model)
    for term, names in {"tgrade:horTh": ["I:yes"], "tgrade": ["I", "III"], "horTh": ["yes"]}.items():
        at = [("lambda_", name) for name in names]
        values, covariance = fit.params_[at].to_numpy(), fit.variance_matrix_.loc[at, at].to_numpy()
        expected = float(values @ np.linalg.solve(covariance, values))
        assert table.loc[term, "edf"] == pytest.approx(len(names))
        assert table.loc[term, "statistic"] == pytest.approx(expected, rel=1e-3)


def test_tests_of_terms_do_not_depend_on_units(lines: SurvivalRegression) -> None:
    scaled = DATA.frame.assign(age=DATA.frame["age"] * 1e12, pnodes=DATA.frame["pnodes"] * 1e-12)
    found = inference.terms(SurvivalRegression("weibull", **LINES).fit(scaled, DATA.y))
    expected = inference.terms(lines).loc[found.index]
    assert found["edf"].to_numpy() == pytest.approx(expected["edf"].to_numpy(), rel=1e-5)
    assert found["statistic"].to_numpy() == pytest.approx(expected["statistic"].to_numpy(), rel=1e-5)


def test_products_have_a_row_of_their_own() -> None:
    columns = Columns(numeric="linear", interactions=[("age", "horTh")])
    model = SurvivalRegression("weibull", Penalties(ridge=0), columns).fit(DATA.frame, DATA.y)
    row = model.coefficients().loc[("age:horTh", "yes vs no")]
    rows = [DATA.frame[:1].assign(age=age, horTh=arm) for arm in ("yes", "no") for age in (61.0, 60.0)]
    median = np.log(model.predict_quantile(pd.concat(rows)))
    assert row["estimate"] == pytest.approx(median[0] - median[1] - median[2] + median[3])


@pytest.mark.filterwarnings("ignore:every row stands 2 times")
def test_rows_repeated_in_clusters_have_the_standard_errors_of_the_rows(lines: SurvivalRegression) -> None:
    frame = pd.concat([DATA.frame] * 2, ignore_index=True)
    y = Surv(*(np.tile(v, 2) for v in (DATA.time, DATA.event)))
    twice = SurvivalRegression("weibull", **LINES).fit(frame, y)
    subject = np.tile(np.arange(len(DATA.frame)), 2)
    robust = inference.with_sandwich(twice, frame, y, cluster=subject)
    once = inference.with_sandwich(lines, DATA.frame, DATA.y)
    tables = [inference.coefficients(each)[["estimate", "standard error"]] for each in (robust, once)]
    np.testing.assert_allclose(*tables, rtol=1e-3)


def test_saved_model_keeps_its_covariance(curved: SurvivalRegression, tmp_path: Path) -> None:
    robust = inference.with_sandwich(curved, DATA.frame, DATA.y)
    for model in (curved, robust):
        model.save(tmp_path / "model")
        again = SurvivalRegression.load(tmp_path / "model")
        for table in (inference.coefficients, inference.terms):
            pd.testing.assert_frame_equal(table(again), table(model))
        assert again.covariance_.kind == model.covariance_.kind


def test_models_without_covariance_say_why() -> None:
    nodec = SoftSurvivalTree(depth=1, leaf="weibull", trainer=Nodec(), init="random", n_starts=1)
    held = SurvivalRegression("weibull", columns=Columns(numeric="linear", monotone={"pnodes": "up"}))
    for model, reason in ((nodec, "have no covariance: gates"), (held, "restricted by monotone")):
        with pytest.raises(ConfigError, match=reason):
            inference.coefficients(model.fit(DATA.frame, DATA.y))


def test_bad_arguments_raise(lines: SurvivalRegression) -> None:
    rows, none, predict = (lines, DATA.frame, DATA.y), ROWS[:0], inference.predict
    for error, message, call in (
        (DataError, "has no category 'IV'", lambda: inference.effect(lines, "tgrade", "IV", "I")),
        (DataError, "column 'nodes'", lambda: inference.effect(lines, "nodes", 10, 1)),
        (DataError, "one label", lambda: inference.with_sandwich(*rows, cluster=np.zeros(len(DATA.frame)))),
        (DataError, "not fitted to these rows", lambda: inference.with_sandwich(*rows, DATA.frame["age"])),
        (ConfigError, "level", lambda: lines.coefficients(level=95)),
        (ConfigError, "times must be given", lambda: predict(lines, ROWS)),
        (ConfigError, "needs competing causes", lambda: predict(lines, ROWS, "incidence", TIMES)),
        (ConfigError, "tau must be a finite time", lambda: predict(lines, ROWS, "rmst")),
        (ConfigError, "what must be one of", lambda: predict(lines, ROWS, "hazard", TIMES)),
        (DataError, "a row of X_b for each of X_a", lambda: contrast(lines, ROWS, ROWS[:2], TIMES)),
        (DataError, "no rows", lambda: predict(lines, none, times=TIMES)),
        (DataError, "no rows", lambda: contrast(lines, none, none, TIMES)),
        (ConfigError, "must be a fitted soft survival tree", lambda: predict(None, ROWS, times=TIMES)),
    ):
        with pytest.raises(error, match=message):
            call()


def test_marginal_covariance_of_a_likelihood_that_is_not_concave_stays_finite() -> None:
    # Curvatures of the likelihood; in the last direction it is convex, with a slope that moves the estimate.
    curvature, penalty = torch.tensor([50.0, 10.0, -0.5]).double(), 1e6
    posterior, theta = torch.diag(1 / (curvature + penalty)), torch.tensor([0.0, 0.0, 1e-6]).double()
    found = marginal_covariance(posterior, theta, torch.full((3,), penalty).double(), torch.zeros(3))
    known = marginal_covariance(
        posterior[:2, :2], theta[:2], torch.full((2,), penalty).double(), torch.zeros(2)
    )
    torch.testing.assert_close(found[:2, :2], known)
    torch.testing.assert_close(found[2, 2], posterior[2, 2])


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
    curved: SurvivalRegression, competing: SurvivalRegression, what: Any
) -> None:
    model, (predicted, scale) = competing if what == "incidence" else curved, QUANTITIES[what]
    X = ROWS[list(model.feature_names_in_)].set_axis(list("abcd"))
    found = inference.predict(model, X, what, TIMES, tau=1500.0)
    assert found.estimate == pytest.approx(predicted(model, X), rel=1e-9)
    assert (found.lower < found.upper).all()
    assert scale(found.lower) + scale(found.upper) == pytest.approx(2 * scale(found.estimate), rel=1e-9)
    near = inference.predict(model, X, what, TIMES, tau=1500.0, level=0.001)
    assert near.upper - near.lower == pytest.approx(2 * norm.ppf(0.5005) * near.standard_error, rel=1e-4)
    axes = [X.index, *([["early", "late"]] * (what == "incidence")), *([TIMES] * (found.times is not None))]
    assert list(found.to_frame().index) == (list(product(*axes)) if len(axes) > 1 else list(X.index))


def test_weibull_survival_has_the_error_of_the_closed_form(lines: SurvivalRegression) -> None:
    covariance, tree = lines.covariance_.hazards["event"], lines.tree_
    x, leaf = tree.encode(ROWS), tree.module.leaf_parameters()
    linear, a = (x @ leaf.slope[0] + leaf.intercept[0]).detach(), float(leaf.shape[0, 0].detach().exp())
    z = a * (torch.tensor(TIMES).log() - float(tree.module.log_time_scale) - linear[:, None])
    # log H = a (log t - g): derivatives -a in g and z in log a; coefficients are intercept, slopes, log a.
    of_linear = -a * torch.cat([torch.ones(len(x), 1).double(), x], 1)[:, None].expand(-1, 3, -1)
    gradient = torch.cat([of_linear, z[..., None]], -1)
    error = (gradient @ covariance.covariance * gradient).sum(-1).sqrt() * z.exp() * (-z.exp()).exp()
    found = inference.predict(lines, ROWS, times=TIMES)
    assert found.standard_error == pytest.approx(error.numpy(), rel=1e-6)


def test_causes_are_independent() -> None:
    frame, late = DATA.frame[["pnodes", "horTh"]], (DATA.frame["age"] > 55).to_numpy()
    outcomes = [Surv(DATA.time, np.where(DATA.event, 1 + late, 0), causes=("early", "late"))]
    outcomes += [Surv(DATA.time, DATA.event & own) for own in (late, ~late)]
    variances = []
    for y in outcomes:
        model = SurvivalRegression("weibull", **LINES).fit(frame, y)
        found = inference.predict(model, frame[:4], times=TIMES)
        variances.append((found.standard_error / found.estimate) ** 2)  # of the log survival
    assert variances[0] == pytest.approx(variances[1] + variances[2], rel=1e-5)


def test_contrast_of_equal_rows_is_zero_and_of_others_their_difference(curved: SurvivalRegression) -> None:
    treated, untreated = (ROWS.assign(horTh=value) for value in ("yes", "no"))
    none = contrast(curved, treated, treated, TIMES)
    assert (none.estimate == 0).all()
    assert none.standard_error == pytest.approx(0.0, abs=1e-12)
    found = contrast(curved, treated, untreated, TIMES)
    parts = [inference.predict(curved, each, times=TIMES) for each in (treated, untreated)]
    assert found.estimate == pytest.approx(parts[0].estimate - parts[1].estimate)
    independent = np.hypot(parts[0].standard_error, parts[1].standard_error)
    assert (found.standard_error < independent).all()
    mean = contrast(curved, treated, untreated, TIMES, average=True)
    assert mean.estimate[0] == pytest.approx(found.estimate.mean(0))
    assert (mean.standard_error[0] <= found.standard_error.mean(0) + 1e-12).all()
    assert mean.to_frame().index[0] == ("mean", TIMES[0])


@pytest.mark.filterwarnings("ignore:column 'tsize'")
def test_limits_at_time_zero_and_where_survival_underflows(lines: SurvivalRegression) -> None:
    found = inference.predict(lines, ROWS[:2].assign(tsize=[20.0, 1500.0]), times=[0.0, 4000.0])
    assert (found.lower[:, 0] == 1).all()
    assert (found.upper[:, 0] == 1).all()
    assert found.estimate[1, 1] == 0
    np.testing.assert_array_equal(np.isnan(found.upper), [[False, False], [False, True]])


def test_sandwich_of_start_stop_rows_is_by_subject() -> None:
    frame = pd.concat([DATA.frame, DATA.frame.assign(age=DATA.frame["age"] + 1)], ignore_index=True)
    y = halved(DATA.y)
    model = SurvivalRegression("weibull", **LINES).fit(frame, y)
    robust = inference.with_sandwich(model, frame, y)
    assert robust.covariance_.clusters == len(DATA)
    ratio = inference.coefficients(robust)["standard error"] / model.coefficients()["standard error"]
    assert ratio.between(0.5, 2).all()


SMALL, LARGE = ["age"], ["age", "pnodes", "tsize"]


@pytest.mark.parametrize(
    ("leaf", "peer"), [("weibull", WeibullAFTFitter), ("log_logistic", LogLogisticAFTFitter)]
)
def test_statistic_is_that_of_lifelines(leaf: str, peer: type, gbsg2: SurvivalData) -> None:
    X = gbsg2.frame[LARGE].astype(float)
    smaller, larger = (SurvivalRegression(leaf, **LINES).fit(X[names], gbsg2.y) for names in (SMALL, LARGE))
    found = likelihood_ratio_test(smaller, larger, X, gbsg2.y)
    table = X.assign(time=gbsg2.time, event=gbsg2.event)
    fits = [peer().fit(table[[*names, "time", "event"]], "time", "event") for names in (SMALL, LARGE)]
    expected = 2 * (fits[1].log_likelihood_ - fits[0].log_likelihood_)
    assert found["statistic"] == pytest.approx(expected, rel=1e-5)
    assert found["df"] == 2
    assert found["p"] == pytest.approx(chi2.sf(expected, 2), rel=1e-3)


def test_what_cannot_be_compared(gbsg2: SurvivalData) -> None:
    X, y = gbsg2.frame[LARGE].astype(float), gbsg2.y
    X = X.assign(years=2 * X["age"], a=X["age"] % 5, b=X["age"] % 7)
    smaller, larger, twice, nodes, noise = (
        SurvivalRegression("weibull", **LINES).fit(X[names], y)
        for names in (SMALL, LARGE, ["age", "years"], ["pnodes"], ["a", "b"])
    )
    penalised, half = SurvivalRegression("weibull").fit(X[LARGE], y), range(343)
    for error, message, models, rows in (
        (DataError, "exchange them", (larger, smaller), (X, y)),
        (DataError, "estimable coefficients than smaller, which has 3, got 3", (smaller, twice), (X, y)),
        (ConfigError, "without penalties", (smaller, penalised), (X, y)),
        (DataError, "not fitted to these rows", (smaller, larger), (X.iloc[half], y[half])),
        (DataError, "counts of rows", (smaller, larger), (X, y, X["age"] / 10)),
        (DataError, "not nested", (nodes, noise), (X, y)),
    ):
        with pytest.raises(error, match=message):
            likelihood_ratio_test(*models, *rows)

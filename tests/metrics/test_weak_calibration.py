"""Observed over expected, intercept, slope, ICI and their kin, against lifelines, SciPy and definitions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from scipy.optimize import least_squares

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    CalibrationErrors,
    HorizonRows,
    KaplanMeierBand,
    calibration_error_interval,
    calibration_errors,
    calibration_intercept,
    calibration_slope,
    hazard_calibration_curve,
    observed_expected_ratio,
    pseudo_observations,
)
from sstorch.metrics.calibration_errors import ErrorTest
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weak_calibration import fit_cox
from tests.conftest import nightly_but

T = 1.2


def _cohort(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(2.0, n)
    time = np.maximum(np.round(np.minimum(failed, left), 1), 0.1)
    return time, failed <= left, np.exp(-np.exp(0.8 * score + 0.2))


def test_the_cox_regression_is_that_of_lifelines() -> None:
    time, event, survival = _cohort()
    z = np.log(-np.log(survival))
    x = np.column_stack([z, z**2])
    ours = fit_cox(Observed(time, event), x)
    peer = CoxPHFitter().fit(pd.DataFrame({"time": time, "event": event, "a": z, "b": z**2}), "time", "event")
    np.testing.assert_allclose(ours.coefficients, peer.params_, rtol=1e-4)
    np.testing.assert_allclose(ours.covariance, peer.variance_matrix_, rtol=1e-4)
    again = fit_cox(Observed(time, event), x, at=ours.coefficients)
    np.testing.assert_allclose(again.covariance, ours.covariance, rtol=1e-12)
    np.testing.assert_allclose(again.hazard, ours.hazard, rtol=1e-12)


def test_the_hazard_is_efrons_and_without_ties_breslows() -> None:
    rng = np.random.default_rng(3)
    time, event, x = rng.exponential(size=80), rng.random(80) < 0.7, rng.normal(size=(80, 1))
    ours = fit_cox(Observed(time, event), x)
    peer = CoxPHFitter().fit(pd.DataFrame({"time": time, "event": event, "x": x[:, 0]}), "time", "event")
    hazard = np.exp((x - ours.centre) @ ours.coefficients) * ours.hazard[ours.times <= ours.times[30]].sum()
    curve = peer.predict_cumulative_hazard(pd.DataFrame({"x": x[:, 0]}), times=ours.times[[30]]).to_numpy()[0]
    np.testing.assert_allclose(hazard, curve, rtol=1e-6)
    # Moving the hazard and the coefficient by their errors, one after the other, where they are independent.
    at_mean = np.append(1.0, ours.hazard @ ours.mean / ours.hazard.sum())
    estimates, covariance = ours.log_hazard()
    assert np.exp(estimates[0]) == pytest.approx(ours.hazard.sum())
    error = np.sqrt(at_mean @ covariance @ at_mean)
    assert error == pytest.approx(np.sqrt((ours.hazard**2).sum()) / ours.hazard.sum(), rel=1e-10)
    # Two events at one time leave one after the other, the second time with half of both at risk.
    tied = fit_cox(
        Observed(np.array([1.0, 1.0, 2.0, 2.0]), np.array([True, True, False, True])),
        np.array([[0.0], [1.0], [0.5], [0.0]]),
    )
    weight = np.exp((np.array([0.0, 1.0, 0.5, 0.0]) - 0.375) * tied.coefficients[0])
    steps = [1 / weight.sum(), 1 / (weight.sum() - weight[:2].sum() / 2), 1 / weight[2:].sum()]
    np.testing.assert_allclose(tied.hazard, steps, rtol=1e-12)


def test_influences_are_derivatives_by_weights_with_entry() -> None:
    rng = np.random.default_rng(1)
    time, event, survival = _cohort(60)
    z = np.log(-np.log(survival))
    x, weight = np.column_stack([z, z**2]), rng.uniform(0.3, 3.0, 60)
    entry = np.where(np.arange(60) % 3, -np.inf, 0.5 * time)
    fitted, step = fit_cox(Observed(time, event, entry, weight), x), 1e-5
    moved = []
    for unit in np.diag(weight):
        two = [fit_cox(Observed(time, event, entry, weight + s * step * unit), x) for s in (1, -1)]
        hazards = [np.insert(x[:2] - each.centre, 0, 1.0, axis=1) @ each.log_hazard()[0] for each in two]
        moved.append([*(two[0].coefficients - two[1].coefficients), *(hazards[0] - hazards[1])])
    influence, design = fitted.log_hazard_influence(), np.insert(x[:2] - fitted.centre, 0, 1.0, axis=1)
    found = np.column_stack([influence[:, 1:], influence @ design.T])
    np.testing.assert_allclose(found, np.array(moved) / (2 * step), atol=1e-7)


def test_observed_over_expected() -> None:
    time, event, survival = _cohort()
    alive = KaplanMeierFitter().fit(time, event).survival_function_at_times(T).iloc[0]
    estimate = observed_expected_ratio(HorizonRows.of((time, event), survival, T))
    assert estimate.value == pytest.approx((1.0 - alive) / (1.0 - survival).mean(), abs=1e-12)
    greenwood = KaplanMeierBand.fit((time, event)).at(T)  # whose limits equal those of R's survfit
    error = np.log(np.log(greenwood.lower) / np.log(greenwood.value)) / 1.959964  # of log(-log S)
    error *= -alive * np.log(alive) / (1 - alive)  # of log(1 - S)
    assert np.log(estimate.upper / estimate.value) == pytest.approx(1.959964 * error, rel=1e-6)
    everybody = observed_expected_ratio(HorizonRows.of(([1.0, 2.0], [1, 1]), [0.2, 0.4], 2.0))
    assert np.isnan(everybody[1:]).all()  # 1 - S is 1, without an error


@pytest.mark.parametrize("name", nightly_but({"e50"}, CalibrationErrors._fields))
def test_limits_of_errors_hold_zero_for_true_predictions_and_not_for_false_ones(name: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=500)
    time, censoring = rng.exponential(np.exp(-z)), rng.exponential(3.0, 500)
    y = np.minimum(time, censoring), time <= censoring
    right, shifted = (HorizonRows.of(y, np.exp(-np.exp(z + shift)), 1.0) for shift in (0.0, 0.7))
    true = calibration_error_interval(right, name=name)
    assert true.value == getattr(calibration_errors(right), name)
    assert true.lower == 0.0 < true.value <= true.upper
    false = calibration_error_interval(shifted, name=name)
    assert 0.0 < false.lower < false.value < false.upper
    wide = calibration_error_interval(shifted, 0.99, name=name)
    assert wide.lower < false.lower < false.upper < wide.upper
    equal = HorizonRows.of(y, np.exp(-np.exp(z + 0.7)), 1.0, sample_weight=np.full(500, 2.0))
    assert calibration_error_interval(equal, name=name) == false
    with pytest.raises(ConfigError, match="name"):
        calibration_error_interval(right, name="emax")


def test_calibration_is_tested_with_the_variance_of_as_many_events_as_it_expects() -> None:
    time, event, survival = _cohort()
    tests = [ErrorTest(HorizonRows.of((time, event), s, T), "ici") for s in (survival, survival**2)]
    one, two = (test.curve.calibrated() for test in tests)
    np.testing.assert_allclose(two, one / 2, rtol=1e-10)  # twice the events are expected
    np.testing.assert_allclose(tests[1].curve.covariance, tests[0].curve.covariance, rtol=1e-6)
    assert tests[0].accepted(0.0) != tests[0].accepted(1e-12)


def test_slope() -> None:
    time, event, survival = _cohort()
    frame = pd.DataFrame({"time": np.minimum(time, T), "event": event & (time <= T)})
    peer = CoxPHFitter().fit(frame.assign(z=np.log(-np.log(survival))), "time", "event")
    estimate = calibration_slope(HorizonRows.of((time, event), survival, T))
    assert estimate.value == pytest.approx(peer.params_["z"], rel=1e-5)
    interval = peer.confidence_intervals_.to_numpy()[0]
    np.testing.assert_allclose([estimate.lower, estimate.upper], interval, rtol=1e-5)


def test_intercept_is_least_squares_of_pseudo_observations() -> None:
    time, event, survival = _cohort()
    z, outcome = np.log(-np.log(survival)), 1.0 - pseudo_observations((time, event), t=T)
    peer = least_squares(
        lambda a: outcome - (1.0 - np.exp(-np.exp(z + a))),
        0.0,
        jac="3-point",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    estimate = calibration_intercept(HorizonRows.of((time, event), survival, T))
    assert estimate.value == pytest.approx(peer.x[0], abs=1e-6)
    slope = -peer.jac[:, 0]
    error = np.sqrt(((peer.fun * slope) ** 2).sum()) / (slope**2).sum()
    assert estimate.upper - estimate.value == pytest.approx(1.959964 * error, rel=1e-5)


def test_predictions_that_are_right_up_to_a_shift_and_a_stretch() -> None:
    """Without censoring, 50000 rows: the intercept and the slope undo what was done to the true curves."""
    rng = np.random.default_rng(4)
    z = 0.5 * rng.normal(size=50_000) - 0.5
    time = rng.exponential(np.exp(-z))
    event = np.ones(time.size, dtype=bool)
    shifted = np.exp(-np.exp(z - 0.4))
    shifted_rows = HorizonRows.of((time, event), shifted, 1.0)
    assert calibration_intercept(shifted_rows).value == pytest.approx(0.4, abs=0.03)
    stretched = np.exp(-np.exp(2.0 * z))
    slope = calibration_slope(HorizonRows.of((time, event), stretched, 1.0))
    assert slope.value == pytest.approx(0.5, abs=0.02)
    right = calibration_errors(HorizonRows.of((time, event), np.exp(-np.exp(z)), 1.0))
    assert right.e_max < 0.02
    wrong = calibration_errors(shifted_rows)
    truth = np.abs(np.exp(-np.exp(z)) - shifted)
    expected = [truth.mean(), *np.quantile(truth, [0.5, 0.9]), truth.max()]
    np.testing.assert_allclose(wrong, expected, atol=0.01)


def test_the_curve_and_its_errors_belong_together() -> None:
    time, event, survival = _cohort()
    curve = hazard_calibration_curve(HorizonRows.of((time, event), survival, T))
    assert (np.diff(curve["predicted"]) > 0).all()
    assert ((curve["lower"] > 0) & (curve["lower"] < curve["observed"])).all()
    assert ((curve["observed"] < curve["upper"]) & (curve["upper"] < 1)).all()
    observed = np.interp(survival, curve["predicted"], curve["observed"])
    errors = calibration_errors(HorizonRows.of((time, event), survival, T))
    assert np.abs(observed - survival).mean() == pytest.approx(errors.ici, abs=1e-3)
    assert errors.e50 < errors.e90 < errors.e_max


def test_two_distinct_predictions_have_a_line() -> None:
    time, event, survival = _cohort()
    groups = np.where(survival > 0.5, 0.7, 0.3)
    curve = hazard_calibration_curve(HorizonRows.of((time, event), groups, T))
    assert curve["predicted"].tolist() == [0.3, 0.7]
    errors = calibration_errors(HorizonRows.of((time, event), groups, T))
    distance = np.abs(curve["observed"] - curve["predicted"])
    assert errors.e_max == pytest.approx(distance.max(), abs=1e-12)


@pytest.mark.parametrize("function", [calibration_slope, calibration_intercept, calibration_errors])
def test_certain_predictions_are_refused_with_a_remedy(function: Any) -> None:
    with pytest.raises(DataError, match=r"cut them, for instance with np.clip"):
        function(HorizonRows.of(([1, 2, 3], [1, 1, 0]), [0.0, 0.5, 0.6], 2.5))


def test_what_is_refused() -> None:
    time, event = [1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0]
    for function in (calibration_slope, calibration_errors):
        with pytest.raises(DataError, match="all predictions are equal"):
            function(HorizonRows.of((time, event), [0.4] * 4, 3.5))
        with pytest.raises(DataError, match="no finite maximum"):
            function(HorizonRows.of((time, event), [0.1, 0.2, 0.2, 0.3], 1.5))
    with pytest.raises(DataError, match="every prediction is 1"):
        observed_expected_ratio(HorizonRows.of((time, event), [1.0] * 4, 3.5))
    for function in (calibration_slope, calibration_intercept, calibration_errors, observed_expected_ratio):
        with pytest.raises(DataError, match="no row has an event up to"):
            function(HorizonRows.of(([1.0, 2.0], [0, 1]), [0.4, 0.5], 1.5))


def test_intercept_without_a_minimum_raises() -> None:
    """Least squares fall up to an infinite intercept; rounding of outcomes was a zero of the equation."""
    survival, weight = [0.5, 0.2, 0.9, 0.3, 0.8, 0.3, 0.8, 0.1], [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 2.0]
    rows = HorizonRows.of(([2, 3, 1, 4, 1, 2, 3, 1], np.ones(8)), survival, 2.0, sample_weight=weight)
    with pytest.raises(DataError, match="no intercept"):
        calibration_intercept(rows)

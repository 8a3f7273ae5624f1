import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from scipy.stats import chi2

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    KaplanMeier,
    calibration_curve,
    d_calibration,
    group_scores,
    grouped_calibration,
    integrated_calibration_index,
    one_calibration,
    pseudo_observations,
)

from .cohorts import cohorts, scored
from .oracles import step_value

CLOSE = 1e-10


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


def exponential(n, seed, factor=1.0):
    """Rows with known rates; curves exp(-factor rate t) on all their times."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(4.0, 0.25, n)
    life, censoring = rng.exponential(1.0 / rate), rng.exponential(2.0, n)
    time = np.minimum(life, censoring)
    times = np.unique(time)
    return time, life <= censoring, np.exp(-factor * np.outer(rate, times)), times, rate


@given(cohorts(min_size=2), st.sampled_from([0.5, 1.0, 3.5, 20.0]))
def test_pseudo_observations_leave_each_row_out(rows, t):
    n = rows.time.size
    whole = float(KaplanMeier.fit(rows).at(t))
    expected = [
        n * whole
        - (n - 1) * float(KaplanMeier.fit((np.delete(rows.time, i), np.delete(rows.event, i))).at(t))
        for i in range(n)
    ]
    np.testing.assert_allclose(pseudo_observations(rows, t=t), expected, rtol=0, atol=CLOSE)


@given(
    cohorts(min_size=4),
    st.sampled_from(["binomial", "greenwood", "effective"]),
    st.sampled_from(["groups", "groups-1"]),
    st.data(),
)
def test_one_calibration_equals_lifelines_in_each_group(rows, variance, freedom, data):
    n, t, n_bins = rows.time.size, 3.5, 3
    assume(rows.time.min() <= t <= rows.time.max())
    predicted = np.array(data.draw(st.lists(st.integers(1, 7), min_size=n, max_size=n))) / 8
    try:
        result = one_calibration(
            rows, predicted, t=t, n_bins=n_bins, variance=variance, degrees_of_freedom=freedom
        )
    except DataError as error:
        if "all predictions are equal" not in str(error) and "variance 0" not in str(error):
            raise
        return
    groups = {}
    for i, p in enumerate(predicted):
        groups.setdefault(int(sum(predicted < p)) * n_bins // n, []).append(i)
    statistic = 0.0
    for row, key in zip(result.table.itertuples(), sorted(groups), strict=True):
        own = groups[key]
        km = KaplanMeierFitter().fit(rows.time[own], rows.event[own])
        assert row.n == len(own)
        if rows.time[own].max() < t and km.predict(t) > 0:  # censored before t: S(t) is not identified
            assert np.isnan([row.observed, row.variance]).all()
            statistic = np.nan
            continue
        assert row.observed == pytest.approx(km.predict(t), abs=CLOSE)
        assert row.predicted == pytest.approx(np.mean(predicted[own]), abs=CLOSE)
        if variance != "binomial" and row.observed > 0:
            greenwood = sum(
                row.observed**2 * d / (r * (r - d))
                for u, d, r in zip(
                    km.event_table.index, km.event_table["observed"], km.event_table["at_risk"], strict=True
                )
                if u <= t and r > d
            )
            null, known = row.predicted * (1 - row.predicted), (rows.event | (rows.time >= t))[own].sum()
            if variance == "greenwood":
                assert row.variance == pytest.approx(greenwood, abs=CLOSE)
            elif greenwood > 0:
                share = greenwood / (row.observed * (1 - row.observed))
                assert row.variance == pytest.approx(null * share, abs=CLOSE)
            else:
                assert row.variance == pytest.approx(null / max(1, known), abs=CLOSE)
        if row.variance > 0:
            statistic += (row.observed - row.predicted) ** 2 / row.variance
    assert result.statistic == pytest.approx(statistic, rel=1e-9, nan_ok=True)
    assert bool(result.reason) == np.isnan(result.statistic) == np.isnan(result.p_value)
    free = len(groups) - (freedom == "groups-1")
    assert result.degrees_of_freedom == free
    assert result.p_value == pytest.approx(chi2.sf(statistic, free), abs=CLOSE, nan_ok=True)


def two_follow_ups(rng):
    """Exponential survival at rates .5 and 1, followed for 3 and 1: S(2) is unknown in the second group."""
    rate = np.repeat([0.5, 1.0], 200)
    life, censoring = rng.exponential(1.0 / rate), np.where(rate == 0.5, 3.0, 1.0)
    return np.minimum(life, censoring), life <= censoring, rate


def test_group_followed_for_less_than_t_has_no_observed_risk():
    """prodlim's `predict` gives NA there; carried forward, the true model was rejected with p = 3e-32."""
    time, event, rate = two_follow_ups(np.random.default_rng(0))
    result = one_calibration((time, event), np.exp(-2.0 * rate), t=2.0, n_bins=2)
    assert np.isnan([result.statistic, result.p_value]).all()
    assert "group 0 of 2" in result.reason
    assert np.isnan(result.table["observed"][0])
    assert result.table["observed"][1] == pytest.approx(0.415, abs=0.001)
    known = one_calibration((time, event), np.exp(-0.9 * rate), t=0.9, n_bins=2)
    assert known.reason == ""
    assert np.isfinite(known.p_value)
    table = grouped_calibration((time, event), np.exp(-2.0 * rate), t=2.0, n_bins=2)
    assert table["observed"].isna().tolist() == table["standard_error"].isna().tolist() == [False, True]
    assert table["reason"].astype(bool).tolist() == [False, True]
    assert table["observed"][0] == pytest.approx(0.585, abs=0.001)
    curves = np.exp(-np.outer(rate, [1.0, 2.0]))
    scores = group_scores((time, event), curves, [1.0, 2.0], (rate == 1) * 1, tau=2.0, n_groups=2)
    assert scores["calibration"].isna().tolist() == [False, True]


@pytest.mark.nightly
def test_true_predictions_are_rejected_as_often_as_stated_with_and_without_censoring():
    rng = np.random.default_rng(7)
    for scale in (np.inf, 1.0):
        rejected = {"effective": 0, "binomial": 0}
        for _ in range(300):
            rate = rng.gamma(4.0, 0.25, 300)
            life = rng.exponential(1 / rate)
            censoring = np.full(300, np.inf) if scale == np.inf else rng.exponential(scale, 300)
            time, event = np.minimum(life, censoring), life <= censoring
            t = float(np.median(time[event]))
            for variance in rejected:
                result = one_calibration((time, event), np.exp(-rate * t), t=t, variance=variance)
                rejected[variance] += result.p_value < 0.05
        assert 3 <= rejected["effective"] <= 27  # 15 expected; 3 standard errors
        assert scale == np.inf or rejected["binomial"] > 27


def test_one_calibration_equals_survival_eval():
    oracle = survival_eval("single_time.one_calibration")
    time, event, _, _, rate = exponential(400, 3)
    predicted = np.exp(-0.7 * rate)
    p_value, details = oracle.one_calibration(
        1 - predicted, time, event, 0.7, num_bins=10, adjust_variance=False, return_details=True
    )
    result = one_calibration(
        (time, event), predicted, t=0.7, variance="binomial", degrees_of_freedom="groups-1"
    )
    np.testing.assert_allclose(
        result.table["observed"], 1 - np.array(details["observed_probabilities"]), atol=CLOSE
    )
    statistic = (
        (np.array(details["observed_probabilities"]) - details["expected_probabilities"]) ** 2
        / details["variances"]
    ).sum()
    assert result.statistic == pytest.approx(statistic, rel=1e-9)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 9), abs=CLOSE)
    assert 0.0 <= p_value <= 1.0  # its own degrees of freedom for unadjusted variances differ


def test_curve_and_index_of_true_and_false_predictions():
    time, event, _, _, rate = exponential(2000, 1)
    truth = np.exp(-0.7 * rate)
    curve = calibration_curve((time, event), truth, t=0.7)
    inner = curve[(curve["predicted"] > 0.3) & (curve["predicted"] < 0.7)]
    assert (inner["observed"] - inner["predicted"]).abs().max() < 0.05
    inside = (inner["lower"] <= inner["predicted"]) & (inner["predicted"] <= inner["upper"])
    assert inside.mean() > 0.8
    assert (curve["upper"] >= curve["observed"]).all()
    assert (curve["observed"] >= curve["lower"]).all()
    good = integrated_calibration_index((time, event), truth, t=0.7)
    bad = integrated_calibration_index((time, event), truth**2, t=0.7)
    assert good < 0.03
    assert bad == pytest.approx(np.abs(truth**2 - truth).mean(), abs=0.03)
    wider = calibration_curve((time, event), truth, t=0.7, level=0.99)
    assert (wider["lower"] <= curve["lower"]).all()


def test_local_lines_equal_weighted_least_squares():
    rng = np.random.default_rng(0)
    time, event = rng.permutation(40) + 1.0, np.ones(40)
    predicted = rng.random(40)
    curve = calibration_curve((time, event), predicted, t=20.5)
    alive = (time > 20.5).astype(float)
    for point, observed in zip(curve["predicted"], curve["observed"], strict=True):
        distance = np.abs(predicted - point)
        weight = np.clip(1 - (distance / np.sort(distance)[29]) ** 3, 0, None) ** 3
        design = np.column_stack((np.ones(40), predicted - point))
        root = np.sqrt(weight)
        expected = np.linalg.lstsq(design * root[:, None], alive * root, rcond=None)[0][0]
        assert observed == pytest.approx(np.clip(expected, 0, 1), abs=1e-9)


def test_predictions_of_few_leaves_are_their_own_groups():
    time, event = np.arange(1.0, 41.0), np.ones(40)
    predicted = np.repeat([0.2, 0.9], 20)
    curve = calibration_curve((time, event), predicted, t=10.5)
    assert curve["predicted"].tolist() == [0.2, 0.9]
    assert curve["observed"].tolist() == pytest.approx([0.5, 1.0])
    index = integrated_calibration_index((time, event), predicted, t=10.5)
    assert index == pytest.approx(0.2, abs=CLOSE)
    assert len(one_calibration((time, event), predicted, t=10.5, variance="binomial").table) == 2


@given(cohorts(min_size=2), st.data())
def test_the_index_is_defined_for_any_predictions(rows, data):
    n = rows.time.size
    predicted = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))) / 4
    assume(n > 1)
    for t in (rows.time.min(), rows.time.mean(), rows.time.max()):
        assert 0.0 <= integrated_calibration_index(rows, predicted, t=t) <= 1.0


def test_refusals():
    rows, predicted = ([1.0, 2.0, 3.0], [1, 1, 0]), [0.1, 0.5, 0.9]
    for n_bins in (1, 2.5, True, "10"):
        with pytest.raises(ConfigError, match="n_bins must be at least 2, an integer, got"):
            d_calibration(rows, [[0.5]] * 3, [1.0], n_bins=n_bins)
    with pytest.raises(DataError, match=r"survival must be probabilities in \[0, 1\], got 365 in 1 row"):
        one_calibration(rows, [0.1, 0.2, 365.0], t=2.0)
    with pytest.raises(DataError, match=r"survival must be one number per row"):
        one_calibration(rows, np.full((3, 2), 0.5), t=2.0)
    with pytest.raises(DataError, match="all predictions are equal"):
        one_calibration(rows, [0.5, 0.5, 0.5], t=2.0)
    with pytest.raises(DataError, match=r"group 0 of 2 has variance 0 \(predicted 0, observed 1"):
        one_calibration(([3, 4, 1, 5], [1, 1, 1, 1]), [0.0, 0.0, 0.5, 0.5], t=2.0, n_bins=2)
    with pytest.raises(ConfigError, match="got 'km'"):
        one_calibration(rows, predicted, t=2.0, variance="km")
    with pytest.raises(ConfigError, match="t must be one finite time > 0, got nan"):
        integrated_calibration_index(rows, predicted, t=np.nan)
    for level in (95, "a"):
        with pytest.raises(ConfigError, match=r"level must be a number in \(0, 1\), got"):
            calibration_curve(rows, predicted, t=2.0, level=level)
    for function in (one_calibration, integrated_calibration_index, calibration_curve):
        for t in (365.0, 0.01):
            with pytest.raises(DataError, match=r"t must be a time within the observed ones, 1 to 3, got"):
                function(rows, predicted, t=t)
    with pytest.raises(ConfigError, match="got 'n'"):
        one_calibration(rows, predicted, t=2.0, degrees_of_freedom="n")
    days = np.linspace(30.0, 3000.0, 50)
    with pytest.raises(DataError, match=r"times must be a grid within the observed times.*one unit"):
        d_calibration((days, np.ones(50)), np.full((50, 3), 0.5), [1.0, 2.0, 3.0])
    grid = np.linspace(0.1, 35.0, 30)
    with pytest.raises(DataError, match=r"time and times must be times in one unit"):
        d_calibration((days, np.ones(50)), np.full((50, 30), 0.5), grid)
    with pytest.raises(DataError, match="one row cannot be left out"):
        pseudo_observations(([1.0], [1]), t=1.0)

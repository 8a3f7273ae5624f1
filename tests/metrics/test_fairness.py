"""Disparities between groups against plain loops."""

import itertools

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from sstorch import metrics
from sstorch.metrics.fairness import gap, group_parity, group_scores, leaf_groups, mean_gini
from sstorch.objective.parity import log_time_quadrature

RNG = np.random.default_rng(3)
TIMES = np.linspace(0.2, 6.0, 40)
RATE = RNG.uniform(0.1, 1.0, 50)
CURVES = np.exp(-RATE[:, None] * TIMES)
GROUP = RNG.integers(0, 3, 50)
TIME, EVENT = RNG.exponential(2, 50), RNG.uniform(size=50) < 0.6


def test_parity_against_pairs_and_a_closed_form() -> None:
    measure = RNG.uniform(0, 1, 40)
    total = pairs = 0.0
    for i, j in itertools.combinations(range(50), 2):
        if GROUP[i] != GROUP[j]:
            total += float(measure @ (CURVES[i] - CURVES[j]) ** 2)
            pairs += 1
    value = group_parity(CURVES, measure, GROUP)
    np.testing.assert_allclose(value, total / pairs, rtol=1e-12)
    # Two exponential curves from 1 to 9: the integral of their squared difference is known.
    nodes, weights = log_time_quadrature(1.0, 9.0, 64)
    first, cross, second = ((np.exp(-rate) - np.exp(-9 * rate)) / rate for rate in (0.6, 0.8, 1.0))
    value = group_parity(np.exp(-np.outer([0.3, 0.5], nodes)), weights, [0, 1])
    np.testing.assert_allclose(value, first - 2 * cross + second, rtol=1e-12)
    assert group_parity(np.tile(CURVES[:1], (50, 1)), measure, GROUP) == 0


def test_gini_of_leaves_and_gaps() -> None:
    table = leaf_groups([0, 0, 0, 0, 1, 1, 3], [0, 0, 1, 1, 1, 1, 0], n_groups=2, n_leaves=4)
    assert table["rows"].tolist() == [4, 2, 0, 1]
    np.testing.assert_allclose(table["gini"], [1, 0, np.nan, 0])
    np.testing.assert_allclose(table["share_0"], [0.5, 0, np.nan, 1])
    assert mean_gini(table) == pytest.approx((1 / 3, 4 / 7))
    # The leaf of the paper's run at rho = 0: 2 men of 13.
    paper = leaf_groups([0] * 13, [0] * 2 + [1] * 11, n_groups=2, n_leaves=1)
    assert paper["gini"][0] == pytest.approx(4 * 2 * 11 / 13**2)
    assert leaf_groups([0, 0, 0], [0, 1, 2], n_groups=3, n_leaves=1)["gini"][0] == pytest.approx(1)
    found = [gap(values) for values in ([2.0, 5.0, 3.0], [2.0, np.nan], [np.inf, np.inf], [1.0, np.inf])]
    np.testing.assert_equal(found, [3.0, np.nan, 0.0, np.inf])


def test_scores_of_groups() -> None:
    tau, fine = 4.0, np.linspace(0, 4.0, 4001)
    table = group_scores((TIME, EVENT), CURVES, TIMES, GROUP, tau=tau, n_groups=4)
    assert table["rows"].tolist() == [*np.bincount(GROUP), 0]
    for g in range(3):
        inside, own = g == GROUP, table.loc[g]
        expected = metrics.concordance_harrell((TIME[inside], EVENT[inside]), CURVES[inside], TIMES)
        assert own["c_harrell"] == pytest.approx(expected)
        peer = KaplanMeierFitter().fit(TIME[inside], EVENT[inside]).predict(tau)
        step = np.searchsorted(TIMES, tau, side="right") - 1
        assert own["calibration"] == pytest.approx(CURVES[inside, step].mean() - float(peer))
        mean = np.exp(-RATE[inside, None] * fine).mean(0)
        assert own["rmst"] == pytest.approx(np.trapezoid(mean, fine), rel=1e-3)
        assert mean.min() > 0.5 or np.interp(own["median"], fine, mean) == pytest.approx(0.5, abs=2e-3)
    assert table.loc[3].drop(["rows", "events"]).isna().all()
    y = ([1.0, 2.0, 3.0], [1, 1, 0])  # the second group has no comparable pair
    table = group_scores(y, CURVES[:3], TIMES, [0, 0, 1], tau=2.0, n_groups=2)
    assert table["c_harrell"].isna().tolist() == [False, True]
    assert np.isfinite(table[["median", "rmst", "calibration"]].to_numpy()).all()

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from scipy.integrate import quad

import sstorch.metrics.brier as brier_module
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import brier_score, censoring_distribution, evaluation_times, integrated_brier_score

from .cohorts import scored
from .oracles import g_by_loops, last_positive_g, sksurv_metrics, structured, study

CLOSE = 1e-10


def brier_by_loops(rows, t, s, convention):
    """BS(t) from the formula; s[i] is S_i(t)."""
    total, floor = 0.0, last_positive_g(rows.train)
    for i, t_i in enumerate(rows.time):
        if t_i <= t and rows.event[i]:
            term, g = s[i] ** 2, g_by_loops(rows.train, t_i, left=convention == "graf")
        elif t_i > t:
            term, g = (1 - s[i]) ** 2, g_by_loops(rows.train, t, left=False)
        else:
            continue
        if convention == "graf":
            total += term / max(g, floor)
        elif g > 0:
            total += term / g
    return total / len(rows.time)


def integral_by_loops(rows):
    """(1/tmax) of the integral over each stretch on which BS is smooth, by adaptive quadrature."""
    last = max(rows.time)
    grid, survival = rows.times, rows.survival
    if grid[0] > 0:
        grid, survival = np.r_[0.0, grid], np.c_[np.ones(len(rows.time)), survival]

    def value(t):
        return brier_by_loops(rows, t, [np.interp(t, grid, curve) for curve in survival], "graf")

    knots = sorted({0.0, *grid, *rows.time, *rows.train.time})
    knots = [k for k in knots if k <= last]
    return sum(quad(value, a, b, limit=5, epsabs=1e-11)[0] for a, b in pairwise(knots)) / last


@given(scored())
@pytest.mark.parametrize("convention", ["graf", "sksurv"])
def test_curve_equals_loops(convention, rows):
    got = brier_score(rows[:2], *rows[2:4], train=rows.train, convention=convention)
    expected = [brier_by_loops(rows, t, rows.survival[:, k], convention) for k, t in enumerate(rows.times)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)


@given(scored())
def test_graf_integral_equals_adaptive_quadrature(rows):
    got = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train)
    assert got == pytest.approx(integral_by_loops(rows), abs=1e-9)


def _sksurv_or_none(rows, times, survival):
    sksurv = sksurv_metrics()
    train, test = structured(*rows.train), structured(rows.time, rows.event)
    try:
        curve = sksurv.brier_score(train, test, survival, times)[1]
        return curve, sksurv.integrated_brier_score(train, test, survival, times)
    except ValueError:
        return None


@given(scored())
def test_sksurv_convention_equals_scikit_survival(rows):
    inside = (rows.times >= rows.time.min()) & (rows.times < rows.time.max())
    times, survival = rows.times[inside], rows.survival[:, inside]
    if times.size < 2 or (expected := _sksurv_or_none(rows, times, survival)) is None:
        return
    kwargs = {"train": rows.train, "convention": "sksurv"}
    np.testing.assert_allclose(
        brier_score((rows.time, rows.event), survival, times, **kwargs), expected[0], rtol=0, atol=CLOSE
    )
    got = integrated_brier_score((rows.time, rows.event), survival, times, **kwargs)
    assert got == pytest.approx(expected[1], abs=CLOSE)
    # Where scikit-survival refuses the wider grid, the overhang is cut off.
    assert integrated_brier_score(rows[:2], *rows[2:4], **kwargs) == pytest.approx(got, abs=CLOSE)


def weibull(n, times):
    return np.exp(-np.outer(np.linspace(0.6, 1.6, n), times**1.3))


def test_blocks_change_nothing(monkeypatch):
    time, event, train = study()
    times = evaluation_times(time, train[0])
    args = ((time, event), weibull(time.size, times), times)
    whole = brier_score(*args, train=train), integrated_brier_score(*args, train=train)
    monkeypatch.setattr(brier_module, "BLOCK_ELEMENTS", 1000)
    np.testing.assert_allclose(brier_score(*args, train=train), whole[0], rtol=1e-13)
    assert integrated_brier_score(*args, train=train) == pytest.approx(whole[1], rel=1e-13)


def test_floor_keeps_the_last_positive_probability_and_is_counted():
    train = ([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 0])  # G = 2/3 from 2, then 0 from 4
    time, event, times = [2.0, 5.0, 6.0], [1, 1, 0], [4.5]
    survival = np.array([[0.3], [0.4], [0.5]])
    assert censoring_distribution(train).at(4.5) == 0.0
    g = 2 / 3
    expected = (0.3**2 + 0.6**2 / g + 0.5**2 / g) / 3
    assert brier_score((time, event), survival, times, train=train)[0] == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("function", [brier_score, integrated_brier_score])
def test_settings_that_do_not_exist(function):
    args, train = (([1, 2, 3], [1, 1, 0]), np.full((3, 3), 0.5), [1, 2, 3]), ([1, 2, 4], [1, 0, 1])
    known = "convention must be one of graf, trapezoid, sksurv, surtree, osst, got 'paper'"
    with pytest.raises(ConfigError, match=known):
        function(*args, train=train, convention="paper")


def test_grids_that_cannot_be_integrated():
    rows = ([1.0, 2.0, 3.0], [1, 1, 0])
    curves = np.full((3, 2), 0.5)
    with pytest.raises(DataError, match=r"largest test time, 3; the grid ends at 2.*evaluation_times"):
        integrated_brier_score(rows, curves, [1.0, 2.0], train=rows)
    with pytest.raises(DataError, match="all test times are 0"):
        integrated_brier_score(([0.0, 0.0], [1, 0]), curves[:2], [0.0, 2.0], train=rows)
    with pytest.raises(DataError, match=r"needs two times in \[1, 3\).*got 1\."):
        integrated_brier_score(rows, curves, [2.0, 3.0], train=rows, convention="sksurv")

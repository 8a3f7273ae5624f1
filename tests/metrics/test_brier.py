"""The Brier score in its conventions, against loops and against the peers they are named after."""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from scipy.integrate import quad

import sstorch.metrics.brier as brier_module
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    KaplanMeier,
    brier_score,
    censoring_distribution,
    evaluation_times,
    integrated_brier_score,
)

from .cohorts import scored
from .oracles import g_by_loops, last_positive_g, pycox_evaluation, sksurv_metrics, structured, study

CLOSE = 1e-10


def brier_by_loops(rows, t, s, at_event, at_risk=None):
    """BS(t) from the formula; s[i] is S_i(t), and terms with G = 0 are omitted."""
    total, at_risk = 0.0, at_risk or at_event
    for i, t_i in enumerate(rows.time):
        if t_i <= t and rows.event[i] and at_event(t_i) > 0:
            total += s[i] ** 2 / at_event(t_i)
        elif t_i > t and at_risk(t) > 0:
            total += (1 - s[i]) ** 2 / at_risk(t)
    return total / len(rows.time)


def graf_by_loops(rows, t, s):
    """With G(t-) at events, and its last positive value where it is 0."""
    floor = last_positive_g(rows.train)
    left, right = (
        lambda u, left=left: max(g_by_loops(rows.train, u, left=left), floor) for left in (True, False)
    )
    return brier_by_loops(rows, t, s, left, right)


def sksurv_by_loops(rows, t, s):
    return brier_by_loops(rows, t, s, lambda u: g_by_loops(rows.train, u, left=False))


def integral_by_loops(rows):
    """(1/tmax) of the integral over each stretch on which BS is smooth, by adaptive quadrature."""
    last = max(rows.time)
    grid, survival = rows.times, rows.survival
    if grid[0] > 0:
        grid, survival = np.r_[0.0, grid], np.c_[np.ones(len(rows.time)), survival]

    def value(t):
        return graf_by_loops(rows, t, [np.interp(t, grid, curve) for curve in survival])

    knots = sorted({0.0, *grid, *rows.time, *rows.train.time})
    knots = [k for k in knots if k <= last]
    return sum(quad(value, a, b, limit=5, epsabs=1e-11)[0] for a, b in pairwise(knots)) / last


@given(scored())
@pytest.mark.parametrize(("convention", "loops"), [("graf", graf_by_loops), ("sksurv", sksurv_by_loops)])
def test_curve_equals_loops(convention, loops, rows):
    got = brier_score(rows[:2], *rows[2:4], train=rows.train, convention=convention)
    expected = [loops(rows, t, rows.survival[:, k]) for k, t in enumerate(rows.times)]
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


def osst_metrics():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("osst.model.metrics", reason="osst is the oracle (extra 'oracles')")


def g_at_risk_by_loops(train, t):
    """G(t) with the events at t still at risk of being censored at t."""
    g = 1.0
    for u in sorted(set(train.time)):
        if u <= t:
            censored = sum(1 for a, c in zip(*train, strict=True) if a == u and not c)
            g *= 1 - censored / sum(1 for a in train.time if a >= u)
    return g


def or_refused(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except DataError:
        return None


@given(scored())
def test_osst_equals_loops(rows):
    assume(rows.times.size > 1)
    kwargs = {"train": rows.train, "convention": "osst"}
    curve = brier_score(rows[:2], *rows[2:4], **kwargs)
    expected = [
        brier_by_loops(rows, t, rows.survival[:, k], lambda u: g_at_risk_by_loops(rows.train, u))
        for k, t in enumerate(rows.times)
    ]
    np.testing.assert_allclose(curve, expected, rtol=0, atol=CLOSE)
    got = integrated_brier_score(rows[:2], *rows[2:4], **kwargs)
    left = sum(b * (v - u) for b, u, v in zip(expected, rows.times, rows.times[1:], strict=False))
    assert got == pytest.approx(left / (rows.times[-1] - rows.times[0]), abs=CLOSE)


@pytest.mark.nightly
@given(scored())
def test_osst_equals_the_package(rows):
    assume(rows.times.size > 1)
    with np.errstate(divide="ignore"):  # the package divides by G = 0, then takes the weight for 0
        peer = osst_metrics().integrated_brier_score(
            rows.train.event.astype(int),
            rows.train.time,
            rows.event.astype(int),
            rows.time,
            rows.survival,
            rows.times,
        )
    got = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train, convention="osst")
    assert got == pytest.approx(peer, abs=CLOSE)


@given(scored())
def test_surtree_equals_loops(rows):
    distinct = sorted(set(rows.time))
    low, high = distinct[len(distinct) // 10], distinct[9 * len(distinct) // 10]
    high -= 1e-3 * (high == distinct[-1])
    grid = [t for t in rows.times if low <= t <= high]
    got = or_refused(integrated_brier_score, rows[:2], *rows[2:4], train=rows.train, convention="surtree")
    if len(grid) < 2:
        assert got is None
        return

    def integral(values):
        score = [
            brier_by_loops(rows, t, values[t], lambda u: g_by_loops(rows.train, u, left=False)) for t in grid
        ]
        pairs = zip(grid, grid[1:], score, score[1:], strict=False)
        return sum((v - u) * (a + b) / 2 for u, v, a, b in pairs)

    km = KaplanMeier.fit(rows.train)
    model = integral({t: rows.survival[:, k] for k, t in enumerate(rows.times)})
    base = integral({t: [float(km.at(t))] * len(rows.time) for t in grid})
    if base == 0:
        assert got is None
    else:
        assert got == pytest.approx(1 - model / base, abs=1e-9)


@pytest.mark.parametrize("scale", [30.0, 900.0])
def test_surtree_is_the_authors_protocol(scale):
    """1 - IBS / IBS_KM of scikit-survival on the authors' grid: 101 points, or steps of one unit of time."""
    sksurv = sksurv_metrics()
    time, event, train = study(scale=scale)
    grid = evaluation_times(time, train[0], "surtree")
    assert (grid.size == 101) == (scale == 30.0)
    survival = np.exp(-np.outer(np.linspace(0.6, 1.6, 90), (grid / scale) ** 1.3))
    km = np.tile(KaplanMeier.fit(train).at(grid), (90, 1))
    model, base = (
        sksurv.integrated_brier_score(structured(*train), structured(time, event), curves, grid)
        for curves in (survival, km)
    )
    got = integrated_brier_score((time, event), survival, grid, train=train, convention="surtree")
    assert got == pytest.approx(1 - model / base, abs=CLOSE)


@pytest.mark.nightly
@given(scored())
def test_equals_pycox_after_its_own_normalisation(rows):
    """Pycox divides by the sum of the weights and lets tied events be at risk of censoring."""
    evaluation = pycox_evaluation()
    time = np.where(rows.event, rows.time, rows.time + 0.5)  # no tie of an event and a censoring
    floor = censoring_distribution((time, rows.event))
    assume(floor.values[-1] > 0)
    frame = pd.DataFrame(np.ascontiguousarray(rows.survival.T), index=rows.times)
    peer = evaluation.EvalSurv(frame, time, rows.event.astype(int), censor_surv="km")
    inside = rows.times[rows.times <= time.max()]
    expected = peer.brier_score(inside).to_numpy()
    parts = [
        brier_score((time, rows.event), curves, inside, train=(time, rows.event))
        for curves in (
            rows.survival[:, : inside.size],
            np.ones((time.size, inside.size)),
            np.zeros((time.size, inside.size)),
        )
    ]
    np.testing.assert_allclose(parts[0] / (parts[1] + parts[2]), expected, rtol=0, atol=CLOSE)


def test_grids_of_conventions_that_do_not_exist():
    rows = ([1.0, 2.0, 3.0], [1, 1, 0])
    curves = np.full((3, 2), 0.5)
    with pytest.raises(DataError, match=r"'surtree' needs two times in \[1, 2.999\).*got 0\..*'surtree'"):
        integrated_brier_score(rows, curves, [3.0, 4.0], train=rows, convention="surtree")
    with pytest.raises(DataError, match=r"distinct 10 and 90 % quantiles; got 2 and 1.999 from 1 distinct"):
        evaluation_times([2, 2], [1, 2], "surtree")
    with pytest.raises(DataError, match="needs two distinct test times; got only 2"):
        evaluation_times([2, 2], [1, 2], "osst")
    with pytest.raises(DataError, match=r"where nothing was observed. Are both in one unit"):
        brier_score(rows, curves, [365.0, 730.0], train=rows)
    with pytest.raises(ConfigError, match="got 'first'"):
        censoring_distribution(rows, tied_events="first")


def test_osst_grid():
    assert evaluation_times([3, 1, 3, 2], [5], "osst").tolist() == [1, 2, 3]


def test_surtree_grid_in_seconds_is_that_of_days_but_coarser():
    time, event, train = study(scale=900.0)
    scores = []
    for unit in (1.0, 86_400.0):
        rows, others = (time * unit, event), (train[0] * unit, train[1])
        grid = evaluation_times(rows[0], others[0], "surtree")
        assert grid.size <= 10_002
        survival = np.exp(-np.outer(np.linspace(0.6, 1.6, 90), (grid / unit / 900.0) ** 1.3))
        scores.append(integrated_brier_score(rows, survival, grid, train=others, convention="surtree"))
    assert scores[1] == pytest.approx(scores[0], abs=2e-3)

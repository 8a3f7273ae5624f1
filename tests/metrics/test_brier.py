"""The Brier score in its conventions and on their grids, against loops and the peers they are named after."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from scipy.integrate import quad

from sstorch.metrics import (
    KaplanMeier,
    brier_score,
    evaluate,
    evaluation_times,
    integrated_brier_score,
)
from sstorch.metrics import grids as limits
from sstorch.metrics.grids import thinned, thinned_together

from .cohorts import Rates, g_by_loops, last_positive_g, scored, sksurv_metrics, structured, study

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


def osst_by_loops(rows, t, s):
    """With the events at t still at risk of being censored at t."""

    def g(t):
        value = 1.0
        for u in sorted(u for u in set(rows.train.time) if u <= t):
            censored = sum(1 for a, c in zip(*rows.train, strict=True) if a == u and not c)
            value *= 1 - censored / sum(1 for a in rows.train.time if a >= u)
        return value

    return brier_by_loops(rows, t, s, g)


@given(scored())
@pytest.mark.parametrize(
    ("convention", "loops"), [("graf", graf_by_loops), ("sksurv", sksurv_by_loops), ("osst", osst_by_loops)]
)
def test_curve_equals_loops(convention, loops, rows):
    got = brier_score(rows[:2], *rows[2:4], train=rows.train, convention=convention)
    expected = [loops(rows, t, rows.survival[:, k]) for k, t in enumerate(rows.times)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)
    if convention == "osst" and rows.times.size > 1:
        mean = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train, convention="osst")
        left = float(np.diff(rows.times) @ expected[:-1])
        assert mean == pytest.approx(left / np.ptp(rows.times), abs=CLOSE)


@given(scored())
def test_graf_integral_equals_adaptive_quadrature(rows):
    """(1/tmax) of the integral over each stretch on which BS is smooth."""
    last, grid, survival = max(rows.time), rows.times, rows.survival
    if grid[0] > 0:
        grid, survival = np.r_[0.0, grid], np.c_[np.ones(len(rows.time)), survival]

    def value(t):
        return graf_by_loops(rows, t, [np.interp(t, grid, curve) for curve in survival])

    knots = sorted(k for k in {0.0, *grid, *rows.time, *rows.train.time} if k <= last)
    expected = sum(quad(value, a, b, limit=5, epsabs=1e-11)[0] for a, b in pairwise(knots)) / last
    got = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train)
    assert got == pytest.approx(expected, abs=1e-9)


@given(scored())
def test_sksurv_convention_equals_scikit_survival(rows):
    sksurv = sksurv_metrics()
    inside = (rows.times >= rows.time.min()) & (rows.times < rows.time.max())
    times, survival = rows.times[inside], rows.survival[:, inside]
    train, test = structured(*rows.train), structured(rows.time, rows.event)
    try:
        curve = sksurv.brier_score(train, test, survival, times)[1]
        mean = sksurv.integrated_brier_score(train, test, survival, times)
    except ValueError:  # too few times, or beyond the training rows
        return
    options = {"train": rows.train, "convention": "sksurv"}
    np.testing.assert_allclose(brier_score(rows[:2], survival, times, **options), curve, rtol=0, atol=CLOSE)
    assert integrated_brier_score(rows[:2], survival, times, **options) == pytest.approx(mean, abs=CLOSE)
    # Where scikit-survival refuses the wider grid, the overhang is cut off.
    assert integrated_brier_score(rows[:2], *rows[2:4], **options) == pytest.approx(mean, abs=CLOSE)


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
    assert evaluation_times(time * 86_400.0, train[0] * 86_400.0, "surtree").size <= 10_002


# ---------------------------------------------------------------------- grids


@pytest.mark.parametrize(("last", "ends"), [(10, [2.0, 9.999]), (11, [2.0, 10.0]), (20, [3.0, 19.0])])
def test_the_surtree_window_takes_the_entries_of_the_sorted_distinct_times(last, ends):
    """Ten distinct times: entries 1 and 9, the latter the largest and stepped back; 11: entries 1 and 9."""
    time = np.arange(1.0, last + 1)
    assert evaluation_times(time, [1.0], "surtree")[[0, -1]].tolist() == ends
    assert evaluation_times([*time, 1.0], [5], "osst").tolist() == time.tolist()
    graf = evaluation_times([0.0, *time], [5.0])
    assert np.isin(time, graf).all()
    assert np.diff(graf, prepend=0.0).max() <= last / 200 * (1 + 1e-12)


def test_a_grid_is_thinned_where_rows_times_times_is_too_much():
    times = np.sort(np.random.default_rng(0).exponential(size=20_000))
    assert thinned(times, 6000) is times
    for n_rows, count in ((10_000, 512), (200_000, 335), (1_000_000, 67), (10**9, 32)):
        some = thinned(times, n_rows)
        assert 0.7 * count <= some.size <= count
        assert np.isin(some, times).all()
        assert (np.diff(some) > 0).all()
        assert list(some[[0, -1]]) == list(times[[0, -1]])
        # Neither most times nor most of the follow-up falls between two of them.
        assert np.diff(np.searchsorted(times, some)).max() <= 2.2 * times.size / count
        late = times[times > 0.3 * times[-1]]
        assert np.isin(late, some).sum() >= min(late.size, 0.25 * count)


def test_grids_that_share_curves_are_thinned_together():
    graf, osst, surtree = np.arange(1.0, 10_001.0), np.arange(51.0, 9900.0), np.arange(2000.5, 8000)
    grids = {"graf": graf, "osst": osst, "surtree": surtree}
    assert thinned_together(grids, 100) is grids
    some = thinned_together(grids, 200_000)
    union = np.unique(np.concatenate(list(some.values())))
    assert union.size <= 335 + 6
    for name, grid in grids.items():
        assert list(some[name][[0, -1]]) == list(grid[[0, -1]])
        np.testing.assert_array_equal(some[name], union[(union >= grid[0]) & (union <= grid[-1])])
    assert thinned_together({}, 5) == {}
    assert thinned_together({**grids, "sksurv": np.empty(0)}, 200_000)["sksurv"].size == 0


def test_calibration_keeps_its_horizon_on_a_thinned_grid(monkeypatch):
    rng = np.random.default_rng(1)
    risk = rng.normal(size=700)
    life, censoring = rng.exponential(np.exp(-risk)), rng.exponential(2.0, size=700)
    rows = (np.exp(risk)[:, None], (np.minimum(life, censoring), life <= censoring))
    tables = []
    for elements in (limits.WHOLE_ELEMENTS, 0):
        monkeypatch.setattr(limits, "WHOLE_ELEMENTS", elements)
        tables.append(evaluate(Rates(), rows, rows, metrics=["ici_pseudo", "ibs_graf"])["value"])
    np.testing.assert_allclose(*tables, atol=2e-3)
    assert tables[0]["ici_pseudo"] == pytest.approx(tables[1]["ici_pseudo"], rel=1e-9)
    assert tables[0]["ibs_graf"] != tables[1]["ibs_graf"]

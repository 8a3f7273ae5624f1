"""The conventions of the integrated Brier score against loops and against the peers they are named after."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    KaplanMeier,
    brier_score,
    censoring_distribution,
    evaluation_times,
    integrated_brier_score,
)

from .cohorts import scored
from .oracles import g_by_loops, pycox_evaluation, sksurv_metrics, structured, study

CLOSE = 1e-10
CONVENTIONS = ("graf", "sksurv", "surtree", "osst")


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


def brier_by_loops(rows, t, s, g):
    total = 0.0
    for i, t_i in enumerate(rows.time):
        if t_i <= t and rows.event[i] and g(t_i) > 0:
            total += s[i] ** 2 / g(t_i)
        elif t_i > t and g(t) > 0:
            total += (1 - s[i]) ** 2 / g(t)
    return total / len(rows.time)


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
    assert (
        integrated_brier_score((time, event), survival, grid, train=train, convention="surtree", scaled=True)
        == got
    )


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


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_scaled_scores_put_kaplan_meier_at_zero_and_truth_above(convention):
    time, event, train = study(80, 200, 5, scale=30.0)
    grid = evaluation_times(time, train[0], convention)
    grid = grid[grid >= time[event].min()]
    grid = grid if convention != "graf" else np.union1d(grid, [time.max()])
    km = np.tile(KaplanMeier.fit(train).at(grid), (80, 1))
    kwargs = {"train": train, "convention": convention}
    assert integrated_brier_score((time, event), km, grid, **kwargs, scaled=True) == 0.0
    oracle = (grid < time[:, None]).astype(float)
    assert integrated_brier_score((time, event), oracle, grid, **kwargs, scaled=True) > 0.9


def test_refusals():
    rows = ([1.0, 2.0, 3.0], [1, 1, 0])
    curves = np.full((3, 2), 0.5)
    with pytest.raises(DataError, match=r"'surtree' needs two times in \[1, 2.999\).*got 0\..*'surtree'"):
        integrated_brier_score(rows, curves, [3.0, 4.0], train=rows, convention="surtree")
    with pytest.raises(DataError, match=r"distinct 10 and 90 % quantiles; got 2 and 1.999 from 1 distinct"):
        evaluation_times([2, 2], [1, 2], "surtree")
    with pytest.raises(DataError, match="needs two distinct test times; got only 2"):
        evaluation_times([2, 2], [1, 2], "osst")
    with pytest.raises(DataError, match="integrated Brier score of Kaplan-Meier is 0"):
        integrated_brier_score(
            ([1.0, 2.0], [0, 0]), curves[:2], [1.0, 2.0], train=([1, 2], [0, 0]), scaled=True
        )
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

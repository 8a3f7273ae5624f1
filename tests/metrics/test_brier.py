"""The Brier score in its conventions and on their grids, against loops and the peers they are named after."""

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
    concordance_harrell,
    evaluate,
    evaluation_times,
    integrated_brier_score,
)
from sstorch.metrics import grids as limits
from sstorch.metrics.grids import thinned, thinned_together

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


@given(scored())
def test_surtree_equals_loops(rows):
    distinct = sorted(set(rows.time))
    low, high = distinct[len(distinct) // 10], distinct[9 * len(distinct) // 10]
    high -= 1e-3 * (high == distinct[-1])
    grid = [t for t in rows.times if low <= t <= high]
    try:
        got = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train, convention="surtree")
    except DataError:
        got = None
    if len(grid) < 2:
        assert got is None
        return

    def integral(values):
        return np.trapezoid([sksurv_by_loops(rows, t, values[t]) for t in grid], grid)

    km = KaplanMeier.fit(rows.train)
    model = integral({t: rows.survival[:, k] for k, t in enumerate(rows.times)})
    base = integral({t: [float(km.at(t))] * len(rows.time) for t in grid})
    assert got == (None if base == 0 else pytest.approx(1 - model / base, abs=1e-9))


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
    seconds, unit = (time * 86_400.0, event), 86_400.0 * scale
    grid = evaluation_times(seconds[0], train[0] * 86_400.0, "surtree")
    assert grid.size <= 10_002
    survival = np.exp(-np.outer(np.linspace(0.6, 1.6, 90), (grid / unit) ** 1.3))
    options = {"train": (train[0] * 86_400.0, train[1]), "convention": "surtree"}
    assert integrated_brier_score(seconds, survival, grid, **options) == pytest.approx(got, abs=2e-3)


@pytest.mark.nightly
@given(scored())
def test_osst_equals_the_package(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        osst = pytest.importorskip("osst.model.metrics", reason="osst is the oracle (extra 'oracles')")
    assume(rows.times.size > 1)
    train, own = (rows.train.event.astype(int), rows.train.time), (rows.event.astype(int), rows.time)
    with np.errstate(divide="ignore"):  # the package divides by G = 0, then takes the weight for 0
        peer = osst.integrated_brier_score(*train, *own, rows.survival, rows.times)
    got = integrated_brier_score(rows[:2], *rows[2:4], train=rows.train, convention="osst")
    assert got == pytest.approx(peer, abs=CLOSE)


@pytest.mark.nightly
@given(scored())
def test_equals_pycox_after_its_own_normalisation(rows):
    """Pycox divides by the sum of the weights and lets tied events be at risk of censoring."""
    evaluation = pycox_evaluation()
    time = np.where(rows.event, rows.time, rows.time + 0.5)  # no tie of an event and a censoring
    y = (time, rows.event)
    assume(censoring_distribution(y).values[-1] > 0)
    frame = pd.DataFrame(np.ascontiguousarray(rows.survival.T), index=rows.times)
    peer = evaluation.EvalSurv(frame, time, rows.event.astype(int), censor_surv="km")
    inside = rows.times[rows.times <= time.max()]
    one = np.ones((time.size, inside.size))
    parts = [brier_score(y, s, inside, train=y) for s in (rows.survival[:, : inside.size], one, 0 * one)]
    expected = peer.brier_score(inside).to_numpy()
    np.testing.assert_allclose(parts[0] / (parts[1] + parts[2]), expected, rtol=0, atol=CLOSE)


def test_blocks_change_nothing(monkeypatch):
    time, event, train = study()
    times = evaluation_times(time, train[0])
    args = ((time, event), np.exp(-np.outer(np.linspace(0.6, 1.6, 90), times**1.3)), times)
    whole = brier_score(*args, train=train), integrated_brier_score(*args, train=train)
    monkeypatch.setattr(brier_module, "BLOCK_ELEMENTS", 1000)
    np.testing.assert_allclose(brier_score(*args, train=train), whole[0], rtol=1e-13)
    assert integrated_brier_score(*args, train=train) == pytest.approx(whole[1], rel=1e-13)


def test_floor_keeps_the_last_positive_probability():
    train = ([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 0])  # G = 2/3 from 2, then 0 from 4
    survival, g = [[0.3], [0.4], [0.5]], 2 / 3
    assert censoring_distribution(train).at(4.5) == 0.0
    expected = (0.3**2 + 0.6**2 / g + 0.5**2 / g) / 3
    found = brier_score(([2.0, 5.0, 6.0], [1, 1, 0]), survival, [4.5], train=train)
    assert found[0] == pytest.approx(expected, abs=CLOSE)


ROWS, CURVES = ([1.0, 2.0, 3.0], [1, 1, 0]), np.full((3, 2), 0.5)


@pytest.mark.parametrize(
    ("words", "y", "times", "options"),
    [
        (r"largest test time, 3.*evaluation_times", ROWS, [1.0, 2.0], {}),
        ("all test times are 0", ([0.0] * 3, [1, 0, 1]), [0.0, 2.0], {}),
        (r"two times in \[1, 3\).*got 1", ROWS, [2.0, 3.0], {"convention": "sksurv"}),
        (r"two times in \[1, 2.999\).*'surtree'", ROWS, [3.0, 4.0], {"convention": "surtree"}),
        ("where nothing was observed", ROWS, [365.0, 730.0], {"convention": "osst"}),
    ],
)
def test_grids_that_cannot_be_integrated_raise(words, y, times, options):
    with pytest.raises(DataError, match=words):
        integrated_brier_score(y, CURVES, times, train=ROWS, **options)


def test_unknown_conventions_raise():
    for function in (brier_score, integrated_brier_score):
        with pytest.raises(ConfigError, match="convention"):
            function(ROWS, CURVES, [1, 3], train=ROWS, convention="paper")
    with pytest.raises(ConfigError, match="convention"):
        evaluation_times([2, 3, 9], [1, 5], "harrell")
    with pytest.raises(ConfigError, match="tied_events"):
        censoring_distribution(ROWS, tied_events="first")


# ---------------------------------------------------------------------- grids


@given(scored())
def test_default_grids_serve_their_metrics(rows):
    for convention in ("graf", "sksurv"):
        try:
            grid = evaluation_times(rows.time, rows.train.time, convention)
        except DataError as error:
            if "needs two distinct test times" not in str(error):
                raise
            continue
        survival = np.exp(-np.outer(np.linspace(0.1, 1.0, rows.time.size), grid))
        options = {"train": rows.train, "convention": convention}
        assert integrated_brier_score(rows[:2], survival, grid, **options) >= 0.0
        if convention == "graf":
            assert np.isin(rows.time, grid).all()
            assert grid[-1] == rows.time.max()
            assert np.diff(grid, prepend=0.0).max() <= rows.time.max() / 200 * (1 + 1e-12)
            if (rows.time[rows.event] < rows.time.max()).any():
                assert 0.0 <= concordance_harrell(rows[:2], survival, grid) <= 1.0


@pytest.mark.parametrize(
    ("words", "time", "train", "convention"),
    [
        ("all test times are 0", [0, 0], [1, 2], "graf"),
        (r"inside \(2, 5\).*got 1", [2, 3, 9], [1, 5], "sksurv"),
        ("got 2 and 1.999 from 1 distinct", [2, 2], [1, 2], "surtree"),
        ("got only 2", [2, 2], [1, 2], "osst"),
    ],
)
def test_too_few_times_for_a_grid_raise(words, time, train, convention):
    with pytest.raises(DataError, match=words):
        evaluation_times(time, train, convention)


@pytest.mark.parametrize(("last", "ends"), [(10, [2.0, 9.999]), (11, [2.0, 10.0]), (20, [3.0, 19.0])])
def test_the_surtree_window_takes_the_entries_of_the_sorted_distinct_times(last, ends):
    """Ten distinct times: entries 1 and 9, the latter the largest and stepped back; 11: entries 1 and 9."""
    time = np.arange(1.0, last + 1)
    assert evaluation_times(time, [1.0], "surtree")[[0, -1]].tolist() == ends
    assert evaluation_times([*time, 1.0], [5], "osst").tolist() == time.tolist()


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


def test_scores_on_a_thinned_grid_are_near_those_on_the_whole(monkeypatch):
    rng, asked = np.random.default_rng(1), []
    risk = rng.normal(size=1500)
    life, censoring = rng.exponential(np.exp(-risk)), rng.exponential(2.0, size=1500)
    rows = (risk, (np.minimum(life, censoring), life <= censoring))

    class Model:
        def predict_survival_function(self, X, times):
            asked.append(len(times))
            return np.exp(-np.outer(np.exp(X), times))

    whole = evaluate(Model(), rows, rows)["value"]
    monkeypatch.setattr(limits, "WHOLE_ELEMENTS", 0)
    near = evaluate(Model(), rows, rows)["value"]
    assert asked[0] > 1500
    assert asked[1] <= 512 + 9
    names = [name for name in whole.index if not name.endswith("_p")]
    np.testing.assert_allclose(near[names], whole[names], atol=2e-3)
    np.testing.assert_allclose(near["ici_pseudo"], whole["ici_pseudo"], rtol=1e-9)

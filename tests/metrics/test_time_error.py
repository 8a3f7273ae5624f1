from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad

from sstorch.exceptions import DataError
from sstorch.metrics import (
    KaplanMeier,
    mean_absolute_error_margin,
    mean_absolute_error_pseudo,
    median_survival_time,
    restricted_mean_survival_time,
    rmst_error,
)

from .cohorts import cohorts, scored
from .oracles import g_by_loops, last_positive_g

CLOSE = 1e-9


def extended(time, event):
    """S(t) with the line beyond the last time, and its area from c on by quadrature over the pieces."""
    km, last = KaplanMeier.fit((time, event)), max(time)
    final = float(km.at(last))

    def value(t):
        return float(km.at(t)) if t <= last else max(0.0, 1.0 - t * (1.0 - final) / last)

    def area(c):
        knots = sorted({c, last / (1.0 - final), *[t for t in time if t > c], *([last] if last > c else [])})
        return sum(quad(value, a, b, limit=3)[0] for a, b in pairwise(knots) if a >= c)

    return value, area


@given(cohorts(), cohorts(), st.data())
def test_margin_and_pseudo_targets_equal_loops(rows, train, data):
    assume(train.event.any())
    n = rows.time.size
    predicted = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), dtype=float)
    weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), dtype=float)
    value, area = extended(*train)
    margin, pseudo, known = [], [], []
    for t, c in zip(*rows, strict=True):
        s = value(t)
        known.append(1.0 if c else 1.0 - s)
        margin.append(t if c or s == 0 else t + area(t) / s)
        if c:
            pseudo.append(t)
        else:
            m = len(train.time)
            _, more = extended(np.append(train.time, t), np.append(train.event, False))
            pseudo.append((m + 1) * more(0.0) - m * area(0.0))
    known = np.array(known) * weight
    if not known.any():
        with pytest.raises(DataError, match="no row has a known time"):
            mean_absolute_error_margin(rows, predicted, train=train)
        return
    for function, target in ((mean_absolute_error_margin, margin), (mean_absolute_error_pseudo, pseudo)):
        got = function(rows, predicted, train=train, sample_weight=weight)
        expected = np.average(np.abs(predicted - target), weights=known)
        assert got == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(scored(), st.sampled_from([1.5, 3.0, 6.5]))
def test_rmst_error_equals_loops(rows, tau):
    assume(rows.times[-1] >= tau and rows.time.min() <= tau <= rows.time.max())
    floor = last_positive_g(rows.train)
    nodes = np.concatenate(([0.0], rows.times)) if rows.times[0] > 0 else rows.times
    total = mass = 0.0
    for t, c, curve in zip(rows.time, rows.event, rows.survival, strict=True):
        values = np.concatenate(([1.0], curve)) if rows.times[0] > 0 else curve
        fine = np.union1d(nodes[nodes < tau], [tau])
        area = np.trapezoid(np.interp(fine, nodes, values), fine)
        if c or t >= tau:
            weight = 1.0 / max(g_by_loops(rows.train, min(t, tau), left=True), floor)
            total += weight * abs(area - min(t, tau))
            mass += weight
    if mass == 0:
        with pytest.raises(DataError, match="no row has a known time"):
            rmst_error(rows[:2], *rows[2:4], train=rows.train, tau=tau)
    else:
        got = rmst_error(rows[:2], *rows[2:4], train=rows.train, tau=tau)
        assert got == pytest.approx(total / mass, abs=CLOSE)


def test_medians():
    times = [1.0, 2.0, 4.0]
    curves = [[0.5, 0.5, 0.5], [0.25, 0.2, 0.1], [1.0, 0.75, 0.25], [1.0, 1.0, 0.6], [1.0, 0.0, 0.0]]
    assert median_survival_time(curves, times).tolist() == pytest.approx([1.0, 2 / 3, 3.0, np.inf, 1.5])
    beyond = median_survival_time([[1.0, 1.0, 0.6], [1.0, 1.0, 1.0]], times, beyond="line")
    assert beyond.tolist() == pytest.approx([5.0, np.inf])
    assert median_survival_time([[0.5, 0.2], [0.2, 0.1]], [0.0, 1.0]).tolist() == [0.0, 0.0]


def test_restricted_means_stop_between_grid_times():
    got = restricted_mean_survival_time([[1.0, 0.0], [0.0, 0.0]], [1.0, 3.0], tau=2.0)
    assert got.tolist() == pytest.approx([1.75, 0.5])
    assert restricted_mean_survival_time([[1.0, 0.0]], [0.0, 2.0], tau=2.0).tolist() == [1.0]


def test_refusals():
    rows = ([1.0, 2.0, 3.0], [1, 1, 0])
    with pytest.raises(DataError, match=r"predicted_time must be times >= 0, got -2. Pass times, not risk"):
        mean_absolute_error_margin(rows, [1.0, -2.0, 3.0], train=rows)
    with pytest.raises(DataError, match="predicted_time: NaN in 1 row"):
        mean_absolute_error_pseudo(rows, [1.0, np.nan, 3.0], train=rows)
    with pytest.raises(DataError, match="no training row has an event"):
        mean_absolute_error_pseudo(rows, [1.0, 2.0, 3.0], train=([1.0, 2.0], [0, 0]))
    with pytest.raises(DataError, match=r"must be a grid that reaches tau = 2\.5; it ends at 2"):
        rmst_error(rows, [[0.5, 0.2]] * 3, [1.0, 2.0], train=rows, tau=2.5)
    with pytest.raises(DataError, match="survival must have 3 rows"):
        rmst_error(rows, [[0.5, 0.2]] * 2, [1.0, 2.0], train=rows, tau=2.0)
    with pytest.raises(DataError, match="survival must have shape"):
        median_survival_time([0.5, 0.2], [1.0, 2.0])
    infinite = mean_absolute_error_margin(rows, [1.0, 2.0, np.inf], train=rows)
    assert infinite == np.inf


def test_weights_of_rmst_errors_are_repetitions():
    time, event = np.array([1.0, 2.0, 4.0, 5.0]), np.array([1, 0, 1, 1])
    survival, times = [[0.5, 0.0], [0.9, 0.5], [1.0, 0.8], [0.7, 0.6]], [2.0, 5.0]
    train, again = (time, event), np.repeat(np.arange(4), [3, 1, 2, 1])
    got = rmst_error((time, event), survival, times, train=train, tau=4.5, sample_weight=[3, 1, 2, 1])
    expected = rmst_error((time[again], event[again]), np.array(survival)[again], times, train=train, tau=4.5)
    assert got == pytest.approx(expected, rel=1e-12)
    assert got != pytest.approx(rmst_error((time, event), survival, times, train=train, tau=4.5), rel=1e-3)

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import sstorch.metrics.auc as module
from sstorch.exceptions import DataError
from sstorch.metrics import cumulative_dynamic_auc, mean_cumulative_dynamic_auc

from .cohorts import scored
from .oracles import g_by_loops, last_positive_g, sksurv_metrics, structured, untied

CLOSE = 1e-10


def usable(rows):
    """Positions of the grid times with cases and controls."""
    events = rows.time[rows.event]
    if not events.size:
        return np.array([], dtype=int)
    return np.flatnonzero((rows.times >= events.min()) & (rows.times < rows.time.max()))


def auc_by_loops(rows, t, s, g, weight):
    above = cases = controls = 0.0
    for i, t_i in enumerate(rows.time):
        if t_i <= t and rows.event[i]:
            cases += weight[i] / g[i]
            for j, t_j in enumerate(rows.time):
                if t_j > t:
                    score = 1.0 if s[i] < s[j] else 0.5 if s[i] == s[j] else 0.0
                    above += weight[i] * weight[j] / g[i] * score
    controls = sum(w for t_j, w in zip(rows.time, weight, strict=True) if t_j > t)
    return above / (cases * controls)


@given(scored(), st.booleans(), st.data())
def test_equals_loops(rows, weighted, data):
    n = rows.time.size
    weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
    weight = weight if weighted else np.ones(n)
    kept = usable(rows)
    assume(kept.size)
    floor = last_positive_g(rows.train)
    g = [max(g_by_loops(rows.train, t, left=True), floor) for t in rows.time]
    extra = {"sample_weight": weight} if weighted else {}
    got = cumulative_dynamic_auc(
        rows[:2], rows.survival[:, kept], rows.times[kept], train=rows.train, **extra
    )
    expected = [auc_by_loops(rows, rows.times[k], rows.survival[:, k], g, weight) for k in kept]
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)

    risk = -rows.survival[:, 0]
    got = cumulative_dynamic_auc(rows[:2], risk, rows.times[kept], train=rows.train, **extra)
    expected = [auc_by_loops(rows, rows.times[k], -risk, g, weight) for k in kept]
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)


@given(scored())
def test_equals_scikit_survival(rows):
    """It reads G at an event, not just before it: without ties of events and censorings both are one."""
    sksurv, rows = sksurv_metrics(), untied(rows)._replace(train=untied(rows.train))
    kept = usable(rows)
    assume(kept.size)
    times, risk = rows.times[kept], -rows.survival[:, kept]
    try:
        with np.errstate(all="ignore"):
            expected, mean = sksurv.cumulative_dynamic_auc(
                structured(*rows.train), structured(*rows[:2]), risk, times, tied_tol=0.0
            )
    except ValueError:  # it raises where G is 0 or unknown
        return
    got = cumulative_dynamic_auc(rows[:2], rows.survival[:, kept], times, train=rows.train)
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)
    assert mean_cumulative_dynamic_auc(rows[:2], got, times) == pytest.approx(mean, abs=CLOSE)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    time, event = rng.permutation(50) + 1.0, rng.random(50) < 0.6
    times = np.arange(10.0, 40.0)
    survival = np.exp(-np.outer(rng.uniform(0.01, 0.1, 50), times))
    whole = cumulative_dynamic_auc((time, event), survival, times, train=(time, event))
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 120)
    np.testing.assert_array_equal(
        cumulative_dynamic_auc((time, event), survival, times, train=(time, event)), whole
    )
    np.testing.assert_allclose(
        cumulative_dynamic_auc((time, event), -survival[:, 0], times, train=(time, event)),
        whole,
        rtol=1e-14,
    )


def test_refusals():
    rows, risk = ([1.0, 2.0, 3.0, 4.0], [0, 1, 1, 0]), [3, 2, 1, 0]
    for times in ([1.5, 3.0], [2.0, 4.0]):
        with pytest.raises(DataError, match=r"AUC needs cases and controls, so times in \[2, 4\)"):
            cumulative_dynamic_auc(rows, risk, times, train=rows)
    with pytest.raises(DataError, match=r"so times in \[inf, 4\)"):
        cumulative_dynamic_auc((rows[0], [0, 0, 0, 0]), risk, [2.0], train=rows)
    with pytest.raises(DataError, match=r"no row has an event up to 1.5"):
        mean_cumulative_dynamic_auc(rows, [0.5], [1.5])
    with pytest.raises(DataError, match="auc must have 1 rows"):
        mean_cumulative_dynamic_auc(rows, [0.5, 0.5], [1.5])

"""Every option of the concordances and of the AUC against one loop, and the peers that have the option."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lifelines.utils import concordance_index

import sstorch.metrics.auc as auc_module
import sstorch.metrics.brier as brier_module
import sstorch.metrics.pairs as module
from sstorch import Surv
from sstorch.metrics import (
    brier_score,
    concordance_harrell,
    concordance_uno,
    cumulative_dynamic_auc,
    integrated_brier_score,
    mean_cumulative_dynamic_auc,
)
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.pairs import Compared

from .cohorts import (
    cohorts,
    concordance_by_loops,
    g_by_loops,
    last_positive_g,
    or_no_pair,
    scored,
    sksurv_metrics,
    step_value,
    structured,
    untied,
)

EXACT, CLOSE = 1e-12, 1e-10
options = st.fixed_dictionaries(
    {
        "tied_time": st.sampled_from(["exclude", "censored_later", "all"]),
        "tau": st.sampled_from([None, 2.0, 3.5, 6.0]),
    }
)


def integers(data, n, low, high):
    return np.array(data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))


@given(scored(), options, st.booleans(), st.data())
def test_all_forms_equal_loops(rows, chosen, weighted, data):
    n = rows.time.size
    weight = integers(data, n, 0, 3) if weighted else np.ones(n)
    assume(weight.any())
    risk, floor = integers(data, n, -3, 3), last_positive_g(rows.train)
    g = [max(g_by_loops(rows.train, t, left=True), floor) for t in rows.time]
    own = {**chosen, "sample_weight": weight} if weighted else chosen
    loop = {**chosen, "tau": np.inf if chosen["tau"] is None else chosen["tau"]}
    predictions = [
        (rows.survival, rows.times, step_value(rows.survival, rows.times)),
        (risk, None, lambda j, t: -risk[j]),
    ]
    if rows.times.size > 1:  # off the grid curves are right-continuous steps from one
        coarse, survival = rows.times[1::2], rows.survival[:, 1::2]
        predictions.append((survival, coarse, step_value(survival, coarse)))
    for prediction, times, value in predictions:
        for function, extra, divided in (
            (concordance_harrell, {}, lambda i: 1.0),
            (concordance_uno, {"train": rows.train}, lambda i: g[i] ** 2),
        ):
            pair_weight = lambda i, j, d=divided: float(weight[i] * weight[j]) / d(i)  # noqa: E731
            expected = concordance_by_loops(*rows[:2], value, **loop, pair_weight=pair_weight)
            got = or_no_pair(function, rows[:2], prediction, times, **own, **extra)
            assert got == (None if expected is None else pytest.approx(expected, abs=EXACT))


@given(cohorts(), cohorts(), st.sampled_from([None, 3.0, 7.5]), st.data())
def test_risk_equals_scikit_survival_and_lifelines(rows, train, tau, data):
    """Uno's without ties of events and censorings, where G is read at an event there, and here before it."""
    sksurv, risk = sksurv_metrics(), integers(data, rows.time.size, -3, 3)
    got = or_no_pair(concordance_harrell, rows, risk, tied_time="censored_later")
    assume(got is not None)
    expected = sksurv.concordance_index_censored(rows.event, rows.time, risk.astype(float), tied_tol=0.0)[0]
    assert got == pytest.approx(expected, abs=EXACT)
    assert got == pytest.approx(concordance_index(rows.time, -risk, rows.event), abs=EXACT)
    rows, train = untied(rows), untied(train)
    got = or_no_pair(concordance_uno, rows, risk, train=train, tied_time="censored_later", tau=tau)
    assume(got is not None)
    try:
        with np.errstate(all="ignore"):
            expected = sksurv.concordance_index_ipcw(
                structured(*train), structured(*rows), risk.astype(float), tau=tau, tied_tol=0.0
            )[0]
    except ValueError:  # it raises where G is 0 or unknown; here G keeps its last positive value
        return
    assert got == pytest.approx(expected, abs=CLOSE)


def test_block_size_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    y, times = (rng.permutation(50) + 1.0, rng.random(50) < 0.6), np.arange(10.0, 40.0)
    survival = np.exp(-np.outer(rng.uniform(0.01, 0.1, 50), times))
    values = []
    for elements in (2**17, 120):
        for part in (auc_module, module, brier_module):
            monkeypatch.setattr(part, "BLOCK_ELEMENTS", elements)
        found = [function(y, survival, times, train=y) for function in (cumulative_dynamic_auc, brier_score)]
        grid = np.append(times, [45.0, 50.0])
        curves = np.column_stack([survival, survival[:, -1:] / 2, survival[:, -1:] / 4])
        graf = integrated_brier_score(y, curves, grid, train=y)
        values.append([*found[0], *found[1], concordance_harrell(y, survival, times), graf])
    np.testing.assert_allclose(*values, rtol=1e-13)


@pytest.mark.parametrize("tied_time", ["exclude", "censored_later", "all"])
@pytest.mark.parametrize("digits", [1, 9])
def test_events_that_share_a_column_equal_pairs(tied_time, digits, monkeypatch):
    random = np.random.default_rng(1)
    time = random.exponential(size=300).round(digits) + 0.1
    survival = np.exp(-random.exponential(size=(300, 1)) * [0.2, 0.5, 1.5]).round(digits)
    whole = Surv(time, random.random(300) < 0.6)
    late = Surv(time, whole.event, entry=time * random.random(300) / 2, weight=random.random(300))

    def values():
        return [concordance_harrell(y, survival, [0.3, 0.6, 1.2], tied_time=tied_time) for y in (whole, late)]

    monkeypatch.setattr(module, "_MANY", 10**6)
    pairs = values()
    monkeypatch.setattr(module, "_MANY", 2)
    assert values() == pytest.approx(pairs, abs=EXACT)


@pytest.mark.parametrize("levels", [1, 2, 37, 5000])
def test_many_rows_equal_the_pairs_counted_at_once(levels):
    rng = np.random.default_rng(levels)
    time, event = rng.integers(1, 400, 1500).astype(float), rng.random(1500) < 0.5
    risk, weight = rng.integers(0, levels, 1500).astype(float), rng.integers(0, 4, 1500).astype(float)
    later = (time[:, None] < time) & event[:, None]
    score = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    for own in (None, weight):
        pairs = later * (1.0 if own is None else np.outer(own, own))
        got = concordance_harrell((time, event), risk, sample_weight=own)
        assert got == pytest.approx((pairs * score).sum() / pairs.sum(), abs=EXACT)


@pytest.mark.parametrize("seed", range(6))
def test_pairs_of_equal_times_are_added_to_compared_curves(seed):
    """With weights, entry times and a grid that is not that of the times."""
    rng = np.random.default_rng(seed)
    n, grid = 50, np.array([2.0, 3.5, 7.0])
    time, event = rng.integers(1, 8, n).astype(float), rng.random(n) < 0.6
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n) if seed % 2 else None
    y = Surv(time, event, entry=np.where(rng.random(n) < 0.4, time - 0.5, 0.0) if seed % 3 else None)
    survival = np.sort(rng.integers(1, 5, (n, 3)) / 5, axis=1)[:, ::-1]
    rows = read_rows(y, "C", entry=True, weight=True, sample_weight=weight, survival=survival)
    compared = Compared.of(rows, survival, grid).with_tied_times(rows, survival, grid)
    for tau in (None, 5.0):
        expected = concordance_harrell(y, survival, grid, tied_time="all", sample_weight=weight, tau=tau)
        assert compared.concordance(tau) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------------- AUC


def usable(rows):
    """Positions of the grid times with cases and controls."""
    first = rows.time[rows.event].min(initial=np.inf)
    return np.flatnonzero((rows.times >= first) & (rows.times < rows.time.max()))


def auc_by_loops(rows, t, s, g, weight):
    above = cases = 0.0
    for i in np.flatnonzero((rows.time <= t) & rows.event):
        cases += weight[i] / g[i]
        for j in np.flatnonzero(rows.time > t):
            above += weight[i] * weight[j] / g[i] * ((s[i] < s[j]) + 0.5 * (s[i] == s[j]))
    return above / (cases * weight[rows.time > t].sum())


@given(scored(), st.booleans(), st.data())
def test_auc_equals_loops(rows, weighted, data):
    n, kept, floor = rows.time.size, usable(rows), last_positive_g(rows.train)
    assume(kept.size)
    weight = integers(data, n, 1, 3) if weighted else np.ones(n)
    g = [max(g_by_loops(rows.train, t, left=True), floor) for t in rows.time]
    times, curves = rows.times[kept], rows.survival[:, kept]
    flat = np.repeat(rows.survival[:, :1], kept.size, axis=1)
    for prediction, s in ((curves, curves), (-rows.survival[:, 0], flat)):
        own = {"sample_weight": weight} if weighted else {}
        got = cumulative_dynamic_auc(rows[:2], prediction, times, train=rows.train, **own)
        expected = [auc_by_loops(rows, t, s[:, k], g, weight) for k, t in enumerate(times)]
        np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)


@given(scored())
def test_auc_equals_scikit_survival(rows):
    """It reads G at an event, not just before it: without ties of events and censorings both are one."""
    sksurv, rows = sksurv_metrics(), untied(rows)._replace(train=untied(rows.train))
    kept = usable(rows)
    assume(kept.size)
    times, curves = rows.times[kept], rows.survival[:, kept]
    try:
        with np.errstate(all="ignore"):
            expected, mean = sksurv.cumulative_dynamic_auc(
                structured(*rows.train), structured(*rows[:2]), -curves, times, tied_tol=0.0
            )
    except ValueError:  # it raises where G is 0 or unknown
        return
    got = cumulative_dynamic_auc(rows[:2], curves, times, train=rows.train)
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE)
    assert mean_cumulative_dynamic_auc(rows[:2], got, times) == pytest.approx(mean, abs=CLOSE)

"""Every option of the concordances against one loop, and the peers that have the option."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lifelines.utils import concordance_index

import sstorch.metrics.pairs as module
from sstorch import Surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import concordance_harrell, concordance_uno
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.pairs import Compared

from .cohorts import cohorts, scored
from .oracles import (
    concordance_by_loops,
    g_by_loops,
    last_positive_g,
    or_no_pair,
    sksurv_metrics,
    step_value,
    structured,
    untied,
)

EXACT = 1e-12


@given(scored())
def test_curves_off_the_grid_are_right_continuous_steps_from_one(rows):
    coarse = rows.times[1::2]
    assume(coarse.size)
    survival = rows.survival[:, 1::2]
    got = or_no_pair(concordance_harrell, (rows.time, rows.event), survival, coarse)
    expected = concordance_by_loops(rows.time, rows.event, step_value(survival, coarse), tied_time="exclude")
    assert got == pytest.approx(expected, abs=EXACT)


@given(cohorts(), st.data())
def test_risk_equals_scikit_survival_and_lifelines(rows, data):
    sksurv = sksurv_metrics()
    risk = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=rows.time.size, max_size=rows.time.size)))
    got = or_no_pair(concordance_harrell, rows, risk, tied_time="censored_later")
    assume(got is not None)
    expected = sksurv.concordance_index_censored(rows.event, rows.time, risk.astype(float), tied_tol=0.0)[0]
    assert got == pytest.approx(expected, abs=EXACT)
    assert got == pytest.approx(concordance_index(rows.time, -risk, rows.event), abs=EXACT)


@given(scored(), st.integers(1, 40))
def test_block_size_changes_nothing(rows, block):
    args = ((rows.time, rows.event), rows.survival, rows.times)
    whole = or_no_pair(concordance_harrell, *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ELEMENTS", block)
        assert or_no_pair(concordance_harrell, *args) == whole


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


@pytest.mark.parametrize(
    ("time", "event", "n_events"), [([1, 2, 3], [0, 0, 0], 0), ([1, 2, 3], [0, 0, 1], 1), ([2, 2], [1, 1], 2)]
)
def test_no_comparable_pair_is_an_error_with_a_remedy(time, event, n_events):
    with pytest.raises(
        DataError, match=rf"no comparable pair among {len(time)} rows with {n_events} events.*larger"
    ):
        concordance_harrell((time, event), np.arange(len(time)))


options = st.fixed_dictionaries(
    {
        "tied_time": st.sampled_from(["exclude", "censored_later", "all"]),
        "tau": st.sampled_from([None, 2.0, 3.5, 6.0]),
    }
)


def loop_options(chosen):
    return {**chosen, "tau": np.inf if chosen["tau"] is None else chosen["tau"]}


def integers(data, n, low, high):
    return np.array(data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))


def close(value):
    return None if value is None else pytest.approx(value, abs=EXACT)


@given(scored(), options, st.booleans(), st.data())
def test_all_forms_equal_loops(rows, chosen, weighted, data):
    n = rows.time.size
    weight = integers(data, n, 0, 3) if weighted else np.ones(n)
    assume(weight.any())
    risk = integers(data, n, -3, 3)
    floor = last_positive_g(rows.train)
    g = [max(g_by_loops(rows.train, t, left=True), floor) for t in rows.time]

    def product(i, j):
        return float(weight[i] * weight[j])

    def uno(i, j):
        return product(i, j) / g[i] ** 2

    given_weight = {"sample_weight": weight} if weighted else {}
    curve, score = step_value(rows.survival, rows.times), lambda j, t: -risk[j]
    ours = [
        or_no_pair(concordance_harrell, rows[:2], *rows[2:4], **chosen, **given_weight),
        or_no_pair(concordance_harrell, rows[:2], risk, **chosen, **given_weight),
        or_no_pair(concordance_uno, rows[:2], *rows[2:4], train=rows.train, **chosen, **given_weight),
        or_no_pair(concordance_uno, rows[:2], risk, train=rows.train, **chosen, **given_weight),
    ]
    loops = [
        concordance_by_loops(*rows[:2], values, **loop_options(chosen), pair_weight=pair_weight)
        for pair_weight in (product, uno)
        for values in (curve, score)
    ]
    for got, expected in zip(ours, loops, strict=True):
        assert got == close(expected)


@given(cohorts(), cohorts(), st.sampled_from([None, 3.0, 7.5]), st.data())
def test_uno_equals_scikit_survival(rows, train, tau, data):
    """Without ties of events and censorings, where it reads G at an event and not just before it."""
    sksurv, rows, train = sksurv_metrics(), untied(rows), untied(train)
    risk = integers(data, rows.time.size, -3, 3)
    got = or_no_pair(concordance_uno, rows, risk, train=train, tied_time="censored_later", tau=tau)
    assume(got is not None)
    try:
        with np.errstate(all="ignore"):
            expected = sksurv.concordance_index_ipcw(
                structured(*train), structured(*rows), risk.astype(float), tau=tau, tied_tol=0.0
            )[0]
    except ValueError:  # it raises where G is 0 or unknown; here G keeps its last positive value
        return
    assert got == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("levels", [1, 2, 37, 5000])
def test_many_rows_equal_the_pairs_counted_at_once(levels):
    rng = np.random.default_rng(levels)
    n = 1500
    time, event = rng.integers(1, 400, n).astype(float), rng.random(n) < 0.5
    risk, weight = rng.integers(0, levels, n).astype(float), rng.integers(0, 4, n).astype(float)
    later = (time[:, None] < time) & event[:, None]
    pairs = later * np.outer(weight, weight)
    score = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    assert concordance_harrell((time, event), risk) == pytest.approx(
        (later * score).sum() / later.sum(), abs=EXACT
    )
    got = concordance_harrell((time, event), risk, sample_weight=weight)
    assert got == pytest.approx((pairs * score).sum() / pairs.sum(), abs=EXACT)


def test_settings_that_do_not_exist():
    rows = (([1, 2, 3], [1, 1, 0]), [3, 2, 1])
    with pytest.raises(ConfigError, match="got 'half'"):
        concordance_harrell(*rows, tied_time="half")
    for tau in (0.0, -1.0, np.inf, np.nan, "5", True):
        with pytest.raises(ConfigError, match="tau must be one finite time > 0, got"):
            concordance_harrell(*rows, tau=tau)
    with pytest.raises(DataError, match="no comparable pair among 3 rows with 0 events"):
        concordance_harrell(*rows, tau=0.5)
    with pytest.raises(DataError, match="sample_weight is negative, missing or infinite"):
        concordance_harrell(*rows, sample_weight=[np.inf, 1, 1])


@pytest.mark.parametrize("seed", range(12))
def test_pairs_of_equal_times_are_added_to_compared_curves(seed: int) -> None:
    """With weights, entry times and a grid that is not that of the times."""
    rng = np.random.default_rng(seed)
    n, grid = 50, np.array([2.0, 3.5, 7.0])
    time, event = rng.integers(1, 8, n).astype(float), rng.random(n) < 0.6
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n) if seed % 2 else None
    entry = np.where(rng.random(n) < 0.4, time - 0.5, 0.0) if seed % 3 else None
    survival = np.sort(rng.integers(1, 5, (n, 3)) / 5, axis=1)[:, ::-1]
    y = Surv(time, event, entry=entry)
    rows = read_rows(y, "C", entry=True, weight=True, sample_weight=weight, survival=survival)
    compared = Compared.of(rows, survival, grid).with_tied_times(rows, survival, grid)
    for tau in (None, 5.0):
        expected = concordance_harrell(y, survival, grid, tied_time="all", sample_weight=weight, tau=tau)
        assert compared.concordance(tau) == pytest.approx(expected, rel=1e-12)

"""Measures at a horizon and their differences: limits by the jackknife, plain loops, one cause, resamples."""

from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from sstorch.exceptions import DataError
from sstorch.metrics import (
    HorizonRows,
    KaplanMeier,
    aalen_johansen,
    brier_score,
    concordance_uno,
    concordance_wolbers,
    cumulative_dynamic_auc,
    integrated_brier_score,
    measure,
)
from sstorch.metrics.comparison import bootstrap, corrected_resampled_t_test, percentiles
from sstorch.metrics.measures import MEASURES

from .cohorts import error_of_limits, g_by_loops, or_no_pair, scored

T = 1.2
Array = np.ndarray


def _cohort(n: int) -> tuple[Array, Array, Array]:
    """Times that tie, events with censorings too, 0 of censored rows or a cause, and predictions that tie."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(1.5, n)
    time = np.maximum(np.round(np.minimum(failed, left), 1), 0.1)
    code = np.where(failed <= left, rng.integers(1, 3, n), 0)
    return time, code, np.clip(np.round(np.exp(-np.exp(score)), 1), 0.05, 0.95)


# Plain loops: time, 1 of an event of interest, 0 of a censored row, other numbers of other causes;
# survival at T; weights.


def _concordance(time: Array, code: Array, survival: Array, weight: Array, power: int = 0) -> float:
    """Share of concordant pairs of an event by T with the rows that are later, of weight 1 / G^power."""
    right = total = 0.0
    for i in np.flatnonzero((code == 1) & (time <= T)):
        later = (time > time[i]) | ((time == time[i]) & (code != 1))
        pair = weight[i] * weight[later] / g_by_loops((time, code), time[i], True, weight) ** power
        right += pair @ ((survival[i] < survival[later]) + 0.5 * (survival[i] == survival[later]))
        total += pair.sum()
    return right / total


def _states(time: Array, code: Array, weight: Array) -> tuple[Array, Array]:
    """Whether the event has happened by T, and weights over G; 0 of rows whose state at T is not known."""
    inverse = [
        1.0 / g_by_loops((time, code), min(t, T), t <= T, weight) if t > T or known else 0.0
        for t, known in zip(time, code > 0, strict=True)
    ]
    return (code == 1) & (time <= T), weight * inverse


def _auc(time: Array, code: Array, survival: Array, weight: Array) -> float:
    case, mass = _states(time, code, weight)
    low, high = survival[case][:, None], survival[~case]
    pairs = np.outer(mass[case], mass[~case])
    return float((pairs * ((low < high) + 0.5 * (low == high))).sum() / pairs.sum())


def _brier(time: Array, code: Array, survival: Array, weight: Array) -> float:
    case, mass = _states(time, code, weight)
    return float(mass @ (case - (1.0 - survival)) ** 2 / weight.sum())


def _incidence(time: Array, code: Array, weight: Array) -> float:
    alive, found = 1.0, 0.0
    for u in np.unique(time[time <= T]):
        share = weight * (time == u) / weight[time >= u].sum()
        found, alive = found + alive * share[code == 1].sum(), alive * (1.0 - share[code > 0].sum())
    return float(found)


def _scaled_brier(time: Array, code: Array, survival: Array, weight: Array) -> float:
    alike = np.full(time.size, 1.0 - _incidence(time, code, weight))
    return 1.0 - _brier(time, code, survival, weight) / _brier(time, code, alike, weight)


LOOPS = {
    "c_harrell_t": _concordance,
    "c_uno_t": partial(_concordance, power=2),
    "c_cause_specific": _concordance,
    "auc": _auc,
    "brier": _brier,
    "scaled_brier": _scaled_brier,
}
CELLS = [
    (name, cause) for name in LOOPS for cause in (None, 1, 2) if MEASURES[name].defined_for(cause is not None)
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "cause"), CELLS)
def test_value_and_error_are_those_of_a_plain_loop(name: str, cause: int | None, weighted: bool) -> None:
    (time, code, survival), n, step = _cohort(36), 36, 1e-5
    code = (code > 0) * 1 if cause is None else code
    rows = time, np.where(code == (cause or 1), 1, 3 * (code > 0)), survival
    weight = np.random.default_rng(1).uniform(0.3, 3.0, n) if weighted else np.ones(n)
    influence = [
        (LOOPS[name](*rows, weight + step * unit) - LOOPS[name](*rows, weight - step * unit)) / (2.0 * step)
        for unit in np.diag(weight)
    ]
    given = {"sample_weight": weight if weighted else None, "cause": cause}
    estimate = measure(HorizonRows.of((time, code), survival, T, **given), name)
    assert estimate.value == pytest.approx(LOOPS[name](*rows, weight), abs=1e-12)
    error = float(np.sqrt(np.square(influence).sum()))
    assert error_of_limits(name, *estimate, n_subjects=n) == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "n_events", "t"),
    [("c_harrell_t", 10, 5.5), ("c_uno_t", 1, 5.5), ("auc", 10, 1.0), ("auc", 10, 9.5)],
)
def test_all_concordant_or_a_single_event_case_or_control_has_no_limits(name, n_events, t) -> None:
    """The variance between events cannot be estimated from one; that of the other rows is not all of it."""
    y, survival = (np.arange(1.0, 11.0), np.arange(10) < n_events), np.linspace(0.05, 0.95, 10)
    perfect = measure(HorizonRows.of(y, survival, t), name)
    assert perfect.value == 1.0
    assert np.isnan(perfect[1:]).all()
    if n_events == 1 or name == "auc":
        turned = measure(HorizonRows.of(y, survival[[*range(3, 10), 0, 1, 2]], t), name)
        assert 0.0 < turned.value < 1.0
        assert np.isnan(turned[1:]).all()


# ---------------------------------------------------------------------- the only cause


@given(scored())
def test_scores_of_the_only_cause_are_those_of_the_event(rows):
    y, risk, points = rows[:2], 1 - rows.survival[:, 0], np.arange(0.0, 10.0, 0.5)
    found = or_no_pair(concordance_wolbers, y, risk, train=rows.train)
    expected = or_no_pair(concordance_uno, y, risk, train=rows.train, tied_time="censored_later")
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-11))
    np.testing.assert_allclose(
        1 - aalen_johansen(y, points, n_causes=1)[0], KaplanMeier.fit(y).at(points), atol=1e-12
    )
    for function in (brier_score, cumulative_dynamic_auc):
        with suppress(DataError):
            one, other = (function(y, *rows[2:4], train=rows.train, cause=cause) for cause in (None, 1))
            np.testing.assert_array_equal(one, other)


def test_exact_integral_of_a_cause_is_that_of_fine_trapezoids():
    rng = np.random.default_rng(3)
    time, cause = np.ceil(rng.exponential(10, 50)), rng.integers(0, 3, 50)
    times = np.arange(1.0, time.max() + 1)
    survival = 1 - np.sort(rng.integers(0, 20, (50, times.size)) / 20, axis=1)
    train = (time, np.where(cause == 0, 1, cause))  # no censoring: the score is continuous but at events
    nodes, curves = np.append(0.0, times), np.column_stack([np.ones(50), survival])
    last, n, total = time.max(), 2000, 0.0
    for k in range(int(last)):
        fine = k + (np.arange(n) + 0.5) / n
        at = curves[:, [k]] + (fine - nodes[k]) * (curves[:, [k + 1]] - curves[:, [k]])
        ended = time <= k
        square = (((ended & (cause == 2))[:, None] - (1 - at)) ** 2)[~ended | (cause > 0)]
        total += square.sum(axis=0).mean() / 50
    found = integrated_brier_score((time, cause), survival, times, train=train, cause=2)
    assert found == pytest.approx(total / last, rel=1e-6)


# ---------------------------------------------------------------------- comparisons


def of_means(first, second, n_resamples=1000):
    """Percentile limits of the difference of means of two samples of the same rows."""
    drawn = bootstrap(lambda rows: first[rows].mean() - second[rows].mean(), len(first), n_resamples, 0)
    return percentiles(drawn[:, 0], 0.95)


def test_bootstrap_of_a_mean_equals_its_normal_theory():
    first, second = np.random.default_rng(0).normal([[0.15], [0.0]], 1.0, (2, 400))
    result, difference = of_means(first, second, 4000), first - second
    error = difference.std(ddof=1) / np.sqrt(400)
    expected = difference.mean() + np.array([-1.96, 1.96]) * error
    assert result[:2] == pytest.approx(tuple(expected), abs=0.15 * error)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(difference.mean()) / error), abs=0.02)
    swapped = of_means(second, first, 4000)
    assert (swapped.lower, swapped.upper) == pytest.approx((-result.upper, -result.lower))
    assert swapped.p_value == result.p_value
    same = of_means(first[:8], first[:8])  # the rows of both models are the same
    assert (same.lower, same.upper, same.p_value) == (0.0, 0.0, 1.0)


def test_most_resamples_must_be_defined():
    def rarely(rows):
        if len(np.unique(rows)) < 4:
            raise DataError("not today")
        return 0.0

    found = percentiles(bootstrap(rarely, 4, 50, 0)[:, 0], 0.95)
    assert np.isnan(found[:3]).all()
    assert f"not defined in {found.n_undefined} of 50 resamples" in found.reason
    finite = percentiles(bootstrap(lambda rows: 1.0 if (rows == 0).any() else np.inf, 30, 200, 0)[:, 0], 0.95)
    assert finite.n_undefined > 0
    assert finite[:2] == (1.0, 1.0)


def test_corrected_t_test_by_hand():
    first, second = np.array([0.7, 0.8, 0.75, 0.72, 0.71]), np.array([0.69, 0.74, 0.73, 0.73, 0.68])
    difference = first - second
    result = corrected_resampled_t_test(first, second, n_train=80, n_test=20)
    error = np.sqrt(difference.var(ddof=1) * (1 / 5 + 20 / 80))
    t, half = difference.mean() / error, stats.t.ppf(0.975, 4) * error
    ends = difference.mean() - half, difference.mean() + half
    assert result == pytest.approx((difference.mean(), *ends, t, 4, 2 * stats.t.sf(t, 4)))


@pytest.mark.parametrize(
    ("first", "second", "p_value"),
    [
        ([0.5, 0.6], [0.5, 0.6], 1.0),
        ([0.75, 0.5], [0.5, 0.25], np.nan),
        ([0.713, 0.722], [0.712, 0.721], np.nan),
    ],
)
def test_equal_differences_have_no_variance(first, second, p_value):
    result = corrected_resampled_t_test(first, second, n_train=8, n_test=2)
    assert result.difference == pytest.approx(first[0] - second[0])
    assert result.p_value == pytest.approx(p_value, nan_ok=True)
    assert np.isnan(result.lower) == np.isnan(p_value)

"""Measures at a horizon: limits by the jackknife against plain loops, and one event as the only cause."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given

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

from .cohorts import error_of_limits, or_no_pair, scored

T = 1.2
Array = np.ndarray


def _cohort(n: int, seed: int = 0, digits: int = 1) -> tuple[Array, Array, Array]:
    """Times that tie, events with censorings too, and predictions that tie."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(1.5, n)
    time = np.maximum(np.round(np.minimum(failed, left), digits), 0.1)
    return time, failed <= left, np.clip(np.round(np.exp(-np.exp(score)), 1), 0.05, 0.95)


def _product_limit(
    time: Array,
    leaves: Array,
    at_risk: Callable[[float], Array],
    weight: Array,
    until: Callable[[float], bool],
) -> float:
    """Weighted Kaplan-Meier over the times that `until` marks, by its formula."""
    value = 1.0
    for u in np.unique(time[leaves]):
        if until(u):
            value *= 1.0 - weight[leaves & (time == u)].sum() / weight[at_risk(u)].sum()
    return value


def _g(time: Array, event: Array, weight: Array, t: float, *, before: bool) -> float:
    """G(t), or G(t-): an event leaves before a censoring at its time."""
    at_risk = lambda u: (time > u) | (~event & (time == u))  # noqa: E731
    return _product_limit(time, ~event, at_risk, weight, lambda u: u < t or (u == t and not before))


def _pairs(
    later: Callable[[int, Array, Array], Array], power: int
) -> Callable[[Array, Array, Array, Array], float]:
    """Share of concordant pairs of an event by T with the rows that are `later`, of weight 1 / G^power."""

    def value(time: Array, event: Array, survival: Array, weight: Array) -> float:
        right = total = 0.0
        for i in np.flatnonzero(event & (time <= T)):
            g = _g(time, event, weight, time[i], before=True)
            partners = later(i, time, event)
            pair = weight[i] * weight[partners] / g**power
            other = survival[partners]
            right += pair @ ((survival[i] < other) + 0.5 * (survival[i] == other))
            total += pair.sum()
        return right / total

    return value


def _longer(i: int, time: Array, event: Array) -> Array:
    return (time > time[i]) | ((time == time[i]) & ~event)


def _brier(time: Array, event: Array, survival: Array, weight: Array) -> float:
    total, at_t = 0.0, _g(time, event, weight, T, before=False)
    for i in range(time.size):
        if time[i] > T:
            total += weight[i] * (1.0 - survival[i]) ** 2 / at_t
        elif event[i]:
            total += weight[i] * survival[i] ** 2 / _g(time, event, weight, time[i], before=True)
    return total / weight.sum()


def _scaled_brier(time: Array, event: Array, survival: Array, weight: Array) -> float:
    at_t = _product_limit(time, event, lambda u: time >= u, weight, lambda u: u <= T)
    alike = np.full(time.size, at_t)
    return 1.0 - _brier(time, event, survival, weight) / _brier(time, event, alike, weight)


LOOPS = {
    "c_harrell_t": _pairs(_longer, 0),
    "c_uno_t": _pairs(_longer, 2),
    "auc": _pairs(lambda i, time, event: time > T, 1),
    "brier": _brier,
    "scaled_brier": _scaled_brier,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_value_and_error_are_those_of_a_plain_loop(name: str, weighted: bool) -> None:
    plain, rows, step = LOOPS[name], _cohort(28), 1e-5
    weight = np.random.default_rng(1).uniform(0.3, 3.0, 28) if weighted else np.ones(28)
    influence = [
        (plain(*rows, weight + step * unit) - plain(*rows, weight - step * unit)) / (2.0 * step)
        for unit in np.diag(weight)
    ]
    estimate = measure(HorizonRows.of(rows[:2], rows[2], T, sample_weight=weight if weighted else None), name)
    assert estimate.value == pytest.approx(plain(*rows, weight), abs=1e-12)
    error = float(np.sqrt(np.square(influence).sum()))
    assert error_of_limits(name, *estimate, n_subjects=28) == pytest.approx(error, rel=1e-6)


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

"""One event is the case of a single cause: every score of a cause is that of the event, and a plain sum."""

import numpy as np
import pytest
from hypothesis import given

from sstorch import Surv
from sstorch.exceptions import DataError
from sstorch.metrics import (
    HorizonRows,
    KaplanMeier,
    aalen_johansen,
    brier_score,
    concordance_harrell,
    concordance_uno,
    concordance_wolbers,
    cumulative_dynamic_auc,
    integrated_brier_score,
    measure,
    net_benefit,
)

from .cohorts import cohorts, scored

CONVENTIONS = ("graf", "trapezoid", "sksurv", "surtree", "osst")


def or_reason(function, *args, **kwargs):
    """The value, or why there is none."""
    try:
        return function(*args, **kwargs)
    except DataError as error:
        return str(error).partition(" among ")[0]


def same(found, expected):
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@given(cohorts())
def test_aalen_johansen_is_one_minus_kaplan_meier(rows):
    times = np.arange(0.0, 10.0, 0.5)
    incidence = aalen_johansen((rows.time, rows.event), times, n_causes=1)
    np.testing.assert_allclose(1 - incidence[0], KaplanMeier.fit(rows).at(times), atol=1e-14)


@given(scored())
def test_scores_of_the_only_cause_are_those_of_the_event(rows):
    y, train, curves = rows[:2], rows.train, (rows.survival, rows.times)
    for convention in CONVENTIONS:
        for function in (brier_score, integrated_brier_score):
            options = {"train": train, "convention": convention}
            expected = or_reason(function, y, *curves, **options)
            found = or_reason(function, y, *curves, cause=1, **options)
            if isinstance(found, str):
                found = found.replace("Aalen-Johansen", "Kaplan-Meier")
            same(found, expected)
    expected = or_reason(cumulative_dynamic_auc, y, *curves, train=train)
    same(or_reason(cumulative_dynamic_auc, y, *curves, train=train, cause=1), expected)
    risk = 1 - rows.survival[:, 0]
    for tied in ("exclude", "censored_later", "all"):
        expected = or_reason(concordance_harrell, y, risk, tied_time=tied)
        same(or_reason(concordance_harrell, y, risk, tied_time=tied, cause=1), expected)


@given(scored())
def test_concordance_of_wolbers_of_the_only_cause_is_that_of_uno(rows):
    y, risk = rows[:2], 1 - rows.survival[:, 0]
    expected = or_reason(concordance_uno, y, risk, train=rows.train, tied_time="censored_later")
    same(or_reason(concordance_wolbers, y, risk, train=rows.train), expected)


@given(scored())
def test_measures_at_a_horizon_of_the_only_cause_are_those_of_the_event(rows):
    y, survival, t = rows[:2], np.clip(rows.survival[:, 0], 0.05, 0.95), float(np.median(rows.time))
    one, two = HorizonRows.of(y, survival, t), HorizonRows.of(y, survival, t, cause=1)
    for name in ("c_harrell_t", "auc", "brier", "oe_ratio", "calibration_intercept"):
        same(or_reason(measure, two, name), or_reason(measure, one, name))
    benefits = [net_benefit(y, survival, t=t, thresholds=[0.2, 0.5], cause=cause) for cause in (1, None)]
    same(*(table["net_benefit"].to_numpy() for table in benefits))


def _rows_of_causes(n: int, seed: int):
    rng = np.random.default_rng(seed)
    time, cause = np.ceil(rng.exponential(10, n)), rng.integers(0, 3, n)
    times = np.arange(1.0, time.max() + 1)
    survival = 1 - np.sort(rng.integers(0, 20, (n, times.size)) / 20, axis=1)
    return (time, cause), survival, times


def test_exact_integral_of_a_cause_is_that_of_fine_trapezoids():
    (time, cause), survival, times = _rows_of_causes(50, 3)
    train = (time, np.where(cause == 0, 1, cause))  # no censoring: the score is continuous but at events
    nodes, curves = np.append(0.0, times), np.column_stack([np.ones(50), survival])
    last, n = time.max(), 2000
    found = integrated_brier_score((time, cause), survival, times, train=train, cause=2)
    total = 0.0
    for k in range(int(last)):
        fine = k + (np.arange(n) + 0.5) / n
        at = curves[:, [k]] + (fine - nodes[k]) * (curves[:, [k + 1]] - curves[:, [k]])
        ended = time <= k
        seen = ~ended | (cause > 0)
        square = (((ended & (cause == 2))[:, None] - (1 - at)) ** 2)[seen]
        total += square.sum(axis=0).mean() / 50
    assert found == pytest.approx(total / last, rel=1e-6)


def test_several_causes_need_the_one_that_is_scored():
    y = Surv([1.0, 2.0, 3.0], [1, 2, 0], causes=("relapse", "death"))
    for score in (brier_score, cumulative_dynamic_auc, integrated_brier_score):
        with pytest.raises(DataError, match=r"y has competing causes, and .* give cause="):
            score(y, [[0.5]] * 3, [1.5], train=y)

"""Kaplan-Meier, the censoring distribution, and summaries of curves."""

import numpy as np
import pytest
from hypothesis import given
from lifelines import KaplanMeierFitter

from sstorch.metrics import KaplanMeier, censoring_distribution

from .cohorts import cohorts

POINTS = np.arange(0.5, 10.0, 0.5)
SOONER = 1e-6


@given(cohorts(min_size=1))
def test_survival_and_censoring_equal_lifelines_and_scikit_survival(rows):
    """G is Kaplan-Meier of the censorings with events a moment earlier."""
    moved = np.where(rows.event, rows.time - SOONER, rows.time)
    for estimate, peer in (
        (KaplanMeier.fit(rows), KaplanMeierFitter().fit(*rows)),
        (censoring_distribution(rows), KaplanMeierFitter().fit(moved, ~rows.event)),
    ):
        np.testing.assert_allclose(estimate.at(POINTS), peer.predict(POINTS), rtol=0, atol=1e-12)
        before = peer.predict(POINTS - 2 * SOONER)
        np.testing.assert_allclose(estimate.before(POINTS), before, rtol=0, atol=1e-12)
    reason = "scikit-survival is the oracle (extra 'baselines')"
    nonparametric = pytest.importorskip("sksurv.nonparametric", reason=reason)
    times, expected = nonparametric.kaplan_meier_estimator(rows.event, rows.time, reverse=True)
    np.testing.assert_allclose(censoring_distribution(rows).at(times), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tied_events", ["removed", "at_risk"])
@given(rows=cohorts(min_size=1))
def test_censoring_with_integer_weights_equals_repeated_rows(rows, tied_events):
    weight = 1 + np.arange(rows.time.size) % 4
    again = np.repeat(np.arange(rows.time.size), weight)
    expected = censoring_distribution((rows.time[again], rows.event[again]), tied_events=tied_events)
    for factor in (1.0, 0.1):
        g = censoring_distribution(rows, tied_events=tied_events, sample_weight=factor * weight)
        np.testing.assert_allclose(g.values, expected.values, rtol=0, atol=1e-12)


def test_shapes_pass_through_and_the_last_value_stays():
    km = KaplanMeier.fit(([1.0, 3.0], [1, 0]))
    assert km.at(2.0).shape == ()
    assert km.at([[0.0, 1.0], [2.0, 99.0]]).tolist() == [[1.0, 0.5], [0.5, 0.5]]
    assert km.before([1.0, np.inf]).tolist() == [1.0, 0.5]

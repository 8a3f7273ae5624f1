import numpy as np
import pytest
from hypothesis import given
from lifelines import KaplanMeierFitter

from sstorch.metrics import KaplanMeier, censoring_distribution
from sstorch.metrics.censoring import floored

from .cohorts import cohorts

POINTS = np.arange(0.5, 10.0, 0.5)
SOONER = 1e-6


@given(cohorts(min_size=1))
def test_survival_equals_lifelines(rows):
    oracle = KaplanMeierFitter().fit(*rows)
    km = KaplanMeier.fit(rows)
    np.testing.assert_allclose(km.at(POINTS), oracle.predict(POINTS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(km.before(POINTS), oracle.predict(POINTS - SOONER), rtol=0, atol=1e-12)


@given(cohorts(min_size=1))
def test_censoring_is_kaplan_meier_with_events_a_moment_earlier(rows):
    moved = np.where(rows.event, rows.time - SOONER, rows.time)
    oracle = KaplanMeierFitter().fit(moved, ~rows.event)
    g = censoring_distribution(rows)
    np.testing.assert_allclose(g.at(POINTS), oracle.predict(POINTS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(g.before(POINTS), oracle.predict(POINTS - 2 * SOONER), rtol=0, atol=1e-12)


@given(cohorts(min_size=1))
def test_censoring_equals_scikit_survival(rows):
    nonparametric = pytest.importorskip(
        "sksurv.nonparametric", reason="scikit-survival is the oracle (extra 'baselines')"
    )
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


def test_floor():
    """The last positive value of G; where it is 0 from the first time on, the 1 before it."""
    for time, event, expected in (
        ([1, 2], [1, 1], [1, 1]),
        ([1, 2], [0, 0], [0.5, 0.5]),
        ([2, 2], [0, 0], [1]),
    ):
        assert floored(censoring_distribution((time, event))).values.tolist() == expected

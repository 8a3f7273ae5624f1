"""Parts of baselines, by hand and compared with other packages."""

from typing import Any

import numpy as np
import pytest
from lifelines import CoxPHFitter

from sstorch import SurvivalData
from sstorch.bench.baselines.base import BreslowBaseline, checked_curves, steps, straight_lines
from sstorch.bench.baselines.models import grouped_times, partial_log_likelihood
from sstorch.exceptions import TrainingError

KNOTS, VALUES = np.array([2.0, 5.0]), np.array([[0.8, 0.4], [1.0, 0.0]])


def test_breslow_hazard_is_events_over_risks() -> None:
    time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    risk = np.array([1.0, 2.0, 4.0, 8.0])
    baseline = BreslowBaseline.of(np.log(risk), (time, event))
    hazard = np.cumsum([1 / 15, 1 / 14, 1 / 8])
    np.testing.assert_array_equal(baseline.jumps, [1, 2, 3])
    np.testing.assert_allclose(baseline.survival(np.log([1.0, 3.0])), np.exp(-np.outer([1, 3], hazard)))


def test_breslow_of_risks_of_very_different_size_has_no_rounding_noise() -> None:
    """Subtracted from the sum of all, the large risks would leave nothing of the small ones."""
    time, log_risk = np.arange(1.0, 7.0), np.array([60.0, 40.0, 0.0, -10.0, -20.0, -40.0])
    baseline = BreslowBaseline.of(log_risk, (time, np.ones(6, dtype=bool)))
    assert (np.diff(baseline.survival(log_risk), axis=1) <= 0).all()
    # Each row is nearly alone at risk at its own time, when its hazard grows by one.
    step = np.diff(baseline.hazard, prepend=0.0) * np.exp(log_risk - baseline.largest)
    np.testing.assert_allclose(step, 1.0, atol=1e-3)


def test_infinite_risks_are_not_nan() -> None:
    baseline = BreslowBaseline(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 0.0)
    curves = baseline.survival(np.array([1e6, -1e6, np.log(2.0)]))
    np.testing.assert_allclose(curves, [[1, 0], [1, 1], [1, np.exp(-2.0)]])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (steps, [[1, 1, 0.8, 0.8, 0.4, 0.4], [1, 1, 1, 1, 0, 0]]),
        (straight_lines, [[1, 0.9, 0.8, 0.6, 0.4, 0.4], [1, 1, 1, 0.5, 0, 0]]),
    ],
)
def test_curves_between_knots(kind: Any, expected: list[list[float]]) -> None:
    predict = kind(KNOTS, lambda _: VALUES)
    np.testing.assert_allclose(predict(None, np.array([0.0, 1.0, 2.0, 3.5, 5.0, 99.0])), expected)


def test_rounding_is_removed_and_more_raises() -> None:
    np.testing.assert_array_equal(checked_curves([[1.0 + 1e-7, 0.5, 0.5 + 1e-7]]), [[1.0, 0.5, 0.5]])
    for bad in ([[0.5, 0.6]], [[1.1, 0.5]], [[0.5, -0.1]], [[1.0, np.nan]]):
        with pytest.raises(TrainingError):
            checked_curves(bad)


def test_grouped_times_keep_the_order_and_the_risk_sets() -> None:
    time = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 9.0])
    event = np.array([0, 0, 1, 0, 0, 1, 0], dtype=bool)
    grouped = grouped_times(time, event)
    np.testing.assert_array_equal(grouped, [1, 1, 3, 3, 3, 5, 5])
    for t in time[event]:
        np.testing.assert_array_equal(grouped >= t, time >= t)


def test_partial_likelihood_equals_lifelines_with_ties(small_data: SurvivalData) -> None:
    table = small_data.frame.assign(time=np.ceil(small_data.time / 10), event=small_data.event)
    assert table.loc[table["event"], "time"].duplicated().sum() > 20
    peer = CoxPHFitter().fit(table, "time", "event")
    linear = small_data.frame.to_numpy() @ peer.params_.to_numpy()
    own = partial_log_likelihood(linear + 800.0, table["time"].to_numpy(), small_data.event)
    assert own == pytest.approx(peer.log_likelihood_, rel=1e-8)

import numpy as np

from sstorch.bench.baselines.base import BreslowBaseline


def test_hazard_is_events_over_risks() -> None:
    time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    risk = np.array([1.0, 2.0, 4.0, 8.0])
    baseline = BreslowBaseline.of(np.log(risk), (time, event))
    hazard = np.cumsum([1 / 15, 1 / 14, 1 / 8])
    np.testing.assert_array_equal(baseline.jumps, [1, 2, 3])
    np.testing.assert_allclose(baseline.survival(np.log([1.0, 3.0])), np.exp(-np.outer([1, 3], hazard)))


def test_risks_of_very_different_size_leave_no_rounding_noise() -> None:
    """Taken away from the sum of all, the large risks would leave nothing of the small ones."""
    time, log_risk = np.arange(1.0, 7.0), np.array([60.0, 40.0, 0.0, -10.0, -20.0, -40.0])
    baseline = BreslowBaseline.of(log_risk, (time, np.ones(6, dtype=bool)))
    assert (np.diff(baseline.survival(log_risk), axis=1) <= 0).all()
    # Each row is nearly alone at risk at its own time, when its hazard grows by one.
    step = np.diff(baseline.hazard, prepend=0.0) * np.exp(log_risk - baseline.largest)
    np.testing.assert_allclose(step, 1.0, atol=1e-3)


def test_infinite_risks_are_no_nan() -> None:
    baseline = BreslowBaseline(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 0.0)
    curves = baseline.survival(np.array([1e6, -1e6, np.log(2.0)]))
    np.testing.assert_allclose(curves, [[1, 0], [1, 1], [1, np.exp(-2.0)]])

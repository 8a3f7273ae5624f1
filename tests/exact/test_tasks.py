import numpy as np
import pytest

from sstorch import metrics
from sstorch.exact import IntegratedBrier, LeastSquares, LogLikelihood, solve
from sstorch.exceptions import ConfigError, DataError
from tests.exact import reference


def test_integrated_brier_is_the_convention_osst_of_the_metrics():
    features, time, event = reference.random_problem(3, n_rows=(60, 61))
    task = IntegratedBrier(time, event)
    leaf = features[:, 0].astype(int)
    grid = np.unique(time)
    curves = [
        list(reference.leaf_curve(np.flatnonzero(leaf == v).tolist(), time, event, ipcw=False).values())
        for v in (0, 1)
    ]
    score = metrics.integrated_brier_score(
        (time, event), np.array(curves)[leaf], grid, train=(time, event), convention="osst"
    )
    assert task.loss(leaf) == pytest.approx(score, rel=1e-12)


def test_buckets_put_times_at_left_ends():
    time = np.array([0.0, 1.0, 2.4, 2.6, 5.0, 10.0]) + 1.0
    event = np.array([1, 1, 0, 1, 1, 1])
    coarse = IntegratedBrier(time, event, n_buckets=4)
    by_hand = IntegratedBrier(np.array([0.0, 0.0, 0.0, 2.5, 5.0, 10.0]) + 1.0, event)
    assert coarse.loss(np.zeros(6, dtype=int)) == pytest.approx(by_hand.loss(np.zeros(6, dtype=int)))


@pytest.mark.parametrize("objective", [LogLikelihood, IntegratedBrier])
def test_no_events_are_refused(objective):
    with pytest.raises(DataError, match="no row has an event"):
        objective([1.0, 2.0], [0, 0])


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="leaf_curve"):
        IntegratedBrier([1.0, 2.0], [1, 1], leaf_curve="weibull")
    with pytest.raises(ConfigError, match=r"n_buckets must be .* got 1"):
        IntegratedBrier([1.0, 2.0], [1, 1], n_buckets=1)
    with pytest.raises(DataError, match="all rows have the time 2"):
        IntegratedBrier([2.0, 2.0], [1, 1])


def test_a_time_before_the_first_event_has_a_hazard():
    task = LogLikelihood([1.0, 2.0, 3.0], [0, 1, 1])
    assert task.hazard[0] == 0.25
    assert np.isfinite(solve([[0], [1], [1]], task, 1).loss)


@pytest.mark.parametrize(("size", "match"), [(1e200, "y is infinite or larger"), (1e-200, "y differs by at")])
def test_numbers_whose_squares_leave_double_precision_raise(size, match):
    with pytest.raises(DataError, match=match):
        LeastSquares(np.arange(5.0) * size)
    LeastSquares(np.full(5, 3e-200))  # equal numbers have no squares

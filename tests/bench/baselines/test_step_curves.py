import numpy as np
import pytest

from sstorch.bench.baselines.base import BrokenLineCurves, StepCurves, checked_curves
from sstorch.exceptions import DataError, TrainingError

KNOTS = np.array([2.0, 5.0])
VALUES = np.array([[0.8, 0.4], [1.0, 0.0]])


def test_steps_are_right_continuous_and_keep_their_last_value() -> None:
    curves = StepCurves(KNOTS, lambda _: VALUES).falling_curves(None, [0.0, 1.9, 2.0, 4.9, 5.0, 99.0])
    np.testing.assert_array_equal(curves[0], [1, 1, 0.8, 0.8, 0.4, 0.4])
    np.testing.assert_array_equal(curves[1], [1, 1, 1, 1, 0, 0])


def test_lines_join_the_knots() -> None:
    curves = BrokenLineCurves(KNOTS, lambda _: VALUES).falling_curves(None, [0.0, 1.0, 2.0, 3.5, 5.0, 99.0])
    np.testing.assert_allclose(curves[0], [1, 0.9, 0.8, 0.6, 0.4, 0.4])
    np.testing.assert_allclose(curves[1], [1, 1, 1, 0.5, 0, 0])


def test_rounding_is_removed_and_more_is_refused() -> None:
    np.testing.assert_array_equal(checked_curves([[1.0 + 1e-7, 0.5, 0.5 + 1e-7]]), [[1.0, 0.5, 0.5]])
    with pytest.raises(TrainingError, match="NaN"):
        checked_curves([[1.0, np.nan]])
    for bad in ([[0.5, 0.6]], [[1.1, 0.5]], [[0.5, -0.1]]):
        with pytest.raises(TrainingError, match="increase or are outside"):
            checked_curves(bad)


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(DataError, match="finite and >= 0"):
        StepCurves(KNOTS, lambda _: VALUES).falling_curves(None, [-1.0])

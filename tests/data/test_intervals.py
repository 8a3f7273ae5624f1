"""Targets of times that are known up to an interval: what is read, what is refused, who may ask for times."""

import numpy as np
import pandas as pd
import pytest

from sstorch import OptimalSurvivalTree, Penalties, Surv, SurvivalRegression
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError, DataWarning

few_events = pytest.mark.filterwarnings("ignore:3 events in 4 rows")
X = np.array([[1.0], [4.0], [2.0], [8.0]])
Y = Surv.interval([0, 2, 3, 5], [4, 2, 7, np.inf])


def test_the_four_kinds_of_rows() -> None:
    data = SurvivalData(X, Y)
    assert data.intervals is not None
    np.testing.assert_array_equal(data.intervals.censored, [True, False, True, False])
    np.testing.assert_array_equal(data.event, [True, True, True, False])
    np.testing.assert_array_equal(data.nominal_time, [2, 2, 5, 5])
    assert "3 events (75.0 %: 2 within intervals)" in data.describe()
    part = data.subset([2, 0])
    assert part.intervals is not None
    np.testing.assert_array_equal(part.intervals.lower, [3, 0])
    np.testing.assert_array_equal(part.y.intervals.upper, [7, 4])


def test_rows_without_weight_leave() -> None:
    np.testing.assert_array_equal(SurvivalData(X, Y).reweighted([1, 0, 1, 1]).nominal_time, [2, 5, 5])


def test_exact_and_right_censored_rows_need_no_intervals() -> None:
    data = SurvivalData(X, Surv.interval([1, 2, 3, 5], [1, 2, np.inf, 5]))
    assert data.intervals is None
    np.testing.assert_array_equal(data.time, [1, 2, 3, 5])
    np.testing.assert_array_equal(data.event, [True, True, False, True])


def test_zeros_are_moved_where_they_are_times() -> None:
    with pytest.warns(DataWarning, match="1 event at time zero moved to 1"):
        data = SurvivalData(X, Surv.interval([0, 2, 0, 5], [0, 2, 9, np.inf]))
    assert data.intervals is not None
    np.testing.assert_array_equal(data.intervals.lower, [1, 2, 0, 5])  # the third is censored from the left
    np.testing.assert_array_equal(data.intervals.upper, [1, 2, 9, np.inf])
    np.testing.assert_array_equal(data.given_y.intervals.lower, [0, 2, 0, 5])
    np.testing.assert_array_equal(data.given_y.intervals.upper, [0, 2, 9, np.inf])


def test_entry_with_intervals() -> None:
    with pytest.raises(
        DataError, match=r"entry is after the lower bound in 1 row .*position 2\); .* raise the lower bound"
    ):
        Surv.interval(*Y.intervals, entry=[0, 0, 4, 0])
    late = SurvivalData(X, Surv.interval(*Y.intervals, entry=[0, 1, 3, 0]))
    assert late.entry.tolist() == [0, 1, 3, 0]


@few_events
def test_whoever_does_not_know_intervals_is_stopped() -> None:
    data = SurvivalData(X, Y)
    with pytest.raises(DataError, match="this method does not support interval-censored outcomes; use log_l"):
        _ = data.time
    with pytest.raises(DataError, match="plot does not support interval-censored outcomes"):
        Y.right_censored("plot")
    with pytest.raises(DataError, match="a landmark does not support"):
        Y.from_landmark(1.0)
    with pytest.raises(DataError, match="structured array of event and time cannot hold interval outcomes"):
        np.asarray(Y)
    with pytest.raises(DataError, match="interval-censored"):
        OptimalSurvivalTree().fit(X, Y)
    with pytest.raises(DataError, match="same row labels in a different order"):
        Surv.interval(pd.Series([0, 1], index=[0, 1]), pd.Series([1, 2], index=[1, 0]))
    tree = SurvivalRegression("exponential", penalties=Penalties(ridge=0.1)).fit(X, Y)
    with pytest.raises(DataError, match="interval-censored"):
        tree.score(X, Y)

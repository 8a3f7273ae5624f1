import numpy as np
import pytest
from hypothesis import given

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import concordance_harrell, evaluation_times, integrated_brier_score

from .cohorts import scored


@given(scored())
def test_default_grids_serve_their_metrics(rows):
    grid = evaluation_times(rows.time, rows.train.time)
    assert np.isin(rows.time, grid).all()
    assert grid[-1] == rows.time.max()
    assert np.diff(grid, prepend=0.0).max() <= rows.time.max() / 200 * (1 + 1e-12)
    survival = np.exp(-np.outer(np.linspace(0.1, 1.0, rows.time.size), grid))
    assert integrated_brier_score(rows.time, rows.event, survival, grid, train=rows.train) >= 0.0
    if (rows.time[rows.event] < rows.time.max()).any():
        assert 0.0 <= concordance_harrell(rows.time, rows.event, survival, grid) <= 1.0

    try:
        grid = evaluation_times(rows.time, rows.train.time, "sksurv")
    except DataError as error:
        if "needs two distinct test times" not in str(error):
            raise
        return
    survival = np.exp(-np.outer(np.linspace(0.1, 1.0, rows.time.size), grid))
    score = integrated_brier_score(
        rows.time, rows.event, survival, grid, train=rows.train, convention="sksurv"
    )
    assert score >= 0.0


def test_grids_that_do_not_exist():
    with pytest.raises(DataError, match="all test times are 0"):
        evaluation_times([0, 0], [1, 2])
    with pytest.raises(DataError, match=r"inside \(2, 5\).*got 1\. Use larger folds or 'graf'"):
        evaluation_times([2, 3, 9], [1, 5], "sksurv")
    with pytest.raises(ConfigError, match="'harrell' is unknown"):
        evaluation_times([2, 3, 9], [1, 5], "harrell")


def test_the_surtree_window_takes_the_entries_of_the_sorted_distinct_times():
    """Ten distinct times: entries 1 and 9, the latter the largest and stepped back; 11: entries 1 and 9."""
    assert evaluation_times(np.arange(1.0, 11.0), [1.0], "surtree")[[0, -1]].tolist() == [2.0, 9.999]
    assert evaluation_times(np.arange(1.0, 12.0), [1.0], "surtree")[[0, -1]].tolist() == [2.0, 10.0]
    assert evaluation_times(np.arange(1.0, 21.0), [1.0], "surtree")[[0, -1]].tolist() == [3.0, 19.0]

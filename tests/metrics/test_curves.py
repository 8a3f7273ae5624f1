import numpy as np
import pytest

from sstorch.exceptions import DataError
from sstorch.metrics.curves import median_survival_time, restricted_mean_survival_time


def test_medians():
    times = [1.0, 2.0, 4.0]
    curves = [[0.5, 0.5, 0.5], [0.25, 0.2, 0.1], [1.0, 0.75, 0.25], [1.0, 1.0, 0.6], [1.0, 0.0, 0.0]]
    assert median_survival_time(curves, times).tolist() == pytest.approx([1.0, 2 / 3, 3.0, np.inf, 1.5])
    assert median_survival_time([[0.5, 0.2], [0.2, 0.1]], [0.0, 1.0]).tolist() == [0.0, 0.0]


def test_restricted_means_stop_between_grid_times():
    got = restricted_mean_survival_time([[1.0, 0.0], [0.0, 0.0]], [1.0, 3.0], tau=2.0)
    assert got.tolist() == pytest.approx([1.75, 0.5])
    assert restricted_mean_survival_time([[1.0, 0.0]], [0.0, 2.0], tau=2.0).tolist() == [1.0]


def test_refusals():
    with pytest.raises(DataError, match=r"must be a grid that reaches tau = 2\.5; it ends at 2"):
        restricted_mean_survival_time([[0.5, 0.2]] * 3, [1.0, 2.0], tau=2.5)
    with pytest.raises(DataError, match="survival must have shape"):
        median_survival_time([0.5, 0.2], [1.0, 2.0])

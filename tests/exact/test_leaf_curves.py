import numpy as np

from sstorch.exact.hazards import BaselineHazard as Baseline
from sstorch.exact.hazards import hazard_ratios
from sstorch.exact.leaf_curves import leaf_curves
from sstorch.exact.rows import weighted_rows


def test_steps_are_right_continuous_and_begin_at_one_and_zero() -> None:
    leaf, time, event = (
        np.array([0, 0, 1, 1]),
        np.array([2.0, 4.0, 3.0, 5.0]),
        np.array([1, 0, 1, 1], dtype=bool),
    )
    curves = leaf_curves(leaf, 2, weighted_rows((time, event)))
    assert curves.times.tolist() == [2, 3, 5]
    grid = np.array([0.0, 1.9, 2.0, 3.0, 4.9, 5.0, 50.0])
    assert curves.survival_at(grid).tolist() == [[1, 1, 0.5, 0.5, 0.5, 0.5, 0.5], [1, 1, 1, 0.5, 0.5, 0, 0]]
    assert curves.cumulative_hazard_at(grid)[1].tolist() == [0, 0, 0, 0.5, 0.5, 1.5, 1.5]
    assert curves.quantile(None, 0.5).tolist() == [2, 3]
    assert curves.restricted_mean(None, 4.0).tolist() == [3.0, 3.5]


def test_leaves_without_events_count_half_an_event() -> None:
    leaf, time, event = np.array([0, 0, 1]), np.array([1.0, 2.0, 2.0]), np.array([True, True, False])
    rows = weighted_rows((time, event))
    baseline = Baseline.of(rows)
    np.testing.assert_allclose(baseline.at([0.5, 1.0, 1.5, 9.0]), [0.25, 1 / 3, 1 / 3, 1 / 3 + 1 / 2])
    ratios = hazard_ratios(leaf, 2, rows, baseline.exposure(rows))
    np.testing.assert_allclose(ratios, [2 / (1 / 3 + 5 / 6), 0.5 / (5 / 6)])

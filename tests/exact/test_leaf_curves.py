import numpy as np
import pytest
from scipy.optimize import minimize

from sstorch.exact.hazards import BaselineHazard as Baseline
from sstorch.exact.hazards import hazard_ratios
from sstorch.exact.leaf_curves import leaf_curves
from sstorch.exact.rows import weighted_rows
from sstorch.metrics import censoring_distribution


def _rows(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    leaf = rng.integers(0, 2, n)
    time = np.ceil(4 * rng.exponential(size=n) * (1 + leaf))
    # Censoring that differs between the leaves makes the free step function of one of them rise.
    return leaf, time, rng.uniform(size=n) < np.where(leaf == 0, 0.95, 0.4)


def test_least_brier_curves_minimise_the_score_among_falling_steps() -> None:
    leaf, time, event = _rows()
    curves = leaf_curves(leaf, 2, weighted_rows((time, event)), "ipcw")
    grid = np.unique(time)
    g_of = dict(zip(grid, censoring_distribution((time, event), tied_events="at_risk").values, strict=True))

    def score(number: int, survival: np.ndarray) -> float:
        rows, total = np.flatnonzero(leaf == number), 0.0
        steps = np.concatenate(([1.0], survival))[np.searchsorted(curves.times, grid, side="right")]
        for i in rows:
            for k in range(len(grid) - 1):
                if time[i] > grid[k]:
                    total += (grid[k + 1] - grid[k]) * (1 - steps[k]) ** 2 / g_of[grid[k]]
                elif event[i]:
                    total += (grid[k + 1] - grid[k]) * steps[k] ** 2 / g_of[time[i]]
        return float(total)

    for number in range(2):
        assert (np.diff(curves.survival[number]) <= 0).all()
        mine = score(number, curves.survival[number])
        size = len(curves.times)

        def of_drops(drops: np.ndarray, number: int = number) -> float:
            return score(number, 1 - np.cumsum(drops))

        peer = minimize(
            of_drops,
            np.full(size, 0.5 / size),
            method="SLSQP",
            bounds=[(0, 1)] * size,
            constraints={"type": "ineq", "fun": lambda drops: 1 - drops.sum()},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert mine == pytest.approx(peer.fun, rel=1e-5)
        assert mine <= peer.fun * (1 + 1e-9)


def test_steps_are_right_continuous_and_begin_at_one_and_zero() -> None:
    leaf, time, event = (
        np.array([0, 0, 1, 1]),
        np.array([2.0, 4.0, 3.0, 5.0]),
        np.array([1, 0, 1, 1], dtype=bool),
    )
    curves = leaf_curves(leaf, 2, weighted_rows((time, event)), "kaplan_meier")
    assert curves.times.tolist() == [2, 3, 5]
    grid = np.array([0.0, 1.9, 2.0, 3.0, 4.9, 5.0, 50.0])
    assert curves.survival_at(grid).tolist() == [[1, 1, 0.5, 0.5, 0.5, 0.5, 0.5], [1, 1, 1, 0.5, 0.5, 0, 0]]
    assert curves.cumulative_hazard_at(grid)[1].tolist() == [0, 0, 0, 0.5, 0.5, 1.5, 1.5]
    assert curves.quantile(0.5).tolist() == [2, 3]
    assert curves.restricted_mean(4.0).tolist() == [3.0, 3.5]


def test_leaves_without_events_count_half_an_event() -> None:
    leaf, time, event = np.array([0, 0, 1]), np.array([1.0, 2.0, 2.0]), np.array([True, True, False])
    rows = weighted_rows((time, event))
    baseline = Baseline.of(rows)
    np.testing.assert_allclose(baseline.at([0.5, 1.0, 1.5, 9.0]), [0.25, 1 / 3, 1 / 3, 1 / 3 + 1 / 2])
    ratios = hazard_ratios(leaf, 2, rows, baseline.exposure(rows))
    np.testing.assert_allclose(ratios, [2 / (1 / 3 + 5 / 6), 0.5 / (5 / 6)])
    curves = leaf_curves(leaf, 2, weighted_rows((time, event)), "proportional_hazards")
    np.testing.assert_allclose(curves.cumulative_hazard[1], 0.6 * np.array([1 / 3, 5 / 6]))
    np.testing.assert_array_equal(curves.survival, np.exp(-curves.cumulative_hazard))

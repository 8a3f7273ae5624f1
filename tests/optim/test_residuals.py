"""The bag of trees on residuals, and trees of lines."""

import numpy as np
import pytest

from sstorch.data.design_matrix import DesignMatrix
from sstorch.nn import Topology
from sstorch.optim.starts import regression_tree
from sstorch.optim.starts.regression_tree import GateColumns, Split, model_tree
from sstorch.optim.starts.residuals import residual_bag


def step(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns, and a target that steps in the first."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 3))
    return x, np.where(x[:, 0] > 0.5, 1.0, -1.0) + rng.normal(size=n)


def test_bag_finds_the_step_without_the_noise() -> None:
    x, target = step()
    n = len(x)
    found = residual_bag(DesignMatrix.of(x), target, np.ones(n), np.arange(n), 0)
    truth = np.where(x[:, 0] > 0.5, 1.0, -1.0)
    assert np.corrcoef(found, truth)[0, 1] > 0.9
    # Trees that have seen a row would know of its noise.
    assert abs(np.corrcoef(found - truth, target - truth)[0, 1]) < 0.15


def test_rows_of_a_subject_are_seen_together() -> None:
    # Features name the subject, whose rows have one residual: trees that had seen one of them would know it.
    rng = np.random.default_rng(2)
    subject = np.repeat(np.arange(24), 50)
    x, target = subject[:, None].astype(float), rng.normal(size=24)[subject]
    apart = residual_bag(DesignMatrix.of(x), target, np.ones(1200), subject, 0)
    mixed = residual_bag(DesignMatrix.of(x), target, np.ones(1200), np.arange(1200), 0)
    assert np.corrcoef(mixed, target)[0, 1] > 0.9
    assert np.corrcoef(apart, target)[0, 1] < 0.3


def grown(x: np.ndarray, target: np.ndarray, min_leaf: float = 0.1) -> dict[int, Split]:
    columns = GateColumns(tuple(np.array([j]) for j in range(x.shape[1])), (False,) * x.shape[1])
    n = len(x)
    given = (x - x.mean(0)) / x.std(0), target[None], np.ones((1, n)), np.full(n, 1 / n), columns
    return model_tree(DesignMatrix.of(x), *given, Topology(1), min_leaf)


def test_slope_that_differs_between_sides_is_found() -> None:
    # The mean is the same on both sides of .5: a tree of means has nothing to find.
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(800, 3))
    target = np.where(x[:, 0] > 0.5, 1.0, -1.0) * 4 * (x[:, 1] - 0.5) + 0.3 * rng.normal(size=800)
    splits = grown(x, target)
    assert set(splits) == {1}
    assert splits[1].column == 0
    cut = -splits[1].constant / splits[1].slope[0]
    assert cut == pytest.approx(0.5, abs=0.06)


def test_best_split_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 6, size=(90, 2)).astype(float)
    target = rng.normal(size=90) + (x[:, 1] > 3) * x[:, 0]
    lines = np.column_stack([np.ones(90), (x - x.mean(0)) / x.std(0)])

    def errors(rows: np.ndarray) -> float:
        gram = lines[rows].T @ lines[rows]
        ridge = regression_tree._RIDGE * len(rows) * np.diag([1e-6, 1, 1])
        moment = lines[rows].T @ target[rows]
        return float(target[rows] @ target[rows] - moment @ np.linalg.solve(gram + ridge, moment))

    gains = {}
    for column in range(2):
        for cut in np.arange(0.5, 5):
            left = np.flatnonzero(x[:, column] <= cut)
            right = np.flatnonzero(x[:, column] > cut)
            if min(len(left), len(right)) >= 9:
                gains[column, cut] = -errors(left) - errors(right)
    column, cut = max(gains, key=lambda key: gains[key])
    split = grown(x, target)[1]
    assert split.column == column
    assert -split.constant / split.slope[column] == pytest.approx(cut)


def test_leaves_have_their_least_weight() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(200, 1))
    target = np.where(x[:, 0] > 0.95, 10.0, 0.0)
    split = grown(x, target, min_leaf=0.25)[1]
    left = (x @ split.slope + split.constant >= 0).mean()
    assert 0.25 <= left <= 0.75

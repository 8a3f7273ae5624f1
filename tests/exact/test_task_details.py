"""Units, scores, weights and refusals of tasks; the check of tasks; a published tree."""

import numpy as np
import pytest

from sstorch.exact import (
    Classification,
    FeatureCosts,
    IntegratedBrier,
    LeastSquares,
    check_task,
    horizon_labels,
    policy_scores,
    solve,
)
from sstorch.exceptions import ConfigError
from tests.metrics.cohorts import g_by_loops

FEATURES = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, 0]])


# ---------------------------------------------------------------------- units and values


def test_policy_scores_are_those_of_their_definition():
    rng = np.random.default_rng(0)
    t, y = rng.integers(0, 3, 20), rng.normal(size=20)
    e, m = rng.uniform(0.1, 1, 20), rng.normal(size=(20, 3))
    full = np.full((20, 3), 0.5)
    full[np.arange(20), t] = e
    own = (t[:, None] == np.arange(3)) / e[:, None]
    expected = {"direct": m, "ipw": own * y[:, None], "doubly_robust": m + own * (y[:, None] - m)}
    for propensity in (e, full):
        given = {"treatment": t, "outcome": y, "propensity": propensity, "predicted": m}
        for kind, scores_of_kind in expected.items():
            np.testing.assert_allclose(policy_scores(kind, **given), scores_of_kind)


def test_horizon_weights_are_those_of_a_loop():
    rng = np.random.default_rng(1)
    time, event = rng.integers(1, 12, 60).astype(float), rng.random(60) < 0.6
    labels, weights = horizon_labels(time, event, 7.0)

    for i in range(60):
        if time[i] < 7 and not event[i]:
            assert weights[i] == 0.0
        else:
            expected = 1 / g_by_loops((time, event), min(time[i], 7.0), left=True)
            assert (labels[i], weights[i]) == (event[i] and time[i] <= 7, pytest.approx(expected))
    # Without ties the weights add up to the rows: nobody is lost, as long as somebody outlives the horizon.
    distinct = time + rng.permutation(60) / 100
    assert horizon_labels(distinct, event, 7.5)[1].sum() == pytest.approx(60)


# ---------------------------------------------------------------------- a published tree


def test_monk_1_has_the_published_tree():
    """Lin et al. (2020), Fig. 19b: 8 leaves of depth 5 without error, one column per value but the last."""
    values = (3, 3, 2, 3, 4, 2)
    rows = np.array(list(np.ndindex(values)))
    labels = (rows[:, 0] == rows[:, 1]) | (rows[:, 4] == 0)
    short = np.column_stack([rows[:, j] == v for j, size in enumerate(values) for v in range(size - 1)])
    whole = np.column_stack([rows[:, j] == v for j, size in enumerate(values) for v in range(size)])
    assert short.shape == (432, 11)
    for features, depth, leaves in ((short, 5, 8), (whole, 4, 7)):
        found = solve(features, Classification(labels), 5)
        exact = [o for o in found.optima.values() if o.loss == 0.0]
        assert (exact[0].depth, exact[0].nodes + 1) == (depth, leaves)
        assert found.optimum(leaf_penalty=0.03125) == exact[0]


def test_a_task_without_decisions_is_solved_and_says_so():
    class Silent:
        """The protocol, and nothing more."""

        constant = 0.0

        def __init__(self, task):
            self.n_rows = task.n_rows
            for name in ("row_values", "leaf_cost", "loss"):
                setattr(self, name, getattr(task, name))

    found = solve(FEATURES, Silent(LeastSquares(np.arange(6.0))), 1)
    assert found.certificate == "optimal"
    with pytest.raises(ConfigError, match="Silent has no `decisions`"):
        found.decisions()


# ---------------------------------------------------------------------- is it a task?


Y = np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0])
VALUES = LeastSquares(Y).row_values()


def of_all_leaves(sums, i):
    return max(sums[2, i] - sums[1, i] ** 2 / max(sums[0, i], 1e-300), 0.0) * sums[0].sum() / 6


def above(sums, i):
    return max(sums[2, i] - sums[1, i] ** 2 / max(sums[0, i], 1e-300), 0.0) + (sums[0, i] > 0)


def negative(sums, i):
    return -max(sums[2, i] - sums[1, i] ** 2 / max(sums[0, i], 1e-300), 0.0)


def empty(sums, i):
    return max(sums[2, i] - sums[1, i] ** 2 / max(sums[0, i], 1e-300), 0.0) + (sums[0, i] == 0)


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("constant", 1.0, "loss of a partition"),
        ("n_rows", 5, "the task has 5, the features have 6 rows"),
        ("row_values", lambda: VALUES[:, :4], r"row_values: shape \(3, 4\)"),
        ("row_values", lambda: VALUES + np.inf, "finite numbers"),
        ("leaf_cost", of_all_leaves, "least loss of all trees of depth 2"),
        ("leaf_cost", empty, "cost of a leaf without rows"),
        ("floor_cost", above, "is above the cost"),
        ("floor_cost", negative, "not superadditive"),
        ("loss", lambda leaf: LeastSquares(Y).loss(leaf) ** 2, "loss of a partition"),
        ("decisions", lambda leaf, n: np.zeros(1), "decisions: shape"),
    ],
)
def test_a_broken_promise_is_named(member, value, message):
    task = LeastSquares(Y)
    check_task(task, FEATURES)
    setattr(task, member, value)
    with pytest.raises(ConfigError, match=message):
        check_task(task, FEATURES)


# ---------------------------------------------------------------------- survival tasks


def test_buckets_put_times_at_left_ends():
    time = np.array([0.0, 1.0, 2.4, 2.6, 5.0, 10.0]) + 1.0
    event = np.array([1, 1, 0, 1, 1, 1])
    coarse = IntegratedBrier(time, event, n_buckets=4)
    by_hand = IntegratedBrier(np.array([0.0, 0.0, 0.0, 2.5, 5.0, 10.0]) + 1.0, event)
    assert coarse.loss(np.zeros(6, dtype=int)) == pytest.approx(by_hand.loss(np.zeros(6, dtype=int)))


def test_costs_of_tests_under_a_time_limit():
    rng = np.random.default_rng(0)
    features, labels = rng.random((300, 12)) < 0.5, rng.integers(0, 2, 300)
    costs = FeatureCosts.of([f"c{j // 2}" for j in range(12)], {f"c{j}": 0.001 for j in range(6)})
    task = Classification(labels, feature_costs=costs)
    short = solve(features, task, 3, time_limit=1e-9)
    assert short.certificate != "optimal"
    whole = solve(features, task, 3)
    assert whole.certificate == "optimal"
    assert whole.objective >= short.objective - short.gap

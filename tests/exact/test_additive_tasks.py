"""Classes, treatments, means and tests that cost: against all trees, by brute force."""

import numpy as np
import pytest

from sstorch.exact import (
    Classification,
    CostSensitive,
    FeatureCosts,
    LeastSquares,
    Policy,
    check_task,
    solve,
)
from tests.exact import reference, reference_tasks


def errors(rng, n):
    labels = rng.integers(0, 2, n)
    labels[:2] = 0, 1
    cost = lambda rows: reference_tasks.class_cost(rows, labels, np.ones(n), [[0, 1], [1, 0]]) / n  # noqa: E731
    return Classification(labels), cost


def balanced(rng, n):
    labels = np.concatenate([[0, 1, 2], rng.integers(0, 3, n - 3)])
    weight = 1 / 3 / np.bincount(labels)[labels]
    matrix = 1 - np.eye(3)
    return (
        Classification(labels, balanced=True),
        lambda rows: reference_tasks.class_cost(rows, labels, weight, matrix),
    )


def weighted_costs(rng, n):
    labels = np.concatenate([[0, 1, 2], rng.integers(0, 3, n - 3)])
    weight, matrix = rng.exponential(1.0, n), rng.integers(0, 9, (3, 3)) / 4
    task = Classification(labels, sample_weight=weight, cost_matrix=matrix)
    return task, lambda rows: reference_tasks.class_cost(rows, labels, weight, matrix) / weight.sum()


def treatments(rng, n):
    scores = rng.normal(size=(n, 3))
    return Policy(scores), lambda rows: reference_tasks.treatment_cost(rows, scores) / n


def means(rng, n):
    y, weight = 1e3 + rng.normal(size=n) * 50, rng.integers(0, 3, n).astype(float)
    weight[0] = 1.0
    task = LeastSquares(y, sample_weight=weight)
    return task, lambda rows: reference_tasks.squared_cost(rows, y, weight) / weight.sum()


TASKS = [errors, balanced, weighted_costs, treatments, means]


def compare(solution, least, features, loss_of, min_leaf):
    assert set(solution.optima) == set(least)
    assert solution.certificate == "optimal"
    for (d, n), expected in least.items():
        assert solution.optima[d, n].certified
        assert solution.optima[d, n].loss == pytest.approx(expected, rel=1e-9, abs=1e-9), (d, n)
        tree = solution.tree(depth=d, nodes=n, leaf_penalty=0.0)
        assert tree.depth <= d
        assert tree.n_nodes <= n
        assert loss_of(tree) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert np.bincount(tree.apply(features), minlength=tree.n_leaves).min() >= min_leaf
    for penalty in (1e-3, 0.05, 0.7):
        best = min(loss + penalty * (n + 1) for (_, n), loss in least.items())
        tree = solution.tree(leaf_penalty=penalty)
        assert loss_of(tree) + penalty * tree.n_leaves == pytest.approx(best, rel=1e-9)


def check(make, seed, engine="torch"):
    features, rng = reference_tasks.random_features(seed)
    task, cost = make(rng, len(features))
    depth, min_leaf = 2 + seed % 3, 1 + seed % 4
    check_task(task, features, n_trials=5, seed=seed)
    solution = solve(features, task, depth, min_leaf=min_leaf, engine=engine)
    least = reference.all_trees(features, cost, depth, lambda rows: len(rows) >= min_leaf)

    def loss_of(tree):
        leaf = tree.apply(features)
        return sum(cost(tuple(np.flatnonzero(leaf == number))) for number in range(tree.n_leaves))

    compare(solution, least, features, loss_of, min_leaf)


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("make", TASKS)
def test_all_budgets_equal_brute_force(make, engine):
    for seed in range(0 if engine == "torch" else 8, 8 if engine == "torch" else 16):
        check(make, seed, engine)


@pytest.mark.parametrize("engine", ["torch", "compiled"])
@pytest.mark.parametrize("part", range(4))
def test_tests_that_cost_equal_brute_force(part, engine):
    for seed in range(10 * part, 10 * part + 10):
        features, rng = reference_tasks.random_features(seed)
        n, p = features.shape
        labels = np.concatenate([[0, 1], rng.integers(0, 2, n - 2)])
        matrix = [[0.0, 3.0], [5.0, 0.5]]
        attribute = rng.integers(0, 3, p)
        full = rng.uniform(0, 1.0, 3)
        costs = FeatureCosts(attribute, full, full * rng.uniform(0, 1, 3), rng.integers(-1, 1, 3))
        task = CostSensitive(labels, cost_matrix=matrix, feature_costs=costs)
        check_task(task, features, n_trials=3)
        min_leaf, depth = 1 + seed % 3, 2 + seed % 3

        def pay(above, column, costs=costs):
            state = costs.price, costs.discounted, costs.group
            return reference_tasks.price(costs.attribute, above, column, *state) / n  # noqa: B023

        def cost(rows, labels=labels):
            return reference_tasks.class_cost(rows, labels, np.ones(n), matrix) / n  # noqa: B023

        def loss_of(tree):
            total = 0.0
            for number, path in enumerate(tree.paths()):
                rows = tuple(np.flatnonzero(tree.apply(features) == number))  # noqa: B023
                tested = [column for column, _ in path]
                total += cost(rows) + len(rows) * sum(pay(tested[:j], c) for j, c in enumerate(tested))
            return total

        solution = solve(features, task, depth, min_leaf=min_leaf, engine=engine)
        allowed = lambda rows: len(rows) >= min_leaf  # noqa: B023, E731
        least = reference.all_trees(features, cost, depth, allowed, pay)
        compare(solution, least, features, loss_of, min_leaf)

from fractions import Fraction

import numpy as np
import pytest

from sstorch.exact.fronts import ConfusionFront, GroupFairness, balance, solve_front
from sstorch.exact.fronts.problem import REACHED, FrontProblem
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import budget, splits
from sstorch.exceptions import ConfigError, DataError
from tests.conftest import nightly
from tests.exact.fronts import reference


def random_rows(seed, most_features):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(10, 26)), int(rng.integers(1, most_features, endpoint=True))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    y, group = rng.random(n) < rng.uniform(0.2, 0.8), rng.random(n) < rng.uniform(0.3, 0.7)
    y[:4], group[:4] = [0, 1, 0, 1], [0, 0, 1, 1]
    return rng, features, y.astype(int), group.astype(int)


def budget_of(seed, rng, depth):
    """All nodes in two of three problems, else some; small leaves in every second."""
    nodes = 2**depth - 1 if seed % 3 else int(rng.integers(0, 2**depth))
    return nodes, int(rng.integers(1, 5)) if seed % 2 else 1


def check_trees(found, features, nodes, depth, min_leaf):
    for number, totals in enumerate(found.totals):
        tree = found.tree(number)
        leaf = tree.tree.apply(features)
        assert tree.tree.depth <= depth
        assert tree.tree.n_nodes <= nodes
        assert np.bincount(leaf, minlength=tree.tree.n_leaves).min() >= min_leaf
        points = found.task.row_points()[:, tree.decision[leaf], np.arange(len(leaf))]
        np.testing.assert_array_equal(points.sum(axis=1), totals)


@pytest.mark.parametrize("seed", [*range(24), *map(nightly, range(24, 500))])
def test_confusion_front_equals_brute_force(seed):
    depth = seed % 4
    rng, features, y, _ = random_rows(seed, 4 if depth < 3 else 3)
    nodes, min_leaf = budget_of(seed, rng, depth)
    weight = rng.integers(1, 9, len(y)) / 4 if seed % 2 else np.ones(len(y))
    task = ConfusionFront(y, sample_weight=weight)
    found = solve_front(features, task, depth, nodes, min_leaf=min_leaf)

    def leaf_points(rows):
        rows = list(rows)
        return {(weight[rows] @ y[rows], 0), (0, weight[rows] @ (1 - y[rows]))}

    expected = reference.front(reference.all_totals(features, leaf_points, depth, nodes, min_leaf))
    assert [tuple(point) for point in found.values] == expected
    check_trees(found, features, nodes, depth, min_leaf)
    assert found.certificate == "optimal"


@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity"])
@pytest.mark.parametrize("seed", [*range(12), *map(nightly, range(12, 300))])
def test_group_fairness_equals_brute_force(seed, parity):
    depth = seed % 4
    rng, features, y, group = random_rows(seed, 4 if depth < 3 else 3)
    nodes, min_leaf = budget_of(seed, rng, depth)
    limit = float(rng.choice([0.0, 0.05, 0.1, 0.3, 1.0]))
    task = GroupFairness(y, group, parity, max_disparity=limit)
    found = solve_front(features, task, depth, nodes, min_leaf=min_leaf)
    compared = [i for i in range(len(y)) if parity == "demographic_parity" or y[i] == 1]
    sizes = [sum(1 for i in compared if group[i] == g) for g in range(2)]

    def leaf_points(rows):
        n = [sum(1 for i in rows if i in compared and group[i] == g) for g in range(2)]
        n_positive = int(sum(y[i] for i in rows))
        return {(n_positive, 0, 0), (len(rows) - n_positive, *n)}

    fair = set()
    for errors, *n in reference.all_totals(features, leaf_points, depth, nodes, min_leaf):
        shares = [Fraction(a, size) for a, size in zip(n, sizes, strict=True)]
        spread = max(shares) - min(shares)
        if spread <= Fraction(repr(limit)):
            fair.add((errors, spread))
    expected = reference.front(fair)
    got = list(zip(found.totals[:, 0].tolist(), np.abs(found.values[:, 1]).tolist(), strict=True))
    if depth == 3:
        assert len(got) == 1
        assert got[0][0] == expected[0][0] == found.lower_bound
        assert min(abs(got[0][1] - spread) for errors, spread in fair if errors == got[0][0]) < 1e-12
    else:
        assert got == [(errors, pytest.approx(float(spread), abs=1e-12)) for errors, spread in expected]
    check_trees(found, features, nodes, depth, min_leaf)


def test_large_costs_that_differ_by_one_are_distinguished():
    x, y, group = np.array([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0], [0, 1, 0, 0, 1, 0, 0]])
    weight = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0]) * 2.0**24 + (y == 0)
    task = GroupFairness(y, group, sample_weight=weight, max_disparity=1.0)
    found = solve_front(x[:, None], task, 1)
    # One leaf makes one more error; single precision has 24 bits.
    assert found.totals[0, 0] == 3 * 2**24
    assert found.tree().tree.n_leaves == 2


@pytest.mark.parametrize("in_parts", [True, False])
def test_depth_three_in_parts_and_with_a_binding_limit(in_parts, monkeypatch):
    if in_parts:
        monkeypatch.setattr(balance, "_PART", 60)
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 300)
    features = rng.random((300, 8)) < 0.3 + 0.4 * group[:, None] * (np.arange(8) < 5)
    y = (features[:, :5].sum(1) + rng.normal(0, 0.7, 300) > 2).astype(int)
    errors = []
    for limit in (0.01, 0.05, 0.2, 1.0):
        task = GroupFairness(y, group, max_disparity=limit)
        found = solve_front(features, task, 3, memory=1 << 19 if in_parts else 1 << 32)
        assert abs(found.values[0, 1]) <= limit
        errors.append(int(found.totals[0, 0]))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > errors[-1]
    whole = solve_front(features, ConfusionFront(y, metric="accuracy"), 3)
    assert whole.totals.sum(1).min() == errors[-1]
    monkeypatch.undo()
    assert solve_front(features, GroupFairness(y, group, max_disparity=0.01), 3).totals[0, 0] == errors[0]


def every_point(problem, target):
    """Different points (2, n) of all trees of depth 2 within a budget."""
    found = [problem.leaf]
    for halves in splits(target):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        found.append((left[:, :, :, None] + right[:, :, None]).reshape(2, -1))
    points = np.concatenate(found, axis=1)
    return np.unique(points[:, points[0] < REACHED], axis=1)


def every_sum(task, features, nodes, min_leaf, reduce):
    """Points (2, n) of all trees of depth 3, those below a root after `reduce`."""
    problem = FrontProblem(task, Patterns.of(features), 3, min_leaf)
    found = [every_point(problem.whole, budget(2, nodes))]
    for root in range(problem.n_features):
        sides = problem.sides(root)
        for halves in splits(budget(3, nodes)):
            left, right = (reduce(every_point(side, half)) for side, half in zip(sides, halves, strict=True))
            found.append((left[:, :, None] + right[:, None]).reshape(2, -1))
    return np.concatenate(found, axis=1)


def many_questions(seed):
    """More questions than brute force can take, so that bounds have something to leave out."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 250)
    features = rng.random((250, 14)) < 0.3 + 0.3 * group[:, None] * (np.arange(14) < 5)
    y = (features[:, :4].sum(1) + rng.normal(0, 0.6, 250) > 1.8).astype(int)
    return features, y, group


def front_of(points):
    return np.array(reference.front(map(tuple, points.T.tolist()))).T


@pytest.mark.parametrize("nodes", [4, 7])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_bounds_leave_no_point_of_the_front_out(seed, nodes):
    features, y, _ = many_questions(seed)
    weight = np.random.default_rng(seed).integers(1, 9, 250) / 4
    for task in (ConfusionFront(y), ConfusionFront(y, sample_weight=weight), ThreeDecisions(y, weight)):
        found = solve_front(features, task, 3, nodes, min_leaf=5)
        expected = front_of(every_sum(task, features, nodes, 5, front_of))
        np.testing.assert_array_equal(found.totals.T, expected)
        check_trees(found, features, nodes, 3, 5)


class ThreeDecisions(ConfusionFront):
    """Half of each cost is a third decision; totals are in halves."""

    unit = (0.5, 0.5)

    def __init__(self, y, weight):
        super().__init__(y)
        self.both = np.stack([(weight * 4).astype(np.int64) * y, (weight * 4).astype(np.int64) * (1 - y)])
        self.unit = (0.5, 0.5)

    def row_points(self):
        none = np.zeros_like(self.both[0])
        first, second = np.stack([2 * self.both[0], none]), np.stack([none, 2 * self.both[1]])
        return np.stack([first, second, self.both], axis=1)


def test_sums_without_room_raise():
    features = np.random.default_rng(0).random((60, 160)) < 0.5
    with pytest.raises(ConfigError, match=r"160 different binary features .* take about .* GiB at depth 3"):
        solve_front(features, ConfusionFront(features[:, 0]), 3, memory=22 << 20)


@pytest.mark.parametrize("nodes", [4, 7])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_bounds_leave_no_fair_tree_out(seed, nodes):
    features, y, group = many_questions(seed)
    for limit in (0.002, 0.06):
        task = GroupFairness(y, group, max_disparity=limit)
        found = solve_front(features, task, 3, nodes, min_leaf=5)
        points = every_sum(task, features, nodes, 5, balance._by_balance)
        assert found.totals[0, 0] == points[0, np.abs(points[1]) <= task.limit].min()


def test_a_limit_of_time_leaves_a_bound(monkeypatch):
    rng, features, y, group = random_rows(3, 4)
    features = rng.random((200, 10)) < 0.5
    y, group = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    whole = solve_front(features, GroupFairness(y, group, max_disparity=0.02), 3)
    cut = solve_front(features, GroupFairness(y, group, max_disparity=0.02), 3, time_limit=1e-9)
    assert not cut.certified
    assert cut.certificate.startswith("not proved")
    assert cut.lower_bound <= whole.totals[0, 0] <= cut.totals[0, 0]
    calls = []
    original = balance.cheapest_pair

    def late(*args):
        calls.append(None)
        if len(calls) > 1:
            raise balance.OutOfTimeError
        return original(*args)

    monkeypatch.setattr(balance, "cheapest_pair", late)
    task = GroupFairness(y, group, max_disparity=0.002)
    later = solve_front(features, task, 3, time_limit=1000.0)
    monkeypatch.undo()
    best = solve_front(features, task, 3)
    assert later.lower_bound <= best.totals[0, 0] <= later.totals[0, 0]
    front = solve_front(features, ConfusionFront(y), 3, time_limit=1e-9)
    assert not front.certified
    np.testing.assert_array_equal(front.totals, solve_front(features, ConfusionFront(y), 2).totals)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_depth": 4}, ConfigError, "max_depth must be 0 to 3 for fronts, got 4"),
        ({"max_nodes": -1}, ConfigError, "max_nodes must be .* got -1"),
        ({"min_leaf": 0}, ConfigError, "min_leaf must be .* got 0"),
        ({"min_leaf": 9}, DataError, "not even a single leaf"),
        ({"time_limit": 0.0}, ConfigError, "time_limit"),
        ({"memory": 100}, ConfigError, "fewer thresholds"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    features = np.array([[0, 1], [1, 0], [1, 1], [0, 0]] * 2)
    with pytest.raises(error, match=message):
        solve_front(features, ConfusionFront([0, 1, 1, 1] * 2), **arguments)


def test_rows_have_to_match():
    with pytest.raises(DataError, match="3 rows, but the task has 2"):
        solve_front(np.eye(3), ConfusionFront([0, 1]))


def test_nothing_splits():
    found = solve_front(np.ones((4, 2)), ConfusionFront([0, 1, 1, 1]), 3)
    assert found.totals.tolist() == [[0, 1], [3, 0]]
    assert found.tree().decision.tolist() == [1]

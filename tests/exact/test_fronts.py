"""Fronts, fair trees and areas against all trees."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sstorch.exact.fronts import FrontTask, confusion_front, group_fairness, search, solve_areas, solve_front
from sstorch.exact.solution import Deadline
from sstorch.exceptions import ConfigError
from tests.conftest import nightly
from tests.exact import reference


def random_rows(seed, most_features):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(10, 26)), int(rng.integers(1, most_features, endpoint=True))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    y, group = rng.random(n) < rng.uniform(0.2, 0.8), rng.random(n) < rng.uniform(0.3, 0.7)
    y[:4], group[:4] = [0, 1, 0, 1], [0, 0, 1, 1]
    return rng, features, y.astype(int), group.astype(int)


def budget_of(seed, rng):
    """Depth 0 to 3; all nodes in two of three problems, else some; small leaves in every second."""
    depth = seed % 4
    nodes = 2**depth - 1 if seed % 3 else int(rng.integers(0, 2**depth))
    return depth, nodes, int(rng.integers(1, 5)) if seed % 2 else 1


def check_trees(found, features, nodes, depth, min_leaf):
    for number, totals in enumerate(found.totals):
        tree = found.tree(number)
        leaf = tree.tree.apply(features)
        assert tree.tree.depth <= depth
        assert tree.tree.n_nodes <= nodes
        assert np.bincount(leaf, minlength=tree.tree.n_leaves).min() >= min_leaf
        points = found.task.points[:, tree.decision[leaf], np.arange(len(leaf))]
        np.testing.assert_array_equal(points.sum(axis=1), totals)


@pytest.mark.parametrize("seed", [*range(12), *map(nightly, range(12, 500))])
def test_confusion_front_equals_brute_force(seed):
    rng, features, y, _ = random_rows(seed, 4 if seed % 4 < 3 else 3)
    depth, nodes, min_leaf = budget_of(seed, rng)
    weight = rng.integers(1, 9, len(y)) if seed % 2 else np.ones(len(y))
    found = solve_front(features, confusion_front(y, sample_weight=weight), depth, nodes, min_leaf=min_leaf)

    def leaf_points(rows):
        rows = list(rows)
        return {(weight[rows] @ y[rows], 0), (0, weight[rows] @ (1 - y[rows]))}

    expected = reference.front(reference.all_totals(features, leaf_points, depth, nodes, min_leaf))
    assert [tuple(point) for point in found.totals] == expected
    check_trees(found, features, nodes, depth, min_leaf)
    assert (found.certified, found.gap) == (True, 0.0)


@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity"])
@pytest.mark.parametrize("seed", [*range(8), *map(nightly, range(8, 300))])
def test_group_fairness_equals_brute_force(seed, parity):
    rng, features, y, group = random_rows(seed, 4 if seed % 4 < 3 else 3)
    depth, nodes, min_leaf = budget_of(seed, rng)
    limit = float(rng.choice([0.0, 0.05, 0.1, 0.3, 1.0]))
    task = group_fairness(y, group, parity, max_disparity=limit)
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
    table = found.table()
    got = list(zip(table["errors"].tolist(), table["disparity"].abs().tolist(), strict=True))
    if depth == 3:
        assert len(got) == 1
        assert got[0][0] == expected[0][0] == found.lower_bound
        assert min(abs(got[0][1] - spread) for errors, spread in fair if errors == got[0][0]) < 1e-12
    else:
        assert got == [(errors, pytest.approx(float(spread), abs=1e-12)) for errors, spread in expected]
    check_trees(found, features, nodes, depth, min_leaf)


def partial_area(leaf, y, weight, max_fpr):
    """The area up to a false positive rate, standardised, from scikit-learn's curve."""
    rate = np.bincount(leaf, weight * y) / np.maximum(np.bincount(leaf, weight), 1e-300)
    return roc_auc_score(y, rate[leaf], sample_weight=weight, max_fpr=None if max_fpr == 1.0 else max_fpr)


@pytest.mark.parametrize("max_fpr", [1.0, 0.1, 0.35])
@pytest.mark.parametrize("seed", [*range(6), *map(nightly, range(6, 100))])
def test_area_equals_brute_force(seed, max_fpr):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 60)), int(rng.integers(1, 6))
    features, y = rng.random((n, p)) < rng.uniform(0.2, 0.8, p), (rng.random(n) < 0.4).astype(int)
    y[:2] = 0, 1
    settings = {
        "sample_weight": rng.integers(1, 5, n) if seed % 2 else np.ones(n),
        "min_leaf": int(rng.integers(1, 4)),
        "max_fpr": max_fpr,
    }
    weight, min_leaf = settings["sample_weight"], settings["min_leaf"]
    found = solve_areas(features, y, **settings)
    expected = reference.all_areas(features, y, weight, min_leaf, partial(partial_area, max_fpr=max_fpr))
    areas = [tree.score for tree in found]
    np.testing.assert_allclose(areas, expected, rtol=1e-10)
    for nodes, tree in enumerate(found):
        assert tree.tree.n_nodes <= nodes
        assert np.bincount(tree.tree.apply(features)).min() >= min_leaf
        assert roc_auc_score(
            y, tree.predict(features), sample_weight=weight, max_fpr=None if max_fpr == 1.0 else max_fpr
        ) == pytest.approx(tree.score)
    for depth, nodes in [(0, None), (1, None), (2, 2), (2, 0)]:
        part = solve_areas(features, y, depth, nodes, **settings)
        assert [tree.score for tree in part] == areas[: min(2**depth - 1, 3 if nodes is None else nodes) + 1]


def many_questions(seed):
    """More splits than loops over rows can take, so that bounds have something to exclude."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 250)
    features = rng.random((250, 8)) < 0.3 + 0.3 * group[:, None] * (np.arange(8) < 5)
    y = (features[:, :4].sum(1) + rng.normal(0, 0.6, 250) > 1.8).astype(int)
    return features, y, group


def three_decisions(y, weight):
    """Half of each cost is a third decision; totals are in halves."""
    both = np.stack([weight * y, weight * (1 - y)])
    none = np.zeros_like(both[0])
    points = np.stack([np.stack([2 * both[0], none]), np.stack([none, 2 * both[1]]), both], axis=1)
    return FrontTask(points, lambda totals: -totals.sum(axis=1), ("missed", "alarmed"), (0.5, 0.5))


@pytest.mark.parametrize(("seed", "nodes"), [(0, 7), nightly(0, 4), nightly(1, 7), nightly(2, 7)])
def test_bounds_exclude_no_point_of_the_front(seed, nodes):
    features, y, _ = many_questions(seed)
    weight = np.random.default_rng(seed).integers(1, 9, 250)
    for task in (confusion_front(y, sample_weight=weight), three_decisions(y, weight)):
        found = solve_front(features, task, 3, nodes, min_leaf=5)
        expected = reference.every_sum(features, task.points, nodes, 5, reference.front_of)
        np.testing.assert_array_equal(found.totals.T, expected)
        check_trees(found, features, nodes, 3, 5)


@pytest.mark.parametrize(("seed", "nodes"), [(0, 7), nightly(0, 4), nightly(1, 7), nightly(2, 7)])
def test_bounds_exclude_no_fair_tree(seed, nodes, monkeypatch):
    features, y, group = many_questions(seed)
    task = group_fairness(y, group)
    points = reference.every_sum(features, task.points, nodes, 5, reference.by_balance)
    errors = []
    for limit in (0.002, 0.02, 0.06, 1.0):
        task = group_fairness(y, group, max_disparity=limit)
        found = solve_front(features, task, 3, nodes, min_leaf=5)
        errors.append(points[0, np.abs(points[1]) <= task.limit].min())
        assert found.totals[0, 0] == errors[-1]
        check_trees(found, features, nodes, 3, 5)
    assert errors[0] > errors[-1]
    monkeypatch.setattr(search, "_PART", 60)  # points of subtrees in several parts
    task = group_fairness(y, group, max_disparity=0.02)
    assert solve_front(features, task, 3, nodes, min_leaf=5).totals[0, 0] == errors[1]


def test_large_costs_that_differ_by_one_are_distinguished():
    x, y, group = np.array([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0], [0, 1, 0, 0, 1, 0, 0]])
    weight = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0]) * 2.0**24 + (y == 0)
    task = group_fairness(y, group, sample_weight=weight, max_disparity=1.0)
    found = solve_front(x[:, None], task, 1)
    # One leaf makes one more error; single precision has 24 bits.
    assert found.totals[0, 0] == 3 * 2**24
    assert found.tree().tree.n_leaves == 2


def test_time_limit_leaves_a_bound(monkeypatch):
    rng = np.random.default_rng(3)
    features, y, group = rng.random((200, 10)) < 0.5, rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    whole = solve_front(features, group_fairness(y, group, max_disparity=0.02), 3)
    cut = solve_front(features, group_fairness(y, group, max_disparity=0.02), 3, time_limit=1e-9)
    assert not cut.certified
    assert cut.lower_bound <= whole.totals[0, 0] <= cut.totals[0, 0]
    calls = []

    def late(deadline):
        calls.append(None)
        return len(calls) > 82  # after the bounds of ten roots at 8 rates

    task = group_fairness(y, group, max_disparity=0.002)
    best = solve_front(features, task, 3)
    monkeypatch.setattr(Deadline, "passed", property(late))
    later = solve_front(features, task, 3, time_limit=1000.0)
    monkeypatch.undo()
    assert 0.0 < later.lower_bound <= best.totals[0, 0] <= later.totals[0, 0]
    front = solve_front(features, confusion_front(y), 3, time_limit=1e-9)
    assert not front.certified
    np.testing.assert_array_equal(front.totals, solve_front(features, confusion_front(y), 2).totals)


def test_points_that_do_not_exist_and_matrices_without_splits():
    found = solve_front(np.ones((4, 2)), confusion_front([0, 1, 1, 1]), 3)
    assert found.totals.tolist() == [[0, 1], [3, 0]]
    assert found.tree().decision.tolist() == [1]
    fair = solve_front(np.ones((4, 2)), group_fairness([0, 1, 1, 1], [0, 0, 1, 1]), 3)
    assert fair.totals.tolist() == [[1, 0]]
    with pytest.raises(ConfigError, match="number must be 0 to 1"):
        found.tree(2)


def rows(n=120, p=6, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.random((n, p)) < 0.4
    y = (features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(0, 0.6, n) > 0.9).astype(int)
    group = (features[:, 3] ^ (rng.random(n) < 0.3)).astype(int)
    time = np.ceil(rng.exponential(10 * np.exp(-y))) + 1
    return rng, features, y, group, time, rng.random(n) < 0.7


@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy"])
def test_scores_never_fall_when_a_total_improves(metric):
    rng, _, y, *_ = rows()
    task = confusion_front(y, metric, sample_weight=rng.integers(1, 99, len(y)))
    most = task.points.max(axis=1).sum(axis=1)
    worse = rng.integers(0, most + 1, (400, 2))
    better = worse.copy()
    better[:, 0] = rng.integers(0, worse[:, 0] + 1)
    better[200:] = np.stack([worse[200:, 0], rng.integers(0, worse[200:, 1] + 1)], axis=1)
    assert (task.score(better) >= task.score(worse) - 1e-12).all()


@pytest.mark.parametrize("change", [lambda p: p * 0.5, lambda p: p[:1], lambda p: p * 2**54])
def test_points_that_cannot_be_added_exactly_raise(change):
    task = confusion_front(rows()[2])
    with pytest.raises(ConfigError, match="points"):
        replace(task, points=change(task.points))


def test_the_limit_is_exact():
    """A disparity of exactly 1 / 10 is within 0.1, which no binary fraction equals."""
    group = np.repeat([0, 1], 10)
    feature = np.zeros(20, dtype=int)
    feature[[0, 1, 10]] = 1
    task = group_fairness(feature, group, max_disparity=0.1)
    assert task.limit == 10
    found = solve_front(feature[:, None], task, 1)
    assert found.table().iloc[:, :2].to_numpy().tolist() == [[0, 0.1], [3, 0.0]]
    less = group_fairness(feature, group, max_disparity=0.0999999)
    assert solve_front(feature[:, None], less, 1).totals.tolist() == [[3, 0]]

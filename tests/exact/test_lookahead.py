"""Deep trees: the best upper levels with greedy trees below, and the best trees below these."""

import functools
import math

import numpy as np
import pytest
from sklearn.base import clone

from sstorch import (
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
    Search,
    Surv,
)
from sstorch.exact import Classification, IntegratedBrier, LogLikelihood, solve
from sstorch.exact.deadline import Deadline
from sstorch.exceptions import ConfigError
from tests.exact import reference

RNG = np.random.default_rng(8)
FEATURES = RNG.random((60, 5)) < RNG.uniform(0.3, 0.7, 5)
# An exclusive or, which greedy trees do not see.
TIME = RNG.exponential(np.exp(-2.0 * (FEATURES[:, 0] ^ FEATURES[:, 1]) - 0.5 * FEATURES[:, 2])) + 0.01
EVENT = RNG.random(60) < 0.8
TASK = LogLikelihood(TIME, EVENT)
HAZARD = reference.hazards(TIME.tolist(), EVENT.tolist())


def halves(rows, feature):
    return [tuple(i for i in rows if FEATURES[i, feature] == value) for value in (False, True)]


def by_definition(depth, levels, penalty, min_leaf):
    """Loss and penalties of the tree, in plain recursions over sets of rows."""

    @functools.cache
    def leaf(rows):
        return reference.deviance(rows, TIME, EVENT, HAZARD) if len(rows) >= min_leaf else math.inf

    def greedy(rows, left):
        sums = [sum(map(leaf, halves(rows, j))) for j in range(5)] if left else [math.inf]
        j = int(np.argmin(sums))
        if not sums[j] + penalty < leaf(rows) - 1e-12:
            return leaf(rows) + penalty
        return sum(greedy(part, left - 1) for part in halves(rows, j))

    def upper(rows, left):
        if left == 0:
            return greedy(rows, depth - levels), None
        found = leaf(rows) + penalty, None
        for j in range(5):
            parts = [upper(part, left - 1) for part in halves(rows, j)] if all(halves(rows, j)) else []
            if parts and parts[0][0] + parts[1][0] < found[0] - 1e-12:
                found = parts[0][0] + parts[1][0], (j, parts[0][1], parts[1][1])
        return found

    @functools.cache
    def least(rows, left):
        found = leaf(rows) + penalty
        for j in range(5 if left else 0):
            if all(halves(rows, j)):
                found = min(found, sum(least(part, left - 1) for part in halves(rows, j)))
        return found

    def completed(rows, tree):
        if tree is None:
            return least(rows, depth - levels)
        return sum(map(completed, halves(rows, tree[0]), tree[1:]))

    every = tuple(range(60))
    return completed(every, upper(every, levels)[1]), upper(every, levels)[0], least(every, depth)


@pytest.mark.parametrize(
    ("depth", "levels", "penalty", "min_leaf"),
    [(2, 1, 0.0, 1), (3, 1, 0.0, 1), (3, 2, 0.0, 4), (4, 2, 0.7, 1), (4, 3, 0.0, 2), (3, 1, 2.0, 5)],
)
def test_the_tree_is_that_of_the_definition(depth, levels, penalty, min_leaf):
    expected, greedy, best = by_definition(depth, levels, penalty, min_leaf)
    found = solve(FEATURES, TASK, depth, leaf_penalty=penalty, min_leaf=min_leaf, lookahead=levels)
    assert found.objective == pytest.approx(expected, rel=1e-10)
    assert best - 1e-9 <= found.objective <= greedy + 1e-9
    assert found.gap >= found.objective - best - 1e-9
    tree = found.tree()
    assert tree.depth <= depth
    assert TASK.loss(tree.apply(FEATURES)) == pytest.approx(found.loss, rel=1e-10)
    assert np.bincount(tree.apply(FEATURES)).min() >= min_leaf


def test_all_levels_or_more_are_an_exact_search():
    exact, found = solve(FEATURES, TASK, 3), solve(FEATURES, TASK, 3, lookahead=3)
    assert found.certificate == "optimal"
    assert found.loss == pytest.approx(exact.loss, rel=1e-12)


def test_threads_find_the_same_tree():
    labels = RNG.integers(0, 3, 60)
    trees = [solve(FEATURES, Classification(labels), 4, lookahead=2, n_threads=n).tree() for n in (1, 3)]
    np.testing.assert_array_equal(*(tree.feature for tree in trees))


def test_without_time_it_is_a_smaller_tree(monkeypatch):
    monkeypatch.setattr(Deadline, "passed", True)
    found = solve(FEATURES, TASK, 4, lookahead=2, time_limit=100.0)
    assert found.optima[1, 1].certified
    assert found.gap > 0.0
    assert TASK.loss(found.tree().apply(FEATURES)) == pytest.approx(found.loss, rel=1e-10)


@pytest.mark.parametrize(
    ("depth", "settings", "message"),
    [
        (9, {"lookahead": 3}, "searched for depths 0 to 8$"),
        (4, {"lookahead": 4}, "lookahead must be 1 to 3 levels.*, got 4"),
        (4, {"lookahead": 0}, "lookahead must be 1 to 3 levels.*, got 0"),
        (4, {"lookahead": 2, "max_nodes": 7}, "not by max_nodes=7"),
        (4, {"lookahead": 2, "engine": "torch"}, "lookahead is for the compiled engine alone"),
    ],
)
def test_what_it_cannot_do_is_said(depth, settings, message):
    with pytest.raises(ConfigError, match=message):
        solve(FEATURES, TASK, depth, **settings)


def test_losses_over_time_are_those_of_sums_of_blocks():
    """Followed rows have no sums to be greedy by."""
    task = IntegratedBrier(TIME, EVENT)
    found = solve(FEATURES, task, 4, leaf_penalty=0.001, lookahead=2)
    assert task.loss(found.tree().apply(FEATURES)) == pytest.approx(found.loss, rel=1e-10)
    shallow = solve(FEATURES, task, 2, leaf_penalty=0.001)
    exact = solve(FEATURES, task, 4, leaf_penalty=0.001)
    assert exact.objective - 1e-12 <= found.objective <= shallow.objective + 1e-12
    assert found.gap >= found.objective - exact.objective - 1e-12
    with pytest.raises(ConfigError, match=r"in \d+ blocks of the time axis take .*n_buckets"):
        solve(FEATURES, task, 4, lookahead=2, memory=2**13)
    with pytest.raises(ConfigError, match="IntegratedBrier has no compiled cost"):
        solve(FEATURES, IntegratedBrier(TIME, EVENT, leaf_curve="ipcw"), 4, lookahead=2)


@pytest.mark.parametrize(
    ("tree", "y"),
    [
        (OptimalTreeClassifier(6, search=Search(lookahead=2)), RNG.integers(0, 3, 60)),
        (OptimalTreeRegressor(6, search=Search(lookahead=1)), RNG.normal(size=60)),
        (OptimalPolicyTree(6, search=Search(lookahead=2)), RNG.normal(size=(60, 2))),
        (
            OptimalSurvivalTree(6, search=Search(lookahead=1)),
            Surv(TIME, RNG.integers(0, 3, 60), causes="auto"),
        ),
        (OptimalSurvivalTree(6, search=Search(lookahead=1), objective="integrated_brier"), (TIME, EVENT)),
    ],
)
def test_other_trees_are_deep_too(tree, y, tmp_path):
    tree.fit(FEATURES * 1.0, y)
    shallow = clone(tree).set_params(max_depth=2, search__lookahead=None).fit(FEATURES * 1.0, y)
    assert tree.loss_ < shallow.loss_
    tree.save(tmp_path / "tree")
    assert type(tree).load(tmp_path / "tree").search == tree.search


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature_costs": {f"x{j}": 1.0 for j in range(5)}}, "it does not support costs of tests"),
        ({"objective": "f1"}, "lookahead does not go with objective='f1'"),
    ],
)
def test_classes_that_no_lookahead_is_for(settings, message):
    tree = OptimalTreeClassifier(4, search=Search(lookahead=2), **settings)
    with pytest.raises(ConfigError, match=message):
        tree.fit(FEATURES * 1.0, RNG.integers(0, 2, 60))

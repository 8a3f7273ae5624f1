"""Branch and bound over thresholds compared with tables of all sets."""

import numpy as np
import pytest

from sstorch import OptimalSurvivalTree, Search
from sstorch.exact import (
    Classification,
    CompetingLogLikelihood,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    solve,
)
from sstorch.exact.deadline import Deadline
from sstorch.exact.moments import Patterns
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(90, 3)).round(1)
X[:, 2] = RNG.integers(0, 3, 90)
TIME, CAUSE = RNG.exponential(np.exp(-X[:, 0])).round(1) + 0.1, RNG.integers(0, 3, 90)
# Thresholds of two columns of numbers, the values of a category, and a column of its own.
FEATURES = np.column_stack(
    [X[:, j] > value for j in range(2) for value in np.unique(X[:, j])[:-1]]
    + [X[:, 2] == k for k in range(3)]
    + [RNG.random(90) < 0.5]
)
TASKS = {
    "survival": LogLikelihood(TIME, CAUSE > 0),
    "late entry": LogLikelihood(TIME, CAUSE > 0, entry=TIME * RNG.random(90) * 0.9),
    "competing causes": CompetingLogLikelihood(TIME, CAUSE),
    "classes": Classification(CAUSE, balanced=True),
    "means": LeastSquares(TIME, sample_weight=RNG.integers(0, 3, 90) * 1.0),
}
# Tables never fit, so that bounds are all there is.
NO_TABLES = {"engine": "compiled", "memory": 1}


@pytest.fixture(autouse=True)
def bounds_take_no_time(monkeypatch):
    """By the estimate, which is right for many thresholds a column."""
    monkeypatch.setattr("sstorch.exact.compiled.bounded._SECONDS_PER_CELL", 0.0)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("depth", "min_leaf", "penalty"), [(0, 1, 0.0), (1, 5, 0.0), (2, 9, 0.001), (3, 1, 0.0), (3, 7, 0.01)]
)
def test_trees_are_as_good_as_those_of_tables(name, depth, min_leaf, penalty):
    task = TASKS[name]
    settings = {"min_leaf": min_leaf, "leaf_penalty": penalty}
    known = solve(FEATURES, task, depth, **settings, engine="torch")
    found = [solve(FEATURES, task, depth, **settings, **NO_TABLES, n_threads=n) for n in (1, 3)]
    for solution in found:
        assert solution.objective == pytest.approx(known.objective, rel=1e-10)
        assert solution.certificate == "optimal"
        tree = solution.tree()
        leaf = tree.apply(FEATURES)
        assert task.loss(leaf) == pytest.approx(solution.loss, rel=1e-10)
        assert np.bincount(leaf).min() >= min_leaf
        assert tree.depth <= depth
        # What is said of smaller trees holds, too.
        for size, optimum in solution.optima.items():
            least = known.optima[size].loss
            assert optimum.lower_bound <= least + 1e-9 * abs(least)
            assert optimum.loss >= least - 1e-9 * abs(least)


@pytest.mark.nightly
def test_penalties_that_round_end_no_search_early():
    """Cost less penalties and penalties again is not the objective to the last bit."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        numbers = rng.normal(size=(64, 3))
        task = LogLikelihood(rng.exponential(1.0, 64).round(1) + 0.01, rng.random(64) < 0.7)
        features = np.column_stack([c > value for c in numbers.T for value in np.sort(c)[:-1]])
        settings = {"leaf_penalty": 0.3, "min_leaf": 7}
        known = solve(features, task, 3, max_nodes=7, **settings, engine="compiled")
        found = solve(features, task, 3, **settings, **NO_TABLES)
        assert found.objective == pytest.approx(known.objective, rel=1e-10)
        assert found.certificate == "optimal"


def test_bounds_leave_few_thresholds(monkeypatch):
    from sstorch.exact.compiled.root import Root

    tried = []
    tries = Root._try
    monkeypatch.setattr(Root, "_try", lambda *task: (tried.append(task), tries(*task))[1])
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(300, 3))
    task = LogLikelihood(rng.exponential(np.exp(-2.0 * (numbers[:, 0] > 0.5))), np.ones(300))
    features = np.column_stack([c > value for c in numbers.T for value in np.sort(c)[:-1]])
    found = solve(features, task, 3, **NO_TABLES)
    assert found.certificate == "optimal"
    assert 0 < len(tried) < 0.7 * features.shape[1]  # one of twenty in large problems
    known = solve(features[:, ::20], task, 3, engine="torch")
    assert found.loss < known.loss


@pytest.mark.parametrize("n_threads", [1, 2])
def test_without_time_the_gap_is_known(n_threads, monkeypatch):
    looks = iter(range(1000))
    monkeypatch.setattr(Deadline, "passed", property(lambda self: next(looks) > 4))
    task = TASKS["survival"]
    cut = solve(FEATURES, task, 3, min_leaf=3, time_limit=100.0, n_threads=n_threads, **NO_TABLES)
    monkeypatch.undo()
    best = solve(FEATURES, task, 3, min_leaf=3, engine="torch")
    assert cut.gap > 0.0
    assert cut.loss - cut.gap <= best.loss * (1 + 1e-12)
    assert cut.loss >= best.loss * (1 - 1e-12)
    floor = solve(FEATURES, task, 3, min_leaf=3, time_limit=1e-9, engine="torch")
    assert cut.gap < floor.gap


@pytest.mark.parametrize("depth", [2, 3])
def test_time_that_ends_among_columns_leaves_a_tree_and_a_bound(depth, monkeypatch):
    """Of many columns one search over two levels alone takes minutes."""
    monkeypatch.setattr("sstorch.exact.compiled.two_levels._VISITS_AT_ONCE", 0)
    task = TASKS["survival"]
    best = solve(FEATURES, task, depth, min_leaf=3, engine="torch")
    cut = []
    for most in range(2, 40, 3):
        looks = iter(range(10**6))
        with monkeypatch.context() as patch:
            patch.setattr(
                Deadline, "passed", property(lambda self, most=most, looks=looks: next(looks) > most)
            )
            cut.append(solve(FEATURES, task, depth, min_leaf=3, time_limit=100.0, n_threads=1, **NO_TABLES))
    for solution in cut:
        assert solution.loss - solution.gap <= best.loss * (1 + 1e-12)
        assert task.loss(solution.tree().apply(FEATURES)) == pytest.approx(solution.loss, rel=1e-10)
    assert cut[0].gap > 0.0
    assert cut[-1].gap < cut[0].gap


@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_a_stump_among_five_thousand_features(engine):
    """Sets of six of them have no number of 64 bits, and pairs need not be counted."""
    features = np.random.default_rng(0).random((30, 5000)) < 0.5
    found = solve(features, LogLikelihood(TIME[:30], np.ones(30)), 1, engine=engine)
    assert found.certificate == "optimal"
    least = min(LogLikelihood(TIME[:30], np.ones(30)).loss(column.astype(int)) for column in features.T[::50])
    assert found.loss <= least + 1e-9


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        (TASKS["survival"], {"max_nodes": 5}),
        (TASKS["survival"], {"max_depth": 4}),
        (IntegratedBrier(TIME, CAUSE > 0), {}),
    ],
)
def test_what_bounds_are_not_for_is_refused_without_room(task, settings):
    with pytest.raises(ConfigError, match="too many for depth"):
        solve(FEATURES, task, **{"max_depth": 3, **settings, **NO_TABLES})


def test_columns_without_thresholds_between_have_no_bounds(monkeypatch):
    """Nothing is similar: what tables have no room for is refused, as by the estimate it takes longer."""
    monkeypatch.undo()
    wide = np.random.default_rng(0).random((90, 2000)) < 0.5
    with pytest.raises(ConfigError, match="too many for depth 3"):
        solve(wide, TASKS["survival"], 3, engine="compiled", memory=2**20)


def test_the_first_tree_is_of_some_thresholds_of_all_columns():
    from sstorch.exact.compiled.bounded import Bounded
    from sstorch.exact.plan import Rows

    task = TASKS["survival"]
    for features in (
        FEATURES,
        RNG.random((90, 300)) < 0.5,
        np.column_stack([FEATURES] * 2 + [RNG.random((90, 90)) < 0.5]),
    ):
        rows = Rows(Patterns.of(features), task, task.entries(), None, ())
        bounded = Bounded(rows._problem(2, 2**30), 0.0, 1)
        cost, tree = bounded._first(2)
        found = solve(features, task, 2, engine="torch")
        assert cost + task.constant >= found.loss - 1e-9
        leaf = BinaryTree.build(rows.patterns.in_columns(tree), rows.patterns.names).apply(features)
        assert task.loss(leaf) == pytest.approx(cost + task.constant, rel=1e-10)


def test_a_survival_tree_over_numbers_as_they_are(monkeypatch):
    """Ten thousand questions, for which there is no room otherwise."""
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 10))
    time = rng.exponential(np.exp(-1.5 * (rows[:, 3] > 0.25)))
    tree = OptimalSurvivalTree(2, binarize="all", min_leaf=30, search=Search(memory=2**28)).fit(
        rows, (time, np.ones(1000))
    )
    assert len(tree.rules_) > 9000
    assert tree.certified_
    asked = [tree.rules_[feature] for feature in tree.tree_.feature if feature >= 0]
    assert min(abs(rule.low - 0.25) for rule in asked if rule.column == "x3") < 0.05

"""Branch and bound above tables: trees deeper than five, and guesses of the least loss of rows."""

import functools
import math

import numpy as np
import pytest
from sklearn.base import clone

from sstorch import OptimalSurvivalTree, Surv
from sstorch.exact import (
    Classification,
    DecisionCosts,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    reference_costs,
    solve,
)
from sstorch.exact.deep import Rows
from sstorch.exact.leaf_curves import BaselineHazard
from sstorch.exact.rows import Patterns, weighted_rows
from sstorch.exact.solution import NEVER, Budget, Deadline
from sstorch.exceptions import ConfigError, DataError
from tests.conftest import nightly, nightly_but
from tests.exact.problems import TASKS

NO_GUESS = -1e9
RNG = np.random.default_rng(5)
FEATURES = RNG.random((60, 8)) < RNG.uniform(0.15, 0.85, 8)
EVENT = RNG.random(60) < 0.6
TASK = LogLikelihood(RNG.integers(1, 9, 60) + 5.0 * (np.arange(60) == 59), EVENT)
PLAIN = [name for name in TASKS if name != "tests_that_cost"]  # which has tables alone


def least(features, cost, depth, min_leaf, penalty):
    """Least cost, with penalties, of any tree, from every split of every set of rows."""

    @functools.cache
    def below(rows, left):
        found = cost(rows) + penalty if len(rows) >= min_leaf else math.inf
        for j in range(features.shape[1] if left else 0):
            parts = [tuple(i for i in rows if features[i, j] == v) for v in (False, True)]
            if all(parts):
                found = min(found, below(parts[0], left - 1) + below(parts[1], left - 1))
        return found

    return below(tuple(range(len(features))), depth)


@pytest.mark.parametrize("kind", nightly_but(["log_likelihood", "integrated_brier", "errors"], PLAIN))
@pytest.mark.parametrize("depth", [4, 6, 7, nightly(9)])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2), nightly(3)])
def test_trees_equal_brute_force(seed, depth, kind):
    rng, min_leaf = np.random.default_rng(seed), 3
    features = rng.random((int(rng.integers(40, 60)), 7)) < rng.uniform(0.15, 0.85, 7)
    case = TASKS[kind](rng, features)
    penalty = float(rng.choice([0.0, 0.001, 0.01])) * abs(case.cost(tuple(range(len(features)))))
    # Without a guess, tables do for depth 4.
    guess = np.full(len(features), NO_GUESS) if depth == 4 else None
    found = solve(features, case.task, depth, min_leaf=min_leaf, leaf_penalty=penalty, guess=guess)
    expected = least(features, case.cost, depth, min_leaf, penalty)
    assert found.objective == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert found.certificate == "optimal"
    tree = found.tree()
    assert tree.depth <= depth
    assert np.bincount(tree.apply(features)).min() >= min_leaf


@pytest.mark.parametrize("margin", [1.0, 0.0, -0.5])
def test_guess_up_to_the_costs_of_the_best_tree_leaves_it_in(margin):
    best = solve(FEATURES, TASK, 4)
    leaf = best.tree().apply(FEATURES)
    ratio = TASK.decisions(leaf, leaf.max() + 1)[leaf]
    costs = ratio * TASK.hazards[0] - EVENT * (1.0 + np.log(ratio))
    costs[np.bincount(leaf, EVENT)[leaf] == 0] = 0.0
    found = solve(FEATURES, TASK, 4, guess=costs - margin)
    assert found.loss - found.gap <= best.loss + 1e-9
    if margin >= 0.0:
        assert found.loss == pytest.approx(best.loss, rel=1e-10)
    else:
        assert found.loss > best.loss
        assert found.gap > 0.0


def test_tables_beyond_the_room_of_the_kernels_raise():
    problem = Rows(Patterns.of(FEATURES), TASK, (), 2**30, 1).problem(5)
    with pytest.raises(ValueError, match="depth must be at most 5, got 6; use `Deep` beyond it"):
        problem.search(6, 63)
    assert problem.search(6, 5).costs[Budget(5, 5)] == problem.search(5, 5).costs[Budget(5, 5)]


def test_rows_censored_before_the_first_event_have_work_space():
    features = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0]])
    task = IntegratedBrier([3.0, 4.0, 5.0, 6.0, 1.0, 1.0, 1.0], [1, 1, 0, 1, 0, 0, 0])
    patterns = Patterns.of(features)
    problem = Rows(patterns, task, (), 2**30, 1).problem(3)
    assert problem.form.followed
    early = problem.where(int(np.flatnonzero(patterns.columns == 0)[0]), True)
    assert len(early.literals) == 3
    # The kernel writes the state of each leaf there.
    assert len(early._tables(3, 7).curves.state) == len(problem._tables(3, 7).curves.state) > 0
    assert early.search(3, 7).costs[Budget(3, 7)] == 0.0


def test_time_limit_leaves_a_bound(monkeypatch):
    best = solve(FEATURES, TASK, 6, min_leaf=3)
    assert best.certificate == "optimal"
    shallow = solve(FEATURES, TASK, 5, min_leaf=3)
    looks = iter(range(10**9))
    monkeypatch.setattr(Deadline, "passed", property(lambda self: self is not NEVER and next(looks) > 30))
    cut = solve(FEATURES, TASK, 6, min_leaf=3, time_limit=1e6)
    assert cut.loss - cut.gap <= best.loss <= cut.loss
    assert cut.gap > 0.0
    # Deeper trees are searched depth by depth: the limit does not end with a worse one than depth 5 has.
    assert cut.loss <= shallow.loss + 1e-9


class Proportional:
    """Proportional hazards of the leaves of a tree."""

    def __init__(self, tree, baseline):
        self.tree, self.baseline, self.event_times_ = tree, baseline, baseline.times

    def predict_cumulative_hazard_function(self, X, times):
        return self.tree.hazard_ratios_[self.tree.apply(X) - 1] * self.baseline.at(times)


@pytest.mark.parametrize("objective", ["log_likelihood", "integrated_brier"])
def test_costs_by_a_tree_are_those_of_its_leaves(gbsg2, objective):
    weight = np.random.default_rng(0).integers(1, 3, 686).astype(float)
    model = OptimalSurvivalTree(2, objective=objective, min_leaf=20)
    model.fit(gbsg2.frame, gbsg2.y, sample_weight=weight)
    if objective == "integrated_brier":
        task = IntegratedBrier(gbsg2.time, gbsg2.event, sample_weight=weight)
        costs = reference_costs(task, model, gbsg2.frame)
        assert task.constant + costs.sum() == pytest.approx(model.loss_, abs=1e-9)
        return
    task = LogLikelihood(gbsg2.time, gbsg2.event, sample_weight=weight)
    leaves = Proportional(model, BaselineHazard.of(weighted_rows(gbsg2.y, weight)))
    costs = reference_costs(task, leaves, gbsg2.frame)
    # Rows observed for less than the first event have almost no hazard, whatever the model.
    assert task.constant + costs.sum() == pytest.approx(model.loss_, abs=0.1)
    ratio = model.hazard_ratios_[model.apply(gbsg2.frame) - 1, 0]
    expected = weight * (ratio * task.hazards[0] - gbsg2.event * (1.0 + np.log(ratio)))
    late = gbsg2.time >= gbsg2.time[gbsg2.event].min()
    np.testing.assert_allclose(costs[late], expected[late], rtol=1e-9, atol=1e-9)


def test_reference_model_shortens_the_search_of_an_estimator(gbsg2):
    X = (gbsg2.frame.select_dtypes("number") > gbsg2.frame.select_dtypes("number").median()).astype(float)
    X = X.assign(old=gbsg2.frame.age > 60, many=gbsg2.frame.pnodes > 9)
    y = Surv(gbsg2.time, gbsg2.event)
    model = OptimalSurvivalTree(6, min_leaf=20, binarize="all")
    best, base = clone(model).fit(X, y), OptimalSurvivalTree(3, min_leaf=5, binarize="all").fit(X, y)
    assert best.certified_
    found = clone(model).fit(X, y, reference=base)
    assert best.loss_ <= found.loss_ + 1e-9
    assert found.loss_ - found.gap_ <= best.loss_
    assert not found.certified_
    assert found.optima_["loss"].min() == pytest.approx(found.loss_)
    with pytest.raises(DataError, match="X: 685 rows, but the task has 686"):
        reference_costs(LogLikelihood(gbsg2.time, gbsg2.event), base, X[1:])
    for wrong in ("forest", OptimalSurvivalTree, OptimalSurvivalTree()):
        with pytest.raises(ConfigError, match="reference must be a fitted model with unique_times_"):
            model.fit(X, y, reference=wrong)


def test_costs_by_predictions_are_those_of_a_tree():
    rng = np.random.default_rng(0)
    features, y, labels = rng.random((80, 5)) < 0.5, rng.normal(size=80), rng.integers(0, 3, 80)
    weight = rng.integers(1, 4, 80) * 1.0
    leaf, scores = features[:, 0] + 2 * features[:, 1], rng.normal(size=(80, 3))

    class Leaves:
        def __init__(self, values):
            self.values = values

        def predict(self, X):
            return np.asarray(self.values)[X[:, 0] + 2 * X[:, 1]]

    for task, names in (
        (LeastSquares(y, sample_weight=weight), None),
        (Classification(np.array(["a", "b", "c"])[labels], sample_weight=weight), ["a", "b", "c"]),
        (DecisionCosts(-scores), None),
    ):
        decisions = task.decisions(leaf, 4)
        values = decisions if names is None else np.array(names)[decisions]
        costs = reference_costs(task, Leaves(values), features)
        assert costs.sum() == pytest.approx(task.loss(leaf), rel=1e-12)
        best = solve(features, task, 4)
        assert solve(features, task, 4, guess=costs - 1.0).objective == pytest.approx(best.objective)
    with pytest.raises(DataError, match="predicted decisions must be positions 0 to 2"):
        reference_costs(DecisionCosts(-scores), Leaves([0, 1, 2, 3]), features)


def test_costs_of_causes_by_incidences_are_those_of_one_event():
    rng = np.random.default_rng(0)
    X, time = rng.normal(size=(200, 2)), rng.exponential(1.0, 200).round(1) + 0.1
    cause = rng.integers(0, 2, 200)
    one = OptimalSurvivalTree(1, min_leaf=30).fit(X, Surv(time, cause > 0))
    causes = OptimalSurvivalTree(1, min_leaf=30).fit(X, Surv(time, cause, causes={1: "event"}))
    costs = reference_costs(LogLikelihood(time, cause, n_causes=1), causes, X)
    known = reference_costs(LogLikelihood(time, cause > 0), one, X)
    np.testing.assert_allclose(costs, known, rtol=1e-7, atol=1e-9)

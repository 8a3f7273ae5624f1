"""Every additive task against all trees, by loops."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from sstorch.exact import check_task, solve
from tests.exact import reference
from tests.exact.problems import TASKS, random_case

# 150 of each task at night.
MANY = settings.default.max_examples
seeds = st.integers(0, 2**32 - 1)


def check(name, seed, depth):
    case, rng = random_case(name, seed)
    features, task, cost = case.features, case.task, case.cost
    min_leaf = int(rng.integers(1, 5))
    event = task.event if hasattr(task, "event") else np.zeros(len(features), dtype=bool)
    min_events = int(rng.integers(0, min(3, event.sum()) + 1))

    def allowed(rows):
        return len(rows) >= min_leaf and event[list(rows)].sum() >= min_events

    def objective(tree):
        """Loss from the definition, and what rows pay for tests."""
        leaf, total = tree.apply(features), 0.0
        for number, path in enumerate(tree.paths()):
            rows, tested = tuple(np.flatnonzero(leaf == number)), [column for column, _ in path]
            assert allowed(rows)
            total += cost(rows)
            if case.pay:
                total += len(rows) * sum(case.pay(tested[:j], c) for j, c in enumerate(tested))
        return total

    found = solve(features, task, depth, min_leaf=min_leaf, min_events=min_events)
    least = reference.all_trees(features, cost, depth, allowed, case.pay)
    # Sums of log-likelihoods cancel; 1e-12 of what a single leaf loses is rounding.
    slack = 1e-12 * max(1.0, abs(task.constant), abs(least[0, 0]))
    assert found.certificate == "optimal"
    assert set(found.optima) == set(least)
    for (d, n), expected in least.items():
        near = pytest.approx(expected, rel=1e-10, abs=slack)
        assert found.optima[d, n].loss == near, (d, n)
        tree = found.tree(depth=d, nodes=n, leaf_penalty=0.0)
        assert (tree.depth <= d, tree.n_nodes <= n) == (True, True)
        assert objective(tree) == near
        if not case.pay:
            assert task.loss(tree.apply(features)) == near
    for penalty in (1e-4, 0.003, 0.05, 0.7):
        best = min(loss + penalty * (n + 1) for (_, n), loss in least.items())
        tree = found.tree(leaf_penalty=penalty)
        assert objective(tree) + penalty * tree.n_leaves == pytest.approx(best, rel=1e-9, abs=slack)


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=MANY if MANY > 100 else 6)
@given(seed=seeds)
@example(seed=0)
@example(seed=1)
def test_all_budgets_of_depth_two(name, seed):
    check(name, seed, 2)


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=MANY // 10)
@given(seed=seeds, depth=st.integers(3, 5))
def test_all_budgets_of_deeper_trees(name, seed, depth):
    check(name, seed, depth)


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=MANY // 10)
@given(seed=seeds)
def test_tasks_satisfy_the_protocol(name, seed):
    case, _ = random_case(name, seed)
    check_task(case.task, case.features, n_trials=5, seed=seed % 1000)

import importlib.util

import numpy as np
import pytest
import torch

from sstorch.exact import IntegratedBrier, LogLikelihood, plan, rounding, search, solve
from sstorch.exact.moments import Patterns
from tests.conftest import nightly
from tests.exact import reference

OBJECTIVES = ["log_likelihood", "kaplan_meier", "ipcw"]


def make_task(objective, time, event):
    if objective == "log_likelihood":
        hazard = reference.hazards(time.tolist(), event.tolist())
        return LogLikelihood(time, event), lambda rows: reference.deviance(rows, time, event, hazard)
    ipcw = objective == "ipcw"
    task = IntegratedBrier(time, event, leaf_curve=objective)
    return task, lambda rows: reference.brier(rows, time.tolist(), event.tolist(), ipcw)


def conditions(seed, event):
    """Least rows and events of a leaf that the single leaf meets."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return 1, 0
    return int(rng.integers(1, 6)), int(rng.integers(0, min(3, event.sum()) + 1))


def check(seed, objective, engine="torch"):
    features, time, event = reference.random_problem(seed)
    task, cost = make_task(objective, time, event)
    min_leaf, min_events = conditions(seed, event)
    depth = 2 + seed % 4
    solution = solve(features, task, depth, min_leaf=min_leaf, min_events=min_events, engine=engine)

    def allowed(rows):
        return len(rows) >= min_leaf and event[list(rows)].sum() >= min_events

    least = reference.all_trees(features, cost, depth, allowed)
    assert set(solution.optima) == set(least)
    for (d, n), expected in least.items():
        assert solution.optima[d, n].loss == pytest.approx(expected, rel=1e-10, abs=1e-12), (d, n)
        tree = solution.tree(depth=d, nodes=n, leaf_penalty=0.0)
        leaf = tree.apply(features)
        assert tree.depth <= d
        assert tree.n_nodes <= n
        assert task.loss(leaf) == pytest.approx(expected, rel=1e-10, abs=1e-12)
        assert np.bincount(leaf, minlength=tree.n_leaves).min() >= min_leaf
        assert np.bincount(leaf, weights=event, minlength=tree.n_leaves).min() >= min_events
    for penalty in (1e-4, 0.003, 0.05, 0.7):
        best = min(loss + penalty * (n + 1) for (_, n), loss in least.items())
        chosen = solution.optimum(leaf_penalty=penalty)
        assert chosen.loss + penalty * (chosen.nodes + 1) == pytest.approx(best, rel=1e-10)
        tree = solution.tree(leaf_penalty=penalty)
        assert task.loss(tree.apply(features)) + penalty * tree.n_leaves == pytest.approx(best, rel=1e-10)


@pytest.mark.parametrize("part", [*range(2), *map(nightly, range(2, 10))])
def test_all_budgets_equal_brute_force(part):
    for seed in range(20 * part, 20 * part + 20):
        check(seed, OBJECTIVES[seed % 3])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_search_root_by_root_equals_brute_force(objective, monkeypatch):
    monkeypatch.setattr(search, "fits", lambda problem, depth: depth < 2)
    for seed in range(300, 304):
        check(seed, objective)


@pytest.mark.parametrize("depth", [2, 3])
def test_trees_of_steps_with_few_and_with_many_rows(depth, monkeypatch):
    """Below a split, some steps have no rows left, and others more than are counted one by one."""
    monkeypatch.setattr(plan, "_SECONDS_FOR_THREADS", 0.0)
    rng = np.random.default_rng(depth)
    features = rng.random((120, 7)) < 0.4
    time = np.where(rng.random(120) < 0.5, rng.integers(1, 5, 120) * 10.0, rng.integers(1, 40, 120) * 1.0)
    task = IntegratedBrier(time, rng.random(120) < 0.7)
    packed = solve(features, task, depth, min_leaf=3, engine="torch", n_threads=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "fits", lambda problem, k: k < depth)
        roots = solve(features, task, depth, min_leaf=3, engine="torch")
        for (d, n), optimum in packed.optima.items():
            assert roots.optima[d, n].loss == pytest.approx(optimum.loss, rel=1e-12)
            for solution in (packed, roots):
                leaf = solution.tree(depth=d, nodes=n).apply(features)
                assert task.loss(leaf) == pytest.approx(optimum.loss, rel=1e-12)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_many_rows_equal_few(depth, monkeypatch):
    """Sums by 8-bit digits, which many rows get, are those of float64, bit by bit, on all threads."""
    if not hasattr(torch, "_int_mm"):
        pytest.skip("this torch has no products of 8-bit integers")
    from sstorch.exact import moments as products

    rng = np.random.default_rng(depth)
    features = rng.random((1500, 14)) < 0.4
    time, event = rng.exponential(2.0, 1500), rng.random(1500) < 0.6
    found = []
    monkeypatch.setattr(search, "_SUMS_AT_ONCE", 1 << 10)
    monkeypatch.setattr(plan, "_SECONDS_FOR_THREADS", 0.0)
    shared, on_threads = set(), search.on_threads
    monkeypatch.setattr(
        search, "on_threads", lambda work, items, n: shared.add(n) or on_threads(work, items, n)
    )
    for int8 in (True, False):
        monkeypatch.setattr(products, "_has_int8_instructions", lambda answer=int8: answer)
        solutions = [solve(features, LogLikelihood(time, event), depth, engine="torch", n_threads=3)]
        with monkeypatch.context() as patch:
            patch.setattr(search, "fits", lambda problem, k: k < depth)
            solutions.append(solve(features, LogLikelihood(time, event), depth, engine="torch"))
        found += [s.table().loss.tolist() for s in solutions]
    assert Patterns.of(features).literals.shape[0] >= products.MANY_ROWS
    assert found[0] == found[1] == found[2] == found[3]
    assert shared == {1, 3}


def peers_data(seed, n=400, p=9):
    rng = np.random.default_rng(seed)
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    risk = features[:, 0] * 1.0 - features[:, 1] * features[:, 2] * 1.5 + 0.5 * features[:, 3]
    time = np.ceil(rng.exponential(30 * np.exp(-risk))) + 1.0
    stop = np.ceil(rng.exponential(60, n)) + 1.0
    return features, np.minimum(time, stop), time <= stop


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_losses_are_those_of_pystreed(depth):
    pystreed = pytest.importorskip("pystreed", reason="pystreed is in the extra oracles")

    class Solver(pystreed.STreeDSurvivalAnalysis):
        """With events that numpy 2.4 takes as positions in a list."""

        def _compute_baseline_cumulative_hazard_function(self, events, times):
            return super()._compute_baseline_cumulative_hazard_function(events.astype(np.int64), times)

    for seed in range(3):
        features, time, event = peers_data(seed)
        y = np.array(list(zip(event, time, strict=True)), dtype=[("event", "?"), ("time", "<f8")])
        for nodes in {depth, 2**depth - 1}:
            peer = Solver(max_depth=depth, max_num_nodes=nodes, time_limit=60)
            peer.fit(features.astype(np.int32), y)
            theirs = streed_leaves(peer.get_tree(), features)
            task = LogLikelihood(time, event)
            solution = solve(features, task, depth, nodes)
            assert solution.certificate == "optimal"
            # pystreed compares losses with a tolerance of 1e-4: its tree may be that much worse.
            assert solution.loss <= task.loss(theirs) * (1 + 1e-8)
            assert solution.loss >= task.loss(theirs) * (1 - 2e-4)


def streed_leaves(node, features):
    """The leaf of each row in a tree of pystreed."""
    leaf = np.zeros(len(features), dtype=np.int64)
    count = 0

    def walk(node, rows):
        nonlocal count
        if node.is_leaf_node():
            leaf[rows] = count
            count += 1
            return
        right = features[rows, node.feature]
        walk(node.left_child, rows[~right])
        walk(node.right_child, rows[right])

    walk(node, np.arange(len(features)))
    return leaf


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_objectives_are_those_of_osst(depth):
    if importlib.util.find_spec("osst") is None:
        pytest.skip("osst is in the extra oracles")
    import pandas as pd
    from osst.model.osst import OSST

    for seed, penalty in ((0, 0.02), (1, 0.005), (2, 0.001)):
        features, time, event = peers_data(seed, n=150, p=7)
        frame = pd.DataFrame(features.astype(int), columns=[f"f{j}" for j in range(features.shape[1])])
        peer = OSST(
            {
                "regularization": penalty,
                "depth_budget": depth + 1,
                "minimum_captured_points": 7,
                "time_limit": 60,
            }
        )
        peer.fit(frame, pd.DataFrame({"event": event.astype(int)}), pd.DataFrame({"time": time}))
        solution = solve(features, IntegratedBrier(time, event), depth, leaf_penalty=penalty, min_leaf=7)
        # osst works in float32.
        assert solution.objective == pytest.approx(peer.ub, abs=1e-6)


def test_channels_are_rounded_in_blocks_as_at_once(monkeypatch):
    values = np.random.default_rng(0).normal(size=(6, 40)) * 10.0 ** np.arange(6)[:, None]
    values[2] = np.rint(values[2])
    whole = rounding.quantise(values)
    monkeypatch.setattr(rounding, "_BLOCK", 80)
    for known, found in zip(whole, rounding.quantise(values), strict=True):
        np.testing.assert_array_equal(found, known)
    assert whole[1][2] == 1.0
    np.testing.assert_array_equal(whole[0] % whole[1][:, None], 0.0)
    np.testing.assert_allclose(whole[0], values, rtol=0.0, atol=1e-13 * np.abs(values).max())

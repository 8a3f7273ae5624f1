"""The engine: curves, chains, threads, limits of time and memory, custom costs, and what it finds."""

import itertools
import math
import time
from types import FunctionType

import numpy as np
import pandas as pd
import pytest

from sstorch.exact import (
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    rows,
    solve,
    tasks,
)
from sstorch.exact.compiled import costs, search
from sstorch.exact.rows import Patterns
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, DataError
from sstorch.reading import export_text
from tests.exact.problems import Rates

RNG = np.random.default_rng(3)
# Several times as many features as rows can tell apart further down, so that rows become equal there.
FEATURES = RNG.random((150, 13)) < RNG.uniform(0.1, 0.9, 13)
TIME, CAUSE = RNG.exponential(2.0, 150).round(1) + 0.1, RNG.integers(0, 3, 150)
EVENT = CAUSE > 0
SURVIVAL, CAUSES = LogLikelihood(TIME, EVENT), LogLikelihood(TIME, CAUSE, n_causes=2)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_curves_follow_from_rows_and_from_blocks(depth, monkeypatch):
    from sstorch.exact.compiled.curves import Leavers

    monkeypatch.setattr(search, "_SUMS_AT_ONCE", 1600)
    time = np.where(RNG.random(150) < 0.2, 0.1, TIME)  # ties, some rows censored before the first event
    event, weight = EVENT & (time > 0.5), RNG.lognormal(sigma=2.0, size=150)
    for options in ({}, {"n_buckets": 4}, {"sample_weight": weight}):
        task, losses = IntegratedBrier(time, event, **options), []
        for followed, n_threads in itertools.product((True, False), (1, 3)):
            monkeypatch.setattr(Leavers, "followed", lambda *sizes, answer=followed: answer)
            found = solve(FEATURES, task, depth, min_leaf=4, n_threads=n_threads)
            losses.append(found.table().loss)
            assert task.loss(found.tree().apply(FEATURES)) == pytest.approx(found.loss, rel=1e-10)
        np.testing.assert_array_equal(losses[0], losses[1])
        np.testing.assert_array_equal(losses[2], losses[3])
        np.testing.assert_allclose(losses[0], losses[2], rtol=1e-10)


def test_curves_of_many_distinct_rows_need_no_sums_of_rows_and_blocks(monkeypatch):
    from sstorch.exact.compiled.curves import Leavers

    rng = np.random.default_rng(0)
    features, time = rng.random((4000, 13)) < 0.5, rng.integers(1, 200, 4000).astype(float)
    task = IntegratedBrier(time, np.ones(4000))
    monkeypatch.setattr(Leavers, "followed", lambda *sizes: False)
    # Sums of 3188 distinct rows in 199 blocks would take 15 MiB.
    assert solve(features, task, 2, memory=8 * 2**20).certificate == "optimal"


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_thresholds_of_columns_are_counted_as_chains(depth, monkeypatch):
    columns = RNG.normal(size=(150, 3)).round(1)
    cuts = [column > t for column in columns.T for t in np.linspace(-1.5, 1.5, 5)]
    features = np.column_stack([*cuts, FEATURES[:, :3]])
    # Thresholds below the middle are turned, and chains of their own, the largest one first.
    assert len(set(Patterns.of(features).chain.tolist())) == 2 * 3 + 3
    found = solve(features, CAUSES, depth, min_leaf=3)
    # Each feature a chain of its own.
    monkeypatch.setattr(
        "sstorch.exact.rows._chains", lambda codes: (np.arange(len(codes)), np.arange(len(codes)))
    )
    alone = solve(features, CAUSES, depth, min_leaf=3)
    np.testing.assert_allclose(found.table().loss, alone.table().loss, rtol=1e-12)


@pytest.mark.parametrize(("depth", "limit"), [(2, 8.0), (4, 28.0)])
def test_time_limit_inside_a_depth_leaves_a_tree_of_the_first_features(depth, limit, monkeypatch):
    """Every look at the clock takes a second; the last features are not seen."""
    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    cut = solve(FEATURES, SURVIVAL, depth, time_limit=limit)
    assert next(ticks) < limit + 6
    assert cut.gap > 0.0
    assert cut.certificate.startswith("at most")
    monkeypatch.undo()
    best, less = solve(FEATURES, SURVIVAL, depth), solve(FEATURES, SURVIVAL, depth - 1)
    most, smaller = 2**depth - 1, (depth - 1, 2 ** (depth - 1) - 1)
    assert cut.optima[smaller].certified
    assert cut.optima[smaller].loss == pytest.approx(less.loss, rel=1e-12)
    assert best.loss <= cut.loss <= less.loss
    assert cut.optima[depth, most].lower_bound <= best.loss
    tree = cut.tree(depth=depth, nodes=most)
    reached = SURVIVAL.loss(tree.apply(FEATURES))
    assert reached == pytest.approx(cut.optima[depth, most].loss, rel=1e-12)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_threads_find_the_same_losses_bit_for_bit(depth, monkeypatch):
    helped = []
    visit = search._Helper.visit
    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    monkeypatch.setattr(search._Helper, "visit", lambda *task: (helped.append(task[0]), visit(*task)))
    found = [solve(FEATURES, CAUSES, depth, min_leaf=2, n_threads=n) for n in (1, 3)]
    np.testing.assert_array_equal(*(solution.table().loss for solution in found))
    np.testing.assert_array_equal(*(solution.tree().feature for solution in found))
    assert len(set(helped)) == 2


def test_threads_are_as_many_as_there_is_room_for(monkeypatch):
    distinct = len(np.unique(FEATURES, axis=0))
    room = [search.estimate(distinct, 0, 13, 2, 5, 31, n).bytes for n in (1, 2, 3)]
    taken, searched = [], search.CompiledProblem.search

    def counted(problem, *limits, n_threads):
        taken.append(n_threads)
        return searched(problem, *limits, n_threads=n_threads)

    monkeypatch.setattr(search.CompiledProblem, "search", counted)
    solve(FEATURES, SURVIVAL, 5, n_threads=8, memory=room[1])
    assert taken == [2]
    with pytest.raises(ConfigError, match="too many for depth 5"):
        solve(FEATURES, SURVIVAL, 5, n_threads=8, memory=room[0] - 1)


def test_a_stump_among_five_thousand_features():
    """Sets of six of them have no number of 64 bits, and pairs need not be counted."""
    features, task = np.random.default_rng(0).random((30, 5000)) < 0.5, LogLikelihood(TIME[:30], np.ones(30))
    found = solve(features, task, 1)
    assert found.certificate == "optimal"
    assert found.loss <= min(task.loss(column.astype(int)) for column in features.T[::50]) + 1e-9


class Faulty(Rates):
    @staticmethod
    def leaf_cost(sums, i):
        return math.nan if sums[1, i] > 0 else 0.0


def test_channels_are_rounded_in_blocks_as_at_once(monkeypatch):
    values = np.random.default_rng(0).normal(size=(6, 40)) * 10.0 ** np.arange(6)[:, None]
    values[2] = np.rint(values[2])
    whole = rows.quantise(values)
    monkeypatch.setattr(rows, "_BLOCK", 80)
    for known, found in zip(whole, rows.quantise(values), strict=True):
        np.testing.assert_array_equal(found, known)
    assert whole[1][2] == 1.0
    np.testing.assert_array_equal(whole[0] % whole[1][:, None], 0.0)
    np.testing.assert_allclose(whole[0], values, rtol=0.0, atol=1e-13 * np.abs(values).max())


@pytest.mark.parametrize(("cost", "kept"), [(LeastSquares.leaf_cost, True), (Faulty.leaf_cost, False)])
def test_costs_of_numbers_and_logarithms_are_kept_on_disk(cost, kept):
    """Not those that use other functions, whose code is not known: `math.nan` is of a module."""
    assert (costs._digest(cost) is not None) == kept
    other = LeastSquares.leaf_cost.__code__.replace(co_consts=(None, 0, 2))
    assert costs._digest(FunctionType(other, vars(tasks))) != costs._digest(LeastSquares.leaf_cost)


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    features = rng.random((120, 8)) < 0.4
    time = rng.exponential(np.where(features[:, 0] ^ features[:, 3], 1.0, 4.0))
    return features, time, rng.random(120) < 0.7


@pytest.mark.parametrize("n_rows", [4, 5, 9, 11])
def test_perfect_survival_tree_has_the_loss_zero(n_rows):
    features = np.arange(n_rows)[:, None] >> np.arange(4) & 1
    solution = solve(features, LogLikelihood(np.arange(1.0, n_rows + 1.0), np.ones(n_rows)), 4)
    assert min(solution.table().loss) == solution.loss == 0.0


def test_perfect_regression_tree_is_proved_optimal():
    # The mean of three times .1 is not .1.
    features = np.repeat([[0], [1]], 3, axis=0)
    for y, weight in (([0.1, 0.7], None), ([1.1, 3.3], [0.3, 0.1, 0.7, 0.3, 0.1, 0.7])):
        solution = solve(features, LeastSquares(np.repeat(y, 3), sample_weight=weight), 1)
        assert 0.0 <= solution.loss < 1e-31
        assert solution.certificate == "optimal"
    LeastSquares(np.full(5, 3e-200))  # equal numbers have no squares, which would be 0


def test_order_names_and_repeats_of_columns_do_not_matter(data):
    features, time, event = data
    task = LogLikelihood(time, event)
    expected = solve(features, task, 3).loss
    order = np.random.default_rng(0).permutation(8)
    messy = np.column_stack([features[:, order], ~features[:, :3], features[:, 1], np.ones(120, dtype=bool)])
    frame = pd.DataFrame(messy.astype(int), columns=[f"rule {j}" for j in range(messy.shape[1])])
    solution = solve(frame, task, 3)
    assert solution.loss == expected
    assert solution.tree().names[0] == "rule 0"


def test_without_nodes_there_is_a_single_leaf(data):
    features, time, event = data
    solution = solve(features, LogLikelihood(time, event), 4, 0)
    assert list(solution.optima) == [(0, 0)]
    assert solution.tree().n_leaves == 1


def test_a_tree_reads_as_rules():
    tree = BinaryTree.build((1, None, (0, None, None)), ["age > 50", "sex = m"])
    assert export_text(tree).splitlines() == [
        "if sex = m:",
        "  if age > 50:",
        "    leaf 2",
        "  else:",
        "    leaf 1",
        "else:",
        "  leaf 0",
    ]
    assert tree.apply([[0, 0], [1, 0], [0, 1], [1, 1]]).tolist() == [0, 0, 1, 2]
    assert tree.paths() == [((1, False),), ((1, True), (0, False)), ((1, True), (0, True))]
    assert (tree.depth, tree.n_nodes, tree.n_leaves) == (2, 2, 3)
    with pytest.raises(DataError, match="must have 2 columns"):
        tree.apply([[0, 0, 1]])

"""The compiled search compared with that of torch."""

import itertools
import math
import re
import signal
import time
from functools import partial

import numpy as np
import pytest
import torch

from sstorch.exact import (
    Classification,
    CompetingLogLikelihood,
    CostSensitive,
    DecisionCosts,
    FeatureCosts,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    deadline,
    solve,
)
from sstorch.exact.moments import Patterns
from sstorch.exact.plan import compiles
from sstorch.exact.problem import Work
from sstorch.exceptions import ConfigError, DataWarning

RNG = np.random.default_rng(3)
# Several times as many features as rows can tell apart further down, so that rows become equal there.
FEATURES = RNG.random((150, 13)) < RNG.uniform(0.1, 0.9, 13)
TIME, CAUSE = RNG.exponential(2.0, 150).round(1) + 0.1, RNG.integers(0, 3, 150)
EVENT = CAUSE > 0
TASKS = {
    "survival": LogLikelihood(TIME, EVENT),
    "late entry": LogLikelihood(TIME, EVENT, entry=TIME * RNG.random(150) * 0.9),
    "competing causes": CompetingLogLikelihood(TIME, CAUSE),
    "classes": Classification(CAUSE, balanced=True),
    "decisions": DecisionCosts(RNG.normal(size=(150, 4))),
    "means": LeastSquares(TIME, sample_weight=RNG.integers(0, 3, 150) * 1.0),
    "curves": IntegratedBrier(TIME, EVENT),
}


@pytest.mark.parametrize("name", TASKS)
def test_both_engines_find_the_same_losses(name):
    task = TASKS[name]
    min_events = 2 if name in {"survival", "late entry", "competing causes", "curves"} else 0
    for depth, nodes, min_leaf in (
        (0, None, 1),
        (1, None, 4),
        (2, 2, 1),
        (3, None, 1),
        (4, 9, 5),
        (5, None, 3),
    ):
        found = {
            engine: solve(
                FEATURES, task, depth, nodes, min_leaf=min_leaf, min_events=min_events, engine=engine
            )
            for engine in ("torch", "compiled")
        }
        losses = [solution.table().loss for solution in found.values()]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12, atol=1e-13)
        cells = sum(math.comb(13, size) << size for size in range(depth + 1))
        assert found["compiled"].counters.cells == cells
        for d, n in found["compiled"].optima:
            tree = found["compiled"].tree(depth=d, nodes=n)
            assert tree.depth <= d
            assert tree.n_nodes <= n
            leaf = tree.apply(FEATURES)
            assert np.bincount(leaf).min() >= min_leaf
            assert np.bincount(leaf, EVENT).min() >= min_events


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_curves_follow_from_rows_and_from_blocks(depth, followed, monkeypatch):
    from sstorch.exact.compiled.curves import Leavers

    monkeypatch.setattr(Leavers, "followed", lambda *sizes: followed)
    monkeypatch.setattr("sstorch.exact.compiled.search._CELLS_AT_ONCE", 100)
    time = np.where(RNG.random(150) < 0.2, 0.1, TIME)  # ties, some rows censored before the first event
    event = EVENT & (time > 0.5)
    weight = RNG.lognormal(sigma=2.0, size=150)
    for options in ({}, {"n_buckets": 4}, {"sample_weight": weight}):
        task = IntegratedBrier(time, event, **options)
        known = solve(FEATURES, task, depth, min_leaf=4, engine="torch")
        found = [solve(FEATURES, task, depth, min_leaf=4, engine="compiled", n_threads=n) for n in (1, 3)]
        np.testing.assert_allclose(found[0].table().loss, known.table().loss, rtol=1e-10)
        np.testing.assert_array_equal(*(solution.table().loss for solution in found))
        assert found[0].tree().depth <= depth


def test_curves_of_many_distinct_rows_need_no_sums_of_rows_and_blocks():
    rng = np.random.default_rng(0)
    features, time = rng.random((4000, 13)) < 0.5, rng.integers(1, 200, 4000).astype(float)
    task = IntegratedBrier(time, np.ones(4000))
    # Sums of 3188 distinct rows in 199 blocks would take 15 MiB.
    found = solve(features, task, 2, engine="compiled", memory=8 * 2**20)
    np.testing.assert_allclose(found.loss, solve(features, task, 2, engine="torch").loss, rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_thresholds_of_columns_are_counted_as_chains(depth):
    columns = RNG.normal(size=(150, 3)).round(1)
    cuts = [column > t for column in columns.T for t in np.linspace(-1.5, 1.5, 5)]
    features = np.column_stack([*cuts, FEATURES[:, :3]])
    # Thresholds below the middle are turned, and chains of their own, the largest one first.
    assert len(set(Patterns.of(features).chain.tolist())) == 2 * 3 + 3
    task = TASKS["competing causes"]
    found = [solve(features, task, depth, min_leaf=3, engine=engine) for engine in ("torch", "compiled")]
    np.testing.assert_allclose(*(solution.table().loss for solution in found), rtol=1e-12)
    assert found[1].tree().depth <= depth


@pytest.mark.parametrize(("depth", "limit"), [(2, 8.0), (4, 28.0)])
def test_time_limit_inside_a_depth_leaves_a_tree_of_the_first_features(depth, limit, monkeypatch):
    """Every look at the clock takes a second; the last features are not seen."""
    from sstorch.exact.compiled import search

    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    cut = solve(FEATURES, TASKS["survival"], depth, time_limit=limit, engine="compiled")
    assert next(ticks) < limit + 6
    assert cut.gap > 0.0
    assert cut.certificate.startswith("at most")
    monkeypatch.undo()
    best = solve(FEATURES, TASKS["survival"], depth, engine="torch")
    less = solve(FEATURES, TASKS["survival"], depth - 1, engine="torch")
    most, smaller = 2**depth - 1, (depth - 1, 2 ** (depth - 1) - 1)
    assert cut.optima[smaller].certified
    assert cut.optima[smaller].loss == pytest.approx(less.loss, rel=1e-12)
    assert best.loss <= cut.loss <= less.loss
    assert cut.optima[depth, most].lower_bound <= best.loss
    tree = cut.tree(depth=depth, nodes=most)
    reached = TASKS["survival"].loss(tree.apply(FEATURES))
    assert reached == pytest.approx(cut.optima[depth, most].loss, rel=1e-12)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_threads_find_the_same_losses_bit_for_bit(depth, monkeypatch):
    from sstorch.exact.compiled import search

    helped = []
    visit = search._Helper.visit
    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    monkeypatch.setattr(search._Helper, "visit", lambda *task: (helped.append(task[0]), visit(*task)))
    task = TASKS["competing causes"]
    found = [solve(FEATURES, task, depth, min_leaf=2, engine="compiled", n_threads=n) for n in (1, 3)]
    np.testing.assert_array_equal(*(solution.table().loss for solution in found))
    np.testing.assert_array_equal(*(solution.tree().feature for solution in found))
    assert len(set(helped)) == 2


def test_threads_are_as_many_as_there_is_room_for():
    from sstorch.exact.compiled.search import estimate_compiled

    distinct = len(np.unique(FEATURES, axis=0))
    room = [estimate_compiled(distinct, 0, 13, 2, 5, 31, n).bytes for n in (1, 2, 3)]
    two = solve(FEATURES, TASKS["survival"], 5, engine="compiled", n_threads=8, memory=room[1])
    assert two.counters.estimate.bytes == room[1]
    with pytest.raises(ConfigError, match="too many for depth 5"):
        solve(FEATURES, TASKS["survival"], 5, engine="compiled", n_threads=8, memory=room[0] - 1)
    with pytest.raises(ConfigError, match=r"n_threads must be at least 1.*, got 0"):
        solve(FEATURES, TASKS["survival"], 2, n_threads=0)


@pytest.fixture
def control_c(monkeypatch):
    """Python's own reaction to Ctrl-C, which workers of a test run ignore, also in searches of an instant."""
    monkeypatch.setattr(deadline, "_INSTANT", 0.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Interrupted(LogLikelihood):
    """Ctrl-C is pressed while costs of leaves are computed, once or again and again."""

    press, presses = staticmethod(lambda: None), 1

    def cost(self, cells):
        self.presses -= 1
        if self.presses >= 0:
            self.press()
        return super().cost(cells)


def test_control_c_ends_a_search_with_the_best_tree_so_far(control_c, monkeypatch):
    from sstorch.exact import search

    monkeypatch.setattr(search, "fits", lambda problem, depth: depth < 3)
    task = Interrupted(TIME, EVENT)
    task.press = control_c
    with pytest.warns(DataWarning, match="interrupted: the best tree so far is at most"):
        cut = solve(FEATURES, task, 4)
    assert cut.gap > 0.0
    stump = solve(FEATURES, TASKS["survival"], 2)
    assert cut.loss <= stump.loss * (1 + 1e-12)
    assert cut.optima[2, 3].certified
    assert task.loss(cut.tree().apply(FEATURES)) == pytest.approx(cut.loss, rel=1e-12)


def test_control_c_ends_a_compiled_search(control_c, monkeypatch):
    from sstorch.exact.compiled import search

    steps = search._steps

    def pressed(*arguments):
        for number, last in enumerate(steps(*arguments)):
            if number == 4 and arguments[1] == 4:
                control_c()
            yield last

    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    monkeypatch.setattr(search, "_steps", pressed)
    with pytest.warns(DataWarning, match="interrupted"):
        cut = solve(FEATURES, TASKS["survival"], 4, engine="compiled")
    best = solve(FEATURES, TASKS["survival"], 4)
    assert cut.optima[2, 3].certified
    assert not cut.optima[4, 15].certified
    assert best.loss <= cut.loss <= cut.optima[2, 3].loss


@pytest.mark.parametrize(("presses", "instant"), [(2, 0.0), (1, np.inf)])
def test_second_control_c_or_one_in_a_short_search_raises(control_c, monkeypatch, presses, instant):
    monkeypatch.setattr(deadline, "_INSTANT", instant)
    task = Interrupted(TIME, EVENT)
    task.press, task.presses = control_c, presses
    with pytest.raises(KeyboardInterrupt):
        solve(FEATURES, task, 4)


class Doubled(LogLikelihood):
    def cost(self, cells):
        return super().cost(cells).mul_(2.0)

    @property
    def constant(self):
        return 2.0 * self._constant

    @constant.setter
    def constant(self, value):
        self._constant = value

    def loss(self, leaf):
        return 2.0 * super().loss(leaf)


class PricesOfOnesOwn(CostSensitive):
    def branch_cost(self, above, feature):
        return 2.0 * super().branch_cost(above, feature)


def test_a_cost_of_ones_own_is_torchs():
    once = solve(FEATURES, TASKS["survival"], 2)
    twice = solve(FEATURES, Doubled(TIME, EVENT), 2)
    assert twice.loss == pytest.approx(2.0 * once.loss, rel=1e-12)


def test_auto_is_compiled_where_torch_takes_long_or_all_memory():
    cpu, survival = torch.device("cpu"), TASKS["survival"]
    short, long, large = (partial(Work, 10, *size) for size in ((1000, 19.0), (1000, 21.0), (5000, 1.0)))
    assert not compiles("auto", survival, cpu, short, 4000)
    assert compiles("auto", survival, cpu, long, 4000)
    assert compiles("auto", survival, cpu, large, 4000)
    assert compiles("auto", survival, cpu, partial(Work, 10, 1000, 1.0, searches=8), 4000)
    for task in (IntegratedBrier(TIME, EVENT, leaf_curve="ipcw"), Doubled(TIME, EVENT)):
        assert not compiles("auto", task, cpu, long, 4000)
    assert not compiles("auto", survival, torch.device("cuda"), long, 4000)
    assert not compiles("torch", survival, cpu, long, 4000)
    assert compiles("compiled", survival, cpu, short, 4000)


def test_auto_searches_what_torch_has_no_room_for():
    wide = RNG.random((40, 60)) < 0.5
    task = Classification(RNG.integers(0, 2, 40))
    with pytest.raises(ConfigError, match="too many for depth 3"):
        solve(wide, task, 3, memory=3 * 2**20, engine="torch")
    assert solve(wide, task, 3, memory=3 * 2**20).certificate == "optimal"


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        (TASKS["survival"], {"engine": "gpu"}, "engine must be one of auto, torch, compiled, got 'gpu'"),
        (TASKS["survival"], {"engine": "compiled", "device": "meta"}, "device must be cpu"),
        (Doubled(TIME, EVENT), {"engine": "compiled"}, "Doubled has no compiled cost; use engine='torch'"),
        (
            IntegratedBrier(TIME, EVENT, leaf_curve="ipcw"),
            {"engine": "compiled"},
            "IntegratedBrier has no compiled cost",
        ),
        (
            PricesOfOnesOwn(CAUSE, feature_costs=FeatureCosts.of(["x"] * 13, {"x": 1.0})),
            {"engine": "compiled"},
            "PricesOfOnesOwn has no compiled cost of tests",
        ),
        (
            CostSensitive(CAUSE, feature_costs=FeatureCosts.of(["x"] * 13, {"x": 1.0})),
            {"max_depth": 6},
            "does not support costs of tests",
        ),
    ],
)
def test_what_the_compiled_engine_cannot_do_is_said(task, settings, message):
    with pytest.raises(ConfigError, match=message):
        solve(FEATURES, task, **{"max_depth": 2, **settings})


def test_progress_is_said_once_a_second(monkeypatch, capsys):
    from sstorch.exact.compiled import search

    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(search, "_CELLS_A_STEP", 1)
    numbers = RNG.normal(size=(150, 2))
    cuts = np.column_stack([column > value for column in numbers.T for value in np.sort(column)[:-1:3]])
    solve(cuts, TASKS["survival"], 3, min_leaf=20, engine="compiled", memory=1, verbose=1)
    *_, bounded = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"exact trees: the best tree is at most [\d.]+ above the optimum", bounded)
    solve(FEATURES, TASKS["survival"], 4, engine="compiled", verbose=1)
    tables = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"exact trees: \d+% of the sets of 4 features", tables[-1])
    monkeypatch.setattr("sstorch.exact.search.fits", lambda problem, depth: depth < 3)
    solve(FEATURES, TASKS["survival"], 3, engine="torch", verbose=1)
    assert "trees of depth 3: root 12 of 13" in capsys.readouterr().err
    solve(FEATURES, TASKS["survival"], 4, engine="compiled")
    assert not capsys.readouterr().err

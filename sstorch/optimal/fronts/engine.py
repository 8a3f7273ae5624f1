"""Exact trees for objectives of two totals: the one entry point."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError
from sstorch.optimal.fronts import balance, bounded, pareto
from sstorch.optimal.fronts.base import FrontTask
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.fronts.solution import FrontCounters, FrontSolution, Origin
from sstorch.optimal.patterns import Patterns, check_binary
from sstorch.optimal.states import Budget, budget, splits

MAX_DEPTH = 3


def solve_front(
    features: object,
    task: FrontTask,
    max_depth: int = 2,
    max_nodes: int | None = None,
    *,
    min_leaf: int = 1,
    time_limit: float | None = None,
    memory: int = 4 * 2**30,
    device: str | torch.device = "cpu",
) -> FrontSolution:
    """Find the trees that no other tree beats in both totals of a task.

    The search is exhaustive; totals are integers and compared exactly. The front is complete, but for tasks
    with the order ``"balance"`` at depth 3: there it is the one tree of least cost within the limit.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.optimal.Binarizer`.
        task: the objective, made from the same rows.
        max_depth: most tests on a path, 0 to 3; a stump has depth 1.
        max_nodes: most branch nodes (leaves are one more); None is what the depth can hold.
        min_leaf: least number of rows of a leaf.
        time_limit: seconds, or None. If they do not suffice at depth 3, the front holds what was found.
        memory: bytes that the search may take.
        device: where to search.

    Returns:
        The front, and the tree of each of its points.

    Raises:
        DataError: `features` is not binary or has another number of rows than the task, or there are fewer
            rows than `min_leaf`.
        ConfigError: an argument out of its range, or too many features for the memory.

    Examples:
        >>> import numpy as np
        >>> from sstorch.optimal.fronts import ConfusionFront, solve_front
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [1, 1]])
        >>> found = solve_front(features, ConfusionFront([0, 0, 1, 0, 1, 1]), max_depth=2)
        >>> found.table()
           false negatives  false positives     score
        0                0                1  0.857143
        1                2                0  0.500000
        >>> best = found.tree()
        >>> best.predict(features).tolist()
        [0, 0, 1, 1, 1, 1]
    """
    matrix, names = check_binary(features)
    target = _check(matrix.shape[0], task, max_depth, max_nodes, min_leaf, time_limit)
    patterns = Patterns.of(matrix)
    _check_memory(patterns, task, target.depth, memory)
    problem = FrontProblem.of(task, patterns, min_leaf, torch.device(device))
    begin = time.perf_counter()
    deadline = float("inf") if time_limit is None else begin + time_limit
    small = budget(min(2, target.depth), target.nodes)
    search = pareto.front if task.order == "pareto" else balance.front
    points = search(problem, small, memory)
    origins: list[Origin] = [None] * points.shape[1]
    n_roots, lower_bound = problem.n_features, -float("inf")
    if target.depth > 2:
        if task.order == "pareto":
            points, origins, n_roots = _pareto_roots(problem, target, points, memory // 2, deadline)
        else:
            points, origins, lower_bound, complete = _cheapest_root(problem, target, points, memory, deadline)
            n_roots = problem.n_features if complete else -1
    return FrontSolution(
        features=matrix,
        names=names,
        patterns=patterns,
        problem=problem,
        target=target,
        points=points,
        origins=origins,
        certified=n_roots == problem.n_features,
        lower_bound=lower_bound,
        counters=FrontCounters(
            len(matrix), len(patterns.literals), problem.n_features, time.perf_counter() - begin
        ),
    )


def _pareto_roots(
    problem: FrontProblem, target: Budget, found: Tensor, memory: int, deadline: float
) -> tuple[Tensor, list[Origin], int]:
    """Add all trees of depth 3, root by root, to a front.

    A tree improves the front only if it is at or below one of its corners in both costs, and then in every
    weighted sum of them; a root, or a second test, whose least sum exceeds all of these is left out.
    """
    origins: list[Origin] = [None] * found.shape[1]
    weights = pareto.normals(found, problem.largest)
    for feature in range(problem.n_features):
        if time.perf_counter() > deadline:
            return found, origins, feature
        absent, present = problem.split(feature)
        for split, (first, second) in enumerate(splits(target)):
            floors = pareto.Floors(absent, first, weights), pareto.Floors(present, second, weights)
            most = weights @ pareto.corners(found).to(torch.float64)
            least = floors[0].least + floors[1].least
            most = most[:, (most >= least[:, None]).all(0)]
            if not most.shape[1]:
                continue
            left = pareto.front(absent, first, memory, floors[0].kept(floors[1].least, most))
            right = pareto.front(present, second, memory, floors[1].kept(floors[0].least, most))
            width = right.shape[1]
            for part in left.split(max(1, memory // (64 * width)), dim=1):
                n = found.shape[1]
                found, index = pareto.join(found, part, right)
                origins = [
                    origins[i] if i < n else (feature, split, part[:, (i - n) // width])
                    for i in index.tolist()
                ]
    return found, origins, problem.n_features


def _cheapest_root(
    problem: FrontProblem, target: Budget, found: Tensor, memory: int, deadline: float
) -> tuple[Tensor, list[Origin], float, bool]:
    """The cheapest tree of depth 3, or the cheapest of a front of smaller ones."""
    known = found[:, found[0].argmin()] if found.shape[1] else None
    result = bounded.cheapest(problem, target, known, memory // 2, deadline)
    if result.root is not None:
        root = result.root
        origin: Origin = (root.feature, root.split, root.left)
        return root.point[:, None], [origin], result.lower_bound, result.complete
    cheapest = found[:, :0] if known is None else known[:, None]
    return cheapest, [None] * cheapest.shape[1], result.lower_bound, result.complete


def _check(
    n_rows: int,
    task: FrontTask,
    max_depth: int,
    max_nodes: int | None,
    min_leaf: int,
    time_limit: float | None,
) -> Budget:
    """Check the arguments; returns the budget."""
    if not 0 <= max_depth <= MAX_DEPTH:
        raise ConfigError(f"max_depth={max_depth}: fronts are searched for depths 0 to {MAX_DEPTH}")
    if max_nodes is not None and max_nodes < 0:
        raise ConfigError(f"max_nodes={max_nodes}: expected at least 0, or None for no limit")
    if min_leaf < 1:
        raise ConfigError(f"min_leaf={min_leaf}: expected at least 1 row")
    if time_limit is not None and not time_limit > 0.0:
        raise ConfigError(f"time_limit={time_limit}: expected seconds above 0, or None for no limit")
    if n_rows != task.n_rows:
        raise DataError(f"features: {n_rows} rows, but the task has {task.n_rows}")
    if min_leaf > n_rows:
        raise DataError(f"min_leaf={min_leaf}: not even a single leaf has that many rows, there are {n_rows}")
    total = np.abs(task.channels()).sum(axis=1, dtype=np.float64)
    if (total >= 2.0**53).any():
        raise ConfigError(
            "the channels of the task are too large to be summed exactly: their absolute values sum to "
            f"{total.max():.3g}, at most 2**53 is possible; use coarser weights"
        )
    most = 2**max_depth - 1
    return budget(max_depth, most if max_nodes is None else min(max_nodes, most))


def _check_memory(patterns: Patterns, task: FrontTask, depth: int, memory: int) -> None:
    n, rows = patterns.n_features, len(patterns.literals)
    channels = task.channels()
    n_decisions = task.points(torch.zeros((len(channels), 1), dtype=torch.int64)).shape[1]
    tables = 0 if depth < 2 else 8 * n * n * (8 * (len(channels) + 1) + 16 * n_decisions**2)
    need = tables + 8 * rows * (n + 2) * (2 + len(channels))
    if need > memory:
        raise ConfigError(
            f"{n} different binary features and {rows} different rows take about {need / 2**30:.1f} GiB "
            f"(memory={memory / 2**30:.1f} GiB is allowed). Choose fewer thresholds in the binarizer, or a "
            "larger memory"
        )

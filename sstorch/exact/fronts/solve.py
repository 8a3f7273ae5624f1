"""Solve a problem of several totals exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice
from sstorch.exact.deadline import Deadline
from sstorch.exact.fronts.problem import REACHED, FrontProblem, FrontTask
from sstorch.exact.fronts.search import cheapest_tree
from sstorch.exact.fronts.small import balance_front, join, nondominated_front
from sstorch.exact.moments import Patterns
from sstorch.exact.problem import INFINITY, Budget, Origin, budget, budgets, check_limits, check_rows, splits
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.optim import ENGINES, Engine

_MULTIPLIER = 0x5851F42D4C957F2D

# From so many features on "auto" has machine code made, at depth 3.
_MANY_FEATURES = 40
MAX_FRONT_DEPTH = 3


def locate(problem: FrontProblem, target: Budget, point: Tensor) -> Nested:
    """A smallest tree within a budget of depth 0, 1 or 2 that has a point (T,).

    Raises:
        TrainingError: there is none.
    """
    for smaller in budgets(target.depth, target.nodes):
        tree = _locate(problem, smaller, point)
        if tree is not None:
            return tree
    raise TrainingError(f"no tree has the totals {point.tolist()} of the search; please report this")


def _locate(problem: FrontProblem, target: Budget, point: Tensor) -> Nested:
    if target.nodes == 0:
        same = torch.nonzero((problem.leaf == point[:, None]).all(0))[:, 0]
        return int(same[0]) if len(same) else None
    if problem.n_features == 0:
        return None
    for halves in splits(target):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        # What is missing on the right is looked up by one number for all totals, in which sums are sums.
        keys, order = _key(right).contiguous().sort(dim=-1, stable=True)
        wanted = _key(point[:, None, None] - left).contiguous()
        place = torch.searchsorted(keys, wanted).clamp_max_(keys.shape[1] - 1)
        second = order.gather(-1, place)
        partner = right.gather(-1, second.expand_as(left))
        same = ((left + partner == point[:, None, None]).all(0)) & (left[0] < REACHED)
        if same.any():
            feature, first = torch.nonzero(same)[0].tolist()
            if target.nodes == 1:  # the points of leaves are those of their decisions
                return feature, first, int(second[feature, first])
            return below(problem, feature, halves, left[:, feature, first], point)
    return None


def _key(points: Tensor) -> Tensor:
    """One number (...) for points (T, ...), modulo 2^64, so that two points hardly ever share one."""
    key = points[0]
    for total in points[1:]:
        key = key * _MULTIPLIER + total
    return key


def below(
    problem: FrontProblem, feature: int, halves: tuple[Budget, Budget], left: Tensor, point: Tensor
) -> Nested:
    """The tree with a test at the root, whose subtrees are within two budgets, that has a point (T,).

    `left` is the point (T,) of the subtree where the literal is 0.

    Raises:
        TrainingError: there is none.
    """
    absent, present = problem.split(feature)
    return feature, locate(absent, halves[0], left), locate(present, halves[1], point - left)


def _decisions(tree: Nested) -> list[int]:
    """The decisions of the leaves, in preorder."""
    if isinstance(tree, tuple):
        return _decisions(tree[1]) + _decisions(tree[2])
    assert tree is not None
    return [tree]


@dataclass(frozen=True)
class DecidedTree:
    """A tree and the decisions of its leaves.

    Attributes:
        tree: the tests.
        decision: (L,), the decision of each leaf, 0 .. K - 1; for classes, the class.
        totals: (T,), the totals on the rows of the search, integers.
        score: of the totals.
    """

    tree: BinaryTree
    decision: IntArray
    totals: IntArray
    score: float

    def predict(self, features: npt.ArrayLike) -> IntArray:
        """Predict the decision for each row of a binary matrix (n, p), shape (n,).

        Raises:
            DataError: another number of columns than the tree was grown on.
        """
        return self.decision[self.tree.apply(features)]


class FrontSolution:
    """Pareto-optimal trees from one search.

    Attributes:
        task: the objective.
        totals: (n, T) int64, the totals of the front's trees by increasing first total.
        certified: whether no tree within the budget beats one of the front; False only where a time limit cut
            the search short.
        lower_bound: where the one tree of least cost is sought, the least first total (integer units) that a
            tree within the limit can have; equal to that of the best tree if certified.
    """

    def __init__(
        self,
        *,
        patterns: Patterns,
        problem: FrontProblem,
        target: Budget,
        points: Tensor,
        origin: Callable[[int], Origin],
        certified: bool,
        lower_bound: float,
    ) -> None:
        if not points.shape[1]:
            raise DataError("no tree satisfies min_leaf and the limit of the task; loosen one of them")
        self._patterns, self._problem, self._target = patterns, problem, target
        self._points, self._origin = points, origin
        self.task: FrontTask = problem.task
        self.totals: IntArray = points.T.cpu().numpy()
        self.certified = certified
        self.lower_bound = float(self.totals[:, 0].min()) if certified else lower_bound

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def values(self) -> FloatArray:
        """(n, T), the totals in the user's units."""
        values: FloatArray = self.totals * np.array(self.task.unit) + np.array(self.task.offset)
        return values

    @property
    def certificate(self) -> str:
        """``"optimal"``, or a note on the interrupted search."""
        return "optimal" if self.certified else "not proved: the search was cut short"

    def table(self) -> pd.DataFrame:
        """The front: the totals in the user's units, and the score."""
        table = pd.DataFrame(self.values, columns=list(self.task.names))
        for column, unit in zip(table.columns, self.task.unit, strict=True):
            if unit == 1.0:
                table[column] = table[column].astype(np.int64)
        return table.assign(score=self._scores)

    def best(self) -> int:
        """Number of the point with the largest score, the first of ties.

        Raises:
            ConfigError: the score is not a number for some point.
        """
        return int(np.argmax(self._scores))

    def tree(self, number: int | None = None) -> DecidedTree:
        """Return the tree of a point of the front.

        Args:
            number: number of the point; None for the best.

        Raises:
            ConfigError: there is no such point.
            TrainingError: the totals, recomputed from the rows, differ from those of the search.
        """
        number = self.best() if number is None else number
        if not 0 <= number < len(self):
            raise ConfigError(f"number={number}: the front has the points 0 to {len(self) - 1}")
        point, origin, problem = self._points[:, number], self._origin(number), self._problem
        if origin is None:
            decided = locate(problem, budget(min(2, self._target.depth), self._target.nodes), point)
        else:
            feature, halves, left = origin
            decided = below(problem, feature, halves, left, point)
        nested = self._patterns.in_columns(decided)
        tree = BinaryTree.build(nested, self._patterns.names)
        decision = np.array(_decisions(nested), dtype=np.int64)
        totals = self.task.totals(tree.apply(self._patterns.features), decision)
        if not np.array_equal(totals, self.totals[number]):
            raise TrainingError(
                f"the tree has the totals {totals.tolist()}, but the search reports "
                f"{self.totals[number].tolist()}; please report this"
            )
        return DecidedTree(tree, decision, totals, float(self._scores[number]))

    @cached_property
    def _scores(self) -> FloatArray:
        scores = np.asarray(self.task.score(self.totals), dtype=np.float64)
        if scores.shape != (len(self),) or np.isnan(scores).any():
            raise ConfigError(
                f"score must have one number for each of the {len(self)} points, got {scores.shape}, "
                f"{int(np.isnan(scores).sum())} not a number"
            )
        return scores


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
    engine: Engine = "auto",
    verbose: int = 0,
) -> FrontSolution:
    """Find the trees that no other tree beats in all totals of a task.

    The search is exhaustive; totals are integers and compared exactly. The front is complete, but for tasks
    with the order ``"balance"`` at depth 3: there it is the one tree of least cost within the limit.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.exact.Binarizer`.
        task: the objective, for the same rows.
        max_depth: maximum number of tests on a path, 0 to 3; a stump has depth 1.
        max_nodes: maximum number of branch nodes (leaves minus one); None for the maximum at this depth.
        min_leaf: minimum number of rows per leaf.
        time_limit: seconds, or None. After this time a search of depth 3 returns the front found so far.
            Ctrl-C has the same effect, with a `DataWarning`; a second Ctrl-C raises.
        memory: maximum memory of the search, in bytes.
        device: device of the search.
        engine: ``"torch"``, or ``"compiled"`` (CPU, `linear` tasks with the order ``"pareto"``); ``"auto"``
            is compiled for these at depth 3 with 40 features or more. Fronts are identical; of several trees
            with equal totals the engines can choose different ones. The first compiled search on a machine
            compiles for some seconds; the machine code is cached on disk.
        verbose: 1 reports progress of a search of depth 3 on standard error, once a second.

    Returns:
        The front, and the tree of each of its points.

    Raises:
        DataError: `features` is not binary, its number of rows differs from the task, or there are fewer rows
            than `min_leaf`.
        ConfigError: an argument out of range, or too many features for the memory.

    Examples:
        >>> import numpy as np
        >>> from sstorch.exact.fronts import ConfusionFront, solve_front
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [1, 1]])
        >>> solution = solve_front(features, ConfusionFront([0, 0, 1, 0, 1, 1]), max_depth=2)
        >>> solution.table()
           false negatives  false positives     score
        0                0                1  0.857143
        1                2                0  0.500000
        >>> best = solution.tree()
        >>> best.predict(features).tolist()
        [0, 0, 1, 1, 1, 1]
    """
    patterns = Patterns.of(features)
    channels = task.channels()
    target = _check(patterns.n_rows, task, channels, max_depth, max_nodes, min_leaf, time_limit)
    _check_memory(patterns, task, channels, target.depth, memory)
    problem = FrontProblem.of(task, patterns, channels, min_leaf, torch.device(device))
    deadline = Deadline(time_limit, bool(verbose))
    small = budget(min(2, target.depth), target.nodes)
    size = patterns.n_features, target.depth
    row_points = _row_points(task, channels, *size, torch.device(device), memory, engine)
    complete, lower_bound = True, -float("inf")
    # Smaller trees take no time.
    with deadline.listening(INFINITY if target.depth > 2 else 0.0):
        if row_points is not None:
            from sstorch.exact.compiled.linear_front import linear_front

            points, origin, complete = linear_front(row_points, patterns, target, min_leaf, deadline)
        else:
            search = nondominated_front if task.order == "pareto" else balance_front
            points = search(problem, small, memory)
            origins: list[Origin] = [None] * points.shape[1]
            if target.depth > 2 and task.order == "pareto":
                points, origins, complete = _pareto_roots(problem, target, points, memory // 2, deadline)
            elif target.depth > 2:
                points, origins, lower_bound, complete = _cheapest_root(
                    problem, target, points, memory, deadline
                )
            origin = origins.__getitem__
    solution = FrontSolution(
        patterns=patterns,
        problem=problem,
        target=target,
        points=points,
        origin=origin,
        certified=complete,
        lower_bound=lower_bound,
    )
    deadline.warn(lambda: solution.certificate)
    return solution


def _pareto_roots(
    problem: FrontProblem, target: Budget, front: Tensor, memory: int, deadline: Deadline
) -> tuple[Tensor, list[Origin], bool]:
    """Add all trees of depth 3, root by root, to a front; returns whether there was time for all, too."""
    origins: list[Origin] = [None] * front.shape[1]
    for feature in range(problem.n_features):
        if deadline.passed:
            return front, origins, False
        deadline.say(f"{feature} of {problem.n_features} roots, {front.shape[1]} trees on the front")
        sides = problem.split(feature)
        for halves in splits(target):
            left, right = (nondominated_front(*side, memory) for side in zip(sides, halves, strict=True))
            width = right.shape[1]
            for part in left.split(max(1, memory // (64 * max(1, width))), dim=1):
                n = front.shape[1]
                front, index = join(front, part, right)
                origins = [
                    origins[i] if i < n else (feature, halves, part[:, (i - n) // width])
                    for i in index.tolist()
                ]
    return front, origins, True


def _row_points(
    task: FrontTask,
    channels: IntArray,
    n_features: int,
    depth: int,
    device: torch.device,
    memory: int,
    engine: Engine,
) -> IntArray | None:
    """Contribution of each row to both totals under each decision, (2, K, N); None for the torch engine."""
    check_choice(engine, "engine", ENGINES)
    short = depth < 3 or n_features < _MANY_FEATURES
    if engine == "torch" or (engine == "auto" and short):
        return None
    reason = None
    if not (device.type == "cpu" and task.order == "pareto" and task.linear):
        reason = "it is for tasks with order='pareto' whose points add up over rows, on the CPU"
    else:
        points: IntArray = task.points(torch.from_numpy(channels)).numpy()
        size = 8 * (2 * points.shape[1] + 1) * comb(n_features + 1, min(depth, 3))
        if np.abs(points).max(axis=1).sum(axis=1, dtype=np.float64).max() >= 2.0**53:
            reason = "totals of 2**53 and more are not exact in it; use coarser weights"
        elif size > memory:
            reason = f"its sums take {size / 2**30:.2g} GiB (memory={memory / 2**30:.2g} GiB is allowed)"
        else:
            return points
    if engine == "compiled":
        raise ConfigError(f"engine='compiled' cannot search this: {reason}. Use engine='torch'")
    return None


def _cheapest_root(
    problem: FrontProblem, target: Budget, front: Tensor, memory: int, deadline: Deadline
) -> tuple[Tensor, list[Origin], float, bool]:
    """The cheapest tree with a test at the root, or the cheapest of a front of smaller ones."""
    known = front[:, front[0].argmin()] if front.shape[1] else None
    result = cheapest_tree(problem, target, known, memory // 2, deadline)
    if result.root is not None:
        root = result.root
        origin: Origin = (root.feature, splits(target)[root.split], root.left)
        return root.point[:, None], [origin], result.lower_bound, result.complete
    cheapest = front[:, :0] if known is None else known[:, None]
    return cheapest, [None] * cheapest.shape[1], result.lower_bound, result.complete


def _check(
    n_rows: int,
    task: FrontTask,
    channels: IntArray,
    max_depth: int,
    max_nodes: int | None,
    min_leaf: int,
    time_limit: float | None,
) -> Budget:
    """Check the arguments; returns the budget."""
    if not 0 <= max_depth <= MAX_FRONT_DEPTH:
        raise ConfigError(f"max_depth={max_depth}: fronts are searched for depths 0 to {MAX_FRONT_DEPTH}")
    check_limits(max_nodes, time_limit)
    check_rows(n_rows, task.n_rows, min_leaf)
    total = np.abs(channels).sum(axis=1, dtype=np.float64)
    if (total >= 2.0**53).any():
        raise ConfigError(
            "the channels of the task are too large to be summed exactly: their absolute values sum to "
            f"{total.max():.3g}, at most 2**53 is possible; use coarser weights"
        )
    most = 2**max_depth - 1
    return budget(max_depth, most if max_nodes is None else min(max_nodes, most))


def _check_memory(patterns: Patterns, task: FrontTask, channels: IntArray, depth: int, memory: int) -> None:
    n, rows = patterns.n_features, len(patterns.literals)
    n_decisions = task.points(torch.zeros((len(channels), 1), dtype=torch.int64)).shape[1]
    tables = 0 if depth < 2 else 8 * n * n * (8 * (len(channels) + 1) + 8 * len(task.names) * n_decisions**2)
    need = tables + 8 * rows * (n + 2) * (2 + len(channels))
    if need > memory:
        raise ConfigError(
            f"{n} different binary features and {rows} different rows take about {need / 2**30:.1f} GiB "
            f"(memory={memory / 2**30:.1f} GiB is allowed). Choose fewer thresholds in the binarizer, or a "
            "larger memory"
        )

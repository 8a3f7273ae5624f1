"""Exact trees by two totals: Pareto fronts, and fewest errors under a limit on the second total."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.exact.fronts.tasks import FrontTask
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import INFINITY, Budget, Deadline, budget, check_limits, check_rows, splits
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError, TrainingError

if TYPE_CHECKING:
    from sstorch.exact.compiled.fronts import Sums

MAX_FRONT_DEPTH = 3
# Points of subtrees at a time.
_PART = 1 << 20
# Rates tried for the bound of all trees.
_DUAL_STEPS = 7


@dataclass(frozen=True)
class DecidedTree:
    """A tree and the decisions of its leaves.

    Attributes:
        tree: the tests.
        decision: (L,), of a front the decision of each leaf, 0 .. K - 1, for classes the class; of an area
            under the ROC curve the share of positive rows of each leaf, by weight.
        score: of the totals, or the area, on the rows of the search.
    """

    tree: BinaryTree
    decision: npt.NDArray[Any]
    score: float

    def predict(self, features: npt.ArrayLike) -> npt.NDArray[Any]:
        """Predict the decision, or share, for each row of a binary matrix (n, p), shape (n,).

        Raises:
            DataError: another number of columns than the tree was grown on.
        """
        return self.decision[self.tree.apply(features)]


class FrontSolution:
    """Pareto-optimal trees from one search.

    Attributes:
        task: the objective.
        totals: (n, 2) int64, the totals of the front's trees by increasing first total.
        certified: whether no tree within the budget beats one of the front; False only where a time limit cut
            the search short.
        lower_bound: no tree within the limits has a smaller first total, in integer units.
    """

    def __init__(
        self, patterns: Patterns, task: FrontTask, points: FloatArray, certified: bool, lower_bound: float
    ) -> None:
        if not points.shape[1]:
            raise DataError("no tree satisfies min_leaf and the limit of the task; loosen one of them")
        self._patterns, self.task, self.certified = patterns, task, certified
        whole = np.ascontiguousarray(points.T, dtype=np.int64)
        self.totals, self._numbers = whole[:, :2], whole[:, 2:].tolist()
        self.lower_bound = float(self.totals[:, 0].min()) if certified else max(0.0, lower_bound)
        self._scores = task.score(self.totals)

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def values(self) -> FloatArray:
        """(n, 2), the totals in the user's units."""
        values: FloatArray = self.totals * np.array(self.task.unit)
        return values

    @property
    def certificate(self) -> str:
        """``"optimal"``, or a note on the search that was cut short."""
        return "optimal" if self.certified else "not proved: the search was cut short"

    @property
    def score_bound(self) -> float:
        """No tree within the limits has a larger score; that of the best tree if certified."""
        totals = np.array([[self.lower_bound, 0.0]]).astype(np.int64)
        return float(self._scores.max() if self.certified else self.task.score(totals)[0])

    def table(self) -> pd.DataFrame:
        """The front: the totals in the user's units, and the score."""
        table = pd.DataFrame(self.values, columns=list(self.task.names))
        for column, unit in zip(table.columns, self.task.unit, strict=True):
            if unit == 1.0:
                table[column] = table[column].astype(np.int64)
        return table.assign(score=self._scores)

    def best(self) -> int:
        """Number of the point with the largest score, the first of ties."""
        return int(np.argmax(self._scores))

    def tree(self, number: int | None = None) -> DecidedTree:
        """Return the tree of a point of the front, None being the best.

        Raises:
            ConfigError: there is no such point.
            TrainingError: the totals, recomputed from the rows, differ from those of the search.
        """
        number = self.best() if number is None else number
        if not 0 <= number < len(self):
            raise ConfigError(f"number must be 0 to {len(self) - 1}, a point of the front, got {number}")
        points = self.task.points
        tree, decision = _decided(self._patterns, points.shape[1], *self._numbers[number])
        leaf = self._patterns.leaves(tree)
        totals = points[:, decision[leaf], np.arange(len(leaf))].sum(axis=1)
        if not np.array_equal(totals, self.totals[number]):
            raise TrainingError(
                f"the tree has the totals {totals.tolist()}, but the search reports "
                f"{self.totals[number].tolist()}; please report this"
            )
        return DecidedTree(tree, decision, float(self._scores[number]))


def solve_front(
    features: object,
    task: FrontTask,
    max_depth: int = 2,
    max_nodes: int | None = None,
    min_leaf: int = 1,
    *,
    time_limit: float | None = None,
    memory: int = 4 * 2**30,
) -> FrontSolution:
    """Find the trees that no other tree beats in both totals of a task.

    The search is exhaustive; totals are integers and compared exactly. The front is complete, but for tasks
    with a limit at depth 3: there it is the one tree of least cost within the limit. The first search on a
    machine compiles for some seconds; the machine code is kept on disk.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.exact.Binarizer`.
        task: the objective, for the same rows: `confusion_front` or `group_fairness`.
        max_depth: maximum number of tests on a path, 0 to 3; a stump has depth 1.
        max_nodes: maximum number of branch nodes (leaves minus one); None for the maximum at this depth.
        min_leaf: minimum number of rows per leaf.
        time_limit: seconds, or None. After this time a search of depth 3 returns the front found so far.
        memory: maximum memory of the sums of the search, in bytes.

    Returns:
        The front, and the tree of each of its points.

    Raises:
        DataError: `features` is not binary, its number of rows differs from the task, or there are fewer rows
            than `min_leaf`.
        ConfigError: an argument out of range, or too many features for the memory.

    Examples:
        >>> import numpy as np
        >>> from sstorch.exact.fronts import confusion_front, solve_front
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [1, 1]])
        >>> solution = solve_front(features, confusion_front([0, 0, 1, 0, 1, 1]), max_depth=2)
        >>> solution.table()
           false negatives  false positives     score
        0                0                1  0.857143
        1                2                0  0.500000
        >>> best = solution.tree()
        >>> best.predict(features).tolist()
        [0, 0, 1, 1, 1, 1]
    """
    patterns = Patterns.of(features)
    if not 0 <= max_depth <= MAX_FRONT_DEPTH:
        raise ConfigError(f"max_depth must be 0 to {MAX_FRONT_DEPTH} for fronts, got {max_depth}")
    check_limits(max_nodes, time_limit)
    check_rows(len(patterns.of_row), task.points.shape[2], min_leaf)
    most = 2**max_depth - 1
    target = budget(max_depth, most if max_nodes is None else min(max_nodes, most))
    deadline = Deadline(time_limit)
    sums = sums_of(patterns, task.points, target.depth, min_leaf, memory)
    if task.limit is None:
        found = _pareto(sums, target, deadline)
    else:
        found = _Balance(sums, float(task.limit), deadline).search(target)
    return FrontSolution(patterns, task, *found)


def sums_of(patterns: Patterns, points: IntArray, depth: int, min_leaf: int, memory: int) -> Sums:
    """Sums of the points of rows (2, K, N), for trees of a depth. Raises ConfigError: they have no room."""
    # numba takes a while to load, which only a search need wait for.
    from sstorch.exact.compiled.costs import Form
    from sstorch.exact.compiled.curves import Curves
    from sstorch.exact.compiled.fronts import Sums
    from sstorch.exact.compiled.prices import Prices
    from sstorch.exact.compiled.search import CompiledProblem

    n, n_rows, n_decisions = patterns.n_features, len(patterns.literals), points.shape[1]
    n_channels = 2 * n_decisions + 1
    need = 8 * (n_channels * comb(n + 1, min(depth, 3)) + 8 * n_channels * n * n * (depth > 1))
    need += 8 * n_rows * (n + 2 + n_channels)
    if n * (n_decisions + n * n_decisions**2) ** 2 >= 2**53:  # numbers of trees are those of a double
        raise ConfigError(f"{n} different binary features are too many for {n_decisions} decisions")
    if need > memory:
        raise ConfigError(
            f"{n} different binary features and {n_rows} different rows take about {need / 2**30:.1f} GiB at "
            f"depth {depth} (memory={memory / 2**30:.1f} GiB is allowed). Choose fewer thresholds in the "
            "binarizer, or a larger memory"
        )
    channels = [*points.swapaxes(0, 1).reshape(n_channels - 1, -1), np.ones_like(points[0, 0])]
    nothing = Form(0), Curves.none(n), Prices.none()
    problem = CompiledProblem.of(patterns, patterns.sums(np.stack(channels)), *nothing)
    largest = float(np.abs(points).max(axis=1).sum(axis=1).max())
    return Sums.of(problem.moments(max(depth, 2)), n, float(min_leaf), largest)


def _pareto(sums: Sums, target: Budget, deadline: Deadline) -> tuple[FloatArray, bool, float]:
    """All trees that no other tree beats in two costs (5, n), and whether these are all; no bound."""
    from sstorch.exact.compiled.fronts import add_root, whole_front

    n = len(sums.binomials) - 1
    front = _of_depth_two(whole_front(sums, min(target.nodes, 3)))
    for root in range(n if target.depth > 2 else 0):
        if deadline.passed:
            return front, False, -INFINITY
        front = add_root(sums, root, _nodes(target), front)
    return front, True, -INFINITY


def _of_depth_two(points: FloatArray) -> FloatArray:
    """Points (3, n) of trees of depth 2 as those of whole trees, (5, n)."""
    return np.stack([points[0], points[1], np.full(points.shape[1], -1.0), points[2], 0.0 * points[2]])


def _nodes(target: Budget) -> IntArray:
    """Nodes of both subtrees below a root, (S, 2)."""
    return np.array([[half.nodes for half in pair] for pair in splits(target)], dtype=np.int64)


class _OutOfTimeError(Exception):
    """A search has to stop."""


class _Balance:
    """Search for trees by cost and absolute balance, which has a limit.

    At each rate, cost + rate * balance - |rate| * limit of a tree within the limit is at most its cost; below
    a root its least value is the sum of those of both subtrees (Lagrangian duality). At depth 3 the rate that
    makes the bound of all trees largest is sought; then roots are taken by their bounds, and of their
    subtrees those are summed that the bound of the other subtree leaves a chance to be cheaper than the best
    known tree.
    """

    def __init__(self, sums: Sums, limit: float, deadline: Deadline) -> None:
        self.sums, self.limit, self.deadline = sums, limit, deadline
        self.n_features = len(sums.binomials) - 1

    def search(self, target: Budget) -> tuple[FloatArray, bool, float]:
        """All trees up to depth 2 that none beats (5, n), else the cheapest; whether proved, and a bound."""
        from sstorch.exact.compiled.fronts import fill_sides

        fill_sides(self.sums, -1)
        front = np.empty((3, 0))
        for part in self._points(0, min(target.nodes, 3), 0.0, INFINITY, self.limit):
            points = np.concatenate([front, part], axis=1)
            points = points[:, np.abs(points[1]) <= self.limit]
            points = points[:, np.lexsort((np.abs(points[1]), points[0]))]
            balance = np.abs(points[1])
            front = points[:, balance < np.append(INFINITY, np.minimum.accumulate(balance))[:-1]]
        best = _of_depth_two(front)
        return (best, True, -INFINITY) if target.depth < 3 else self._cheapest(_nodes(target), best)

    def _points(
        self, side: int, nodes: int, rate: float, most: float, limit: float = INFINITY
    ) -> Iterable[FloatArray]:
        """Points (3, n) of trees of the last root with cost + rate * balance <= most, in parts.

        Those of tests have a balance within ± `limit`.
        """
        from sstorch.exact.compiled.balance import points_within

        out, feature = np.empty((3, _PART)), -1
        while feature < self.n_features:
            after, size = points_within(self.sums, side, nodes, rate, most, limit, feature, out)
            if after == feature or (after < self.n_features and size == 0):
                out = np.empty((3, 2 * out.shape[1]))
            else:
                yield out[:, :size].copy()
                feature = after

    def _of_each_balance(self, side: int, nodes: int, rate: float, most: float) -> FloatArray:
        """The cheapest point of each balance, by increasing balance; arguments as of `_points`."""
        found = np.empty((3, 0))
        for part in self._points(side, nodes, rate, most):
            found = np.concatenate([found, part], axis=1)
            found = found[:, np.lexsort((found[0], found[1]))]
            found = found[:, np.diff(found[1], prepend=-INFINITY) != 0.0]
        return np.ascontiguousarray(found)

    def _check_time(self) -> None:
        if self.deadline.passed:
            raise _OutOfTimeError

    def _cheapest(self, nodes: IntArray, best: FloatArray) -> tuple[FloatArray, bool, float]:
        """The cheapest tree of depth 3, or the known one, whether it is proved, and a bound of all."""
        from sstorch.exact.compiled.balance import cheapest_pair
        from sstorch.exact.compiled.fronts import fill_sides

        n_roots = self.n_features * len(nodes)
        least, front, best = float(best[0].min(initial=2.0**53)), best, best[:, :1]
        bounds, done = np.full(n_roots, -INFINITY), np.zeros(n_roots, dtype=np.bool_)
        try:
            rate, lows = self._best_rate(nodes, front, bounds)
            slack = 2e-14 * (1.0 + abs(rate)) * self.sums.largest + 1e-6
            for number in bounds.argsort(kind="stable").tolist():
                (root, split), low = divmod(number, len(nodes)), float(lows[number].sum())
                # First trees near the bound alone: what is found there leaves most others out.
                share = 1.0 if done.any() else 2.0**-6
                while float(bounds[number]) <= least - 1.0 + slack and share <= 1.0:
                    self._check_time()
                    most = low + share * (least - 1.0 + abs(rate) * self.limit + slack - low)
                    share *= 4.0
                    fill_sides(self.sums, root)
                    left, right = (
                        self._of_each_balance(side, nodes[split, side], rate, most - lows[number, 1 - side])
                        for side in range(2)
                    )
                    i, j = cheapest_pair(left, right, self.limit, least)
                    if i >= 0:
                        pair = left[:, i] + right[:, j]
                        least = float(pair[0])
                        best = np.array([[pair[0], pair[1], root, left[2, i], right[2, j]]]).T
                done[number] = True
        except _OutOfTimeError:
            open_bound = float(bounds[~done].min()) if not done.all() else least
            return best, False, min(least, open_bound)
        return best, True, least

    def _best_rate(self, nodes: IntArray, known: FloatArray, bounds: FloatArray) -> tuple[float, FloatArray]:
        """A rate that makes the least bound of all roots large, and the least prices there, (F S, 2).

        The bound is concave in the rate, and that of a known tree falls with its size. `bounds` is raised to
        the largest bound of each root met.
        """
        from sstorch.exact.compiled.balance import lowest_prices

        found: dict[float, FloatArray] = {}

        def bound(place: float) -> float:
            rate = largest * place**3
            lows = np.empty((self.n_features, len(nodes), 2))
            for root in range(self.n_features):
                self._check_time()
                lowest_prices(self.sums, root, nodes, rate, lows[root])
            found[rate] = lows.reshape(-1, 2)
            np.maximum(bounds, found[rate].sum(axis=1) - abs(rate) * self.limit, out=bounds)
            return abs(rate) * self.limit - float(found[rate].sum(axis=1).min(initial=INFINITY))

        largest = 0.0
        lowest = -bound(0.0)
        if not -INFINITY < lowest < INFINITY or not known.shape[1]:
            return 0.0, found[0.0]
        largest = float(((known[0] - lowest) / np.maximum(self.limit - np.abs(known[1]), 1.0)).min())
        from scipy.optimize import minimize_scalar  # loads much of scipy

        steps = {"maxiter": _DUAL_STEPS}
        tried = minimize_scalar(bound, bounds=(-1.0, 1.0), method="bounded", options=steps)
        rate = largest * float(tried.x) ** 3 if -tried.fun > lowest else 0.0
        return rate, found[rate]


def _decided(
    patterns: Patterns, n_decisions: int, root: int, left: int, right: int
) -> tuple[BinaryTree, IntArray]:
    """A tree and the decisions of its leaves, (L,), from its numbers, see `sstorch.exact.compiled.fronts`."""
    width = n_decisions + patterns.n_features * n_decisions**2

    def tree(number: int, n_below: int) -> Nested:
        """The tree of a number, `n_below` being how many numbers the trees below its root have."""
        if number < n_decisions:
            return number
        feature, rest = divmod(number - n_decisions, n_below**2)
        absent, present = (tree(below, n_decisions) for below in divmod(rest, n_below))
        return feature, absent, present

    halves = tree(left, width), tree(right, width)
    nested = patterns.in_columns(halves[0] if root < 0 else (root, *halves))
    return BinaryTree.build(nested, patterns.names), np.array(_decisions(nested), dtype=np.int64)


def _decisions(tree: Nested) -> list[int]:
    """The decisions of the leaves, in preorder."""
    if isinstance(tree, tuple):
        return _decisions(tree[1]) + _decisions(tree[2])
    assert tree is not None
    return [tree]

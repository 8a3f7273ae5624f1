"""Solve a problem of two totals exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.exact.deadline import Deadline
from sstorch.exact.fronts.problem import REACHED, FrontProblem, FrontTask, Side, check_front_task
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import INFINITY, Budget, budget, budgets, check_limits, check_rows, splits
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError, TrainingError

_MULTIPLIER = np.int64(0x5851F42D4C957F2D)
MAX_FRONT_DEPTH = 3
# Where a tree of a front comes from: feature of the root, budgets of both subtrees, point of the left one;
# None if it has to be found.
Origin = tuple[int, tuple[Budget, Budget], IntArray] | None


def locate(problem: Side, target: Budget, point: IntArray) -> Nested:
    """A smallest tree within a budget of depth 0, 1 or 2 that has a point (T,).

    Raises:
        TrainingError: there is none.
    """
    for smaller in budgets(target.depth, target.nodes):
        tree = _locate(problem, smaller, point)
        if tree is not None:
            return tree
    raise TrainingError(f"no tree has the totals {point.tolist()} of the search; please report this")


def _locate(problem: Side, target: Budget, point: IntArray) -> Nested:
    if target.nodes == 0:
        same = np.flatnonzero((problem.leaf == point[:, None]).all(axis=0))
        return int(same[0]) if len(same) else None
    if problem.n_features == 0:
        return None
    for halves in splits(target):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        for feature in range(problem.n_features):
            # What is missing on the right is looked up by one number for all totals, in which sums are sums.
            keys = _key(right[:, feature])
            order = keys.argsort(kind="stable")
            place = np.searchsorted(keys[order], _key(point[:, None] - left[:, feature]))
            second = order[np.minimum(place, len(order) - 1)]
            sums = left[:, feature] + right[:, feature, second]
            same = np.flatnonzero((sums == point[:, None]).all(axis=0) & (left[0, feature] < REACHED))
            if not len(same):
                continue
            if target.nodes == 1:  # the points of leaves are those of their decisions
                return feature, int(same[0]), int(second[same[0]])
            return below(problem.split(feature), feature, halves, left[:, feature, same[0]], point)
    return None


def _key(points: IntArray) -> IntArray:
    """One number (...) for points (T, ...), modulo 2^64, so that two points hardly ever share one."""
    with np.errstate(over="ignore"):
        key: IntArray = points[0] * _MULTIPLIER + points[1]
    return key


def below(
    sides: tuple[Side, Side], feature: int, halves: tuple[Budget, Budget], left: IntArray, point: IntArray
) -> Nested:
    """The tree with a test at the root, whose subtrees are within two budgets, that has a point (2,).

    `left` is the point (2,) of the subtree where the literal is 0.

    Raises:
        TrainingError: there is none.
    """
    return feature, locate(sides[0], halves[0], left), locate(sides[1], halves[1], point - left)


def _features(tree: Nested, order: IntArray) -> Nested:
    """A tree over features in the order of chains as one over features."""
    if not isinstance(tree, tuple):
        return tree
    return int(order[tree[0]]), _features(tree[1], order), _features(tree[2], order)


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
        points: IntArray,
        origin: Callable[[int], Origin],
        certified: bool,
        lower_bound: float,
    ) -> None:
        if not points.shape[1]:
            raise DataError("no tree satisfies min_leaf and the limit of the task; loosen one of them")
        self._patterns, self._problem, self._target = patterns, problem, target
        self._points, self._origin = points, origin
        self.task: FrontTask = problem.task
        self.totals: IntArray = np.ascontiguousarray(points.T)
        self.certified = certified
        self.lower_bound = float(self.totals[:, 0].min()) if certified else lower_bound

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def values(self) -> FloatArray:
        """(n, T), the totals in the user's units."""
        values: FloatArray = self.totals * np.array(self.task.unit)
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
            decided = locate(problem.whole, budget(min(2, self._target.depth), self._target.nodes), point)
        else:
            feature, halves, left = origin
            sides = problem.sides(feature) if self._target.depth > 2 else problem.whole.split(feature)
            decided = below(sides, feature, halves, left, point)
        nested = self._patterns.in_columns(_features(decided, self._patterns.order))
        tree = BinaryTree.build(nested, self._patterns.names)
        decision = np.array(_decisions(nested), dtype=np.int64)
        points, leaf = self.task.row_points(), tree.apply(self._patterns.features)
        totals = points[:, decision[leaf], np.arange(len(leaf))].sum(axis=1)
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
    verbose: int = 0,
) -> FrontSolution:
    """Find the trees that no other tree beats in all totals of a task.

    The search is exhaustive; totals are integers and compared exactly. The front is complete, but for tasks
    with the order ``"balance"`` at depth 3: there it is the one tree of least cost within the limit. The
    first search on a machine compiles for some seconds; the machine code is kept on disk.

    Args:
        features: binary matrix, array or DataFrame (n, p); see `sstorch.exact.Binarizer`.
        task: the objective, for the same rows.
        max_depth: maximum number of tests on a path, 0 to 3; a stump has depth 1.
        max_nodes: maximum number of branch nodes (leaves minus one); None for the maximum at this depth.
        min_leaf: minimum number of rows per leaf.
        time_limit: seconds, or None. After this time a search of depth 3 returns the front found so far.
            Ctrl-C has the same effect, with a `DataWarning`; a second Ctrl-C raises.
        memory: maximum memory of the search, in bytes.
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
    target = _check(patterns, task, max_depth, max_nodes, min_leaf, time_limit, memory)
    deadline = Deadline(time_limit, bool(verbose))
    # Smaller trees take no time.
    with deadline.listening(INFINITY if target.depth > 2 else 0.0):
        problem = FrontProblem(task, patterns, target.depth, min_leaf)
        search = _pareto if task.order == "pareto" else _balanced
        points, origin, lower_bound, complete = search(problem, target, memory, deadline)
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


def _pareto(
    problem: FrontProblem, target: Budget, memory: int, deadline: Deadline
) -> tuple[IntArray, Callable[[int], Origin], float, bool]:
    """All trees within a budget that no other tree beats in two costs; returns as `_balanced`."""
    from sstorch.exact.compiled.fronts import add_root, whole_front

    n, sums, complete = problem.n_features, problem.sums, True
    front, size = whole_front(sums, min(target.nodes, 3))
    # As `add_root` counts them.
    halves = [pair for nodes in (1, 2, 3) for pair in splits(budget(2, nodes))]
    if target.depth > 2:
        halves += splits(target)
        nodes = np.array([[half.nodes for half in pair] for pair in splits(target)], dtype=np.int64)
        for root in range(n):
            if deadline.passed:
                complete = False
                break
            deadline.say(f"{root} of {n} roots, {size} trees on the front")
            front, size = add_root(sums, root, nodes, front, size)
    found = front[:, :size].astype(np.int64)

    def origin(number: int) -> Origin:
        root, split = found[2:4, number].tolist()
        return (root, halves[split], found[4:, number]) if root >= 0 else None

    return found[:2], origin, -INFINITY, complete


def _balanced(
    problem: FrontProblem, target: Budget, memory: int, deadline: Deadline
) -> tuple[IntArray, Callable[[int], Origin], float, bool]:
    """The front by cost and absolute balance up to depth 2; at depth 3 the cheapest tree within the limit.

    Returns points (2, n), where the tree of each comes from, a bound of all costs, and whether the search
    was complete.
    """
    from sstorch.exact.fronts.balance import balance_front, cheapest_tree

    front = balance_front(problem, budget(min(2, target.depth), target.nodes))
    if target.depth < 3:
        return front, lambda number: None, -INFINITY, True
    known = front[:, :1] if front.shape[1] else None
    result = cheapest_tree(problem, target, None if known is None else known[:, 0], memory // 2, deadline)
    if result.root is not None:
        root = result.root
        origin = root.feature, splits(target)[root.split], root.left
        return root.point[:, None], lambda number: origin, result.lower_bound, result.complete
    return front[:, :1], lambda number: None, result.lower_bound, result.complete


def _check(
    patterns: Patterns,
    task: FrontTask,
    max_depth: int,
    max_nodes: int | None,
    min_leaf: int,
    time_limit: float | None,
    memory: int,
) -> Budget:
    """Check the arguments and the memory; returns the budget."""
    if not 0 <= max_depth <= MAX_FRONT_DEPTH:
        raise ConfigError(f"max_depth must be 0 to {MAX_FRONT_DEPTH} for fronts, got {max_depth}")
    check_limits(max_nodes, time_limit)
    check_rows(patterns.n_rows, task.n_rows, min_leaf)
    check_front_task(task, n_trials=1)
    n, n_rows = patterns.n_features, len(patterns.literals)
    n_channels = 2 * task.row_points().shape[1] + 1
    need = 8 * (n_channels * comb(n + 1, min(max_depth, 3)) + 8 * n_channels * n * n * (max_depth > 1))
    need += 8 * n_rows * (n + 2 + n_channels)
    if need > memory:
        raise ConfigError(
            f"{n} different binary features and {n_rows} different rows take about {need / 2**30:.1f} GiB at "
            f"depth {max_depth} (memory={memory / 2**30:.1f} GiB is allowed). Choose fewer thresholds in the "
            "binarizer, or a larger memory"
        )
    most = 2**max_depth - 1
    return budget(max_depth, most if max_nodes is None else min(max_nodes, most))

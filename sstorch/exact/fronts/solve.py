"""Exact trees by two totals: Pareto fronts, fewest errors under a limit, and areas under the ROC curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.exact.fronts.tasks import FrontTask, exact_weights, two_values
from sstorch.exact.rows import Patterns
from sstorch.exact.solution import Deadline, budget, check_limits, check_rows
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, DataError, TrainingError

MAX_FRONT_DEPTH = 3


@dataclass(frozen=True)
class DecidedTree:
    """A tree and the decisions of its leaves."""

    tree: BinaryTree
    decision: npt.NDArray[Any]  #: (L,), 0 .. K - 1, such as the class; of areas the weighted share of y = 1
    score: float  #: of the totals, or the area, on the rows of the search

    def predict(self, features: npt.ArrayLike) -> npt.NDArray[Any]:
        """Predict the decision, or share, for each row of a binary matrix (n, p), shape (n,)."""
        return self.decision[self.tree.apply(features)]


class FrontSolution:
    """Pareto-optimal trees from one search.

    Attributes:
        totals: (n, 2) int64, the totals of the front's trees by increasing first total.
        certified: whether no tree within the budget beats one of the front; False only where a time limit cut
            the search short.
        lower_bound: no tree within the limits has a smaller first total.
        gap: no tree within the limits has a score larger by more than this; 0 if certified.
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
        most = task.score(np.array([[self.lower_bound, 0.0]]).astype(np.int64))[0]
        self.gap = 0.0 if certified else max(0.0, float(most - self._scores.max()))

    def table(self) -> pd.DataFrame:
        """The front: the totals in the user's units, and the score."""
        parts = zip(self.task.names, self.totals.T, self.task.unit, strict=True)
        return pd.DataFrame({name: total * unit for name, total, unit in parts}).assign(score=self._scores)

    def tree(self, number: int | None = None) -> DecidedTree:
        """Return the tree of a point of the front, None for the one with the largest score.

        ConfigError: there is no such point. TrainingError: totals of the rows differ from the search's.
        """
        number = int(np.argmax(self._scores)) if number is None else number
        if not 0 <= number < len(self.totals):
            raise ConfigError(
                f"number must be 0 to {len(self.totals) - 1}, a point of the front, got {number}"
            )
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
    with a limit at depth 3: there it is the one tree of least cost within the limit.

    Args:
        features: binary matrix, array or DataFrame (N, p); see `sstorch.exact.Binarizer`.
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
        >>> from sstorch.exact.fronts import confusion_front
        >>> features = [[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [1, 1]]
        >>> solution = solve_front(features, confusion_front([0, 0, 1, 0, 1, 1]), max_depth=2)
        >>> solution.table()
           false negatives  false positives     score
        0                0                1  0.857143
        1                2                0  0.500000
        >>> solution.tree().predict(features).tolist()
        [0, 0, 1, 1, 1, 1]
    """
    patterns = Patterns.of(features)
    if not 0 <= max_depth <= MAX_FRONT_DEPTH:
        raise ConfigError(f"max_depth must be 0 to {MAX_FRONT_DEPTH} for fronts, got {max_depth}")
    check_limits(max_nodes, time_limit)
    check_rows(len(patterns.of_row), task.points.shape[2], min_leaf)
    # numba takes a while to load, which only a search need wait for.
    from sstorch.exact.fronts.search import Balance, pareto, sums_of

    most = 2**max_depth - 1
    target = budget(max_depth, most if max_nodes is None else min(max_nodes, most))
    deadline = Deadline(time_limit)
    sums = sums_of(patterns, task.points, target.depth, min_leaf, memory)
    if task.limit is None:
        return FrontSolution(patterns, task, *pareto(sums, target, deadline))
    return FrontSolution(patterns, task, *Balance(sums, float(task.limit), deadline).search(target))


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


def solve_areas(
    features: object,
    y: npt.ArrayLike,
    max_depth: int = 2,
    max_nodes: int | None = None,
    min_leaf: int = 1,
    *,
    sample_weight: npt.ArrayLike | None = None,
    max_fpr: float = 1.0,
) -> list[DecidedTree]:
    """Find the trees of depth up to 2 with the largest (partial) area under the ROC curve of the leaves.

    The leaves are ranked by their share of positive rows, which makes the curve its own convex hull: the
    areas of GOSDT. Subtrees cannot be optimised separately: all F^3 trees of depth 2 are evaluated.

    Args:
        features: binary matrix, array or DataFrame (N, p).
        y: 0 or 1, shape (N,).
        max_depth: 0 to 2.
        max_nodes: maximum number of branch nodes; None for the maximum at this depth.
        min_leaf: minimum number of rows per leaf.
        sample_weight: whole numbers, or None for 1.
        max_fpr: largest false positive rate, in (0, 1]. Below 1 the score is the part of the area up to it,
            standardised to .5 for a random and 1 for a perfect ranking (McClish, 1989), as `roc_auc_score` of
            scikit-learn has it.

    Returns:
        The trees with the largest area for at most 0, 1, ... branch nodes.

    Raises:
        DataError: invalid features or labels.
        ConfigError: an argument out of range, or weights that are not whole.
        TrainingError: an area, recomputed from the rows, differs from that of the search.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML.

    Examples:
        >>> features = [[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, 1]]
        >>> areas = solve_areas(features, [0, 0, 1, 0, 1, 1])
        >>> [round(tree.score, 4) for tree in areas], areas[-1].decision.tolist()
        ([0.5, 0.6667, 0.7778, 0.7778], [0.0, 1.0, 0.5])
    """
    patterns = Patterns.of(features)
    labels = two_values("y", y, "1 is positive")
    weight = exact_weights(sample_weight, len(labels))
    check_rows(len(patterns.of_row), len(labels), min_leaf, "y")
    if not 0 <= max_depth <= 2:
        raise ConfigError(f"max_depth must be 0 to 2 for areas, got {max_depth}")
    if not 0.0 < max_fpr <= 1.0:
        raise ConfigError(f"max_fpr must be above 0, at most 1, got {max_fpr}")
    check_limits(max_nodes, None)
    points = np.stack([weight * labels, weight * (1 - labels)])
    positives, negatives = points.sum(axis=1).tolist()
    if not 0 < positives * negatives < 2**53:
        raise ConfigError("sample_weight: a class has no weight, or products of weights are not exact")
    from sklearn.metrics import roc_auc_score  # loads much of scikit-learn

    from sstorch.exact.compiled.balance import largest_areas  # numba takes a while to load
    from sstorch.exact.fronts.search import sums_of

    sums = sums_of(patterns, points[:, None], 2, min_leaf, 4 * 2**30)
    areas, tests = np.zeros(4 if max_depth > 1 else 2), np.full((4, 3), -1, dtype=np.int64)
    largest_areas(sums, max_fpr * negatives, areas, tests)
    areas /= positives * negatives
    if max_fpr < 1.0:
        random = max_fpr**2 / 2.0
        areas = 0.5 * (1.0 + (areas - random) / (max_fpr - random))
    most, trees = min(2**max_depth - 1, 3 if max_nodes is None else max_nodes), list[DecidedTree]()
    for nodes in range(most + 1):
        best = int(areas[: nodes + 1].argmax())
        root, *below = tests[best].tolist()
        absent, present = (None if test < 0 else (test, None, None) for test in below)
        nested = patterns.in_columns(None if root < 0 else (root, absent, present))
        tree = BinaryTree.build(nested, patterns.names)
        leaf = patterns.leaves(tree)
        total = np.bincount(leaf, weight, tree.n_leaves)
        rate: FloatArray = np.bincount(leaf, points[0], tree.n_leaves) / np.where(total > 0.0, total, 1.0)
        part = None if max_fpr == 1.0 else max_fpr
        area = float(roc_auc_score(labels, rate[leaf], sample_weight=weight, max_fpr=part))
        if abs(area - areas[best]) > 1e-9:
            raise TrainingError(
                f"the tree has the area {area!r}, but the search reports {areas[best]!r}; please report it"
            )
        trees.append(DecidedTree(tree, rate, area))
    return trees

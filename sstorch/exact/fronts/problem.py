"""Problems of two totals, and a check that a task keeps their rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exact.patterns import Patterns, check_binary
from sstorch.exact.problem import Budget
from sstorch.exceptions import ConfigError

Order = Literal["pareto", "balance"]
Number = TypeVar("Number", np.float64, np.int64)

# Both parts of a point that no tree reaches; sums of eight of them still fit 64 bits.
UNREACHABLE = 2**58
# Absolute totals are below 2**55, so that sums with an unreachable point stay above this.
REACHED = 2**57


class FrontTask(Protocol):
    """An objective that is a function of two totals over leaves, T = 2 integers.

    A leaf has one or more candidate solutions: a decision, such as a class, and a point, the amounts that
    the leaf adds to the totals under that decision. A point is a function of sums over the leaf's rows. The
    points of two subtrees are added; of the trees below a node only those stay that another does not beat:

    * ``"pareto"``: both totals are costs; (a, b) is beaten by points with neither cost larger. The point of a
      leaf under a decision is the sum of the points of its rows.
    * ``"balance"``: the first total is a cost, the other is signed, and has to end within ± `limit`; (a, b)
      is beaten by points with the same b and no larger a. Before the end nothing else can be said, since what
      is missing on one side can be made up for on the other.

    Addition preserves both orders: a solution dominated below a node is dominated at the root (Theorem 4.6 of
    the reference). Every score that does not decrease when a total improves is optimal on the front of whole
    trees.

    Attributes:
        n_rows: N.
        order: which of the two.
        limit: with ``"balance"``, the largest absolute value of the second total; otherwise not read.
        names: of the totals, in the user's units.
        unit: what 1 is in each total, in the user's units.
        offset: what the totals of every tree contain besides, in the user's units.

    References:
        van der Linden, de Weerdt and Demirović (2023), Necessary and sufficient conditions for optimal
        decision trees using dynamic programming, NeurIPS 36.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> Order: ...  # noqa: D102
    @property
    def limit(self) -> int: ...  # noqa: D102
    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def unit(self) -> tuple[float, ...]: ...  # noqa: D102
    @property
    def offset(self) -> tuple[float, ...]: ...  # noqa: D102

    def channels(self) -> IntArray:
        """(C, N), contributions of each row to the sums of its leaf; sums of absolute values below 2^53."""
        ...

    def points(self, sums: IntArray) -> IntArray:
        """Candidate points (T, K, ...) of leaves from their sums (C, ...), all int64, for K decisions."""
        ...

    def totals(self, leaf: IntArray, decision: IntArray) -> IntArray:
        """The totals (T,) of a tree from its definition, row by row.

        Leaves are those of the rows, (N,), and each has a `decision` 0 .. K - 1, (L,).
        """
        ...

    def score(self, totals: IntArray) -> FloatArray:
        """(n,), how good totals (n, T) are: larger is better, and never falls when a total improves.

        With ``"balance"`` to improve is: a smaller first total, another one nearer to 0.
        """
        ...


def pair_cells(pairs: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Cells (C, s_a, s_c, F, F) of the pairs {a, c}, by inclusion and exclusion; s is the sign of a literal.

    `pairs` (C, 1 + F, 1 + F) are sums over the rows in which a and c are 1, the first being all rows.
    """
    total, a, c, both = pairs[:, :1, :1], pairs[:, 1:, :1], pairs[:, :1, 1:], pairs[:, 1:, 1:]
    without = np.stack([total - a - c + both, c - both], axis=1)
    return np.stack([without, np.stack([a - both, both], axis=1)], axis=1)


class FrontProblem:
    """Rows to grow trees on, a task and the least rows of a leaf.

    `rows` gives the distinct rows, (U, 1 + F) with ones first, and their values (C + 1, U), the last channel
    of which counts rows. Of rows that are the `rest` of a problem without another one's rows, sums are
    differences.
    """

    def __init__(
        self,
        task: FrontTask,
        rows: Callable[[], tuple[FloatArray, FloatArray]],
        min_leaf: int,
        rest: tuple[FrontProblem, FrontProblem] | None = None,
    ) -> None:
        self.task, self._rows, self.min_leaf, self._rest = task, rows, min_leaf, rest

    @classmethod
    def of(cls, task: FrontTask, patterns: Patterns, channels: IntArray, min_leaf: int) -> FrontProblem:
        """All rows of a task, with its channels (C, N)."""
        values = patterns.sums(np.concatenate([channels, np.ones((1, task.n_rows))]))
        literals = np.ones((len(patterns.literals), 1 + patterns.n_features))
        literals[:, 1:] = patterns.literals
        return cls(task, lambda: (literals, values), min_leaf)

    @cached_property
    def _gathered(self) -> tuple[FloatArray, FloatArray]:
        """The rows; they are gathered where their sums are not enough."""
        return self._rows()

    @cached_property
    def _pairs(self) -> IntArray:
        """(C + 1, 1 + F, 1 + F), sums over the rows that have two literals; the first are all rows."""
        if self._rest is not None:
            return self._rest[0]._pairs - self._rest[1]._pairs
        literals, values = self._gathered
        return ((values[:, None] * literals.T) @ literals).astype(np.int64)

    @cached_property
    def _singles(self) -> IntArray:
        """(C + 1, 1 + F), sums of all rows, then of those of each literal."""
        if "_pairs" in self.__dict__:
            return self._pairs[:, :, 0]
        if self._rest is not None:
            return self._rest[0]._singles - self._rest[1]._singles
        literals, values = self._gathered
        return (values @ literals).astype(np.int64)

    @property
    def n_features(self) -> int:
        """F."""
        return int(self._singles.shape[1]) - 1

    def split(self, feature: int) -> tuple[FrontProblem, FrontProblem]:
        """The rows in which the literal of a feature is 0, and those in which it is 1."""
        literals, values = self._gathered
        has = literals[:, 1 + feature] > 0.0

        def part(kept: BoolArray) -> Callable[[], tuple[FloatArray, FloatArray]]:
            return lambda: (literals[kept], values[:, kept])

        present = FrontProblem(self.task, part(has), self.min_leaf)
        # Literals are mostly 0: sums of the many rows are differences of two others.
        return FrontProblem(self.task, part(~has), self.min_leaf, (self, present)), present

    @cached_property
    def leaf(self) -> IntArray:
        """(T, K): the points of all rows as one leaf."""
        return self._points(self._singles[:, 0])

    def children(self, below: Budget) -> IntArray:
        """(T, 2, F, M): points of the trees within a budget, (0, 0) or (1, 1), below each literal."""
        return self._stumps if below.nodes else self._leaves

    @cached_property
    def _leaves(self) -> IntArray:
        single, total = self._singles[:, 1:], self._singles[:, :1]
        return np.moveaxis(self._points(np.stack([total - single, single], axis=1)), 1, -1)

    @cached_property
    def _stumps(self) -> IntArray:
        """The tests c among the rows of each literal (s, a), for all pairs of decisions, and the leaves."""
        points = self._points(pair_cells(self._pairs))  # (T, K, s_a, s_c, A, F)
        decisions = range(points.shape[1])
        leaves, parts = self._leaves, list[IntArray]()
        for first in decisions:
            for second in decisions:
                sums = points[:, first, :, 0] + points[:, second, :, 1]
                # Where points add up over rows, a test with one decision on both sides is as good as none.
                if first != second or (sums != leaves[..., first, None])[:, sums[0] < REACHED].any():
                    parts.append(sums)
        stumps: IntArray = np.minimum(np.concatenate([*parts, leaves], axis=-1), UNREACHABLE)
        return stumps

    def _points(self, sums: IntArray) -> IntArray:
        points = np.array(self.task.points(sums[:-1]))
        points[..., sums[-1] < self.min_leaf] = UNREACHABLE
        return points


def check_front_task(task: FrontTask, features: object, *, n_trials: int = 50, seed: int = 0) -> None:
    """Test on random leaves, trees and totals whether a task is separable.

    * Channels are integers, one for each row, and points are integers made of sums of channels.
    * The totals of a partition of the rows are the sums of the points of its leaves, for any decisions; with
      the order ``"pareto"`` points are sums over rows.
    * The score does not decrease when a total improves.

    Args:
        task: the objective.
        features: binary matrix, (N, p), of the rows of the task.
        n_trials: random partitions and pairs of totals.
        seed: seed of the random choices.

    Raises:
        ConfigError: the first check that fails, with the numbers.
        DataError: `features` is not binary.
    """
    if len(check_binary(features)[0]) != task.n_rows:
        raise ConfigError(f"n_rows: the task has {task.n_rows}, the features have another number of rows")
    channels = task.channels()
    if channels.dtype != np.int64 or channels.ndim != 2 or channels.shape[1] != task.n_rows:
        raise ConfigError(
            f"channels must be int64 of shape (C, {task.n_rows}), got {channels.dtype} of {channels.shape}"
        )
    leaf = task.points(channels.sum(axis=1))
    if leaf.dtype != np.int64 or leaf.ndim != 2 or len(leaf) != len(task.names):
        raise ConfigError(
            f"points must be int64 of shape ({len(task.names)}, K, ...), got {leaf.dtype} of {leaf.shape}"
        )
    rng = np.random.default_rng(seed)
    reached = np.array([_check_totals(task, rng) for _ in range(n_trials)])
    if np.abs(reached).max() >= 2**55:
        raise ConfigError(f"points: totals must be below 2**55, got {np.abs(reached).max()}")
    if task.order == "pareto":
        check_additive(task, channels)
    _check_score(task, reached, rng)


def check_additive(task: FrontTask, channels: IntArray) -> IntArray:
    """The points of all rows (2, K, N), which have to add up. Raises ConfigError: they do not."""
    points = task.points(channels)
    if not np.array_equal(points.sum(axis=-1), task.points(channels.sum(axis=1))):
        raise ConfigError("points: with order='pareto' those of rows must add up to that of a leaf")
    return points


def _check_totals(task: FrontTask, rng: np.random.Generator) -> IntArray:
    """Totals of a random partition, which have to be the sum of its leaves' points."""
    n_leaves = int(rng.integers(1, min(8, task.n_rows) + 1))
    leaf = rng.permutation(np.arange(task.n_rows) % n_leaves)
    channels = task.channels()
    sums = np.stack([channels[:, leaf == number].sum(axis=1) for number in range(n_leaves)], axis=1)
    points = task.points(sums)
    decision = rng.integers(0, points.shape[1], n_leaves)
    expected = points[:, decision, np.arange(n_leaves)].sum(axis=1)
    totals: IntArray = np.asarray(task.totals(leaf, decision))
    if not np.array_equal(totals, expected):
        raise ConfigError(
            f"totals: a partition into {n_leaves} leaves has {totals.tolist()} by definition, but its points "
            f"add up to {expected.tolist()}: the task is not a sum over leaves"
        )
    return totals


def _check_score(task: FrontTask, totals: IntArray, rng: np.random.Generator) -> None:
    """Between the least and largest totals met, a better total never has a smaller score."""
    low, high = totals.min(axis=0), totals.max(axis=0)
    if task.order == "balance":
        low[1], high[1] = 0, min(task.limit, np.abs(totals[:, 1]).max())
    worse = rng.integers(low, high + 1, (400, len(low)))
    better = worse.copy()
    changed = rng.integers(0, len(low), len(worse))
    rows = np.arange(len(worse))
    better[rows, changed] = rng.integers(low[changed], worse[rows, changed] + 1)
    fallen = np.flatnonzero(~(task.score(better) >= task.score(worse) - 1e-12))
    if len(fallen):
        i = fallen[0]
        raise ConfigError(
            f"score: totals {better[i].tolist()} are better than {worse[i].tolist()}, but score less: "
            f"{task.score(better[i : i + 1])[0]:.6g} < {task.score(worse[i : i + 1])[0]:.6g}"
        )

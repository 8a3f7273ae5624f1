"""Problems of several totals, and a check that a task keeps their rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.exact.moments import Moments, Patterns
from sstorch.exact.problem import Budget, pair_cells
from sstorch.exact.task import Entries
from sstorch.exceptions import ConfigError

Order = Literal["pareto", "balance"]

# Both parts of a point that no tree reaches; sums of eight of them still fit 64 bits.
UNREACHABLE = 2**58
# Absolute totals are below 2**55, so that sums with an unreachable point stay above this.
REACHED = 2**57


class FrontTask(Protocol):
    """An objective that is a function of two totals over leaves, T = 2 integers.

    A leaf has one or more candidate solutions: a decision, such as a class, and a point, the amounts that
    the leaf adds to the totals under that decision. A point is a function of sums over the leaf's rows. The
    points of two subtrees are added; of the trees below a node only those stay that another does not beat:

    * ``"pareto"``: both of two totals are costs; (a, b) is beaten by points with neither cost larger.
    * ``"balance"``: the first total is a cost, the other is signed, and has to end within ± `limit`; (a, b)
      is beaten by points with the same b and no larger a. Before the end nothing else can be said, since what
      is missing on one side can be made up for on the other.

    Addition preserves both orders: a solution dominated below a node is dominated at the root (Theorem 4.6 of
    the reference). Every score that does not decrease when a total improves is optimal on the front of whole
    trees.

    Attributes:
        n_rows: N.
        order: which of the two.
        linear: whether a leaf's point under a decision is the sum of its rows' points, so that a test with
            the same decision on both sides is as good as none.
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
    def linear(self) -> bool: ...  # noqa: D102
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

    def points(self, sums: Tensor) -> Tensor:
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


def beats(order: Order, first: Tensor, second: Tensor) -> Tensor:
    """True where points (T, ...) leave no reason to keep others, (...), below the root; see `FrontTask`."""
    if order == "pareto":
        return (first <= second).all(0)
    return (first[0] <= second[0]) & (first[1] == second[1])


class FrontProblem:
    """Rows to grow trees on, a task and the least rows of a leaf; the last channel of `moments` counts rows.

    Of rows that are the `rest` of a problem without another one's rows, sums are differences.
    """

    def __init__(
        self,
        task: FrontTask,
        rows: Callable[[], Moments],
        min_leaf: int,
        rest: tuple[FrontProblem, FrontProblem] | None = None,
    ) -> None:
        self.task, self._rows, self.min_leaf, self._rest = task, rows, min_leaf, rest

    @cached_property
    def _pairs(self) -> Tensor:
        """(C, 1 + F, 1 + F), see `Moments.pairs`."""
        if self._rest is None:
            return next(self.moments.pairs()).to(torch.int64)
        whole, part = self._rest
        return whole._pairs - part._pairs

    @cached_property
    def _singles(self) -> Tensor:
        """(C, 1 + F), sums of all rows, then of those of each literal."""
        if "_pairs" in self.__dict__:
            return self._pairs[:, :, 0]
        if self._rest is None:
            total, singles = next(self.moments.total()), next(self.moments.singles())
            return torch.cat([total[:, None], singles], dim=1).to(torch.int64)
        whole, part = self._rest
        return whole._singles - part._singles

    @cached_property
    def moments(self) -> Moments:
        """The rows; they are gathered where their sums are not enough."""
        return self._rows()

    @classmethod
    def of(
        cls, task: FrontTask, patterns: Patterns, channels: IntArray, min_leaf: int, device: torch.device
    ) -> FrontProblem:
        """All rows of a task, with its channels (C, N)."""
        entries = Entries.of_rows(np.concatenate([channels, np.ones((1, task.n_rows))]))
        return cls(task, lambda: Moments.of(patterns, entries, 1, device), min_leaf)

    @property
    def n_features(self) -> int:
        """F."""
        return self._singles.shape[1] - 1

    def split(self, feature: int) -> tuple[FrontProblem, FrontProblem]:
        """The rows in which the literal of a feature is 0, and those in which it is 1."""
        has, rows = self.moments.has(feature), self.moments
        present = FrontProblem(self.task, lambda: rows.where(has), self.min_leaf)
        # Literals are mostly 0: sums of the many rows are differences of two others.
        return FrontProblem(self.task, lambda: rows.where(~has), self.min_leaf, (self, present)), present

    @cached_property
    def leaf(self) -> Tensor:
        """(T, K): the points of all rows as one leaf."""
        return self._points(self._singles[:, 0])

    def children(self, below: Budget) -> Tensor:
        """(T, 2, F, M): points of the trees within a budget, (0, 0) or (1, 1), below each literal."""
        return self._stumps if below.nodes else self._leaves

    @cached_property
    def _leaves(self) -> Tensor:
        single, total = self._singles[:, 1:], self._singles[:, :1]
        points = self._points(torch.stack([total - single, single], dim=1))
        return points.movedim(1, -1)

    @cached_property
    def _stumps(self) -> Tensor:
        """The tests c among the rows of each literal (s, a), for the pairs of decisions that are of use."""
        points = self._points(pair_cells(self._pairs))  # (T, K, s_a, s_c, A, F)
        decisions = range(points.shape[1])
        pairs = [
            points[:, first, :, 0] + points[:, second, :, 1]
            for first in decisions
            for second in decisions
            if first != second or not self.task.linear
        ]
        return torch.cat([*pairs, self._leaves], dim=-1).clamp_max_(UNREACHABLE)

    def _points(self, sums: Tensor) -> Tensor:
        points = self.task.points(sums[:-1])
        return points.masked_fill_(sums[-1] < self.min_leaf, UNREACHABLE)


def check_front_task(task: FrontTask, features: object, *, n_trials: int = 50, seed: int = 0) -> None:
    """Test on random leaves, trees and totals whether a task is separable.

    * Channels are integers, one for each row, and points are integers made of sums of channels.
    * The totals of a partition of the rows are the sums of the points of its leaves, for any decisions.
    * Sums of points do not depend on order or grouping (no overflow) and preserve the order of the task: a
      dominated point is also dominated after adding the same point to both.
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
    patterns = Patterns.of(features)
    channels = task.channels()
    if channels.dtype != np.int64 or channels.ndim != 2 or channels.shape[1] != task.n_rows:
        raise ConfigError(
            f"channels must be int64 of shape (C, {task.n_rows}), got {channels.dtype} of {channels.shape}"
        )
    problem = FrontProblem.of(task, patterns, channels, 1, torch.device("cpu"))
    if problem.leaf.dtype != torch.int64 or problem.leaf.ndim != 2 or len(problem.leaf) != len(task.names):
        raise ConfigError(
            f"points must be int64 of shape ({len(task.names)}, K, ...), got {problem.leaf.dtype} of "
            f"{tuple(problem.leaf.shape)}"
        )
    rng = np.random.default_rng(seed)
    reached = [_check_totals(task, rng) for _ in range(n_trials)]
    points = torch.from_numpy(np.array(reached).T)
    _check_order(task, points, rng)
    _check_score(task, np.array(reached), rng)


def _check_totals(task: FrontTask, rng: np.random.Generator) -> IntArray:
    """Totals of a random partition, which have to be the sum of its leaves' points."""
    n_leaves = int(rng.integers(1, min(8, task.n_rows) + 1))
    leaf = rng.permutation(np.arange(task.n_rows) % n_leaves)
    channels = task.channels()
    sums = np.stack([channels[:, leaf == number].sum(axis=1) for number in range(n_leaves)], axis=1)
    points = task.points(torch.from_numpy(sums)).numpy()
    decision = rng.integers(0, points.shape[1], n_leaves)
    expected = points[:, decision, np.arange(n_leaves)].sum(axis=1)
    totals: IntArray = np.asarray(task.totals(leaf, decision))
    if not np.array_equal(totals, expected):
        raise ConfigError(
            f"totals: a partition into {n_leaves} leaves has {totals.tolist()} by definition, but its points "
            f"add up to {expected.tolist()}: the task is not a sum over leaves"
        )
    return totals


def _check_order(task: FrontTask, points: Tensor, rng: np.random.Generator) -> None:
    """Addition is that of whole numbers, and keeps the order."""
    largest = int(points.abs().max())
    if largest >= 2**55:
        raise ConfigError(f"points: totals up to {largest} are too large, at most 2**55 is possible")
    n = points.shape[1]
    first, second, third = (torch.from_numpy(rng.integers(0, n, 20 * n)) for _ in range(3))
    a, c = points[:, first], points[:, third]
    gain = torch.from_numpy(rng.integers(0, max(2, largest // 8), (len(points), 20 * n)))
    if task.order == "balance":
        gain[1] = 0
    b = torch.where(torch.from_numpy(rng.random(20 * n) < 0.5), points[:, second], a + gain)
    better = beats(task.order, a, b)
    if not torch.equal((a + b) + c, a + (b + c)) or not beats(task.order, a + c, b + c)[better].all():
        raise ConfigError(
            f"order={task.order!r}: adding a point to two others changes which one beats the other"
        )


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

"""Problems of two totals: the protocol, sums of rows by their features, and a check of a task."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import Budget
from sstorch.exceptions import ConfigError

if TYPE_CHECKING:
    from sstorch.exact.compiled.fronts import Sums

Order = Literal["pareto", "balance"]
Number = TypeVar("Number", np.float64, np.int64)

# Both parts of a point that no tree reaches; sums of eight of them still fit 64 bits.
UNREACHABLE = 2**58
# Absolute totals are below 2**53, so that sums with an unreachable point stay above this.
REACHED = 2**57


class FrontTask(Protocol):
    """An objective that is a function of two totals over leaves, integers.

    Each leaf takes one of K decisions, such as a class; a row then adds its point under this decision, two
    integers, to the totals. Of the trees below a node only those stay that another does not beat:

    * ``"pareto"``: both totals are costs; (a, b) is beaten by points with neither cost larger.
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

    def row_points(self) -> IntArray:
        """The point of each row under each decision, (2, K, N) int64; sums of absolute values below 2^53."""
        ...

    def score(self, totals: IntArray) -> FloatArray:
        """(n,), how good totals (n, 2) are: larger is better, and never falls when a total improves.

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


class Side:
    """Points of trees of depth up to 2 on some rows, by sums of these rows.

    Args:
        total: sums of all rows (C,), C = 2 K + 1: both totals of each decision, then rows.
        single: those of the rows of each literal (C, F).
        pairs: for trees of depth 2, those of the rows of each two (C, F, F).
        min_leaf: least rows of a leaf.
    """

    def __init__(self, total: IntArray, single: IntArray, pairs: IntArray | None, min_leaf: int) -> None:
        self._total, self._single, self._pairs, self._min_leaf = total, single, pairs, min_leaf

    @property
    def n_features(self) -> int:
        """F."""
        return int(self._single.shape[1])

    def split(self, feature: int) -> tuple[Side, Side]:
        """The rows in which the literal of a feature is 0, and those in which it is 1, for stumps."""
        assert self._pairs is not None
        total, single = self._single[:, feature], self._pairs[:, feature]
        absent = Side(self._total - total, self._single - single, None, self._min_leaf)
        return absent, Side(total, single, None, self._min_leaf)

    @cached_property
    def leaf(self) -> IntArray:
        """(2, K): the points of all rows as one leaf."""
        return self._points(self._total)

    def children(self, below: Budget) -> IntArray:
        """(2, 2, F, M): points of the trees within a budget, (0, 0) or (1, 1), below each literal by sign."""
        return self._stumps if below.nodes else self._leaves

    @cached_property
    def _leaves(self) -> IntArray:
        sums = np.stack([self._total[:, None] - self._single, self._single], axis=1)
        return np.moveaxis(self._points(sums), 1, -1)

    @cached_property
    def _stumps(self) -> IntArray:
        """The tests c among the rows of each literal (s, a), for the pairs of decisions, and the leaves."""
        assert self._pairs is not None
        n_channels, n = self._single.shape
        padded = np.empty((n_channels, 1 + n, 1 + n), dtype=np.int64)
        padded[:, 0, 0], padded[:, 0, 1:], padded[:, 1:, 0] = self._total, self._single, self._single
        padded[:, 1:, 1:] = self._pairs
        points = self._points(pair_cells(padded))  # (2, K, s_a, s_c, A, F)
        decisions = range(points.shape[1])
        # A test with one decision on both sides is as good as none.
        sums = [points[:, i, :, 0] + points[:, j, :, 1] for i in decisions for j in decisions if i != j]
        stumps: IntArray = np.minimum(np.concatenate([*sums, self._leaves], axis=-1), UNREACHABLE)
        return stumps

    def _points(self, sums: IntArray) -> IntArray:
        """(2, K, ...) from sums (C, ...)."""
        points = sums[:-1].reshape(-1, 2, *sums.shape[1:]).swapaxes(0, 1).copy()
        points[..., sums[-1] < self._min_leaf] = UNREACHABLE
        return points


class FrontProblem:
    """Rows to grow trees on: sums over all rows and over both sides of a root; features by chains."""

    def __init__(self, task: FrontTask, patterns: Patterns, depth: int, min_leaf: int) -> None:
        # numba takes a while to load, which only a search need wait for.
        from sstorch.exact.compiled.costs import Form
        from sstorch.exact.compiled.curves import Curves
        from sstorch.exact.compiled.fronts import Sums, fill_sides
        from sstorch.exact.compiled.prices import Prices
        from sstorch.exact.compiled.search import CompiledProblem

        points, n = task.row_points(), patterns.n_features
        channels = np.concatenate([points.swapaxes(0, 1).reshape(-1, task.n_rows), np.ones((1, task.n_rows))])
        nothing = Form(0), Curves.none(n), Prices.none()
        moments = CompiledProblem.of(patterns, patterns.sums(channels), *nothing).moments(max(depth, 2))
        largest = float(np.abs(points).max(axis=1).sum(axis=1).max())
        self.task, self.min_leaf, self.n_features, self._fill = task, min_leaf, n, fill_sides
        self.sums: Sums = Sums.of(moments, n, float(min_leaf), largest)

    @cached_property
    def whole(self) -> Side:
        """All rows."""
        self._fill(self.sums, -1)
        return self._side(0)

    def sides(self, root: int) -> tuple[Side, Side]:
        """The rows in which the literal of a root is 0, and those where it is 1, of a search of depth 3."""
        self._fill(self.sums, root)
        return self._side(0), self._side(1)

    def _side(self, side: int) -> Side:
        n, t = self.n_features, self.sums
        pairs = np.empty((len(t.moments), n, n), dtype=np.int64)
        first, second = np.tril_indices(n, -1)
        pairs[:, first, second] = pairs[:, second, first] = t.pairs[side]
        pairs[:, np.arange(n), np.arange(n)] = t.single[side]
        return Side(t.total[side].astype(np.int64), t.single[side].astype(np.int64), pairs, self.min_leaf)


def check_front_task(task: FrontTask, *, n_trials: int = 50, seed: int = 0) -> None:
    """Test whether points of rows are integers small enough to be added exactly, and the score never falls.

    Args:
        task: the objective.
        n_trials: random trees whose totals are improved.
        seed: seed of the random choices.

    Raises:
        ConfigError: the first check that fails, with the numbers.
    """
    points = task.row_points()
    if points.dtype != np.int64 or points.ndim != 3 or points.shape[::2] != (2, task.n_rows):
        raise ConfigError(
            f"row_points must be int64 of shape (2, K, {task.n_rows}), got {points.dtype} of {points.shape}"
        )
    if np.abs(points).max(axis=1).sum(axis=1, dtype=np.float64).max() >= 2.0**53:
        raise ConfigError("row_points: totals of 2**53 and more are not exact; use coarser weights")
    rng = np.random.default_rng(seed)
    decision = rng.integers(0, points.shape[1], (n_trials, task.n_rows))
    _check_score(task, points[:, decision, np.arange(task.n_rows)].sum(axis=-1).T, rng)


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

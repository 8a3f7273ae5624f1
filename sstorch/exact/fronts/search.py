"""Searches of fronts: all trees that no other one beats, and the cheapest tree within a limit."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.balance import cheapest_pair, lowest_prices, points_within
from sstorch.exact.compiled.costs import Form, Prices
from sstorch.exact.compiled.curves import Curves
from sstorch.exact.compiled.fronts import Sums, add_root, fill_sides, whole_front
from sstorch.exact.compiled.search import CompiledProblem
from sstorch.exact.rows import Patterns
from sstorch.exact.solution import INFINITY, Budget, Deadline, splits
from sstorch.exceptions import ConfigError

# Points of subtrees at a time.
_PART = 1 << 20
# Rates tried for the bound of all trees.
_DUAL_STEPS = 7


def sums_of(patterns: Patterns, points: IntArray, depth: int, min_leaf: int, memory: int) -> Sums:
    """Sums of the points of rows (2, K, N), for trees of a depth. Raises ConfigError: they have no room."""
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
    values = patterns.sums(np.stack(channels))
    problem = CompiledProblem(patterns.literals, patterns.chain, values, Form(0), Curves.none(n), Prices())
    largest = float(np.abs(points).max(axis=1).sum(axis=1).max())
    return Sums.of(problem.moments(max(depth, 2)), n, float(min_leaf), largest)


def pareto(sums: Sums, target: Budget, deadline: Deadline) -> tuple[FloatArray, bool, float]:
    """All trees that no other tree beats in two costs (5, n), and whether these are all; no bound."""
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


class Balance:
    """Search for trees by cost and absolute balance, which has a limit.

    At each rate, cost + rate * balance - |rate| * limit is at most the cost of a tree within the limit; its
    least value below a root is the sum of those of both subtrees (Lagrangian duality). At depth 3 the rate
    with the largest bound is sought; then roots are taken by their bounds.
    """

    def __init__(self, sums: Sums, limit: float, deadline: Deadline) -> None:
        self.sums, self.limit, self.deadline = sums, limit, deadline
        self.n_features = len(sums.binomials) - 1

    def search(self, target: Budget) -> tuple[FloatArray, bool, float]:
        """All trees up to depth 2 that none beats (5, n), else the cheapest; whether proved, and a bound."""
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
        """Points (3, n) of trees of the last root with cost + rate * balance <= most, in parts."""
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
            raise TimeoutError

    def _cheapest(self, nodes: IntArray, best: FloatArray) -> tuple[FloatArray, bool, float]:
        """The cheapest tree of depth 3, or the known one, whether it is proved, and a bound of all."""
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
        except TimeoutError:
            open_bound = float(bounds[~done].min()) if not done.all() else least
            return best, False, min(least, open_bound)
        return best, True, least

    def _best_rate(self, nodes: IntArray, known: FloatArray, bounds: FloatArray) -> tuple[float, FloatArray]:
        """A rate with a large least bound of roots, and prices (F S, 2) there; raises `bounds`."""
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

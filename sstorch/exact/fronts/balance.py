"""Trees of least cost within a limit on their balance: a front up to depth 2, the cheapest one at depth 3.

Points are a cost and a signed balance each, all integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.balance import add_balanced, cheapest_pair, count_within, points_within
from sstorch.exact.deadline import Deadline, OutOfTimeError
from sstorch.exact.fronts.problem import REACHED, FrontProblem, Side
from sstorch.exact.problem import INFINITY, Budget, splits

# Points of subtrees at a time.
_PART = 1 << 22
# Rates tried for the bound of all trees, and the share of the distance to a known tree that more of them
# would have to be able to add.
_DUAL_STEPS, _LITTLE = 10, 0.1


def balance_front(problem: FrontProblem, target: Budget) -> IntArray:
    """The points (2, n) that no tree within a budget of depth up to 2 beats in cost and absolute balance."""
    front, size, whole = np.empty((2, 64), dtype=np.int64), 0, problem.whole
    pairs = [(whole.leaf[:, None], np.zeros((2, 1, 1), dtype=np.int64))]
    if target.nodes and problem.n_features:
        pairs += [(whole.children(a)[:, 0], whole.children(b)[:, 1]) for a, b in splits(target)]
    for left, right in pairs:
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        front, size = add_balanced(left, right, problem.task.limit, REACHED, front, size)
    found: IntArray = front[:, :size]
    return found


def _prices(points: IntArray, rate: float) -> FloatArray:
    """Cost + rate * balance of points (2, ...), infinite where there is no point."""
    return np.where(points[0] >= REACHED, INFINITY, points[0] + rate * points[1])


def _by_balance(points: IntArray) -> IntArray:
    """The cheapest point of each balance, by increasing balance."""
    points = points[:, np.lexsort(points)]
    kept = np.ones(points.shape[1], dtype=np.bool_)
    np.not_equal(points[1, 1:], points[1, :-1], out=kept[1:])
    return np.ascontiguousarray(points[:, kept])


class _Subtrees:
    """All trees within a budget of depth up to 2 below a root, of any balance."""

    def __init__(self, problem: Side, target: Budget) -> None:
        self._leaf, self._halves = problem.leaf, list[tuple[IntArray, IntArray]]()
        if target.nodes and problem.n_features:
            self._halves = [(problem.children(a)[:, 0], problem.children(b)[:, 1]) for a, b in splits(target)]

    @cached_property
    def largest(self) -> IntArray:
        """(2,), the largest absolute cost and balance of a point of a part of a tree."""
        parts = [self._leaf, *(side.reshape(2, -1) for half in self._halves for side in half)]
        points = np.concatenate(parts, axis=1)
        largest: IntArray = np.abs(points[:, points[0] < REACHED]).max(axis=1, initial=0)
        return largest

    def lowest(self, rate: float) -> tuple[float, IntArray]:
        """The least cost + rate * balance, infinite if there is no tree, and a point (2,) that has it."""
        prices = _prices(self._leaf, rate)
        least, point = float(prices.min()), self._leaf[:, int(prices.argmin())]
        for left, right in self._halves:
            lows = _prices(left, rate), _prices(right, rate)
            sums = lows[0].min(axis=1) + lows[1].min(axis=1)
            root = int(sums.argmin())
            if sums[root] < least:
                least = float(sums[root])
                parts = (
                    half[:, root, low[root].argmin()] for half, low in zip((left, right), lows, strict=True)
                )
                point = sum(parts, np.zeros(2, dtype=np.int64))
        return least, point

    def within(self, rate: float, most: float) -> Iterator[IntArray]:
        """Points (2, n) of trees with cost + rate * balance <= most, one for each balance, by balance.

        Where there are very many, they come in parts.
        """
        part = self._leaf[:, _prices(self._leaf, rate) <= most]
        for half in self._halves:
            prices = [_prices(side, rate) for side in half]
            orders = [price.argsort(axis=1) for price in prices]
            left, right = (
                np.ascontiguousarray(np.take_along_axis(side, order[None], axis=2))
                for side, order in zip(half, orders, strict=True)
            )
            left_price, right_price = (
                np.take_along_axis(price, order, axis=1) for price, order in zip(prices, orders, strict=True)
            )
            counts = np.empty(len(left_price), dtype=np.int64)
            count_within(left_price, right_price, most, counts)
            begin = 0
            while begin < len(counts):
                fitting = int(np.searchsorted(np.cumsum(counts[begin:]), _PART, side="right"))
                end = begin + max(1, fitting)
                out = np.empty((2, int(counts[begin:end].sum())), dtype=np.int64)
                points_within(left, left_price, right, right_price, most, begin, end, out)
                part = _by_balance(np.concatenate([part, out], axis=1))
                if part.shape[1] > _PART // 2:
                    yield part
                    part = part[:, :0]
                begin = end
        if part.shape[1]:
            yield _by_balance(part)


class Root(NamedTuple):
    """A test at the root, the number of a pair of budgets in `splits`, and points (2,).

    `left` is that of the subtree where the literal is 0, `point` that of the tree.
    """

    feature: int
    split: int
    left: IntArray
    point: IntArray


class Cheapest(NamedTuple):
    """The root of the best tree, None if none is better than the given one, and whether the search ended.

    No tree costs less than `lower_bound`, which is meant for searches that were cut short.
    """

    root: Root | None
    lower_bound: float
    complete: bool


def cheapest_tree(
    problem: FrontProblem, target: Budget, known: IntArray | None, memory: int, deadline: Deadline
) -> Cheapest:
    """The cheapest tree of depth 3 within the limit, if it is cheaper than a known one, a point (2,).

    At each rate, cost + rate * balance - |rate| * limit of a tree within the limit is at most its cost; below
    a root its least value is the sum of those of both subtrees (Lagrangian duality). The rate that makes the
    bound of all trees largest is sought; then roots are taken by their bounds, and of their subtrees those
    are summed that the bound of the other subtree leaves a chance to be cheaper than the best known tree.

    `memory` is for the subtrees of all roots; beyond it they are made again when needed.
    """
    roots = _Roots(problem, target, memory, deadline)
    limit, best = problem.task.limit, None
    least = REACHED if known is None else int(known[0])
    bounds, done = np.full(len(roots), -INFINITY), np.zeros(len(roots), dtype=np.bool_)
    try:
        rate = _best_rate(roots, limit, known, bounds)
        allowed, (lows, _) = abs(rate) * limit, roots.lows(rate)
        slack = 2e-14 * float(np.array([1.0, abs(rate)]) @ roots.largest) + 1e-6
        for number in bounds.argsort(kind="stable").tolist():
            left, right = roots[number]
            # First trees near the bound alone: what is found there leaves most others out.
            low, share = float(lows[number].sum()), 1.0 if done.any() else 2.0**-6
            while float(bounds[number]) <= least - 1.0 + slack and share <= 1.0:
                deadline.check()
                deadline.say(f"{int(done.sum())} of {len(roots)} roots, least cost {least:.6g}")
                most = low + share * (least - 1.0 + allowed + slack - low)
                share *= 4.0
                for first in left.within(rate, most - float(lows[number, 1])):
                    for second in right.within(rate, most - float(lows[number, 0])):
                        i, j = cheapest_pair(first, second, limit, least)
                        if i >= 0:
                            point = first[:, i] + second[:, j]
                            least, best = int(point[0]), Root(*roots.place(number), first[:, i], point)
            done[number] = True
    except OutOfTimeError:
        open_bound = float(bounds[~done].min()) if not done.all() else least
        return Cheapest(best, min(least, open_bound), False)
    return Cheapest(best, least, True)


class _Roots:
    """The two groups of subtrees below every root, for every way to share the nodes."""

    def __init__(self, problem: FrontProblem, target: Budget, memory: int, deadline: Deadline) -> None:
        self._problem, self._halves, self._deadline = problem, splits(target), deadline
        n, k = problem.n_features, problem.whole.leaf.shape[1]
        self._keep = 2 * n * 16 * n * (k * k * n + 2 * k) * len(self._halves) <= memory
        self._sides: dict[int, tuple[_Subtrees, _Subtrees]] = {}
        self.largest = np.zeros(2, dtype=np.int64)  # of the roots used so far

    def __len__(self) -> int:
        return self._problem.n_features * len(self._halves)

    def place(self, number: int) -> tuple[int, int]:
        """Feature and number of the pair of budgets."""
        return divmod(number, len(self._halves))

    def __getitem__(self, number: int) -> tuple[_Subtrees, _Subtrees]:
        if number not in self._sides:
            feature, split = self.place(number)
            if not self._keep:
                self._sides.clear()
            absent, present = self._problem.sides(feature)
            for place, halves in enumerate(self._halves):
                both = _Subtrees(absent, halves[0]), _Subtrees(present, halves[1])
                self._sides[number - split + place] = both
                for side in both:
                    np.maximum(self.largest, side.largest, out=self.largest)
        return self._sides[number]

    def lows(self, rate: float) -> tuple[FloatArray, IntArray]:
        """Least cost + rate * balance of each root's two subtrees (n, 2), and their points (n, 2, 2)."""
        lows, points = np.empty((len(self), 2)), np.empty((len(self), 2, 2), dtype=np.int64)
        for number in range(len(self)):
            self._deadline.check()
            for side, subtrees in enumerate(self[number]):
                lows[number, side], points[number, side] = subtrees.lowest(rate)
        return lows, points


def _best_rate(roots: _Roots, limit: int, known: IntArray | None, bounds: FloatArray) -> float:
    """A rate that makes the least bound large; `bounds` is raised to the largest bound of each root met.

    The bound is the least of one concave function of the rate for each tree, cost + rate · balance - |rate|
    · limit. At the top of those of the trees met so far, of which one is within the limits, the tree that is
    cheapest joins them, until none is cheaper (Kelley's cutting planes).
    """

    def evaluate(rate: float) -> tuple[float, FloatArray]:
        lows, points = roots.lows(rate)
        values = lows.sum(axis=1) - abs(rate) * limit
        np.maximum(bounds, values, out=bounds)
        which = int(values.argmin())
        return float(values[which]), points[which].sum(axis=0).astype(np.float64)

    best = 0.0
    if not len(roots):
        return best
    top, point = evaluate(best)
    if known is None or top == INFINITY or abs(point[1]) <= limit:
        return best
    met = [known.astype(np.float64), point]
    for _ in range(_DUAL_STEPS):
        reached, rate = _top(np.stack(met), limit)
        value, point = evaluate(rate)
        if value > top:
            top, best = value, rate
        # What more trees could add is little of what is missing.
        if reached - top <= _LITTLE * (met[0][0] - top) + 1e-6:
            break
        met.append(point)
    return best


def _top(trees: FloatArray, most: int) -> tuple[float, float]:
    """The largest least cost + rate · balance - |rate| · most of trees (m, 2), and the rate there.

    It is at 0 or where the lines of two trees cross.
    """
    cost, balance = trees.T
    slopes = np.stack([balance - most, -balance - most])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        size = (cost[:, None] - cost) / (slopes - slopes.swapaxes(1, 2))
    rates = np.append(0.0, (size * np.array([1.0, -1.0])[:, None, None])[np.isfinite(size) & (size > 0.0)])
    least = (cost + np.outer(rates, balance) - np.abs(rates)[:, None] * most).min(axis=1)
    which = int(least.argmax())
    return float(least[which]), float(rates[which])

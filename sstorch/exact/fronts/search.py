"""The cheapest tree of depth 3 within a limit on its balance, by bounds of the trees below each root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.exact.deadline import Deadline, OutOfTimeError
from sstorch.exact.fronts.problem import REACHED, UNREACHABLE, FrontProblem
from sstorch.exact.fronts.small import CHUNK, cheapest_first, with_prices
from sstorch.exact.problem import Budget, splits

# Points of subtrees at a time.
_PART = 1 << 22
# Rates tried for the bound of all trees, and the share of the distance to a known tree that more of them
# would have to be able to add.
_DUAL_STEPS, _LITTLE = 10, 0.1


class Subtrees:
    """All trees within a budget of depth up to 2, of any balance."""

    def __init__(self, problem: FrontProblem | _Side, target: Budget) -> None:
        self.leaf = problem.leaf
        self.halves: list[tuple[Tensor, Tensor]] = []
        if target.nodes and problem.n_features:
            self.halves = [
                (problem.children(first)[:, 0], problem.children(second)[:, 1])
                for first, second in splits(target)
            ]

    def within(self, rate: float, most: float) -> Iterator[Tensor]:
        """Points (T, n) of trees with cost + rate * balance <= most, one for each balance, by balance.

        Where there are very many, they come in parts.
        """
        part = [self.leaf[:, with_prices(self.leaf, rate) <= most]]
        for left, right in self.halves:
            for sums in _sums(cheapest_first(left, rate), cheapest_first(right, rate), most):
                part.append(sums)
                if sum(points.shape[1] for points in part) > _PART:
                    part = [_one_for_each_balance(torch.cat(part, dim=1))]
                    if part[0].shape[1] > _PART // 2:
                        yield part.pop()
        if part:
            yield _one_for_each_balance(torch.cat(part, dim=1))


def _sums(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], most: float) -> Iterator[Tensor]:
    """Sums (T, n) of a left and a right point of the same feature that are cheap enough."""
    (left_points, left_price), (right_points, right_price) = left, right
    fits_left = left_price + right_price[:, :1] <= most
    fits_right = right_price + left_price[:, :1] <= most
    roots = torch.nonzero(fits_left.any(1) & fits_right.any(1))[:, 0]
    if not len(roots):
        return
    size = int(fits_left[roots].sum(1).max()), int(fits_right[roots].sum(1).max())
    step = max(1, CHUNK // (size[0] * size[1]))
    for begin in range(0, len(roots), step):
        part = roots[begin : begin + step]
        price = left_price[part, : size[0]].unsqueeze(2) + right_price[part, : size[1]].unsqueeze(1)
        root, first, second = torch.nonzero(price <= most, as_tuple=True)
        root = part[root]
        yield left_points[:, root, first] + right_points[:, root, second]


def _one_for_each_balance(points: Tensor) -> Tensor:
    balance, group = torch.unique(points[1], return_inverse=True)
    cost = torch.full_like(balance, UNREACHABLE).scatter_reduce_(0, group, points[0], "amin")
    return torch.stack([cost, balance])


def cheapest_pair(left: Tensor, right: Tensor, limit: int, least: int) -> tuple[int, Tensor, Tensor] | None:
    """The sum of a left and a right point of least cost, below `least`, with its balance within the limit.

    The right points that can go with a left point are an interval of costs, and one of balances. By the
    total with the fewest pairs they are compared one by one. Returns the cost and both points (T,), or None
    if there is no such sum.
    """
    spans = []
    for number, most in ((1, limit), (0, least - 1)):
        values, order = right[number].sort()
        begin = torch.zeros_like(left[number])
        if number > 0:
            begin = torch.searchsorted(values, -most - left[number])
        end = torch.searchsorted(values, most - left[number], right=True)
        spans.append((int((end - begin).sum()), number, order, begin, end - begin))
        if spans[-1][0] <= left.shape[1] + right.shape[1]:  # no more than another sort
            break
    n_pairs, _, order, begin, count = min(spans, key=lambda span: span[:2])
    before, numbers = count.cumsum(0), torch.arange(len(count), device=count.device)
    best: tuple[int, Tensor, Tensor] | None = None
    chunks = torch.arange(CHUNK, n_pairs + CHUNK, CHUNK, device=count.device)
    stops = torch.searchsorted(before, chunks).tolist()
    for start, stop in pairwise([0, *(min(stop + 1, len(count)) for stop in stops)]):
        first = torch.repeat_interleave(numbers[start:stop], count[start:stop])
        shift = begin[start:stop] - before[start:stop] + count[start:stop]
        place = torch.arange(len(first), device=count.device) + (int(before[start - 1]) if start else 0)
        second = order[place + shift[first - start]]
        cost = left[0, first] + right[0, second]
        fits = (cost < least) & ((left[1, first] + right[1, second]).abs() <= limit)
        kept = torch.nonzero(fits)[:, 0]
        if len(kept):
            place = kept[cost[kept].argmin()]
            # As an integer: torch compares integers with a float in single precision.
            least = int(cost[place])
            best = least, left[:, first[place]], right[:, second[place]]
    return best


class Root(NamedTuple):
    """A test at the root, the number of a pair of budgets in `splits`, and points (T,).

    `left` is that of the subtree where the literal is 0, `point` that of the tree.
    """

    feature: int
    split: int
    left: Tensor
    point: Tensor


class Found(NamedTuple):
    """The root of the best tree, None if none is better than the given one, and whether the search ended.

    No tree costs less than `lower_bound`, which is meant for searches that were cut short.
    """

    root: Root | None
    lower_bound: float
    complete: bool


def cheapest_tree(
    problem: FrontProblem, target: Budget, known: Tensor | None, memory: int, deadline: Deadline
) -> Found:
    """The cheapest tree within a budget of depth 1 to 3 whose balance is within the task's limit.

    For any rate r, min (cost + r · balance) over the trees below a root, less |r| · limit, is at most the
    cost of a tree within the limit (weak duality). The rate that makes the bound of all trees largest is
    sought; then roots are taken by their bounds, and of their subtrees those are summed that the bound of the
    other subtree leaves a chance to be cheaper than the best known tree, a point (T,).

    `memory` is for the subtrees of all roots; beyond it they are made again when needed.
    """
    roots = _Roots(problem, target, memory, deadline)
    limit = problem.task.limit
    best: Root | None = None
    least = REACHED if known is None else int(known[0])
    bounds = torch.full((len(roots),), -float("inf"), dtype=torch.float64)
    done = torch.zeros(len(roots), dtype=torch.bool)
    try:
        rate = _best_rate(roots, limit, known, bounds)
        prices, allowed = torch.tensor([1.0, abs(rate)], dtype=torch.float64), abs(rate) * limit
        lows, _ = roots.lows(rate)
        slack = 2e-14 * float(prices @ roots.scale) + 1e-6
        for number in torch.argsort(bounds).tolist():
            left, right = roots[number]
            # First trees near the bound alone: what is found there leaves most others out.
            low = float(lows[number].sum())
            share = 1.0 if done.any() else 2.0**-6
            while float(bounds[number]) <= least - 1.0 + slack and share <= 1.0:
                deadline.check()
                deadline.say(f"{int(done.sum())} of {len(roots)} roots, least cost {least:.6g}")
                most = low + share * (least - 1.0 + allowed + slack - low)
                share *= 4.0
                for first in left.within(rate, most - float(lows[number, 1])):
                    for second in right.within(rate, most - float(lows[number, 0])):
                        pair = cheapest_pair(first, second, limit, least)
                        if pair is not None:
                            least = pair[0]
                            best = Root(*roots.place(number), pair[1], pair[1] + pair[2])
            done[number] = True
    except OutOfTimeError:
        open_bound = float(bounds[~done].min()) if not done.all() else least
        return Found(best, min(least, open_bound), False)
    return Found(best, least, True)


class _Side(NamedTuple):
    """Points below one side of a root, as a `FrontProblem` has them."""

    n_features: int
    leaf: Tensor  # (T, K)
    points: dict[Budget, Tensor]  # (T, 2, F, M) each

    def children(self, below: Budget) -> Tensor:
        """(T, 2, F, M)."""
        return self.points[below]


class _Sides:
    """Points below the same side of R roots, and their costs in float64, infinite where there is no point.

    Attributes:
        scale: (T,), the largest absolute cost and balance of the points.
    """

    def __init__(self, problems: Sequence[FrontProblem], below: set[Budget]) -> None:
        self._n_features = problems[0].n_features
        self._leaf = torch.stack([problem.leaf for problem in problems], 1)  # (T, R, K)
        # (T, 2, R, F, M) and (2, R, F, M)
        self._points = {b: torch.stack([problem.children(b) for problem in problems], 2) for b in below}
        self._costs = {b: with_prices(points, 0.0) for b, points in self._points.items()}
        sizes = []
        for points in (self._leaf, *self._points.values()):
            low, high = points.masked_fill(points[0] >= REACHED, 0).flatten(1).aminmax(dim=1)
            sizes.append(torch.maximum(-low, high))
        self.scale = torch.stack(sizes).amax(0).to("cpu", torch.float64)

    def of(self, number: int) -> _Side:
        """One of the roots."""
        points = {below: points[:, :, number] for below, points in self._points.items()}
        return _Side(self._n_features, self._leaf[:, number], points)

    def least(self, target: Budget, rate: float) -> tuple[Tensor, Tensor]:
        """The least cost + rate * balance (R,) of trees within a budget, infinite if there is none.

        And a point (T, R) of each.
        """
        least, place = with_prices(self._leaf, rate).min(-1)
        every = torch.arange(len(place), device=place.device)
        point = self._leaf[:, every, place]
        for halves in splits(target) if target.nodes and self._n_features else ():
            lows = [self._lows(below, sign, rate) for sign, below in enumerate(halves)]
            value, root = (lows[0] + lows[1]).min(-1)
            sums = torch.zeros_like(point)
            for sign, below in enumerate(halves):
                row = self._points[below][:, sign, every, root]
                sums += row[:, every, with_prices(row, rate).argmin(-1)]
            point = torch.where(value < least, sums, point)
            least = torch.minimum(value, least)
        return least, point

    def _lows(self, below: Budget, sign: int, rate: float) -> Tensor:
        """The least cost + rate * balance below a sign of each feature, (R, F)."""
        priced = self._costs[below][sign]
        if rate:
            priced = torch.add(priced, self._points[below][1, sign], alpha=rate)
        return priced.amin(-1)


class _Roots:
    """The two groups of subtrees below every root, for every way to share the nodes.

    Attributes:
        scale: (T,), the largest absolute cost and balances of the points below the roots used so far.
    """

    def __init__(self, problem: FrontProblem, target: Budget, memory: int, deadline: Deadline) -> None:
        self._problem, self._halves, self._deadline = problem, splits(target), deadline
        pairs = [pair for halves in self._halves for half in halves if half.nodes for pair in splits(half)]
        self._below = {below for pair in pairs for below in pair}
        (n_totals, k), n = problem.leaf.shape, problem.n_features
        size = n * (k * k * n + 2 * k)  # of the children of a literal
        self._keep = 2 * n * (16 * (n_totals + 1) * size) <= memory
        self._step = max(1, CHUNK // max(1, size)) if self._keep else 1
        self._parts: dict[int, tuple[_Sides, _Sides]] = {}
        self.scale = torch.zeros(n_totals, dtype=torch.float64)

    def __len__(self) -> int:
        return self._problem.n_features * len(self._halves)

    def place(self, number: int) -> tuple[int, int]:
        """Feature and number of the pair of budgets."""
        return divmod(number, len(self._halves))

    def __getitem__(self, number: int) -> tuple[Subtrees, Subtrees]:
        feature, split = self.place(number)
        sides, halves = self._part(feature // self._step), self._halves[split]
        absent, present = (side.of(feature % self._step) for side in sides)
        return Subtrees(absent, halves[0]), Subtrees(present, halves[1])

    def _part(self, number: int) -> tuple[_Sides, _Sides]:
        """Both sides of so many neighbouring roots."""
        if number not in self._parts:
            begin, problems = number * self._step, []
            for feature in range(begin, min(begin + self._step, self._problem.n_features)):
                self._deadline.check()
                problems.append(self._problem.split(feature))
            if not self._keep:
                self._parts.clear()
            absent, present = (_Sides(side, self._below) for side in zip(*problems, strict=True))
            self._parts[number] = absent, present
            for side in (absent, present):
                torch.maximum(self.scale, side.scale, out=self.scale)
        return self._parts[number]

    def lows(self, rate: float) -> tuple[Tensor, Tensor]:
        """Least cost + rate * balance of each root's two subtrees (n, 2), and their points (n, 2, T)."""
        n = self._problem.n_features
        lows = torch.empty((n, len(self._halves), 2), dtype=torch.float64)
        points = torch.empty((*lows.shape, len(self.scale)), dtype=torch.int64)
        for number, begin in enumerate(range(0, n, self._step)):
            sides, roots = self._part(number), slice(begin, begin + self._step)
            for split, halves in enumerate(self._halves):
                for side in range(2):
                    self._deadline.check()
                    least, point = sides[side].least(halves[side], rate)
                    lows[roots, split, side], points[roots, split, side] = least, point.T
        return lows.flatten(0, 1), points.flatten(0, 1)


def _best_rate(roots: _Roots, limit: int, known: Tensor | None, bounds: Tensor) -> float:
    """A rate that makes the least bound large; `bounds` is raised to the largest bound of each root met.

    The bound is the least of one concave function of the rate for each tree, cost + rate · balance - |rate|
    · limit. At the top of those of the trees met so far, of which one is within the limits, the tree that is
    cheapest joins them, until none is cheaper (Kelley's cutting planes).
    """

    def evaluate(rate: float) -> tuple[float, FloatArray]:
        lows, points = roots.lows(rate)
        values = lows.sum(1) - abs(rate) * limit
        torch.maximum(bounds, values, out=bounds)
        which = int(values.argmin())
        return float(values[which]), points[which].sum(0).to(torch.float64).numpy()

    best = 0.0
    if not len(roots):
        return best
    top, point = evaluate(best)
    if known is None or top == float("inf") or abs(point[1]) <= limit:
        return best
    met = [known.cpu().to(torch.float64).numpy(), point]
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

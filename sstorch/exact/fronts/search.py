"""The search for fronts: sets of nondominated totals, fairness balances, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.exact.deadline import Deadline, OutOfTimeError
from sstorch.exact.fronts.nondominated import nondominated, nondominated_rows
from sstorch.exact.fronts.problem import REACHED, UNREACHABLE, FrontProblem
from sstorch.exact.problem import Budget, splits

# Sums of points at a time, and points of subtrees at a time.
_CHUNK = 1 << 20
_PART = 1 << 22
# Rates tried for the bound of all trees, for each balance, and the share of the distance to a known tree that
# more of them would have to be able to add.
_DUAL_STEPS, _LITTLE = 10, 0.1

# A price of each balance, in units of cost.
Rate = tuple[float, ...]


def nondominated_front(problem: FrontProblem, target: Budget, memory: int) -> Tensor:
    """The front (2, n) of all trees within a budget of depth 0, 1 or 2.

    Sums take at most `memory` bytes at a time.
    """
    front = problem.leaf[:, nondominated(*problem.leaf)]
    if target.nodes == 0 or problem.n_features == 0:
        return front
    for halves in splits(target):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        left, right = (torch.stack(nondominated_rows(*half)) for half in (left, right))
        step = max(1, memory // (64 * left.shape[-1] * right.shape[-1] + 1))
        for begin in range(0, left.shape[1], step):
            part = slice(begin, begin + step)
            front, _ = join(front, left[:, part], right[:, part])
    return front


def join(front: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The front (2, m) of points (2, n) and all sums of (2, ..., l) and (2, ..., r), and its origin (m,).

    That is a point's number among the points, or n and its number among the sums.
    """
    sums = (left.unsqueeze(-1) + right.unsqueeze(-2)).flatten(1)
    points = torch.cat([front, sums], dim=1)
    index = nondominated(*points)
    return points[:, index], index


def balance_front(problem: FrontProblem, target: Budget, memory: int) -> Tensor:
    """The points (2, n) that no tree within a budget of depth up to 2 beats in cost and absolute balance.

    This is for tasks with one balance.
    """
    limit = int(problem.limits)
    front = _best(problem.leaf, limit)
    if target.nodes == 0 or problem.n_features == 0:
        return front
    for halves in splits(target):
        left = _cheapest_first(problem.children(halves[0])[:, 0], (0.0,))[0]
        right = _cheapest_first(problem.children(halves[1])[:, 1], (0.0,))[0]
        order = torch.argsort(left[0, :, 0] + right[0, :, 0])
        left, right = left[:, order], right[:, order]
        chunk, begin = min(_CHUNK, memory // 64), 0
        while begin < problem.n_features:
            # What costs more than a tree in balance is beaten by it.
            most = int(front[0, front[1] == 0].amin()) if (front[1] == 0).any() else REACHED
            fits_left = (left[0, begin:] + right[0, begin:, :1] <= most).sum(1).cummax(0).values
            fits_right = (right[0, begin:] + left[0, begin:, :1] <= most).sum(1).cummax(0).values
            n_roots = torch.arange(1, len(fits_left) + 1, device=left.device)
            end = begin + max(1, int((fits_left * fits_right * n_roots <= chunk).sum()))
            first = left[:, begin:end, : int(fits_left[end - begin - 1])].unsqueeze(-1)
            second = right[:, begin:end, : int(fits_right[end - begin - 1])].unsqueeze(-2)
            balance = (first[1] + second[1]).flatten()
            kept = torch.nonzero(balance.abs() <= limit)[:, 0]
            sums = torch.stack([(first[0] + second[0]).flatten()[kept], balance[kept]])
            front = _best(torch.cat([front, _not_beaten(sums, front)], dim=1), limit)
            begin = end
    return front


def _best(points: Tensor, limit: int) -> Tensor:
    points = points[:, points[1].abs() <= limit]
    return points[:, nondominated(points[0], points[1].abs())]


def _not_beaten(points: Tensor, balance_front: Tensor) -> Tensor:
    """The points that no point of a front by increasing cost beats."""
    cost = torch.cat([balance_front[0], balance_front.new_full((1,), REACHED)])
    # The cheapest point of the front that is as near to balance.
    cheapest = torch.searchsorted(-balance_front[1].abs(), -points[1].abs())
    return points[:, points[0] < cost[cheapest]]


class Subtrees:
    """All trees within a budget of depth up to 2, of any balances."""

    def __init__(self, problem: FrontProblem, target: Budget) -> None:
        self.leaf = problem.leaf
        self.halves: list[tuple[Tensor, Tensor]] = []
        if target.nodes and problem.n_features:
            self.halves = [
                (problem.children(first)[:, 0], problem.children(second)[:, 1])
                for first, second in splits(target)
            ]

    @cached_property
    def scale(self) -> Tensor:
        """(T,), the largest absolute cost and balances of the points that are summed."""
        parts = (self.leaf, *(half for pair in self.halves for half in pair))
        sizes = [part.abs().masked_fill_(part[0] >= REACHED, 0).flatten(1).amax(1) for part in parts]
        return torch.stack(sizes).amax(0).to(torch.float64)

    def least(self, rate: Rate) -> tuple[float, Tensor]:
        """The least cost + rate * balance of a tree, infinite if there is none, and its point (T,)."""
        value, place = _priced(self.leaf, rate).min(0)
        least, point = float(value), self.leaf[:, place]
        for pair in self.halves:
            ends = [_priced(half, rate).min(-1) for half in pair]
            value, root = (ends[0].values + ends[1].values).min(0)
            if float(value) < least:
                least = float(value)
                point = sum(
                    (half[:, root, end.indices[root]] for half, end in zip(pair, ends, strict=True)),
                    torch.zeros_like(point),
                )
        return least, point

    def within(self, rate: Rate, most: float) -> Iterator[Tensor]:
        """Points (T, n) of trees with cost + rate * balance <= most, one for each balance, by balance.

        Where there are very many, they come in parts.
        """
        part = [self.leaf[:, _priced(self.leaf, rate) <= most]]
        for left, right in self.halves:
            for sums in _sums(_cheapest_first(left, rate), _cheapest_first(right, rate), most):
                part.append(sums)
                if sum(points.shape[1] for points in part) > _PART:
                    part = [_one_for_each_balance(torch.cat(part, dim=1))]
                    if part[0].shape[1] > _PART // 2:
                        yield part.pop()
        if part:
            yield _one_for_each_balance(torch.cat(part, dim=1))


def _priced(points: Tensor, rate: Rate) -> Tensor:
    """Cost + rate * balance in float64, infinite where there is no point."""
    priced = points[0].to(torch.float64)
    for price, balance in zip(rate, points[1:], strict=True):
        if price:
            priced = priced + price * balance.to(torch.float64)
    return priced.masked_fill_(points[0] >= REACHED, float("inf"))


def _cheapest_first(points: Tensor, rate: Rate) -> tuple[Tensor, Tensor]:
    priced, order = _priced(points, rate).sort(-1)
    return points.gather(-1, order.expand_as(points)), priced


def _sums(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], most: float) -> Iterator[Tensor]:
    """Sums (T, n) of a left and a right point of the same feature that are cheap enough."""
    (left_points, left_price), (right_points, right_price) = left, right
    fits_left = left_price + right_price[:, :1] <= most
    fits_right = right_price + left_price[:, :1] <= most
    roots = torch.nonzero(fits_left.any(1) & fits_right.any(1))[:, 0]
    if not len(roots):
        return
    size = int(fits_left[roots].sum(1).max()), int(fits_right[roots].sum(1).max())
    step = max(1, _CHUNK // (size[0] * size[1]))
    for begin in range(0, len(roots), step):
        part = roots[begin : begin + step]
        price = left_price[part, : size[0]].unsqueeze(2) + right_price[part, : size[1]].unsqueeze(1)
        root, first, second = torch.nonzero(price <= most, as_tuple=True)
        root = part[root]
        yield left_points[:, root, first] + right_points[:, root, second]


def _one_for_each_balance(points: Tensor) -> Tensor:
    if len(points) == 2:
        balance, group = torch.unique(points[1:], return_inverse=True)
        balance, group = balance[None], group[0]
    else:
        balance, group = torch.unique(points[1:], dim=1, return_inverse=True)
    cost = torch.full_like(balance[0], UNREACHABLE).scatter_reduce_(0, group, points[0], "amin")
    return torch.cat([cost[None], balance])


def cheapest_pair(
    left: Tensor, right: Tensor, limits: Tensor, least: float
) -> tuple[int, Tensor, Tensor] | None:
    """The sum of a left and a right point of least cost, below `least`, with all balances within limits.

    The right points that can go with a left point are an interval of costs, and one of each balance. By the
    total with the fewest pairs they are compared one by one. Returns the cost and both points (T,), or None
    if there is no such sum.
    """
    spans = []
    for number, limit in enumerate([least - 1.0, *limits.tolist()]):
        values, order = right[number].sort()
        begin = torch.zeros_like(left[number])
        if number > 0:
            begin = torch.searchsorted(values, -limit - left[number])
        end = torch.searchsorted(values, int(min(limit, REACHED)) - left[number], right=True)
        spans.append((int((end - begin).sum()), number, order, begin, end - begin))
    n_pairs, _, order, begin, count = min(spans, key=lambda span: span[:2])
    before, numbers = count.cumsum(0), torch.arange(len(count), device=count.device)
    best: tuple[int, Tensor, Tensor] | None = None
    chunks = torch.arange(_CHUNK, n_pairs + _CHUNK, _CHUNK, device=count.device)
    stops = torch.searchsorted(before, chunks).tolist()
    for start, stop in pairwise([0, *(min(stop + 1, len(count)) for stop in stops)]):
        first = torch.repeat_interleave(numbers[start:stop], count[start:stop])
        shift = begin[start:stop] - before[start:stop] + count[start:stop]
        place = torch.arange(len(first), device=count.device) + (int(before[start - 1]) if start else 0)
        second = order[place + shift[first - start]]
        cost = left[0, first] + right[0, second]
        fits = cost < least
        for one, other, limit in zip(left[1:], right[1:], limits, strict=True):
            fits &= (one[first] + other[second]).abs() <= limit
        kept = torch.nonzero(fits)[:, 0]
        if len(kept):
            place = kept[cost[kept].argmin()]
            least = float(cost[place])
            best = int(least), left[:, first[place]], right[:, second[place]]
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
    """The cheapest tree within a budget of depth 1 to 3 whose balances are within the task's limits.

    For any rates r, min (cost + r · balance) over the trees below a root, less |r| · limit, is at most the
    cost of a tree within the limits (weak duality). The rates that make the bound of all trees largest are
    sought; then roots are taken by their bounds, and of their subtrees those are summed that the bound of the
    other subtree leaves a chance to be cheaper than the best known tree, a point (T,).

    `memory` is for the subtrees of all roots; beyond it they are made again when needed.
    """
    roots = _Roots(problem, target, memory)
    limits = problem.limits
    best: Root | None = None
    least = float("inf") if known is None else float(known[0])
    bounds = torch.full((len(roots),), -float("inf"), dtype=torch.float64)
    done = torch.zeros(len(roots), dtype=torch.bool)
    try:
        rate = _best_rate(roots, limits, known, bounds, deadline)
        prices = torch.tensor([1.0, *map(abs, rate)], dtype=torch.float64)
        allowed = float(prices[1:] @ limits.cpu().to(torch.float64))
        lows, _ = roots.lows(rate, deadline)
        for number in torch.argsort(bounds).tolist():
            left, right = roots[number]
            slack = 1e-14 * float(prices @ (left.scale + right.scale).cpu()) + 1e-6
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
                        pair = cheapest_pair(first, second, limits, least)
                        if pair is not None:
                            least = float(pair[0])
                            best = Root(*roots.place(number), pair[1], pair[1] + pair[2])
            done[number] = True
    except OutOfTimeError:
        open_bound = float(bounds[~done].min()) if not done.all() else least
        return Found(best, min(least, open_bound), False)
    return Found(best, least, True)


class _Roots:
    """The two groups of subtrees below every root, for every way to share the nodes."""

    def __init__(self, problem: FrontProblem, target: Budget, memory: int) -> None:
        self._problem, self._halves = problem, splits(target)
        k, n = problem.leaf.shape[1], problem.n_features
        self._keep = 2 * n * (32 * n * (k * k * n + 2 * k)) <= memory
        self._kept: dict[int, tuple[Subtrees, Subtrees]] = {}
        self._last: tuple[int, FrontProblem, FrontProblem] | None = None

    def __len__(self) -> int:
        return self._problem.n_features * len(self._halves)

    def place(self, number: int) -> tuple[int, int]:
        """Feature and number of the pair of budgets."""
        return divmod(number, len(self._halves))

    def __getitem__(self, number: int) -> tuple[Subtrees, Subtrees]:
        if number in self._kept:
            return self._kept[number]
        feature, split = self.place(number)
        if self._last is None or self._last[0] != feature:
            self._last = feature, *self._problem.split(feature)
        _, absent, present = self._last
        first, second = self._halves[split]
        made = Subtrees(absent, first), Subtrees(present, second)
        if self._keep:
            self._kept[number] = made
        return made

    def lows(self, rate: Rate, deadline: Deadline) -> tuple[Tensor, Tensor]:
        """Least cost + rate * balance of each root's two subtrees (n, 2), and their points (n, 2, T)."""
        lows = torch.empty((len(self), 2), dtype=torch.float64)
        points = torch.empty((len(self), 2, len(self._problem.leaf)), dtype=torch.int64)
        for number in range(len(self)):
            deadline.check()
            for side, subtrees in enumerate(self[number]):
                least, point = subtrees.least(rate)
                lows[number, side], points[number, side] = least, point
        return lows, points


def _best_rate(
    roots: _Roots, limits: Tensor, known: Tensor | None, bounds: Tensor, deadline: Deadline
) -> Rate:
    """Rates that make the least bound large; `bounds` is raised to the largest bound of each root met.

    The bound is the least of one concave function of the rates for each tree, cost + rate · balance - |rate|
    · limit. The top of those of the trees met so far, of which one is within the limits, is a linear program;
    the tree that is cheapest at its rates joins them, until none is cheaper (Kelley's cutting planes).
    """
    n = len(limits)
    most = limits.cpu().to(torch.float64).numpy()

    def evaluate(rate: Rate) -> tuple[float, FloatArray]:
        lows, points = roots.lows(rate, deadline)
        values = lows.sum(1) - float(np.abs(rate) @ most)
        torch.maximum(bounds, values, out=bounds)
        which = int(values.argmin())
        return float(values[which]), points[which].sum(0).to(torch.float64).numpy()

    best: Rate = (0.0,) * n
    if not len(roots):
        return best
    top, point = evaluate(best)
    if known is None or top == float("inf") or (np.abs(point[1:]) <= most).all():
        return best
    met = [known.cpu().to(torch.float64).numpy(), point]
    for _ in range(_DUAL_STEPS * n):
        # Variables: the top, then rates as differences of two numbers >= 0, times the size of each balance.
        trees = np.stack(met)
        size = np.maximum(np.abs(trees[:, 1:]).max(axis=0), 1.0)
        slopes, allowed = trees[:, 1:] / size, most / size
        rows = np.hstack([np.ones((len(met), 1)), allowed - slopes, allowed + slopes])
        goal = np.array([-1.0, *[0.0] * (2 * n)])
        program = linprog(goal, rows, trees[:, 0], bounds=[(None, None), *[(0.0, None)] * (2 * n)])
        if program.x is None:  # numerically too hard: the best bound so far is one as well
            break
        rate = tuple(((program.x[1 : n + 1] - program.x[n + 1 :]) / size).tolist())
        value, point = evaluate(rate)
        if value > top:
            top, best = value, rate
        # What more trees could add is little of what is missing.
        if program.x[0] - top <= _LITTLE * (met[0][0] - top) + 1e-6:
            break
        met.append(point)
    return best

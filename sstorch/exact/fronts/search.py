"""The search for fronts: sets of nondominated totals, fairness balances, bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from sstorch.exact.deadline import Deadline, OutOfTimeError
from sstorch.exact.fronts.nondominated import nondominated, nondominated_rows
from sstorch.exact.fronts.problem import REACHED, UNREACHABLE, FrontProblem
from sstorch.exact.problem import Budget, splits

# Sums of points at a time, and points of subtrees at a time.
_CHUNK = 1 << 20
_PART = 1 << 22
# Rates tried for the bound of all trees.
_DUAL_STEPS = 10


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
    """The points (2, n) that no tree within a budget of depth up to 2 beats in cost and absolute balance."""
    limit = problem.task.limit
    front = _best(problem.leaf, limit)
    if target.nodes == 0 or problem.n_features == 0:
        return front
    for halves in splits(target):
        left = _cheapest_first(problem.children(halves[0])[:, 0], 0.0)[0]
        right = _cheapest_first(problem.children(halves[1])[:, 1], 0.0)[0]
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
    """All trees within a budget of depth up to 2, of any balance."""

    def __init__(self, problem: FrontProblem, target: Budget) -> None:
        self.leaf = problem.leaf
        self.halves: list[tuple[Tensor, Tensor]] = []
        if target.nodes and problem.n_features:
            self.halves = [
                (problem.children(first)[:, 0], problem.children(second)[:, 1])
                for first, second in splits(target)
            ]

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The largest absolute cost and balance of the points that are summed."""
        largest = [0, 0]
        for points in (self.leaf, *(half for pair in self.halves for half in pair)):
            size = points.abs().masked_fill_(points[0] >= REACHED, 0).flatten(1).amax(1).tolist()
            largest = [max(pair) for pair in zip(largest, size, strict=True)]
        return float(largest[0]), float(largest[1])

    def least(self, rate: float) -> tuple[float, Tensor]:
        """The least cost + rate * balance of a tree, infinite if there is none, and its point (2,)."""
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

    def within(self, rate: float, most: float) -> Iterator[Tensor]:
        """Points (2, n) of trees with cost + rate * balance <= most, one for each balance, by balance.

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


def _priced(points: Tensor, rate: float) -> Tensor:
    """Cost + rate * balance in float64, infinite where there is no point."""
    priced = points[0].to(torch.float64)
    if rate:
        priced = priced + rate * points[1].to(torch.float64)
    return priced.masked_fill_(points[0] >= REACHED, float("inf"))


def _cheapest_first(points: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    priced, order = _priced(points, rate).sort(-1)
    return points.gather(-1, order.expand_as(points)), priced


def _sums(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], most: float) -> Iterator[Tensor]:
    """Sums (2, n) of a left and a right point of the same feature that are cheap enough."""
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
    balance, group = torch.unique(points[1], return_inverse=True)
    cost = torch.full_like(balance, UNREACHABLE).scatter_reduce_(0, group, points[0], "amin")
    return torch.stack([cost, balance])


def cheapest_pair(left: Tensor, right: Tensor, limit: int) -> tuple[int, Tensor, Tensor] | None:
    """The sum of a left and a right point of least cost with an absolute balance within a limit.

    Of the right points that go with a left point, those in an interval of balances, the cheapest is found as
    the minimum of two overlapping ranges whose length is a power of two. Both groups, (2, l) and (2, r), come
    by increasing balance. Returns the cost and both points (2,), or None if no sum is within the limit.
    """
    if not left.shape[1] or not right.shape[1]:
        return None
    begin = torch.searchsorted(right[1], -limit - left[1])
    end = torch.searchsorted(right[1], limit - left[1], right=True)
    query = torch.nonzero(end > begin)[:, 0]
    begin, end = begin[query], end[query]
    best: tuple[int, Tensor, Tensor] | None = None
    cost, place = right[0], torch.arange(right.shape[1], device=right.device)
    width = 1
    while len(query):
        now = end - begin < 2 * width
        first, last = begin[now], end[now] - width
        if len(first):
            second_better = cost[last] < cost[first]
            sums = left[0, query[now]] + torch.where(second_better, cost[last], cost[first])
            least, which = sums.min(0)
            if best is None or int(least) < best[0]:
                partner = place[torch.where(second_better, last, first)[which]]
                best = int(least), left[:, query[now][which]], right[:, partner]
        query, begin, end = query[~now], begin[~now], end[~now]
        later = cost[width:] < cost[:-width]
        place = torch.where(later, place[width:], place[:-width])
        cost = torch.minimum(cost[width:], cost[:-width])
        width *= 2
    return best


class Root(NamedTuple):
    """A test at the root, the number of a pair of budgets in `splits`, and points (2,).

    `left` is that of the subtree where the literal is 0, `point` that of the tree.
    """

    feature: int
    split: int
    left: Tensor
    point: Tensor


class Found(NamedTuple):
    """The root of the best tree, None where none is better than the given one, and whether the search ended.

    No tree costs less than `lower_bound`, which is meant for searches that were cut short.
    """

    root: Root | None
    lower_bound: float
    complete: bool


def cheapest_tree(
    problem: FrontProblem, target: Budget, known: Tensor | None, memory: int, deadline: Deadline
) -> Found:
    """The cheapest tree within a budget of depth 3 whose balance is within the task's limit.

    For any rate r, min (cost + r balance) over the trees below a root, less |r| limit, is at most the cost of
    a tree within the limit (weak duality). The rate that makes the bound of all trees largest is sought; then
    roots are taken by their bounds, and of their subtrees those are summed that the bound of the other
    subtree leaves a chance to be cheaper than the best known tree, a point (2,).

    `memory` is for the subtrees of all roots; beyond it they are made anew when needed.
    """
    roots = _Roots(problem, target, memory)
    limit = problem.task.limit
    best: Root | None = None
    least = float("inf") if known is None else float(known[0])
    bounds = torch.full((len(roots),), -float("inf"), dtype=torch.float64)
    done = torch.zeros(len(roots), dtype=torch.bool)
    try:
        rate = _best_rate(roots, limit, known, bounds, deadline)
        lows, _ = roots.lows(rate, deadline)
        for number in torch.argsort(bounds).tolist():
            left, right = roots[number]
            slack = 1e-14 * sum(a + abs(rate) * b for a, b in (left.scale, right.scale)) + 1e-6
            if float(bounds[number]) <= least - 1.0 + slack:
                deadline.check()
                deadline.say(f"{int(done.sum())} of {len(roots)} roots, least cost {least:.6g}")
                most = least - 1.0 + abs(rate) * limit + slack
                for first in left.within(rate, most - float(lows[number, 1])):
                    for second in right.within(rate, most - float(lows[number, 0])):
                        pair = cheapest_pair(first, second, limit)
                        if pair is not None and pair[0] < least:
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

    def lows(self, rate: float, deadline: Deadline) -> tuple[Tensor, Tensor]:
        """Least cost + rate * balance of each root's two subtrees (n, 2), and their points (n, 2, 2)."""
        lows = torch.empty((len(self), 2), dtype=torch.float64)
        points = torch.empty((len(self), 2, 2), dtype=torch.int64)
        for number in range(len(self)):
            deadline.check()
            for side, subtrees in enumerate(self[number]):
                least, point = subtrees.least(rate)
                lows[number, side], points[number, side] = least, point
        return lows, points


def _best_rate(roots: _Roots, limit: int, known: Tensor | None, bounds: Tensor, deadline: Deadline) -> float:
    """A rate that makes the least bound large; `bounds` is raised to the largest bound of each root met.

    The dual is the lower envelope of one line for each tree, value cost + rate (balance - limit) on the side
    of the sign of the cheapest tree's balance. Its top is sought between a rising and a falling line, at
    their crossing.
    """

    def evaluate(rate: float) -> tuple[float, Tensor]:
        lows, points = roots.lows(rate, deadline)
        values = lows.sum(1) - abs(rate) * limit
        torch.maximum(bounds, values, out=bounds)
        which = int(values.argmin())
        return float(values[which]), points[which].sum(0)

    top, point = evaluate(0.0)
    sign = 1.0 if int(point[1]) > 0 else -1.0
    if abs(int(point[1])) <= limit or known is None or top == float("inf"):
        return 0.0
    rising = float(point[0]), sign * float(point[1]) - limit
    falling = float(known[0]), sign * float(known[1]) - limit
    best = 0.0
    for _ in range(_DUAL_STEPS):
        if not (falling[1] < 0.0 < rising[1] and falling[0] > rising[0]):
            break
        rate = (falling[0] - rising[0]) / (rising[1] - falling[1])
        crossing = rising[0] + rate * rising[1]
        value, point = evaluate(sign * rate)
        if value > top:
            top, best = value, sign * rate
        slope = sign * float(point[1]) - limit
        if value >= crossing - 1e-9 * abs(crossing) - 1e-6 or slope == 0.0:
            break
        if slope > 0.0:
            rising = float(point[0]), slope
        else:
            falling = float(point[0]), slope
    return best

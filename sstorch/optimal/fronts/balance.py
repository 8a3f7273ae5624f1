"""Least cost under a limit on a signed total: everything for trees of depth 0 to 2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from sstorch.optimal.fronts.base import REACHED, UNREACHABLE
from sstorch.optimal.fronts.nondominated import nondominated
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.states import Budget, splits

_CHUNK = 1 << 20
_PART = 1 << 22


def front(problem: FrontProblem, target: Budget, memory: int) -> Tensor:
    """The points (2, n) that no tree within a budget of depth 0, 1 or 2 beats in cost and absolute balance.

    Args:
        problem: rows and task.
        target: the budget.
        memory: bytes that sums of points may take at a time.
    """
    limit = problem.task.limit
    found = _best(problem.leaf, limit)
    if target.nodes == 0 or problem.n_features == 0:
        return found
    for halves in splits(target):
        left = _cheapest_first(problem.children(halves[0])[:, 0], 0.0)[0]
        right = _cheapest_first(problem.children(halves[1])[:, 1], 0.0)[0]
        order = torch.argsort(left[0, :, 0] + right[0, :, 0])
        left, right = left[:, order], right[:, order]
        chunk, begin = min(_CHUNK, memory // 64), 0
        while begin < problem.n_features:
            # What costs more than a tree in balance is beaten by it.
            most = int(found[0, found[1] == 0].amin()) if (found[1] == 0).any() else REACHED
            fits_left = (left[0, begin:] + right[0, begin:, :1] <= most).sum(1).cummax(0).values
            fits_right = (right[0, begin:] + left[0, begin:, :1] <= most).sum(1).cummax(0).values
            n_roots = torch.arange(1, len(fits_left) + 1, device=left.device)
            end = begin + max(1, int((fits_left * fits_right * n_roots <= chunk).sum()))
            first = left[:, begin:end, : int(fits_left[end - begin - 1])].unsqueeze(-1)
            second = right[:, begin:end, : int(fits_right[end - begin - 1])].unsqueeze(-2)
            balance = (first[1] + second[1]).flatten()
            kept = torch.nonzero(balance.abs() <= limit)[:, 0]
            sums = torch.stack([(first[0] + second[0]).flatten()[kept], balance[kept]])
            found = _best(torch.cat([found, _not_beaten(sums, found)], dim=1), limit)
            begin = end
    return found


def _best(points: Tensor, limit: int) -> Tensor:
    points = points[:, points[1].abs() <= limit]
    return points[:, nondominated(points[0], points[1].abs())]


def _not_beaten(points: Tensor, front: Tensor) -> Tensor:
    """The points that no point of a front by increasing cost beats."""
    cost = torch.cat([front[0], front.new_full((1,), REACHED)])
    # The cheapest point of the front that is as near to balance.
    cheapest = torch.searchsorted(-front[1].abs(), -points[1].abs())
    return points[:, points[0] < cost[cheapest]]


class Subtrees:
    """All trees within a budget of depth 0, 1 or 2 on some rows, before it is known what balance they need.

    Args:
        problem: rows and task.
        target: the budget.
    """

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
    the minimum of two overlapping ranges whose length is a power of two.

    Args:
        left: (2, l) points by increasing balance.
        right: (2, r), the same.
        limit: the limit.

    Returns:
        The cost and the two points (2,), or None if no sum is within the limit.
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

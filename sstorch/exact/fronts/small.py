"""Fronts of the trees of depth up to 2: totals that no other tree beats."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.exact.fronts.nondominated import nondominated, nondominated_rows
from sstorch.exact.fronts.problem import REACHED, FrontProblem
from sstorch.exact.problem import Budget, splits

# Sums of points at a time.
CHUNK = 1 << 20


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
        left = cheapest_first(problem.children(halves[0])[:, 0], 0.0)[0]
        right = cheapest_first(problem.children(halves[1])[:, 1], 0.0)[0]
        order = torch.argsort(left[0, :, 0] + right[0, :, 0])
        left, right = left[:, order], right[:, order]
        chunk, begin = min(CHUNK, memory // 64), 0
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


def with_prices(points: Tensor, rate: float) -> Tensor:
    """Cost + rate * balance in float64, infinite where there is no point."""
    priced = points[0].to(torch.float64)
    if rate:
        priced.add_(points[1], alpha=rate)
    return priced.masked_fill_(points[0] >= REACHED, float("inf"))


def cheapest_first(points: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Points (T, ..., n) by increasing cost + rate * balance, and that, (..., n)."""
    priced, order = with_prices(points, rate).sort(-1)
    return points.gather(-1, order.expand_as(points)), priced

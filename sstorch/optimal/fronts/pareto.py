"""Fronts of two costs."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.optimal.fronts.nondominated import nondominated, nondominated_rows
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.states import Budget, splits


def front(problem: FrontProblem, target: Budget, memory: int) -> Tensor:
    """The front (2, n) of all trees within a budget of depth 0, 1 or 2.

    Args:
        problem: rows and task.
        target: the budget.
        memory: bytes that sums of points may take at a time.
    """
    found = problem.leaf[:, nondominated(*problem.leaf)]
    if target.nodes == 0 or problem.n_features == 0:
        return found
    reduced: dict[Budget, Tensor] = {}
    for halves in splits(target):
        for half in halves:
            if half not in reduced:
                reduced[half] = torch.stack(nondominated_rows(*problem.children(half)))
        left, right = reduced[halves[0]][:, 0], reduced[halves[1]][:, 1]
        step = max(1, memory // (64 * left.shape[-1] * right.shape[-1] + 1))
        for begin in range(0, problem.n_features, step):
            part = slice(begin, begin + step)
            found, _ = join(found, left[:, part], right[:, part])
    return found


def join(found: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The front of points (2, n) and all sums of (2, ..., l) and (2, ..., r).

    Returns:
        The front (2, m), and where each of its points comes from, (m,): its number among the points, or n and
        its number among the sums.
    """
    sums = (left.unsqueeze(-1) + right.unsqueeze(-2)).flatten(1)
    points = torch.cat([found, sums], dim=1)
    index = nondominated(*points)
    return points[:, index], index

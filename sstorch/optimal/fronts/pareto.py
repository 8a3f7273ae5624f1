"""Fronts of two costs, and bounds that leave subtrees out."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from sstorch.optimal.fronts.base import REACHED
from sstorch.optimal.fronts.nondominated import nondominated, nondominated_rows
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.states import Budget, splits

_N_WEIGHTS = 10
_LARGEST_WEIGHT = 1 << 10
_EXACT = 1 << 52


def front(problem: FrontProblem, target: Budget, memory: int, kept: list[Tensor] | None = None) -> Tensor:
    """The front (2, n) of all trees within a budget of depth 0, 1 or 2.

    Args:
        problem: rows and task.
        target: the budget.
        memory: bytes that sums of points may take at a time.
        kept: for each way to share the nodes, (F,) bool, the features to be tried at the root; None is all.
    """
    found = problem.leaf[:, nondominated(*problem.leaf)]
    if target.nodes == 0 or problem.n_features == 0:
        return found
    for number, halves in enumerate(splits(target)):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        if kept is not None:
            left, right = left[:, kept[number]], right[:, kept[number]]
        left, right = (torch.stack(nondominated_rows(*half)) for half in (left, right))
        step = max(1, memory // (64 * left.shape[-1] * right.shape[-1] + 1))
        for begin in range(0, left.shape[1], step):
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


def normals(found: Tensor, largest: int) -> Tensor:
    """Weights (K, 2) of the two costs, whole numbers: normals of edges of a front's lower hull, and the axes.

    Args:
        found: the front (2, n).
        largest: no cost of a tree is larger in absolute value. Weighted sums of such costs are exact in
            float64; where no weights are small enough for that, K is 0.
    """
    size = min(_LARGEST_WEIGHT, _EXACT // (2 * largest + 1))
    if size < 1:
        return found.new_empty((0, 2)).to(torch.float64)
    hull: list[tuple[int, int]] = []
    for a, b in found.T.tolist():
        while len(hull) > 1 and _turns(hull[-2], hull[-1], (a, b)):
            hull.pop()
        hull.append((a, b))
    edges = [(p[1] - q[1], q[0] - p[0]) for p, q in pairwise(hull)]
    step = max(1, len(edges) // _N_WEIGHTS)
    scaled = {(1, 0), (0, 1)}
    for a, b in edges[::step]:
        scaled.add((max(1, round(size * a / max(a, b))), max(1, round(size * b / max(a, b)))))
    return torch.tensor(sorted(scaled), dtype=torch.float64, device=found.device)


def _turns(first: tuple[int, int], second: tuple[int, int], third: tuple[int, int]) -> bool:
    """Whether the second point is not below the line from the first to the third."""
    return (second[0] - first[0]) * (third[1] - first[1]) <= (second[1] - first[1]) * (third[0] - first[0])


def corners(found: Tensor) -> Tensor:
    """(2, J): the largest costs that a front does not beat; what improves it is at or below one of them."""
    ends = found.new_full((1,), REACHED)
    return torch.stack([torch.cat([found[0], ends]) - 1, torch.cat([ends, found[1]]) - 1])


class Floors:
    """Least weighted sums of costs of the trees within a budget, for several weights.

    Args:
        problem: rows and task.
        target: a budget of depth 0, 1 or 2.
        weights: (K, 2).
    """

    def __init__(self, problem: FrontProblem, target: Budget, weights: Tensor) -> None:
        self.least = _least(problem.leaf, weights)
        self.by_root: list[Tensor] = []
        if target.nodes and problem.n_features:
            for first, second in splits(target):
                absent, present = problem.children(first)[:, 0], problem.children(second)[:, 1]
                self.by_root.append(_least(absent, weights) + _least(present, weights))
                self.least = torch.minimum(self.least, self.by_root[-1].amin(1))

    def kept(self, other: Tensor, most: Tensor) -> list[Tensor]:
        """The features at the root (F,) that can reach one of the corners, for each way to share the nodes.

        Args:
            other: (K,), least weighted sums of the rest of the tree.
            most: (K, J), weighted sums of corners.
        """
        room = most - other[:, None]
        return [(floor.unsqueeze(2) <= room.unsqueeze(1)).all(0).any(1) for floor in self.by_root]


def _least(points: Tensor, weights: Tensor) -> Tensor:
    """(K, ...): least weighted sums of points (2, ..., M)."""
    sums = weights @ points.flatten(1).to(torch.float64)
    return sums.view(len(weights), *points.shape[1:]).amin(-1)

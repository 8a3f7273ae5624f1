"""From the point of a tree back to the tree."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.exceptions import TrainingError
from sstorch.optimal.fronts.base import REACHED
from sstorch.optimal.fronts.problem import FrontProblem
from sstorch.optimal.patterns import Patterns
from sstorch.optimal.states import Budget, budgets, splits
from sstorch.optimal.tree import Nested

# A leaf is its decision, a branch node (feature, subtree where 0, subtree where 1).
Decided = int | tuple[int, "Decided", "Decided"]

_CHUNK = 1 << 22


def locate(problem: FrontProblem, target: Budget, point: Tensor) -> Decided:
    """A smallest tree within a budget of depth 0, 1 or 2 that has a point (2,).

    Raises:
        TrainingError: there is none.
    """
    for smaller in budgets(target.depth, target.nodes):
        found = _locate(problem, smaller, point)
        if found is not None:
            return found
    raise TrainingError(f"no tree has the totals {point.tolist()} of the search; please report this")


def _locate(problem: FrontProblem, target: Budget, point: Tensor) -> Decided | None:
    if target.nodes == 0:
        same = torch.nonzero((problem.leaf == point[:, None]).all(0))[:, 0]
        return int(same[0]) if len(same) else None
    if problem.n_features == 0:
        return None
    for halves in splits(target):
        left, right = problem.children(halves[0])[:, 0], problem.children(halves[1])[:, 1]
        step = max(1, _CHUNK // (left.shape[-1] * right.shape[-1]))
        for begin in range(0, problem.n_features, step):
            wanted = point[:, None, None] - left[:, begin : begin + step]
            # (J, l, r) where the right child has what is missing.
            same = (wanted[0].unsqueeze(2) == right[0, begin : begin + step].unsqueeze(1)) & (
                wanted[1].unsqueeze(2) == right[1, begin : begin + step].unsqueeze(1)
            )
            same &= (left[0, begin : begin + step] < REACHED).unsqueeze(2)
            places = torch.nonzero(same)
            if len(places):
                offset, first, _ = places[0].tolist()
                feature = begin + offset
                return below(problem, feature, halves, left[:, feature, first], point)
    return None


def below(
    problem: FrontProblem, feature: int, halves: tuple[Budget, Budget], left: Tensor, point: Tensor
) -> Decided:
    """The tree with a test at the root, and subtrees within two budgets.

    Args:
        problem: rows and task.
        feature: the test.
        halves: budgets of the two subtrees.
        left: point (2,) of the subtree where the literal is 0.
        point: that of the tree.

    Raises:
        TrainingError: there is none.
    """
    absent, present = problem.split(feature)
    return feature, locate(absent, halves[0], left), locate(present, halves[1], point - left)


def in_columns(tree: Decided, patterns: Patterns) -> tuple[Nested, list[int]]:
    """A tree in columns of the matrix instead of literals, and the decisions of its leaves in preorder."""
    if isinstance(tree, int):
        return None, [tree]
    feature, *children = tree
    parts = [in_columns(child, patterns) for child in children]
    if patterns.flipped[feature]:
        parts.reverse()
    (absent, first), (present, second) = parts
    return (int(patterns.columns[feature]), absent, present), first + second

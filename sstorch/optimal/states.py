"""Budgets of a subtree, (depth, nodes), and how two subtrees make a larger one."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Budget(NamedTuple):
    """What a subtree may use at most.

    Attributes:
        depth: tests on the longest path.
        nodes: branch nodes, `depth <= nodes <= 2 ** depth - 1`.
    """

    depth: int
    nodes: int


def budget(depth: int, nodes: int) -> Budget:
    """The smallest equivalent budget: n nodes are never deeper than n, nor more than the depth can hold."""
    nodes = min(nodes, 2**depth - 1)
    return Budget(min(depth, nodes), nodes)


@cache
def budgets(depth: int, max_nodes: int) -> tuple[Budget, ...]:
    """All different budgets up to a depth and a number of nodes, (0, 0) first, smaller ones before larger."""
    return tuple(Budget(d, n) for d in range(depth + 1) for n in range(d, 2**d) if n <= max_nodes)


@cache
def splits(target: Budget) -> tuple[tuple[Budget, Budget], ...]:
    """The budgets of the two subtrees below a root that uses one node of `target`."""
    most = 2 ** (target.depth - 1) - 1
    rest = target.nodes - 1
    return tuple(
        (budget(target.depth - 1, left), budget(target.depth - 1, rest - left))
        for left in range(max(0, rest - most), min(most, rest) + 1)
    )

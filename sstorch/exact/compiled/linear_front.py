"""From rows to the front of trees of depth up to 3, of tasks whose costs add up over rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sstorch._types import IntArray
from sstorch.exact.compiled.costs import Form
from sstorch.exact.compiled.curves import Curves
from sstorch.exact.compiled.fronts import Sums, add_root, whole_front
from sstorch.exact.compiled.prices import Prices
from sstorch.exact.compiled.search import CompiledProblem
from sstorch.exact.deadline import Deadline
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import Budget, budget, splits

# Where a tree of a front comes from: feature of the root, budgets of both subtrees, point of the left one;
# None if it has to be found.
Origin = tuple[int, tuple[Budget, Budget], IntArray] | None


def linear_front(
    points: IntArray, patterns: Patterns, target: Budget, min_leaf: int, deadline: Deadline
) -> tuple[IntArray, Callable[[int], Origin], bool]:
    """All trees within a budget of depth up to 3 that no other tree beats in two costs.

    `points` (2, K, N) are both costs of each row under each decision. Returns the costs (2, n) of the trees,
    where the tree of a number comes from, and whether there was time for all.
    """
    channels = np.concatenate(
        [points.swapaxes(0, 1).reshape(-1, points.shape[2]), np.ones((1, points.shape[2]))]
    )
    values = patterns.sums(channels)
    n = patterns.n_features
    problem = CompiledProblem.of(patterns, values, Form(0), Curves.none(n), Prices.none())
    moments = problem.moments(max(target.depth, 2))
    largest = float(np.abs(points).max(axis=1).sum(axis=1).max())
    sums = Sums.of(moments, n, float(min_leaf), largest)
    front, size = whole_front(sums, min(target.nodes, 3))
    complete = True
    # As `add_root` counts them.
    halves = [pair for nodes in (1, 2, 3) for pair in splits(budget(2, nodes))]
    if target.depth > 2:
        halves += splits(target)
        nodes = np.array([[half.nodes for half in pair] for pair in splits(target)], dtype=np.int64)
        for root in range(n):
            if deadline.passed:
                complete = False
                break
            deadline.say(f"{root} of {n} roots, {size} trees on the front")
            front, size = add_root(sums, root, nodes, front, size)
    found = front[:, :size].astype(np.int64)

    def origin(number: int) -> Origin:
        root, split = found[2:4, number].tolist()
        return (int(patterns.order[root]), halves[split], found[4:, number]) if root >= 0 else None

    return found[:2], origin, complete

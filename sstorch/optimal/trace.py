"""From the tables of a search back to a tree."""

from __future__ import annotations

import torch
from torch import Tensor

from sstorch.optimal.levels import Levels
from sstorch.optimal.packed_trace import smallest, trace_packed
from sstorch.optimal.problem import Problem
from sstorch.optimal.search import root_costs, search
from sstorch.optimal.states import Budget, splits
from sstorch.optimal.tree import Nested


def trace(problem: Problem, levels: Levels, target: Budget) -> Nested:
    """A tree of least cost within a budget, in features of `problem`; of equal ones, one with few nodes.

    The tables of single literals and of pairs give the root and its children; what is below them is searched
    anew among their rows.
    """
    if target.nodes == 0 or problem.moments.n_features == 0:
        return None
    costs = {state: float(cost) for state, cost in root_costs(problem, levels).items()}
    target = smallest(costs, target)
    if target.nodes == 0:
        return None
    if levels.packed:
        return trace_packed(levels, target)
    singles = _single_costs(problem, levels)
    feature, halves = _best_split(singles, target)
    children: list[Nested] = []
    for sign in (0, 1):
        part = problem.where(feature, bool(sign))
        children.append(_child(part, levels, feature, sign, halves[sign], singles))
    return feature, children[0], children[1]


def _child(
    part: Problem, levels: Levels, feature: int, sign: int, target: Budget, singles: dict[Budget, Tensor]
) -> Nested:
    """The subtree below a child of the root, the rows of which are `part`."""
    target = smallest({s: float(v[sign, feature]) for s, v in singles.items()}, target)
    if target.nodes == 0:
        return None
    if target.depth <= 2 or 2 not in levels.tables:
        return trace(part, search(part, target.depth, target.nodes)[0], target)
    second, halves = _best_split(_pair_costs(problem=part, levels=levels, feature=feature, sign=sign), target)
    children: list[Nested] = []
    for answer in (0, 1):
        rows, below = part.where(second, bool(answer)), halves[answer]
        if below.nodes == 0:
            children.append(None)
        else:
            children.append(trace(rows, search(rows, below.depth, below.nodes)[0], below))
    return second, children[0], children[1]


def _single_costs(problem: Problem, levels: Levels) -> dict[Budget, Tensor]:
    """(2, F) least cost below each literal for every budget."""
    leaf = problem.singles()
    if levels.depth == 1:
        return {Budget(0, 0): leaf}
    return levels.values(1, leaf, levels.tables[1])


def _pair_costs(problem: Problem, levels: Levels, feature: int, sign: int) -> dict[Budget, Tensor]:
    """(2, F) least cost below each second literal, the first one given; infinite for the first one itself."""
    table = levels.tables[2]
    smaller = table[:, sign, :, feature, :feature]
    larger = table[:, :, sign, feature + 1 :, feature]
    hole = table.new_full((*table.shape[:1], 2, 1), float("inf"))
    leaf = problem.singles()
    leaf[:, feature] = float("inf")
    return levels.values(2, leaf, torch.cat([smaller, hole, larger], dim=-1))


def _best_split(costs: dict[Budget, Tensor], target: Budget) -> tuple[int, tuple[Budget, Budget]]:
    """The feature, and the budgets where it is 0 and where it is 1, of least summed cost."""
    found = []
    for left, right in splits(target):
        least, feature = (costs[left][0] + costs[right][1]).min(0)
        found.append((float(least), int(feature), (left, right)))
    _, best, halves = min(found, key=lambda f: f[0])
    return best, halves

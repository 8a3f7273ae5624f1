"""From packed tables back to a tree."""

from __future__ import annotations

from math import comb

import numpy as np
import numpy.typing as npt
import torch

from sstorch.optimal.levels import Levels
from sstorch.optimal.packed import members, supersets
from sstorch.optimal.states import Budget, splits
from sstorch.optimal.tree import Nested

FloatArray = npt.NDArray[np.float64]


def smallest(costs: dict[Budget, float], target: Budget) -> Budget:
    """The budget with the fewest nodes that reaches the cost of `target`, up to rounding."""
    goal = costs[target] + 1e-13 * max(abs(cost) for cost in costs.values() if cost != float("inf"))
    fitting = [s for s, cost in costs.items() if cost <= goal and s.depth <= target.depth]
    return min((s for s in fitting if s.nodes <= target.nodes), key=lambda s: (s.nodes, s.depth))


def trace_packed(levels: Levels, target: Budget) -> Nested:
    """A tree of least cost within a budget; of equal ones, one with few nodes."""
    costs = {
        k: {state: value.cpu().numpy() for state, value in values.items()}
        for k, values in levels.packed.items()
    }
    paid = {k: value.cpu().numpy() for k, value in levels.paid.items()}
    return _below(levels, costs, paid, (), (), target)


def _below(
    levels: Levels,
    costs: dict[int, dict[Budget, FloatArray]],
    paid: dict[int, FloatArray],
    literals: tuple[int, ...],
    signs: tuple[int, ...],
    target: Budget,
) -> Nested:
    """The subtree below a set of literals, features in falling order with a sign each."""
    size, n = len(literals), levels.n_features
    rank = sum(comb(feature, size - i) for i, feature in enumerate(literals))
    here = {s: float(v[(*signs, rank)] if size else v) for s, v in costs[size].items()}
    target = smallest(here, target)
    if target.nodes == 0:
        return None
    larger = size + 1
    sets = members(n, larger)
    place = supersets(n, larger, torch.device("cpu"))[:, rank].numpy()
    position, number = place // sets.shape[1], place % sets.shape[1]
    index = [
        np.array([(*signs[:j], 0, *signs[j:]) for j in range(larger)])[position, i] for i in range(larger)
    ]
    best: tuple[float, int, tuple[Budget, Budget]] | None = None
    for left, right in splits(target):
        without = costs[larger][left][(*index, number)]
        index_with = [np.where(position == i, 1, sign) for i, sign in enumerate(index)]
        sums = without + costs[larger][right][(*index_with, number)]
        if paid:
            sums += paid[larger][(*signs, position, number)]
        at = int(sums.argmin())
        if best is None or sums[at] < best[0]:
            best = (float(sums[at]), at, (left, right))
    assert best is not None
    _, at, halves = best
    j, feature = int(position[at]), int(sets[position[at], number[at]])
    above = (*literals[:j], feature, *literals[j:])
    children = [
        _below(levels, costs, paid, above, (*signs[:j], sign, *signs[j:]), halves[sign]) for sign in (0, 1)
    ]
    return feature, children[0], children[1]

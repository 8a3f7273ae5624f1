"""The dynamic programme: costs of all cells, then the least cost below ever smaller sets."""

from __future__ import annotations

from torch import Tensor

from sstorch.optimal.block_search import search_blocks
from sstorch.optimal.levels import INFINITY, Levels
from sstorch.optimal.packed_search import fits, search_packed
from sstorch.optimal.problem import Problem
from sstorch.optimal.states import Budget


def search(problem: Problem, depth: int, max_nodes: int, deadline: float = INFINITY) -> tuple[Levels, bool]:
    """Fill the tables of all sets of up to `depth` - 1 features.

    Sets of the largest size come first: each of their cells is evaluated once, and splits every set that it
    has one more literal than. Then each smaller size adds its own leaves.

    Args:
        problem: rows, task and conditions.
        depth: D, 0 to 5.
        max_nodes: most branch nodes.
        deadline: a time of `time.perf_counter`.

    Returns:
        The tables, and whether the search was complete; where it was not, the tables hold costs of trees, but
        not of all trees.
    """
    n_features = problem.moments.n_features
    levels = Levels(n_features, depth, max_nodes)
    if 0 in (depth, max_nodes, n_features):
        levels.allocate(problem.moments.values)
        return levels, True
    if fits(problem, depth):
        return levels, search_packed(problem, levels, deadline)
    return levels, search_blocks(problem, levels, deadline)


def root_costs(problem: Problem, levels: Levels) -> dict[Budget, Tensor]:
    """Least cost of a tree on all rows for every budget."""
    return levels.packed[0] if levels.packed else levels.values(0, problem.leaf(), levels.tables[0])

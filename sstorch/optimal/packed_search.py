"""The search with all sets of a size in one array: for few sets, few and large steps."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import torch
from torch import Tensor

from sstorch.optimal.levels import Levels
from sstorch.optimal.packed import (
    PackedCells,
    StreamedPackedCells,
    offset,
    supersets,
)
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget, splits

# Cells of all sets of the largest size, and bytes of products of literals: beyond, blocks of sets are faster.
_MOST_CELLS = {1: 1 << 22, 2: 1 << 22, 3: 1 << 22, 4: 1 << 20, 5: 1 << 20}
_MOST_PRODUCTS = 1 << 28
# Doubles of one array of cells: several of them fit the second level cache.
_CELLS_AT_ONCE = 1 << 15


def fits(problem: Problem, depth: int) -> bool:
    """Whether this search is the better one."""
    n = problem.moments.n_features
    rows = len(problem.moments.literals)
    one_step = problem.task.n_steps == 1
    products = offset(n, 1 + (depth - depth // 2 if one_step else depth))
    few = products * rows * (8 if one_step else 1) <= _MOST_PRODUCTS
    return depth <= n and few and comb(n, depth) << depth <= _MOST_CELLS[depth]


def search_packed(problem: Problem, levels: Levels, deadline: float) -> bool:
    """Fill the tables; returns whether there was time for all."""
    try:
        _search(problem, levels, deadline)
    except OutOfTimeError:
        levels.packed.clear()
        levels.allocate(problem.moments.values)
        return False
    return True


def _search(problem: Problem, levels: Levels, deadline: float) -> None:
    n, depth = levels.n_features, levels.depth
    source: PackedCells | StreamedPackedCells
    if problem.task.n_steps == 1:
        source = PackedCells(problem.moments.row_sums(), depth)
    else:
        source = StreamedPackedCells(problem.moments, problem.task.accumulate, depth)
    sizes = None if problem.sizes is None else PackedCells(problem.sizes.row_sums(), depth)
    table = torch.empty(0)
    for k in range(depth, 0, -1):
        costs = []
        for part in _parts(comb(n, k), k):
            check_time(deadline)
            below = None if sizes is None else sizes.cells(k, part)
            costs.append(problem.cost(source.cells(k, part), below))
        leaf = costs[0] if len(costs) == 1 else torch.cat(costs, dim=-1)
        levels.packed[k] = levels.values(k, leaf, table) if k < depth else {Budget(0, 0): leaf}
        table = _split(levels, k, levels.packed[k])
    levels.packed[0] = levels.values(0, problem.leaf(), table[..., 0])


def _parts(n_sets: int, k: int) -> Iterator[slice]:
    """Ranges of sets with about `_CELLS_AT_ONCE` cells."""
    step = max(1, _CELLS_AT_ONCE >> k)
    for start in range(0, n_sets, step):
        yield slice(start, min(n_sets, start + step))


def _split(levels: Levels, k: int, values: dict[Budget, Tensor]) -> Tensor:
    """Least cost of the (k - 1)-sets for every budget but the leaf's: (n_budgets, 2, ..., 2, C(F, k - 1))."""
    leaf = values[Budget(0, 0)]
    n, n_sets = levels.n_features, leaf.shape[-1]
    index = supersets(n, k, leaf.device)
    targets = levels.budgets(k - 1)[1:]
    signs = leaf.shape[: k - 1]
    table = leaf.new_empty(len(targets), *signs, index.shape[1])
    sums = leaf.new_empty(*signs, k, n_sets)
    for found, target in zip(table, targets, strict=True):
        for j in range(k):
            out = sums.select(-2, j)
            for number, (left, right) in enumerate(splits(target)):
                without, with_it = values[left].select(j, 0), values[right].select(j, 1)
                if number == 0:
                    torch.add(without, with_it, out=out)
                else:
                    torch.minimum(out, without + with_it, out=out)
        flat = sums.view(-1, k * n_sets)
        candidates = flat.gather(1, index.view(1, -1).expand(len(flat), -1))
        torch.amin(candidates.view(*signs, *index.shape), dim=-2, out=found)
    return table

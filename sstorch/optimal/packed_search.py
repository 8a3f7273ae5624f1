"""The search with all sets of a size in one array: for few sets, few and large steps."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor

from sstorch.optimal.branching import Payments
from sstorch.optimal.estimate import PACKED_CELLS
from sstorch.optimal.indicator import FEW_ROWS, IndicatorCells, chunks
from sstorch.optimal.levels import Levels
from sstorch.optimal.packed import (
    CELLS_AT_ONCE,
    PackedCells,
    offset,
    ranges,
    supersets,
)
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget, splits

# Cells of all sets of the largest size, and bytes of products of literals: beyond, blocks of sets are faster.
_MOST_CELLS = {1: PACKED_CELLS, 2: PACKED_CELLS, 3: PACKED_CELLS, 4: 1 << 20, 5: 1 << 21}
_MOST_CELLS_WITH_STEPS = 1 << 21
_MOST_PRODUCTS = 1 << 28


def fits(problem: Problem, depth: int) -> bool:
    """Whether this search is the better one."""
    n, rows = problem.moments.n_features, len(problem.moments.literals)
    if problem.branch_cost is not None:  # the other search does not know of it
        return True
    steps = problem.task.n_steps > 1
    if depth > n or comb(n, depth) << depth > (_MOST_CELLS_WITH_STEPS if steps else _MOST_CELLS[depth]):
        return False
    if steps:
        sums = len(problem.moments.values) * offset(n, depth + 1)
        large = min(problem.task.n_steps, rows // FEW_ROWS)
        return max(8 * sums * large, 4 * rows * comb(n, 2)) <= _MOST_PRODUCTS
    return 8 * rows * offset(n, 1 + depth - depth // 2) <= _MOST_PRODUCTS


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
    depth = levels.depth
    leaves = _leaf_costs(problem, depth, deadline)
    table = torch.empty(0)
    if problem.branch_cost is not None:
        assert problem.sizes is not None
        payments = Payments(problem.sizes, problem.branch_cost, depth)
        levels.paid = {k: payments.at(k) for k in range(depth, 0, -1)}
    for k in range(depth, 0, -1):
        leaf = leaves(k)
        levels.packed[k] = levels.values(k, leaf, table) if k < depth else {Budget(0, 0): leaf}
        table = _split(levels, k, levels.packed[k])
    levels.packed[0] = levels.values(0, leaves(0).view(()), table[..., 0])


def _leaf_costs(problem: Problem, depth: int, deadline: float) -> Callable[[int], Tensor]:
    """A function that gives the costs (2, ..., 2, C(F, k)) of all leaves with k literals."""
    n = problem.moments.n_features
    sizes = None if problem.sizes is None else PackedCells(problem.sizes.row_sums(), depth)
    if problem.task.n_steps > 1:
        leaves = _streamed(problem, depth, sizes, deadline)
        return lambda k: leaves[k]
    source = PackedCells(problem.moments.row_sums(), depth)

    def costs(k: int) -> Tensor:
        if k == 0:
            return problem.leaf()
        found = []
        for part in ranges(comb(n, k), max(1, CELLS_AT_ONCE >> k)):
            check_time(deadline)
            below = None if sizes is None else sizes.cells(k, part)
            found.append(problem.cost(source.cells(k, part), below))
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)

    return costs


def _streamed(problem: Problem, depth: int, sizes: PackedCells | None, deadline: float) -> list[Tensor]:
    """The same for all k, for a task with steps."""
    cells = IndicatorCells(problem.moments, problem.task.accumulate, depth)
    found: list[list[Tensor]] = [[] for _ in range(depth + 1)]
    # A dozen arrays of cells are at work.
    for chunk in chunks(problem.moments.n_features, depth, CELLS_AT_ONCE // 2):
        check_time(deadline)
        cost = problem.task.cost(cells.cells(chunk))
        for part, values in zip(chunk, cost.split([part.cells for part in chunk]), strict=True):
            below = None if sizes is None else sizes.cells(part.size, part.sets)
            found[part.size].append(problem.masked(values.view(*(2,) * part.size, -1), below))
    return [torch.cat(parts, dim=-1) for parts in found]


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
        if k in levels.paid:
            sums += levels.paid[k]
        flat = sums.view(-1, k * n_sets)
        candidates = flat.gather(1, index.view(1, -1).expand(len(flat), -1))
        torch.amin(candidates.view(*signs, *index.shape), dim=-2, out=found)
    return table

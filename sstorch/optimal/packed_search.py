"""The search with all sets of a size in one array: for few sets, few and large steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb

import torch
from torch import Tensor

from sstorch.optimal.branching import Payments
from sstorch.optimal.estimate import PACKED_CELLS
from sstorch.optimal.levels import Levels
from sstorch.optimal.packed import (
    CELLS_AT_ONCE,
    IndicatorCells,
    PackedCells,
    StreamedPackedCells,
    offset,
    ranges,
    supersets,
)
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget, splits

# Cells of all sets of the largest size, and bytes of products of literals: beyond, blocks of sets are faster.
_MOST_CELLS = {1: PACKED_CELLS, 2: PACKED_CELLS, 3: PACKED_CELLS, 4: 1 << 21, 5: 1 << 21}
_MOST_PRODUCTS = 1 << 28


def fits(problem: Problem, depth: int) -> bool:
    """Whether this search is the better one."""
    n, rows = problem.moments.n_features, len(problem.moments.literals)
    if problem.branch_cost is not None:  # the other search does not know of it
        return True
    if depth > n or comb(n, depth) << depth > _MOST_CELLS[depth]:
        return False
    if problem.task.n_steps > 1:
        return _fastest(problem, depth) != "blocks"
    return 8 * rows * offset(n, 1 + depth - depth // 2) <= _MOST_PRODUCTS


def _fastest(problem: Problem, depth: int) -> str:
    """For a task with steps: ``"indicator"``, ``"packed"`` or ``"blocks"``, by time measured on one core."""
    n, rows, steps = problem.moments.n_features, len(problem.moments.literals), problem.task.n_steps
    sets = offset(n, depth + 1)
    cells = sum(comb(n, k) << k for k in range(1, depth + 1))
    parts = 1 + cells // CELLS_AT_ONCE
    blocks = {2: 1, 3: n}.get(depth, n**2 // 12 if depth == 4 else n**3 // 48)
    # Nanoseconds: of what is done once per row, of a cell in a step, and of the calls of a step.
    times = {"blocks": 0.5 * rows * sets + steps * (7 * cells + 60_000 * blocks)}
    if 8 * rows * cells <= _MOST_PRODUCTS:
        times["indicator"] = 1.0 * rows * cells + steps * (3.5 * cells + 16_000 * parts)
    if rows * sets <= _MOST_PRODUCTS:
        times["packed"] = 2.0 * depth * rows * sets + steps * (11 * cells + 25_000 * (parts + depth))
    return min(times, key=times.__getitem__)


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
    levels.packed[0] = levels.values(0, problem.leaf(), table[..., 0])


def _leaf_costs(problem: Problem, depth: int, deadline: float) -> Callable[[int], Tensor]:
    """A function that gives the costs (2, ..., 2, C(F, k)) of all leaves with k literals."""
    n = problem.moments.n_features
    sizes = None if problem.sizes is None else PackedCells(problem.sizes.row_sums(), depth)
    if problem.task.n_steps > 1 and _fastest(problem, depth) == "indicator":
        cells = IndicatorCells(problem.moments, problem.task.accumulate, depth)

        def in_time(steps: Iterator[Tensor]) -> Tensor:
            check_time(deadline)
            return problem.task.cost(steps)

        leaves = cells.costs(in_time)
        every = slice(None)
        return lambda k: problem.masked(leaves[k], None if sizes is None else sizes.cells(k, every))
    source: PackedCells | StreamedPackedCells
    if problem.task.n_steps == 1:
        source = PackedCells(problem.moments.row_sums(), depth)
    else:
        source = StreamedPackedCells(problem.moments, problem.task.accumulate, depth)

    def costs(k: int) -> Tensor:
        found = []
        for part in ranges(comb(n, k), max(1, CELLS_AT_ONCE >> k)):
            check_time(deadline)
            below = None if sizes is None else sizes.cells(k, part)
            found.append(problem.cost(source.cells(k, part), below))
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)

    return costs


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

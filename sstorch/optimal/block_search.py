"""The search in blocks of sets with the same middle features: for more sets than one array can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sstorch.optimal.levels import Levels
from sstorch.optimal.pivots import PivotCells
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget
from sstorch.optimal.stream import StreamedCells


def search_blocks(problem: Problem, levels: Levels, deadline: float) -> bool:
    """Fill the tables; returns whether there was time for all."""
    levels.allocate(problem.moments.values)
    blocks, complete = Blocks(problem, levels), True
    for k in range(levels.depth, 1, -1):
        try:
            _STAGES[k](blocks, levels, deadline)
        except OutOfTimeError:
            complete = False
    values = _leaves(levels, 1, problem.singles(), levels.tables.get(1, _EMPTY))
    levels.absorb(levels.tables[0], levels.split(1, values, 0, 0))
    return complete


class Blocks:
    """Costs of the cells of blocks of sets of features a > b > c > d > e.

    The arguments and axes of the methods are those of `PivotCells`, without the axis of channels; b falls
    from one call to the next, and so does c in `quints`.

    Args:
        problem: rows, task and conditions.
        levels: gives the size of the largest sets and the grid.
    """

    def __init__(self, problem: Problem, levels: Levels) -> None:
        self._problem = problem
        depth, grid = levels.depth, levels.grid
        task = problem.task
        self._cells = (
            PivotCells(problem.moments.row_sums(), depth, grid)
            if task.n_steps == 1
            else StreamedCells(problem.moments, task.accumulate, grid)
        )
        self._sizes = None if problem.sizes is None else PivotCells(problem.sizes.row_sums(), depth, grid)

    def pairs(self) -> Tensor:
        """All pairs in both orders."""
        return self._cost(lambda cells: cells.pairs())

    def triples(self, b: int) -> Tensor:
        """Sets with this b."""
        return self._cost(lambda cells: cells.triples(b))

    def quads(self, b: int, number: int) -> Tensor:
        """Sets with this b, and c and d in a range."""
        return self._cost(lambda cells: cells.quads(b, number))

    def quints(self, c: int, b: int, number: int) -> Tensor:
        """Sets with this b and c, and d and e in a range."""
        return self._cost(lambda cells: cells.quints(c, b, number))

    def _cost(self, cells: Callable[[PivotCells | StreamedCells], Iterator[Tensor]]) -> Tensor:
        return self._problem.cost(cells(self._cells), None if self._sizes is None else cells(self._sizes))


def _leaves(levels: Levels, k: int, cost: Tensor, table: Tensor) -> dict[Budget, Tensor]:
    return levels.values(k, cost, table) if k < levels.depth else {Budget(0, 0): cost}


def _stage2(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """All pairs at once, each in both orders."""
    table = levels.tables.get(2, _EMPTY)
    if len(table):
        table = torch.minimum(table, table.permute(0, 2, 1, 4, 3))
    values = _leaves(levels, 2, blocks.pairs(), table)
    levels.absorb(levels.tables[1], levels.split(2, values, 1, 2))


def _stage3(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c for each b."""
    pairs = levels.tables[2]
    for b in range(levels.n_features - 2, 0, -1):
        check_time(deadline)
        a = slice(b + 1, levels.n_features)
        table = _EMPTY
        if levels.triples:
            number, place = levels.grid.find(b)
            table = levels.triples[number][..., a, place, :b]
        values = _leaves(levels, 3, blocks.triples(b), table)
        levels.absorb(pairs[..., b, :b], levels.split(3, values, 0, 2))
        levels.absorb(pairs[..., a, :b], levels.split(3, values, 1, None))
        levels.absorb(pairs[..., a, b], levels.split(3, values, 2, 3))


def _stage4(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d for each b, the last two in a range of the grid."""
    triples = levels.triples
    for b in range(levels.n_features - 2, 0, -1):
        a = slice(b + 1, levels.n_features)
        number_b, place = levels.grid.find(b)
        for number in levels.grid.below(b):
            check_time(deadline)
            c, d = levels.grid[number]
            table = levels.quads[b][number] if levels.quads else _EMPTY
            values = _leaves(levels, 4, blocks.quads(b, number), table)
            levels.absorb(triples[number][..., b, :, :], levels.split(4, values, 0, 3))
            levels.absorb(triples[number][..., a, :, :], levels.split(4, values, 1, None))
            levels.absorb(triples[number_b][..., a, place, d], levels.split(4, values, 2, 4))
            levels.absorb(triples[number_b][..., a, place, c], levels.split(4, values, 3, 5))


def _stage5(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d > e for each c and b, the last two in a range of the grid."""
    for c in range(levels.n_features - 2, 0, -1):
        number_c, place = levels.grid.find(c)
        for b in range(levels.n_features - 2, c, -1):
            below_b = levels.quads[b][number_c]
            for number in levels.grid.below(c):
                check_time(deadline)
                d, e = levels.grid[number]
                values = {Budget(0, 0): blocks.quints(c, b, number)}
                below_c = levels.quads[c][number]
                levels.absorb(below_c[..., b - c - 1, :, :], levels.split(5, values, 0, 4))
                levels.absorb(below_c[..., b - c :, :, :], levels.split(5, values, 1, None))
                levels.absorb(levels.quads[b][number], levels.split(5, values, 2, None))
                levels.absorb(below_b[..., place, e], levels.split(5, values, 3, 5))
                levels.absorb(below_b[..., place, d], levels.split(5, values, 4, 6))


_STAGES = {2: _stage2, 3: _stage3, 4: _stage4, 5: _stage5}
_EMPTY = torch.empty(0)

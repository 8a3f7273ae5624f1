"""The search in blocks of sets with the same middle features: for more sets than one array can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sstorch.optimal.levels import Levels
from sstorch.optimal.pivots import GRID, PivotCells
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget
from sstorch.optimal.stream import StreamedCells

# Doubles of one array of cells: several of them fit the second level cache.
CELLS_PER_BLOCK = 1 << 16


def search_blocks(problem: Problem, levels: Levels, deadline: float) -> bool:
    """Fill the tables; returns whether there was time for all."""
    levels.allocate(problem.moments.values)
    blocks, complete = Blocks(problem, levels.depth), True
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

    The arguments and axes of the methods are those of `PivotCells`, without the axis of channels; b falls from
    one call to the next, and so does c within `quints`.

    Args:
        problem: rows, task and conditions.
        depth: size of the largest sets.
    """

    def __init__(self, problem: Problem, depth: int) -> None:
        self._problem = problem
        task = problem.task
        self._cells = (
            PivotCells(problem.moments.row_sums(), depth)
            if task.n_steps == 1
            else StreamedCells(problem.moments, task.accumulate)
        )
        self._sizes = None if problem.sizes is None else PivotCells(problem.sizes.row_sums(), depth)

    def pairs(self) -> Tensor:
        """All pairs in both orders."""
        return self._cost(lambda cells: cells.pairs())

    def triples(self, b: int) -> Tensor:
        """Sets with this b."""
        return self._cost(lambda cells: cells.triples(b))

    def quads(self, b: int, c: slice) -> Tensor:
        """Sets with this b and some c."""
        return self._cost(lambda cells: cells.quads(b, c))

    def quints(self, c: int, b: int, d: slice) -> Tensor:
        """Sets with this b and c, and some d."""
        return self._cost(lambda cells: cells.quints(c, b, d))

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
        table = levels.tables[3][..., a, b, :b] if 3 in levels.tables else _EMPTY
        values = _leaves(levels, 3, blocks.triples(b), table)
        levels.absorb(pairs[..., b, :b], levels.split(3, values, 0, 2))
        levels.absorb(pairs[..., a, :b], levels.split(3, values, 1, None))
        levels.absorb(pairs[..., a, b], levels.split(3, values, 2, 3))


def _stage4(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d for each b, some c at a time, d below the largest of them."""
    triples = levels.tables[3]
    for b in range(levels.n_features - 2, -1, -1):
        a = slice(b + 1, levels.n_features)
        for c in _chunks(b, 16 * (a.stop - a.start)):
            check_time(deadline)
            d = slice(0, c.stop)
            table = levels.by_second[b][..., c, d] if levels.by_second else _EMPTY
            values = _leaves(levels, 4, blocks.quads(b, c), table)
            levels.absorb(triples[..., b, c, d], levels.split(4, values, 0, 3))
            levels.absorb(triples[..., a, c, d], levels.split(4, values, 1, None))
            levels.absorb(triples[..., a, b, d], levels.split(4, values, 2, 4))
            levels.absorb(triples[..., a, b, c], levels.split(4, values, 3, 5))


def _stage5(blocks: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d > e for each c and b."""
    for c in range(levels.n_features - 2, -1, -1):
        for b in range(levels.n_features - 2, c, -1):
            a = slice(b + 1, levels.n_features)
            for d in _chunks(c, 32 * (a.stop - a.start)):
                check_time(deadline)
                e = slice(0, d.stop)
                values = {Budget(0, 0): blocks.quints(c, b, d)}
                below_c, below_b = levels.by_second[c], levels.by_second[b]
                levels.absorb(below_c[..., b - c - 1, d, e], levels.split(5, values, 0, 4))
                levels.absorb(below_c[..., b - c :, d, e], levels.split(5, values, 1, None))
                levels.absorb(below_b[..., d, e], levels.split(5, values, 2, None))
                levels.absorb(below_b[..., c, e], levels.split(5, values, 3, 5))
                levels.absorb(below_b[..., c, d], levels.split(5, values, 4, 6))


_STAGES = {2: _stage2, 3: _stage3, 4: _stage4, 5: _stage5}
_EMPTY = torch.empty(0)


def _chunks(stop: int, cells_each: int) -> Iterator[slice]:
    """Ranges of features c below `stop` that do not cross the grid of moments.

    Each range, with all d below its end, has about `CELLS_PER_BLOCK` cells where the grid allows; moments are
    on a grid that counts "not asked for" as its first entry.
    """
    start = 0
    while start < stop:
        end = min(stop, (start + 1) // GRID * GRID + GRID - 1)
        most = max(1, CELLS_PER_BLOCK // (cells_each * end))
        end = min(end, start + most)
        yield slice(start, end)
        start = end

"""The dynamic programme: costs of all cells, then the least cost below ever smaller sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sstorch.optimal.levels import INFINITY, Levels
from sstorch.optimal.moments import Moments
from sstorch.optimal.pivots import GRID, PivotCells
from sstorch.optimal.states import Budget
from sstorch.optimal.stream import StreamedCells
from sstorch.optimal.tasks import Task

# Doubles of one array of cells: several of them fit the second level cache.
CELLS_PER_BLOCK = 1 << 16


class Problem:
    """Rows to grow trees on, a task, and the conditions that leaves have to meet.

    Args:
        task: the objective.
        moments: the task's entries.
        sizes: entries with the channels rows and events, or None where no condition needs them.
        min_leaf: least number of rows of a leaf.
        min_events: least number of events of a leaf.
    """

    def __init__(
        self, task: Task, moments: Moments, sizes: Moments | None, min_leaf: int, min_events: int
    ) -> None:
        self.task, self.moments, self.sizes = task, moments, sizes
        self.min_leaf, self.min_events = min_leaf, min_events
        self.n_cells = 0

    def where(self, feature: int, present: bool) -> Problem:
        """The rows in which the literal of a feature is 1, or is 0."""
        moments = self.moments.where(self.moments.has(feature) == present)
        sizes = None if self.sizes is None else self.sizes.where(self.sizes.has(feature) == present)
        return Problem(self.task, moments, sizes, self.min_leaf, self.min_events)

    def leaf(self) -> Tensor:
        """Cost of all rows as one leaf, a scalar tensor."""
        return self._cost(lambda m: m.total(), lambda total: total)

    def singles(self) -> Tensor:
        """(2, F): costs of the rows without and with each literal."""

        def cells(pair: Tensor) -> Tensor:
            single, total = pair[:, :-1], pair[:, -1:]
            return torch.stack([total - single, single], dim=1)

        def sums(moments: Moments) -> Iterator[Tensor]:
            for single, total in zip(moments.singles(), moments.total(), strict=True):
                yield torch.cat([single, total[:, None]], dim=1)

        return self._cost(sums, cells)

    def blocks(self, depth: int) -> Blocks:
        """Costs of sets of features, for a search of trees of some depth."""
        return Blocks(self, depth)

    def masked(self, cost: Tensor, sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs, infinite where a leaf has too few rows or events."""
        if sizes is not None:
            rows, events = next(sizes)
            cost.masked_fill_((rows < self.min_leaf) | (events < self.min_events), INFINITY)
        self.n_cells += cost.numel()
        return cost

    def _cost(
        self, sums: Callable[[Moments], Iterator[Tensor]], cells: Callable[[Tensor], Tensor]
    ) -> Tensor:
        cost = self.task.cost(cells(step) for step in self.task.accumulate(sums(self.moments)))
        sizes = None if self.sizes is None else (cells(step) for step in sums(self.sizes))
        return self.masked(cost, sizes)


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
            PivotCells(problem.moments, depth)
            if task.n_steps == 1
            else StreamedCells(problem.moments, task.accumulate)
        )
        self._sizes = None if problem.sizes is None else PivotCells(problem.sizes, depth)

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
        cost = self._problem.task.cost(cells(self._cells))
        return self._problem.masked(cost, None if self._sizes is None else cells(self._sizes))


class OutOfTimeError(Exception):
    """The time limit was reached; raised and caught inside the engine."""


def search(problem: Problem, depth: int, max_nodes: int, deadline: float = INFINITY) -> tuple[Levels, bool]:
    """Fill the tables of all sets of up to `depth` - 1 features.

    Sets of the largest size come first: each of their cells is evaluated once, and splits every set that it
    has one more literal than. Then each smaller size adds its own leaves.

    Args:
        problem: rows, task and conditions.
        depth: D, 1 to 5.
        max_nodes: most branch nodes.
        deadline: a time of `time.perf_counter`.

    Returns:
        The tables, and whether the search was complete; where it was not, the tables hold costs of trees, but
        not of all trees.
    """
    n_features = problem.moments.n_features
    levels = Levels(n_features, depth, max_nodes, problem.moments.values)
    complete = True
    if depth == 0 or n_features == 0:
        return levels, complete
    blocks = problem.blocks(depth)
    for k in range(depth, 1, -1):
        try:
            _STAGES[k](blocks, levels, deadline)
        except OutOfTimeError:
            complete = False
    values = _leaves(levels, 1, problem.singles(), levels.tables.get(1, _EMPTY))
    levels.absorb(levels.tables[0], levels.split(1, values, 0, 0))
    return levels, complete


def root_costs(problem: Problem, levels: Levels) -> dict[Budget, Tensor]:
    """Least cost of a tree on all rows for every budget."""
    return levels.values(0, problem.leaf(), levels.tables[0])


def _leaves(levels: Levels, k: int, cost: Tensor, table: Tensor) -> dict[Budget, Tensor]:
    return levels.values(k, cost, table) if k < levels.depth else {Budget(0, 0): cost}


def _check(deadline: float) -> None:
    if time.perf_counter() > deadline:
        raise OutOfTimeError


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
        _check(deadline)
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
            _check(deadline)
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
                _check(deadline)
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

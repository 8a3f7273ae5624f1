"""The search in blocks of sets with the same middle features: for more sets than one array can hold."""

from __future__ import annotations

from math import comb

import torch
from torch import Tensor

from sstorch.optimal.blocks import Block, blocks, pair_run, partners
from sstorch.optimal.levels import Levels
from sstorch.optimal.pivots import PivotCells
from sstorch.optimal.problem import OutOfTimeError, Problem, check_time
from sstorch.optimal.states import Budget
from sstorch.optimal.stream import StreamedCells


def search_blocks(problem: Problem, levels: Levels, deadline: float) -> bool:
    """Fill the tables; returns whether there was time for all."""
    levels.allocate(problem.moments.values)
    costs, complete = Blocks(problem, levels.depth), True
    for k in range(levels.depth, 1, -1):
        try:
            _STAGES[k](problem, costs, levels, deadline)
        except OutOfTimeError:
            complete = False
    values = _leaves(levels, 1, problem.singles(), levels.tables.get(1, _EMPTY))
    levels.absorb(levels.tables[0], [found.amin(0) for found in levels.split(1, values, 0)])
    return complete


class Blocks:
    """Costs of the cells of blocks of sets of features.

    Args:
        problem: rows, task and conditions.
        depth: size of the largest sets.
    """

    def __init__(self, problem: Problem, depth: int) -> None:
        self._problem = problem
        moments, accumulate = problem.moments, problem.task.accumulate
        self._cells = (
            PivotCells(moments.row_sums(), depth)
            if problem.task.n_steps == 1
            else StreamedCells(moments, accumulate)
        )
        self._sizes = None if problem.sizes is None else PivotCells(problem.sizes.row_sums(), depth)

    def costs(self, block: Block) -> Tensor:
        """(2, ..., 2, R, L), signs in falling order of the features; pivots have to fall."""
        sizes = None if self._sizes is None else self._sizes.cells(block)
        return self._problem.cost(self._cells.cells(block), sizes)


def _leaves(levels: Levels, k: int, cost: Tensor, table: Tensor) -> dict[Budget, Tensor]:
    return levels.values(k, cost, table) if k < levels.depth else {Budget(0, 0): cost}


def _stage2(problem: Problem, costs: Blocks, levels: Levels, deadline: float) -> None:
    """All pairs at once, each in both orders."""
    table = levels.tables.get(2, _EMPTY)
    if len(table):
        table = torch.minimum(table, table.permute(0, 2, 1, 4, 3))
    values = _leaves(levels, 2, problem.pairs(), table)
    levels.absorb(levels.tables[1], [found.amin(-1) for found in levels.split(2, values, 1)])


def _stage3(problem: Problem, costs: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c for each b."""
    n, pairs = levels.n_features, levels.tables[2]
    for b in range(n - 2, 0, -1):
        for block in blocks(n, b, 1, 1, _CELLS):
            check_time(deadline)
            a = block.runs[0].first
            table = levels.triples[..., pair_run(b), a] if levels.depth > 3 else _EMPTY
            values = _leaves(levels, 3, costs.costs(block), table)
            levels.absorb(pairs[..., b, :b], [found.amin(-1) for found in levels.split(3, values, 0)])
            levels.absorb(pairs[..., a, :b].mT, levels.split(3, values, 1))
            levels.absorb(pairs[..., a, b], [found.amin(-2) for found in levels.split(3, values, 2)])


def _stage4(problem: Problem, costs: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d for each b."""
    n, triples = levels.n_features, levels.triples
    for b in range(n - 2, 1, -1):
        below = slice(0, comb(b, 2))
        for block in blocks(n, b, 1, 2, _CELLS):
            check_time(deadline)
            a = block.runs[0].first
            table = levels.quads[b][..., a.start - b - 1 : a.stop - b - 1] if levels.depth > 4 else _EMPTY
            values = _leaves(levels, 4, costs.costs(block), table)
            levels.absorb(triples[..., below, b], [found.amin(-1) for found in levels.split(4, values, 0)])
            levels.absorb(triples[..., below, a], levels.split(4, values, 1))
            levels.absorb(triples[..., pair_run(b), a], _without_one_below(levels, 4, values, b))


def _stage5(problem: Problem, costs: Blocks, levels: Levels, deadline: float) -> None:
    """Sets a > b > c > d > e for each c."""
    n, quads = levels.n_features, levels.quads
    for c in range(n - 3, 1, -1):
        below = slice(0, comb(c, 2))
        for block in blocks(n, c, 2, 2, _CELLS):
            check_time(deadline)
            values = {Budget(0, 0): costs.costs(block)}
            (no_a,), (no_b,), (no_c,) = (levels.split(5, values, sign) for sign in range(3))
            (one_below,) = _without_one_below(levels, 5, values, c)
            for run in block.runs:
                b, place = run.second, run.place
                assert b is not None
                a = slice(run.first.start - b - 1, run.first.stop - b - 1)
                levels.absorb(quads[c][..., b - c - 1], [no_a[..., place].amin(-1)])
                levels.absorb(
                    quads[c][..., run.first.start - c - 1 : run.first.stop - c - 1], [no_b[..., place]]
                )
                levels.absorb(quads[b][..., below, a], [no_c[..., place]])
                levels.absorb(quads[b][..., pair_run(c), a], [one_below[..., place]])


def _without_one_below(levels: Levels, k: int, values: dict[Budget, Tensor], pivot: int) -> list[Tensor]:
    """Least costs (signs, x, L) of sets with one feature x below the pivot, split by a second one."""
    found = []
    leaf = values[Budget(0, 0)]
    index, height = partners(pivot, leaf.device), leaf.shape[-2]
    if k == levels.depth:
        both = leaf.new_empty(*leaf.shape[: k - 1], 2 * height, leaf.shape[-1])
        torch.add(leaf.select(k - 1, 0), leaf.select(k - 1, 1), out=both[..., :height, :])
        torch.add(leaf.select(k - 2, 0), leaf.select(k - 2, 1), out=both[..., height:, :])
        sums = [both]
    else:
        smaller, larger = levels.split(k, values, k - 1), levels.split(k, values, k - 2)
        sums = [torch.cat(pair, dim=-2) for pair in zip(smaller, larger, strict=True)]
    for both in sums:
        rows = both.index_select(-2, index)
        found.append(rows.unflatten(-2, (pivot - 1, pivot)).amin(-3))
    return found


_STAGES = {2: _stage2, 3: _stage3, 4: _stage4, 5: _stage5}
_EMPTY = torch.empty(0)
# Cells of a block: several arrays of them fit the second level cache.
_CELLS = 1 << 17

"""The search over trees, by blocks of features or packed bits, and the way back to the best tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.exact.blocks import FeatureBlock, PivotCells, StreamedCells, blocks, pair_run, partners
from sstorch.exact.deadline import NEVER, Deadline, OutOfTimeError
from sstorch.exact.packed import (
    CELLS_AT_ONCE,
    FEW_ROWS,
    IndicatorCells,
    PackedCells,
    chunks,
    members,
    offset,
    ranges,
    supersets,
)
from sstorch.exact.problem import PACKED_CELLS, Budget, Found, Levels, Payments, Problem, smallest, splits
from sstorch.exact.tree import Nested

_EMPTY = torch.empty(0)
# Cells of a block: several arrays of them fit the second level cache.
_CELLS = 1 << 17
# Cells of all sets of the largest size, and bytes of products of literals: beyond, blocks of sets are faster.
_MOST_CELLS = {1: PACKED_CELLS, 2: PACKED_CELLS, 3: PACKED_CELLS, 4: 1 << 20, 5: 1 << 21}
_MOST_CELLS_WITH_STEPS = 1 << 21
_MOST_PRODUCTS = 1 << 28


def search_tables(problem: Problem, depth: int, max_nodes: int, deadline: Deadline) -> Found:
    """Least costs of all budgets; without enough time for all trees those of some."""
    levels, complete = search(problem, depth, max_nodes, deadline)
    costs = {state: float(cost) for state, cost in root_costs(problem, levels).items()}
    return Found(costs, partial(trace, problem, levels), problem.n_cells, complete)


def search(problem: Problem, depth: int, max_nodes: int, deadline: Deadline = NEVER) -> tuple[Levels, bool]:
    """Fill the tables of all sets of up to `depth` - 1 features.

    Sets of the largest size come first: each of their cells is evaluated once, and splits every set that it
    has one more literal than. Then each smaller size adds its own leaves.

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


def search_blocks(problem: Problem, levels: Levels, deadline: Deadline) -> bool:
    """Fill the tables; returns whether there was time for all."""
    levels.allocate(problem.moments.values)
    costs, complete = Blocks(problem, levels.depth), True
    for k in range(levels.depth, 1, -1):
        try:
            _STAGES[k](problem, costs, levels, deadline)
        except OutOfTimeError:
            complete = False
    values = _leaves(levels, 1, problem.singles(), levels.tables.get(1, _EMPTY))
    levels.absorb(levels.tables[0], [cost.amin(0) for cost in levels.split(1, values, 0)])
    return complete


class Blocks:
    """Costs of the cells of blocks of sets of features, the largest of `depth` features."""

    def __init__(self, problem: Problem, depth: int) -> None:
        self._problem = problem
        moments, accumulate = problem.moments, problem.task.accumulate
        self._cells = (
            PivotCells(moments.row_sums(), depth)
            if problem.task.n_steps == 1
            else StreamedCells(moments, accumulate)
        )
        self._sizes = None if problem.sizes is None else PivotCells(problem.sizes.row_sums(), depth)

    def costs(self, block: FeatureBlock) -> Tensor:
        """(2, ..., 2, R, L), signs in falling order of the features; pivots have to fall."""
        sizes = None if self._sizes is None else self._sizes.cells(block)
        return self._problem.cost(self._cells.cells(block), sizes)


def _leaves(levels: Levels, k: int, cost: Tensor, table: Tensor) -> dict[Budget, Tensor]:
    return levels.values(k, cost, table) if k < levels.depth else {Budget(0, 0): cost}


def _stage2(problem: Problem, costs: Blocks, levels: Levels, deadline: Deadline) -> None:
    """All pairs at once, each in both orders."""
    table = levels.tables.get(2, _EMPTY)
    if len(table):
        table = torch.minimum(table, table.permute(0, 2, 1, 4, 3))
    values = _leaves(levels, 2, problem.pairs(), table)
    levels.absorb(levels.tables[1], [cost.amin(-1) for cost in levels.split(2, values, 1)])


def _stage3(problem: Problem, costs: Blocks, levels: Levels, deadline: Deadline) -> None:
    """Sets a > b > c for each b."""
    n, pairs = levels.n_features, levels.tables[2]
    for b in range(n - 2, 0, -1):
        for block in blocks(n, b, 1, 1, _CELLS):
            deadline.check()
            deadline.say(f"sets of 3 features, the second is number {b} of {n}, down to 1")
            a = block.runs[0].first
            table = levels.triples[..., pair_run(b), a] if levels.depth > 3 else _EMPTY
            values = _leaves(levels, 3, costs.costs(block), table)
            levels.absorb(pairs[..., b, :b], [cost.amin(-1) for cost in levels.split(3, values, 0)])
            levels.absorb(pairs[..., a, :b].mT, levels.split(3, values, 1))
            levels.absorb(pairs[..., a, b], [cost.amin(-2) for cost in levels.split(3, values, 2)])


def _stage4(problem: Problem, costs: Blocks, levels: Levels, deadline: Deadline) -> None:
    """Sets a > b > c > d for each b."""
    n, triples = levels.n_features, levels.triples
    for b in range(n - 2, 1, -1):
        below = slice(0, comb(b, 2))
        for block in blocks(n, b, 1, 2, _CELLS):
            deadline.check()
            deadline.say(f"sets of 4 features, the second is number {b} of {n}, down to 2")
            a = block.runs[0].first
            table = levels.quads[b][..., a.start - b - 1 : a.stop - b - 1] if levels.depth > 4 else _EMPTY
            values = _leaves(levels, 4, costs.costs(block), table)
            levels.absorb(triples[..., below, b], [cost.amin(-1) for cost in levels.split(4, values, 0)])
            levels.absorb(triples[..., below, a], levels.split(4, values, 1))
            levels.absorb(triples[..., pair_run(b), a], _without_one_below(levels, 4, values, b))


def _stage5(problem: Problem, costs: Blocks, levels: Levels, deadline: Deadline) -> None:
    """Sets a > b > c > d > e for each c."""
    n, quads = levels.n_features, levels.quads
    for c in range(n - 3, 1, -1):
        below = slice(0, comb(c, 2))
        for block in blocks(n, c, 2, 2, _CELLS):
            deadline.check()
            deadline.say(f"sets of 5 features, the third is number {c} of {n}, down to 2")
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
    least = []
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
        least.append(rows.unflatten(-2, (pivot - 1, pivot)).amin(-3))
    return least


_STAGES = {2: _stage2, 3: _stage3, 4: _stage4, 5: _stage5}


def fits(problem: Problem, depth: int) -> bool:
    """True if the search by packed arrays is the faster one."""
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


def search_packed(problem: Problem, levels: Levels, deadline: Deadline) -> bool:
    """Fill the tables; returns whether there was time for all."""
    try:
        _search(problem, levels, deadline)
    except OutOfTimeError:
        levels.packed.clear()
        levels.allocate(problem.moments.values)
        return False
    return True


def _search(problem: Problem, levels: Levels, deadline: Deadline) -> None:
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


def _leaf_costs(problem: Problem, depth: int, deadline: Deadline) -> Callable[[int], Tensor]:
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
        parts = []
        for part in ranges(comb(n, k), max(1, CELLS_AT_ONCE >> k)):
            deadline.check()
            below = None if sizes is None else sizes.cells(k, part)
            parts.append(problem.cost(source.cells(k, part), below))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    return costs


def _streamed(problem: Problem, depth: int, sizes: PackedCells | None, deadline: Deadline) -> list[Tensor]:
    """The same for all k, for a task with steps."""
    cells = IndicatorCells(problem.moments, problem.task.accumulate, depth)
    by_size: list[list[Tensor]] = [[] for _ in range(depth + 1)]
    # A dozen arrays of cells are at work.
    for chunk in chunks(problem.moments.n_features, depth, CELLS_AT_ONCE // 2):
        deadline.check()
        cost = problem.task.cost(cells.cells(chunk))
        for part, values in zip(chunk, cost.split([part.cells for part in chunk]), strict=True):
            below = None if sizes is None else sizes.cells(part.size, part.sets)
            by_size[part.size].append(problem.masked(values.view(*(2,) * part.size, -1), below))
    return [torch.cat(parts, dim=-1) for parts in by_size]


def _split(levels: Levels, k: int, values: dict[Budget, Tensor]) -> Tensor:
    """Least cost of the (k - 1)-sets for every budget but the leaf's: (n_budgets, 2, ..., 2, C(F, k - 1))."""
    leaf = values[Budget(0, 0)]
    n, n_sets = levels.n_features, leaf.shape[-1]
    index = supersets(n, k, leaf.device)
    targets = levels.budgets(k - 1)[1:]
    signs = leaf.shape[: k - 1]
    table = leaf.new_empty(len(targets), *signs, index.shape[1])
    sums = leaf.new_empty(*signs, k, n_sets)
    for least, target in zip(table, targets, strict=True):
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
        torch.amin(candidates.view(*signs, *index.shape), dim=-2, out=least)
    return table


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
        arrays = {
            k: {state: value.cpu().numpy() for state, value in values.items()}
            for k, values in levels.packed.items()
        }
        paid = {k: value.cpu().numpy() for k, value in levels.paid.items()}
        return _below(levels, arrays, paid, (), (), target)
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
    candidates = []
    for left, right in splits(target):
        least, feature = (costs[left][0] + costs[right][1]).min(0)
        candidates.append((float(least), int(feature), (left, right)))
    _, best, halves = min(candidates, key=lambda candidate: candidate[0])
    return best, halves

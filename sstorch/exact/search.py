"""The search over trees in torch: all sets of features at once, or root by root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import comb

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.exact.deadline import NEVER, Deadline, OutOfTimeError
from sstorch.exact.packed import (
    CELLS_AT_ONCE,
    FeaturePart,
    IndicatorCells,
    PackedCells,
    chunks,
    members,
    ranges,
    supersets,
)
from sstorch.exact.problem import (
    Budget,
    Found,
    Levels,
    Problem,
    budgets,
    packable,
    payments,
    smallest,
    splits,
)
from sstorch.exact.tree import Nested
from sstorch.threads import on_threads

# Sums of two subtrees that are compared at once, on a CPU.
_SUMS_AT_ONCE = 1 << 16


def search_tables(problem: Problem, depth: int, max_nodes: int, deadline: Deadline) -> Found:
    """Least costs of all budgets; without enough time for all trees those of some."""
    n = problem.moments.n_features
    if 0 in (depth, max_nodes, n):
        return _leaf_alone(problem, depth, max_nodes, complete=True)
    if fits(problem, depth):
        return _search_packed(problem, depth, max_nodes, deadline)
    return _search_roots(problem, depth, max_nodes, deadline)


def fits(problem: Problem, depth: int) -> bool:
    """Whether all sets of up to `depth` features are searched in one array for each size."""
    if problem.branch_cost is not None:  # what a test costs depends on all features above it
        return True
    moments, n_steps = problem.moments, problem.task.n_steps
    return packable(len(moments.literals), moments.n_features, n_steps, len(moments.values), depth)


def _leaf_alone(problem: Problem, depth: int, max_nodes: int, complete: bool) -> Found:
    """The result of a search without splits."""
    costs = dict.fromkeys(budgets(depth, max_nodes), float(problem.leaf()))
    return Found(costs, lambda target: None, problem.n_cells, complete)


@dataclass(frozen=True)
class _Root:
    """A split of all rows, and the budgets of the trees on both sides."""

    feature: int
    halves: tuple[Budget, Budget]


def _search_roots(problem: Problem, depth: int, max_nodes: int, deadline: Deadline) -> Found:
    """Each feature at the root, the rows without and with it searched one after the other."""
    states = budgets(depth, max_nodes)
    leaf = float(problem.leaf())
    costs, roots = dict.fromkeys(states, leaf), dict[Budget, _Root]()
    below = depth - 1, min(max_nodes - 1, 2 ** (depth - 1) - 1)
    complete, n_cells, n = True, problem.n_cells, problem.moments.n_features
    for feature in range(n):
        deadline.say(f"trees of depth {depth}: root {feature + 1} of {n}")
        if deadline.passed:
            complete = False
            break
        sides = [
            search_tables(problem.where(feature, present), *below, deadline) for present in (False, True)
        ]
        complete = complete and all(side.complete for side in sides)
        n_cells += sum(side.n_cells for side in sides)
        for target in states[1:]:
            for halves in splits(target):
                cost = sides[0].costs[halves[0]] + sides[1].costs[halves[1]]
                if cost < costs[target]:
                    costs[target], roots[target] = cost, _Root(feature, halves)
    for state in states[1:]:
        smaller = min(
            (s for s in states if s.depth <= state.depth and s.nodes <= state.nodes), key=costs.__getitem__
        )
        costs[state] = costs[smaller]
    return Found(costs, partial(_tree_of_roots, problem, costs, roots), n_cells, complete)


def _tree_of_roots(
    problem: Problem, costs: dict[Budget, float], roots: dict[Budget, _Root], target: Budget
) -> Nested:
    """A tree of least cost within a budget, of equal ones one with few nodes; subtrees are searched again."""
    root = roots.get(smallest(costs, target))
    if root is None:
        return None
    sides = [
        search_tables(problem.where(root.feature, bool(sign)), *half, NEVER).tree(half)
        for sign, half in enumerate(root.halves)
    ]
    return root.feature, sides[0], sides[1]


def _search_packed(problem: Problem, depth: int, max_nodes: int, deadline: Deadline) -> Found:
    """All sets of a size in one array."""
    levels = Levels(problem.moments.n_features, depth, max_nodes)
    try:
        _search(problem, levels, deadline)
    except OutOfTimeError:
        return _leaf_alone(problem, depth, max_nodes, complete=False)
    costs = {state: float(cost) for state, cost in levels.costs[0].items()}
    return Found(costs, partial(_trace, levels), problem.n_cells, True)


def _search(problem: Problem, levels: Levels, deadline: Deadline) -> None:
    depth = levels.depth
    leaves = _leaf_costs(problem, depth, deadline)
    table = torch.empty(0)
    if problem.branch_cost is not None:
        levels.paid = payments(problem, depth)
    for k in range(depth, 0, -1):
        leaf = leaves(k)
        levels.costs[k] = levels.values(k, leaf, table) if k < depth else {Budget(0, 0): leaf}
        table = _split(levels, k, levels.costs[k], problem.n_threads)
    levels.costs[0] = levels.values(0, leaves(0).view(()), table[..., 0])


def _leaf_costs(problem: Problem, depth: int, deadline: Deadline) -> Callable[[int], Tensor]:
    """A function that gives the costs (2, ..., 2, C(F, k)) of all leaves with k literals."""
    n = problem.moments.n_features
    sizes = None if problem.sizes is None else PackedCells(problem.sizes.row_sums(), depth, problem.n_threads)
    if problem.task.n_steps > 1:
        leaves = _streamed(problem, depth, sizes, deadline)
        return lambda k: leaves[k]
    source = PackedCells(problem.moments.row_sums(), depth, problem.n_threads)

    def costs(k: int) -> Tensor:
        if k == 0:
            return problem.leaf()
        out = problem.moments.values.new_empty(*(2,) * k, comb(n, k))

        def fill(part: slice) -> None:
            deadline.check()
            below = None if sizes is None else sizes.cells(k, part)
            out[..., part] = problem.cost(source.cells(k, part), below)

        on_threads(fill, list(ranges(comb(n, k), max(1, CELLS_AT_ONCE >> k))), problem.n_threads)
        problem.n_cells += out.numel()
        return out

    return costs


def _streamed(problem: Problem, depth: int, sizes: PackedCells | None, deadline: Deadline) -> list[Tensor]:
    """The same for all k, for a task with steps."""
    cells = IndicatorCells(problem.moments, problem.task.accumulate, depth, problem.n_threads)
    by_size: list[list[Tensor]] = [[] for _ in range(depth + 1)]
    # A dozen arrays of cells are at work.
    every = list(chunks(problem.moments.n_features, depth, CELLS_AT_ONCE // 2))

    def costs(chunk: list[FeaturePart]) -> list[Tensor]:
        deadline.check()
        cost = problem.task.cost(cells.cells(chunk)).split([part.cells for part in chunk])
        below = (None if sizes is None else sizes.cells(part.size, part.sets) for part in chunk)
        shaped = (values.view(*(2,) * part.size, -1) for part, values in zip(chunk, cost, strict=True))
        return [problem.masked(values, size) for values, size in zip(shaped, below, strict=True)]

    for chunk, found in zip(every, on_threads(costs, every, problem.n_threads), strict=True):
        for part, values in zip(chunk, found, strict=True):
            by_size[part.size].append(values)
            problem.n_cells += part.cells
    return [torch.cat(parts, dim=-1) for parts in by_size]


def _split(levels: Levels, k: int, values: dict[Budget, Tensor], n_threads: int) -> Tensor:
    """Least cost of the (k - 1)-sets for every budget but the leaf's: (n_budgets, 2, ..., 2, C(F, k - 1))."""
    leaf = values[Budget(0, 0)]
    n, n_sets = levels.n_features, leaf.shape[-1]
    index = supersets(n, k, leaf.device)
    targets = levels.budgets(k - 1)[1:]
    signs = leaf.shape[: k - 1]
    table = leaf.new_empty(len(targets), *signs, index.shape[1])

    def split(first: tuple[int, ...]) -> None:
        """Fill the entries of the table with the given first signs."""
        sums = leaf.new_empty(*signs[len(first) :], k, n_sets)
        flat = sums.view(-1, k * n_sets)
        at: tuple[int | slice, ...] = (*first, *[slice(None)] * (k - 1 - len(first)))
        for least, target in zip(table, targets, strict=True):
            for j in range(k):
                out = sums.select(-2, j)
                absent, present = ((*at[:j], sign, *at[j:]) for sign in (0, 1))
                for number, (left, right) in enumerate(splits(target)):
                    without, with_it = values[left][absent], values[right][present]
                    if number == 0:
                        torch.add(without, with_it, out=out)
                    else:
                        torch.minimum(out, without + with_it, out=out)
            if k in levels.paid:
                sums += levels.paid[k][first]
            for part in parts:
                place = index[:, part]
                candidates = flat.gather(1, place.reshape(1, -1).expand(flat.shape[0], -1))
                least[first][..., part] = candidates.view(*sums.shape[:-2], *place.shape).amin(dim=-2)

    # On a CPU sums that fit the cache, and something to do for each thread.
    n_first, parts = 0, [slice(None)]
    if leaf.device.type == "cpu":
        parts = list(ranges(index.shape[1], max(1, _SUMS_AT_ONCE // len(index))))
        most = _SUMS_AT_ONCE if n_threads == 1 else _SUMS_AT_ONCE // 4
        while n_first < k - 1 and k * n_sets << (k - 1 - n_first) > most:
            n_first += 1
    on_threads(split, list(product((0, 1), repeat=n_first)), n_threads)
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


def _trace(levels: Levels, target: Budget) -> Nested:
    """A tree of least cost within a budget; of equal ones, one with few nodes."""
    costs = {
        k: {state: value.cpu().numpy() for state, value in values.items()}
        for k, values in levels.costs.items()
    }
    paid = {k: value.cpu().numpy() for k, value in levels.paid.items()}
    return _below(levels, costs, paid, (), (), target)

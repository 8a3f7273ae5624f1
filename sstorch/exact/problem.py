"""The problem that a search solves: levels, states, branching, and the estimate of its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from math import comb
from operator import mul
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.exact.moments import Moments
from sstorch.exact.packed import FEW_ROWS, PackedCells, members
from sstorch.exact.task import BranchCostTask, Task, has_branch_costs
from sstorch.exact.tree import BinaryTree, Nested, nested_size
from sstorch.exceptions import ConfigError, DataError

INFINITY = float("inf")
# Depth of the largest tables, for which the arrays of kernels have room.
MAX_EXACT_DEPTH = 5
# Cells of all sets of the largest size, and bytes of products of literals, that are searched at once.
_MOST_CELLS, _MOST_CELLS_WITH_STEPS, _MOST_PRODUCTS = 1 << 23, 1 << 21, 1 << 28
# Measured on one core with AVX-512: seconds per cell and step, and per floating point operation of a GEMM.
_SECONDS_PER_CELL, _SECONDS_PER_FLOP = 2e-8, 3e-11
BranchCost = Callable[[IntArray, IntArray], FloatArray]


class Budget(NamedTuple):
    """The most that a subtree may use: tests on a path, and branch nodes, depth .. 2 ** depth - 1."""

    depth: int
    nodes: int


# Where a tree of a front comes from: feature of the root, budgets of both subtrees, point of the left one;
# None if it has to be found.
Origin = tuple[int, tuple[Budget, Budget], Tensor] | None


def budget(depth: int, nodes: int) -> Budget:
    """The smallest equivalent budget: n nodes are never deeper than n, nor more than the depth can hold."""
    nodes = min(nodes, 2**depth - 1)
    return Budget(min(depth, nodes), nodes)


@cache
def budgets(depth: int, max_nodes: int) -> tuple[Budget, ...]:
    """All different budgets up to a depth and a number of nodes, (0, 0) first, smaller ones before larger."""
    return tuple(Budget(d, n) for d in range(depth + 1) for n in range(d, 2**d) if n <= max_nodes)


@cache
def splits(target: Budget) -> tuple[tuple[Budget, Budget], ...]:
    """The budgets of the two subtrees below a root that uses one node of `target`."""
    most = 2 ** (target.depth - 1) - 1
    rest = target.nodes - 1
    return tuple(
        (budget(target.depth - 1, left), budget(target.depth - 1, rest - left))
        for left in range(max(0, rest - most), min(most, rest) + 1)
    )


def smallest(costs: dict[Budget, float], target: Budget) -> Budget:
    """The budget with the fewest nodes that reaches the cost of `target`, up to rounding."""
    depth, nodes = target
    goal = costs[target] + 1e-13 * max([abs(cost) for cost in costs.values() if cost != INFINITY])
    fitting = [(s.nodes, s.depth) for s, cost in costs.items() if cost <= goal and s.depth <= depth]
    return Budget(*min([size for size in fitting if size[0] <= nodes])[::-1])


@dataclass(frozen=True)
class Found:
    """Trees that a search has found, and bounds of all others; costs without the task's constant."""

    costs: dict[Budget, float]  # least cost of a tree on all rows for every budget, of larger ones no more
    tree: Callable[[Budget], Nested]  # one of least cost within a budget, of equal ones one with few nodes
    n_cells: int  # leaves evaluated
    complete: bool  # no tree was left out
    # no tree of the depth searched costs less, with the penalties of its leaves; -inf if there is no bound
    objective_bound: float = -INFINITY
    bound: Callable[[Budget], float] | None = None  # below any tree within a budget; None: costs if complete

    @classmethod
    def of_tree(
        cls, tree: Nested, objective: float, bound: float, penalty: float, depth: int, n_cells: int
    ) -> Found:
        """A tree and a bound of all trees of a depth, the penalties of their leaves in both."""
        size = nested_size(tree)

        def lower(target: Budget) -> float:
            return bound - penalty * (target.nodes + 1) if target.depth <= depth else -INFINITY

        costs = {budget(*size): objective - penalty * (size.nodes + 1)}
        return cls(costs, lambda target: tree, n_cells, bound >= objective, bound, lower)

    def best(self, penalty: float) -> tuple[float, Budget]:
        """The least cost with a penalty of each leaf, and its budget."""
        return min((cost + penalty * (size.nodes + 1), size) for size, cost in self.costs.items())

    def lower_bound(self, target: Budget) -> float:
        """No tree within a budget costs less, without penalties; -inf if there is no bound."""
        if self.bound is not None:
            return self.bound(target)
        return self.costs.get(target, -INFINITY) if self.complete else -INFINITY


class Levels:
    """Least cost of subtrees, by the set of literals above them and by budget.

    A set of k features x1 > x2 > ... with a sign each has one entry per budget of depth up to D - k.

    Attributes:
        costs: of each size k and budget, (2, ..., 2, C(F, k)): signs in falling order of the features,
            sets in colexicographic order.
        paid: what rows pay for tests, see `payments`; empty if tests are free.
    """

    def __init__(self, n_features: int, depth: int, max_nodes: int) -> None:
        self.depth, self.max_nodes, self.n_features = depth, max_nodes, n_features
        self.costs: dict[int, dict[Budget, Tensor]] = {}
        self.paid: dict[int, Tensor] = {}

    def budgets(self, k: int) -> tuple[Budget, ...]:
        """Budgets below a set of k literals, (0, 0) first."""
        return budgets(self.depth - k, self.max_nodes)

    def values(self, k: int, leaf: Tensor, table: Tensor) -> dict[Budget, Tensor]:
        """Least cost of every budget: that of the leaf, and the table's, larger budgets never worse."""
        costs = {Budget(0, 0): leaf}
        for state, value in zip(self.budgets(k)[1:], table, strict=True):
            smaller = [s for s in costs if s.depth <= state.depth and s.nodes <= state.nodes]
            best = max(smaller, key=lambda s: (s.nodes, s.depth))
            costs[state] = torch.minimum(value, costs[best])
        return costs


@dataclass(frozen=True)
class Work:
    """Size of a search: leaves to be evaluated, over all steps of the task, memory, and seconds on one core.

    The seconds are right to within a factor of about three.
    """

    cells: int
    bytes: int
    seconds: float
    searches: int = 1  # into which it is cut, where all sets at once have no room


def packable(n_entries: int, n_features: int, n_steps: int, n_channels: int, depth: int) -> bool:
    """Whether all sets of up to `depth` features, and what they are made from, have room in arrays."""
    cells = comb(n_features, depth) << depth
    if n_steps > 1:
        sums = n_channels * sum(comb(n_features, k) for k in range(depth + 1))
        large = min(n_steps, n_entries // FEW_ROWS)
        return cells <= _MOST_CELLS_WITH_STEPS and 8 * sums * large <= _MOST_PRODUCTS
    products = 8 * n_entries * sum(comb(n_features, k) for k in range(1 + depth - depth // 2))
    return cells <= _MOST_CELLS and (depth <= 2 or products <= _MOST_PRODUCTS)


def estimate(
    n_entries: int, n_features: int, n_steps: int, n_channels: int, depth: int, *, packed: bool = False
) -> Work:
    """Work of a search over the entries that are left when equal rows are collapsed.

    With `packed` all sets of a size lie in one array, however many there are.
    """
    together = depth
    while not packed and not packable(n_entries, n_features, n_steps, n_channels, together):
        together -= 1
    sets = [comb(n_features, k) for k in range(together + 1)]
    cells = sum(s << k for k, s in enumerate(sets))
    # With payments for tests, and index tables.
    tables = cells * (2 * together + 6 if packed else together + 6)
    if n_steps == 1:
        products = n_entries * sum(sets[: 1 + together - together // 2]) + n_channels * sum(sets)
    else:  # sums of steps with many rows
        products = n_channels * sum(sets) * min(n_steps, n_entries // FEW_ROWS)
    rows = n_entries * (n_features + 2 + n_channels) * (2 + depth - together)
    seconds = cells * n_steps * _SECONDS_PER_CELL
    seconds += 2 * n_channels * n_entries * sets[together] * _SECONDS_PER_FLOP
    searches = (2 * n_features) ** (depth - together)
    return Work(cells * searches, 8 * (tables + products + rows), seconds * searches, searches)


def check(work: Work, n_features: int, depth: int, memory: int) -> None:
    """Refuse a search that does not fit the memory, or would take years, with an estimate and the remedy.

    Raises:
        ConfigError: the search is too large.
    """
    too_long = work.seconds > 1e7
    if work.bytes <= memory and not too_long:
        return
    raise ConfigError(
        f"{n_features} different binary features are too many for depth {depth}: {work.cells:.2g} leaves to "
        f"evaluate, about {work.bytes / 2**30:.1f} GiB and {_duration(work.seconds)} on one core "
        f"(memory={memory / 2**30:.1f} GiB is allowed). Choose a smaller max_depth, fewer thresholds in the "
        "binarizer, or a larger memory"
    )


def _duration(seconds: float) -> str:
    for size, name in ((86400 * 365.25, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.2g} seconds"


def branch_cost(task: Task, columns: IntArray) -> BranchCost | None:
    """The payment of a row for a test, by features above and tested; None if tests are free.

    `columns` (F,) has the column of the matrix behind each feature.
    """
    if not has_branch_costs(task):
        return None
    return lambda above, feature: _checked(task, columns[above], columns[feature])


def _checked(task: BranchCostTask, above: IntArray, feature: IntArray) -> FloatArray:
    price = np.asarray(task.branch_cost(above, feature), dtype=np.float64)
    if price.shape != feature.shape or not (
        np.minimum.reduce(price, initial=0.0) >= 0.0 and np.maximum.reduce(price, initial=0.0) < INFINITY
    ):
        raise ConfigError(
            f"branch_cost of the task gives {price.tolist()[:3] if price.ndim else price} for "
            f"{len(feature)} tests; expected one finite cost >= 0 for each"
        )
    return price


def payments(problem: Problem, depth: int) -> dict[int, Tensor]:
    """Payments of the rows of each set of literals when it is split, by size of the larger set.

    Of size k, (2, ..., 2, k, C(F, k)): of each k-set without its j-th feature, split by that feature. The
    axes of signs are those of the k - 1 features left.
    """
    assert problem.sizes is not None
    assert problem.branch_cost is not None
    cells = PackedCells(problem.sizes.row_sums(), depth, problem.n_threads)
    found = {}
    for k in range(1, depth + 1):
        rows = next(cells.cells(k, slice(None)))[0]
        sets, paid = members(problem.sizes.n_features, k), []
        for j in range(k):
            price = torch.from_numpy(problem.branch_cost(np.delete(sets, j, axis=0), sets[j])).to(rows.device)
            paid.append((rows.select(j, 0) + rows.select(j, 1)) * price)
        found[k] = torch.stack(paid, dim=-2)
    return found


def total_branch_cost(task: Task, tree: BinaryTree, leaf: IntArray) -> float:
    """Payment of all rows for the tests above their `leaf` (N,) of a tree over columns; 0 if free."""
    if not has_branch_costs(task):
        return 0.0
    paths = tree.paths()
    counts = np.bincount(leaf, minlength=len(paths)).tolist()
    # Of each number of tests: rows by the columns of the last one and of those above it.
    levels: dict[int, dict[tuple[int, ...], int]] = {}
    for path, count in zip(paths, counts, strict=True):
        columns = tuple([column for column, _ in path])
        for size in range(1, len(columns) + 1):
            rows = levels.setdefault(size, {})
            rows[columns[:size]] = rows.get(columns[:size], 0) + count
    total = 0.0
    for rows in levels.values():
        tested = np.array(list(rows)).T
        price = _checked(task, tested[:-1], tested[-1])
        total += sum(map(mul, price.tolist(), rows.values()))
    return total


def pair_cells(pairs: Tensor) -> Tensor:
    """Cells (C, s_a, s_c, F, F) of the pairs {a, c}, by inclusion and exclusion; s is that of the literal.

    `pairs` (C, 1 + F, 1 + F) are sums over the rows in which a and c are 1, see `Moments.pairs`.
    """
    total, a, c, both = pairs[:, :1, :1], pairs[:, 1:, :1], pairs[:, :1, 1:], pairs[:, 1:, 1:]
    cells = pairs.new_empty(len(pairs), 2, 2, *both.shape[1:])
    cells[:, 1, 1] = both
    torch.sub(a, both, out=cells[:, 1, 0])
    torch.sub(c, both, out=cells[:, 0, 1])
    torch.sub(total - a, cells[:, 0, 1], out=cells[:, 0, 0])
    return cells


class Problem:
    """Rows to grow trees on, a task, and the conditions that leaves have to meet.

    `sizes` are entries that count what leaves need, rows first, and `least` how much of each a leaf needs;
    None if there is no condition. What a row pays for a test, `branch_cost`, needs `sizes`. Where `n_threads`
    share the work, torch takes one core on each.
    """

    def __init__(
        self,
        task: Task,
        moments: Moments,
        sizes: Moments | None,
        *least: int,
        branch_cost: BranchCost | None = None,
        n_threads: int = 1,
    ) -> None:
        self.task, self.moments, self.sizes = task, moments, sizes
        self.least, self.branch_cost, self.n_threads = least, branch_cost, n_threads
        self.n_cells = 0

    def where(self, feature: int, present: bool) -> Problem:
        """The rows in which the literal of a feature is 1, or is 0."""
        part = copy(self)
        part.moments = self.moments.where(self.moments.has(feature) == present)
        part.sizes = None if self.sizes is None else self.sizes.where(self.sizes.has(feature) == present)
        part.n_cells = 0
        return part

    def leaf(self) -> Tensor:
        """Cost of all rows as one leaf, a scalar tensor."""
        steps = self.moments.total()
        if self.task.n_steps > 1:
            steps = self.task.accumulate(steps)
        self.n_cells += 1
        return self.cost(steps, None if self.sizes is None else self.sizes.total())

    def cost(self, cells: Iterator[Tensor], sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs of cells, infinite if a leaf has too few rows or whatever else it needs; see `Task.cost`.

        `sizes` gives one tensor (C, ...), counts in the cells, or is None without conditions.
        """
        return self.masked(self.task.cost(cells), sizes)

    def masked(self, cost: Tensor, sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs, infinite if a leaf has too few rows or whatever else it needs; arguments as in `cost`."""
        if sizes is not None:
            for count, least in zip(next(sizes), self.least, strict=True):
                cost.masked_fill_(count < least, INFINITY)
        return cost


def check_rows(n_rows: int, other_rows: int, min_leaf: int, other: str = "the task") -> None:
    """Check rows of a matrix against those of a task, or of another source, and of a leaf.

    Raises DataError: they differ, or no leaf could have as many. Raises ConfigError: `min_leaf` is below 1.
    """
    if n_rows != other_rows:
        raise DataError(f"features: {n_rows} rows, but {other} has {other_rows}")
    if min_leaf < 1:
        raise ConfigError(f"min_leaf must be at least 1 row, got {min_leaf}")
    if min_leaf > n_rows:
        raise DataError(f"min_leaf={min_leaf}: not even a single leaf has that many rows, there are {n_rows}")


def check_limits(max_nodes: int | None, time_limit: float | None) -> None:
    """Refuse limits of a search that are out of their range. Raises ConfigError: names the limit."""
    if max_nodes is not None and max_nodes < 0:
        raise ConfigError(f"max_nodes must be at least 0, or None for no limit, got {max_nodes}")
    if time_limit is not None and not time_limit > 0.0:
        raise ConfigError(f"time_limit must be seconds above 0, or None for no limit, got {time_limit}")

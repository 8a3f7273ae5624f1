"""The problem that a search solves: levels, states, branching, and the estimate of its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import comb
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exact.moments import Moments
from sstorch.exact.packed import PackedCells, members
from sstorch.exact.task import BranchCostTask, Task, has_branch_costs
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError

INFINITY = float("inf")
# Up to so many cells, all sets of a size may lie in one array.
PACKED_CELLS = 1 << 23
# Measured on one core with AVX-512: seconds per cell and step, and per floating point operation of a GEMM.
_SECONDS_PER_CELL, _SECONDS_PER_FLOP = 2e-8, 3e-11
# Doubles of the cells of a block, of the rows in them, and of what is made of both.
_WORKSPACE = 1 << 22
BranchCost = Callable[[IntArray, IntArray], FloatArray]


class Budget(NamedTuple):
    """The most that a subtree may use: tests on a path, and branch nodes, depth .. 2 ** depth - 1."""

    depth: int
    nodes: int


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
    goal = costs[target] + 1e-13 * max(abs(cost) for cost in costs.values() if cost != INFINITY)
    fitting = [s for s, cost in costs.items() if cost <= goal and s.depth <= target.depth]
    return min((s for s in fitting if s.nodes <= target.nodes), key=lambda s: (s.nodes, s.depth))


@dataclass(frozen=True)
class Found:
    """Trees that a search has found, and what is proved of others; costs without the task's constant."""

    costs: dict[Budget, float]  # least cost of a tree on all rows for every budget
    tree: Callable[[Budget], Nested]  # one of least cost within a budget, of equal ones one with few nodes
    n_cells: int  # leaves evaluated
    complete: bool  # no tree was left out
    # no tree of the depth searched costs less, with the penalties of its leaves; -inf if not known
    objective_bound: float = -INFINITY
    bound: Callable[[Budget], float] | None = None  # below any tree within a budget; None: costs if complete

    def lower_bound(self, target: Budget) -> float:
        """No tree within a budget costs less, without penalties; -inf if not known."""
        if self.bound is not None:
            return self.bound(target)
        return self.costs.get(target, -INFINITY) if self.complete else -INFINITY


class Levels:
    """Least cost of subtrees, by the set of literals above them and by budget.

    A set of k features x1 > x2 > ... with a sign each has one entry per budget of depth up to D - k, that of
    the leaf itself excepted. `tables[k]` is (n_budgets, 2, ..., 2, F, ..., F), indexed by signs and features
    in falling order, for k = 1 and 2. Of sets of 3, `triples` is (n_budgets, 2, 2, 2, C(F, 2), F): signs in
    falling order, the pair x2 > x3 in colexicographic order, x1; of sets of 4, `quads[x2]` is (n_budgets,
    2, 2, 2, 2, C(x2, 2), F - x2 - 1): the pair x3 > x4, x1.

    Where all sets of a size are in one array, `packed[k]` has the costs of all budgets, the leaf's included,
    (2, ..., 2, C(F, k)), and there are no other tables. There `paid[k]` has what rows pay for tests, as
    `Payments.at` gives it; it is empty where tests are free.
    """

    def __init__(self, n_features: int, depth: int, max_nodes: int) -> None:
        self.depth, self.max_nodes, self.n_features = depth, max_nodes, n_features
        self.tables: dict[int, Tensor] = {}
        self.triples = torch.empty(0)
        self.quads: list[Tensor] = []
        self.packed: dict[int, dict[Budget, Tensor]] = {}
        self.paid: dict[int, Tensor] = {}

    def allocate(self, like: Tensor) -> None:
        """Tables of infinite cost, on the device of a tensor."""
        n = self.n_features

        def table(k: int, *shape: int) -> Tensor:
            return like.new_full((len(self.budgets(k)) - 1, *(2,) * k, *shape), INFINITY)

        self.tables = {k: table(k, *(n,) * k) for k in range(min(max(self.depth, 1), 3))}
        if self.depth >= 4:
            self.triples = table(3, comb(n, 2), n)
        if self.depth == 5:
            self.quads = [table(4, comb(x, 2), n - x - 1) for x in range(n)]

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

    def split(self, k: int, values: dict[Budget, Tensor], sign: int) -> list[Tensor]:
        """Cost of the k-sets in `values` without one literal, split by it, for every budget but the leaf's.

        `sign` is the axis of the literal's sign.
        """
        if k == self.depth:
            leaf = values[Budget(0, 0)]
            return [leaf.select(sign, 0) + leaf.select(sign, 1)]
        without = {state: value.select(sign, 0) for state, value in values.items()}
        with_it = {state: value.select(sign, 1) for state, value in values.items()}
        costs = []
        for target in self.budgets(k - 1)[1:]:
            sums = [without[left] + with_it[right] for left, right in splits(target)]
            costs.append(reduce(torch.minimum, sums))
        return costs

    @staticmethod
    def absorb(views: Tensor, costs: Sequence[Tensor]) -> None:
        """Lower a part of a table, (n_budgets, ...), to costs that are smaller."""
        for i, value in enumerate(costs):
            view = views[i]
            torch.minimum(view, value, out=view)


@dataclass(frozen=True)
class Work:
    """Size of a search: leaves to be evaluated, over all steps of the task, memory, and seconds on one core.

    The seconds are right to within a factor of about three.
    """

    cells: int
    bytes: int
    seconds: float


def estimate(
    n_entries: int, n_features: int, n_steps: int, n_channels: int, depth: int, *, packed: bool = False
) -> Work:
    """Work of a search over the entries that are left when equal rows are collapsed.

    With `packed` all sets of a size lie in one array, however many there are.
    """
    sets = [comb(n_features, k) for k in range(depth + 1)]
    cells = sum(2**k * s for k, s in enumerate(sets))
    flops = 2 * n_channels * n_entries * sets[depth]
    tables = sum(2**k * n_features**k * (2 if k == depth - 1 else 4) for k in range(1, min(depth, 4)))
    if depth == 5:
        tables += 16 * sum((n_features - x) * x * x for x in range(n_features))
    if packed:  # with what is paid for tests, and products of literals in each row
        tables = cells * (2 * depth + 6) + n_entries * sum(sets[: 1 + depth - depth // 2])
    elif sets[depth] << depth <= PACKED_CELLS:  # all sets of a size in one array, with its index tables
        tables += (cells * (depth + 6)) if depth else 0
    if n_steps == 1:
        moments = n_channels * n_features ** min(depth, 3)
    else:  # the signs of pairs, in bytes
        moments = n_entries * comb(n_features, 2) // 2
    work = (n_entries * (n_features + 2 + n_channels) * 2) + moments
    if sets[depth] << depth > 1 << 16:
        work += _WORKSPACE
    seconds = cells * n_steps * _SECONDS_PER_CELL + flops * _SECONDS_PER_FLOP
    return Work(cells, 8 * (tables + work), seconds)


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
    """The payment of a row for a test, by features above and tested; None where tests are free.

    `columns` (F,) has the column of the matrix behind each feature.
    """
    if not has_branch_costs(task):
        return None
    return lambda above, feature: _checked(task, columns[above], columns[feature])


def _checked(task: BranchCostTask, above: IntArray, feature: IntArray) -> FloatArray:
    price = np.asarray(task.branch_cost(above, feature), dtype=np.float64)
    if price.shape != feature.shape or not np.isfinite(price).all() or (price < 0.0).any():
        raise ConfigError(
            f"branch_cost of the task gives {price.tolist()[:3] if price.ndim else price} for "
            f"{len(feature)} tests; expected one finite cost >= 0 for each"
        )
    return price


class Payments:
    """Payments of the rows of each set of literals when it is split; `sizes` counts rows first."""

    def __init__(self, sizes: Moments, cost: BranchCost, depth: int) -> None:
        self._rows, self._cost, self._n = PackedCells(sizes.row_sums(), depth), cost, sizes.n_features

    def at(self, k: int) -> Tensor:
        """(2, ..., 2, k, C(F, k)): of each k-set without its j-th feature, split by that feature.

        The axes of signs are those of the k - 1 features left.
        """
        (rows,) = (cells[0] for cells in self._rows.cells(k, slice(None)))
        sets = members(self._n, k)
        paid = []
        for j in range(k):
            price = torch.from_numpy(self._cost(np.delete(sets, j, axis=0), sets[j])).to(rows.device)
            paid.append((rows.select(j, 0) + rows.select(j, 1)) * price)
        return torch.stack(paid, dim=-2)


def total_branch_cost(task: Task, tree: BinaryTree, features: BoolArray) -> float:
    """Payment of all rows (N, p) for the tests of a tree over columns, row by row; 0 if tests are free."""
    if not has_branch_costs(task):
        return 0.0

    def below(node: int, rows: IntArray, above: tuple[int, ...]) -> float:
        column = int(tree.feature[node])
        if column < 0:
            return 0.0
        tested = np.array(above, dtype=np.int64)[:, None]
        price = float(_checked(task, tested, np.array([column], dtype=np.int64))[0])
        answers, deeper = features[rows, column], (*above, column)
        absent = below(int(tree.absent[node]), rows[~answers], deeper)
        return len(rows) * price + absent + below(int(tree.present[node]), rows[answers], deeper)

    return below(0, np.arange(len(features), dtype=np.int64), ())


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
    None where there is no condition. What a row pays for a test, `branch_cost`, needs `sizes`.
    """

    def __init__(
        self,
        task: Task,
        moments: Moments,
        sizes: Moments | None,
        *least: int,
        branch_cost: BranchCost | None = None,
    ) -> None:
        self.task, self.moments, self.sizes = task, moments, sizes
        self.least, self.branch_cost = least, branch_cost
        self.n_cells = 0

    def where(self, feature: int, present: bool) -> Problem:
        """The rows in which the literal of a feature is 1, or is 0."""
        moments = self.moments.where(self.moments.has(feature) == present)
        sizes = None if self.sizes is None else self.sizes.where(self.sizes.has(feature) == present)
        return Problem(self.task, moments, sizes, *self.least, branch_cost=self.branch_cost)

    def leaf(self) -> Tensor:
        """Cost of all rows as one leaf, a scalar tensor."""
        return self._total(lambda m: m.total(), lambda total: total)

    def singles(self) -> Tensor:
        """(2, F): costs of the rows without and with each literal."""

        def cells(pair: Tensor) -> Tensor:
            single, total = pair[:, :-1], pair[:, -1:]
            return torch.stack([total - single, single], dim=1)

        def sums(moments: Moments) -> Iterator[Tensor]:
            for single, total in zip(moments.singles(), moments.total(), strict=True):
                yield torch.cat([single, total[:, None]], dim=1)

        return self._total(sums, cells)

    def pairs(self) -> Tensor:
        """(2, 2, F, F): costs of the rows with both, one or none of two literals, in both orders."""
        return self._total(Moments.pairs, pair_cells)

    def cost(self, cells: Iterator[Tensor], sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs of cells, infinite where a leaf has too few rows or whatever else it needs; see `Task.cost`.

        `sizes` gives one tensor (C, ...), counts in the cells, or is None without conditions.
        """
        return self.masked(self.task.cost(cells), sizes)

    def masked(self, cost: Tensor, sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs, infinite where a leaf has too few rows or whatever else it needs; arguments as in `cost`."""
        if sizes is not None:
            for count, least in zip(next(sizes), self.least, strict=True):
                cost.masked_fill_(count < least, INFINITY)
        self.n_cells += cost.numel()
        return cost

    def _total(
        self, sums: Callable[[Moments], Iterator[Tensor]], cells: Callable[[Tensor], Tensor]
    ) -> Tensor:
        steps = sums(self.moments)
        if self.task.n_steps > 1:
            steps = self.task.accumulate(steps)
        sizes = None if self.sizes is None else (cells(step) for step in sums(self.sizes))
        return self.cost((cells(step) for step in steps), sizes)


def check_limits(max_nodes: int | None, time_limit: float | None) -> None:
    """Refuse limits of a search that are out of their range. Raises ConfigError: names the limit."""
    if max_nodes is not None and max_nodes < 0:
        raise ConfigError(f"max_nodes={max_nodes}: expected at least 0, or None for no limit")
    if time_limit is not None and not time_limit > 0.0:
        raise ConfigError(f"time_limit={time_limit}: expected seconds above 0, or None for no limit")

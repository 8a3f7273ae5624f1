"""The compiled search: its work space, its calls, and the way back to the best tree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.counts import Rows, advance
from sstorch.exact.compiled.forms import Form
from sstorch.exact.compiled.tables import Tables
from sstorch.exact.problem import INFINITY, Budget, Work, budgets, smallest, splits
from sstorch.exact.tree import Nested

# Cells at once: those of all channels and budgets fit the second level cache.
_CELLS_AT_ONCE = 1 << 14
# Cells between two looks at the clock, some milliseconds.
_CELLS_A_STEP = 1 << 21
# Measured on one core.
_SECONDS_PER_CELL = 3e-9


def estimate_compiled(n_patterns: int, n_features: int, n_channels: int, depth: int, max_nodes: int) -> Work:
    """Work of a compiled search over distinct rows; as `sstorch.exact.problem.estimate` for the other one."""
    n, sets = n_features, [comb(n_features, k) for k in range(depth + 1)]
    cells = sum(s << k for k, s in enumerate(sets))
    moments = n_channels * (sum(sets[:depth]) + comb(n, 2))
    least = sum((len(budgets(depth - k, max_nodes)) - 1) * (sets[k] << k) for k in range(depth))
    at_once = (n_channels + len(budgets(max(depth - 1, 0), max_nodes))) * _most_cells(n, depth)
    rows = n_patterns * (n + max(1, depth - 1) * (1 + n_channels))
    return Work(cells, 8 * (moments + least + at_once + rows), cells * _SECONDS_PER_CELL)


def _steps(n: int, depth: int) -> Iterator[int]:
    """Ends of ranges of first features, each with at least so many sets that a call does not matter."""
    begin = 0
    for last in range(1, n + 1):
        if last == n or (comb(last, depth) - comb(begin, depth)) << depth > _CELLS_A_STEP:
            yield last
            begin = last


def _most_cells(n_features: int, depth: int) -> int:
    """Room for the cells of a block: as many as a step makes, but at least those of one row of pairs."""
    return max(min(_CELLS_AT_ONCE, comb(n_features, 2) << depth), n_features << depth, 2 * n_features + 1)


class _Plan(NamedTuple):
    """What the tables of all searches of a size have in common; see :class:`Tables`."""

    binomials: IntArray
    of_size: IntArray
    begin: IntArray
    width: IntArray
    budgets: IntArray
    smaller: IntArray
    splits: IntArray


@lru_cache(maxsize=64)
def _plan(n: int, depth: int, max_nodes: int) -> _Plan:
    every = [budgets(depth - k, max_nodes) for k in range(depth + 1)]
    count = np.array([len(states) for states in every], dtype=np.int64)
    smaller = np.zeros((depth + 1, count.max()), dtype=np.int64)
    parts: list[list[tuple[int, int, int]]] = [[]]
    for k, states in enumerate(every):
        for b, state in enumerate(states[1:], start=1):
            fitting = [s for s in states[:b] if s.depth <= state.depth and s.nodes <= state.nodes]
            smaller[k, b] = states.index(max(fitting, key=lambda s: (s.nodes, s.depth)))
        if k > 0:
            place = {state: b for b, state in enumerate(states)}
            parts.append(
                [
                    (b, place[left], place[right])
                    for b, target in enumerate(every[k - 1])
                    if b > 0
                    for left, right in splits(target)
                ]
            )
    table = np.full((depth + 1, max(map(len, parts)) + 1, 3), -1, dtype=np.int64)
    for k, rows in enumerate(parts):
        table[k, : len(rows)] = np.array(rows, dtype=np.int64).reshape(-1, 3)
    sets = [comb(n, k) for k in range(depth + 1)]
    width = np.array([s << k for k, s in enumerate(sets)], dtype=np.int64)
    return _Plan(
        binomials=np.array([[comb(x, k) for k in range(7)] for x in range(n + 1)], dtype=np.int64),
        of_size=np.array([sum(sets[:k]) for k in range(depth + 2)], dtype=np.int64),
        begin=np.array([0, *np.cumsum((count - 1) * width)], dtype=np.int64),
        width=width,
        budgets=count,
        smaller=smaller,
        splits=table,
    )


@dataclass(frozen=True)
class CompiledProblem:
    """Distinct rows to grow trees on, sorted by their features, and what leaves cost and need.

    Attributes:
        literals: (U, F) uint8, in the order of `Patterns`.
        values: (C, U), sums of the rows: channels of the task, then those that leaves need some of.
        form: of the cost.
        least: how much of each of the last channels a leaf needs.
    """

    literals: npt.NDArray[np.uint8]
    values: FloatArray
    form: Form
    least: FloatArray

    def where(self, feature: int, present: bool) -> CompiledProblem:
        """The rows in which the literal of a feature is 1, or is 0."""
        kept = self.literals[:, feature] == present
        return CompiledProblem(self.literals[kept], self.values[:, kept], self.form, self.least)

    def search(self, depth: int, max_nodes: int, deadline: float = INFINITY) -> CompiledSearch:
        """Least costs of all budgets, until a time of `time.perf_counter`."""
        n = self.literals.shape[1]
        depth = depth if max_nodes > 0 else 0
        size = max(depth, 1)
        tables, rows = self._tables(size, max_nodes), self._rows(size)
        begin = last = 0
        # Up to pairs there is but one step. Between steps the interpreter sees to interrupts.
        for last in _steps(n, depth) if depth > 2 else [n]:
            if time.perf_counter() > deadline and depth > 2:
                last = begin
                break
            advance(tables, rows, self.literals, size, begin, last, last == n)
            begin = last
        if last < n:
            advance(tables, rows, self.literals, size, last, last, True)
        states = budgets(depth, max_nodes)
        costs = {Budget(0, 0): float(tables.costs[0, 2 * n])}
        costs |= zip(states[1:], tables.least[: len(states) - 1].tolist(), strict=True)
        for state in states[1:]:
            fitting = [s for s in costs if s.depth <= state.depth and s.nodes <= state.nodes]
            costs[state] = min(costs[s] for s in fitting)
        # What is below a root is searched anew for the tree: among the features that were visited, no others.
        problem = self if last == n else replace(self, literals=self.literals[:, :last].copy())
        below = budgets(max(depth - 1, 0), max_nodes)
        singles = tables.costs[: len(below), : 2 * n].reshape(len(below), 2, n)[..., :last].copy()
        return CompiledSearch(problem, costs, dict(zip(below, singles, strict=True)), last == n)

    def _tables(self, depth: int, max_nodes: int) -> Tables:
        n, n_channels = self.literals.shape[1], len(self.values)
        plan, most = _plan(n, depth, max_nodes), _most_cells(n, depth)
        return Tables(
            **plan._asdict(),
            moments=np.empty((n_channels, max(int(plan.of_size[depth]), 1 + n))),
            pairs=np.empty((n_channels, comb(n, 2) if depth > 1 else 0)),
            least=np.full(int(plan.begin[-1]), INFINITY),
            sums=np.empty((n_channels, most)),
            costs=np.empty((int(plan.budgets[1]), most)),
            single=np.empty((8, n)),
            without=np.empty((16, n)),
            most=_CELLS_AT_ONCE,
            form=self.form.kind,
            scale=self.form.scale,
            least_sizes=self.least,
        )

    def _rows(self, depth: int) -> Rows:
        n_rows, n = self.literals.shape
        levels = max(depth - 1, 1)
        rows = Rows(
            present=np.empty(int(self.literals.sum()), dtype=np.int64),
            begin=np.empty(n_rows, dtype=np.int64),
            below=np.empty((n_rows, n), dtype=np.int64),
            kept=np.empty((levels, n_rows), dtype=np.int64),
            n_below=np.empty((levels, n_rows), dtype=np.int64),
            differs=np.empty((levels, n_rows), dtype=np.int64),
            values=np.empty((levels, n_rows, len(self.values))),
            size=np.empty(levels, dtype=np.int64),
        )
        rows.values[0] = self.values.T
        return rows


@dataclass(frozen=True)
class CompiledSearch:
    """What a compiled search has found.

    Attributes:
        problem: what was searched, with the features that there was time for.
        costs: least cost of a tree on all rows for every budget.
        singles: (2, F), least cost below each literal for every budget of a child.
        complete: whether there was time for all trees; if not, these are the least costs of some.
    """

    problem: CompiledProblem
    costs: dict[Budget, float]
    singles: dict[Budget, FloatArray]
    complete: bool

    @property
    def n_cells(self) -> int:
        """Leaves that were evaluated; all of them, if the search is complete."""
        n, depth = self.problem.literals.shape[1], max(state.depth for state in self.costs)
        return sum(comb(n, k) << k for k in range(depth + 1))

    def tree(self, target: Budget) -> Nested:
        """A tree of least cost within a budget; of equal ones, one with few nodes.

        The tables of single literals give the root; what is below it is searched anew among its rows.
        """
        target = smallest(self.costs, target)
        if target.nodes == 0:
            return None
        best = (INFINITY, 0, (target, target))
        for left, right in splits(target):
            sums = self.singles[left][0] + self.singles[right][1]
            feature = int(sums.argmin())
            if sums[feature] < best[0]:
                best = (float(sums[feature]), feature, (left, right))
        _, feature, halves = best
        children = [
            self.problem.where(feature, bool(sign)).search(*halves[sign]).tree(halves[sign])
            if halves[sign].nodes
            else None
            for sign in (0, 1)
        ]
        return feature, children[0], children[1]

"""The compiled search: its work space, its calls, and the way back to the best tree."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import comb
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import Form, Prices, say_compiling
from sstorch.exact.compiled.counts import Rows, begin, count_triples, finish, visit
from sstorch.exact.compiled.curves import SECONDS_PER_ROW, Curves
from sstorch.exact.compiled.tables import Tables, absorb_prefix, costs_of_singles, pairs_below
from sstorch.exact.solution import (
    INFINITY,
    MAX_EXACT_DEPTH,
    NEVER,
    Budget,
    Deadline,
    Found,
    Work,
    budgets,
    smallest,
    splits,
)
from sstorch.exact.tree import Nested
from sstorch.optim.compiled.jit import address
from sstorch.threads import on_threads

# Sums of the cells at once, of 16 channels and more: they fit the third level cache, those of few the second.
_SUMS_AT_ONCE = 1 << 18
# Cells between two looks at the clock, some milliseconds.
_CELLS_A_STEP = 1 << 21
# Rows for which pairs of features take as long as their cells.
_ROWS_A_STEP = 256
# Measured on one core.
_SECONDS_PER_CELL = 3e-9


def estimate(
    n_patterns: int,
    n_leaving: int,
    n_features: int,
    n_channels: int,
    depth: int,
    max_nodes: int,
    n_threads: int = 1,
) -> Work:
    """Work of a search over distinct rows, of which some `n_leaving` are followed through time."""
    n, sets = n_features, [comb(n_features, k) for k in range(depth + 1)]
    cells = sum(s << k for k, s in enumerate(sets))
    moments, pairs = n_channels * sum(sets[:depth]), n_channels * comb(n, 2)
    least = sum((len(budgets(depth - k, max_nodes)) - 1) * (sets[k] << k) for k in range(depth))
    at_once = (n_channels + len(budgets(max(depth - 1, 0), max_nodes))) * _most_cells(n, depth, n_channels)
    # Features of the rows, at most half of all, and chains below each; then the rows of each level.
    rows, levels = n_patterns * (2 + n + n // 2), n_patterns * max(1, depth - 1) * 2
    curves = n_leaving * (6 + n // 8) + ((6 * (n + 1)) << depth if n_leaving else 0)
    doubles = moments + rows + n_threads * (pairs + least + at_once + levels + curves)
    return Work(cells, 8 * doubles, cells * _SECONDS_PER_CELL + sum(sets) * n_leaving * SECONDS_PER_ROW)


def _steps(n: int, depth: int, n_threads: int, n_rows: int) -> Iterator[int]:
    """Ends of ranges of first features, each with so many sets that neither calls nor waiting matter."""
    begin, most = 0, _CELLS_A_STEP
    if depth == 2:  # nearly all is the counting of rows
        most = most // max(1, n_rows // _ROWS_A_STEP)
        if comb(n, 2) << 2 <= most:
            yield n
            return
    elif n_threads > 1 and n > 0:
        # Threads wait for the last one at the end of a step: several features each, of which the last has
        # most sets, and not less than some tenths of a second.
        most = max(most << 7, 4 * n_threads * comb(n - 1, depth - 1) << depth)
    for last in range(1, n + 1):
        if last == n or (comb(last, depth) - comb(begin, depth)) << depth > most:
            yield last
            begin = last


def _most_cells(n_features: int, depth: int, n_channels: int) -> int:
    """Room for the cells of a block: as many as a step makes, but at least those of one row of pairs."""
    block = min(_SUMS_AT_ONCE // max(n_channels, 16), comb(n_features, 2) << depth)
    return max(block, n_features << depth, 2 * n_features + 1)


@lru_cache(maxsize=64)
def _plan(n: int, depth: int, max_nodes: int) -> dict[str, IntArray]:
    """Tables shared by all searches of a size; see :class:`Tables`."""
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
    sets, sizes = [comb(n, k) for k in range(depth + 1)], range(depth + 1)  # else above 64 bits
    width = np.array([s << k for k, s in enumerate(sets)], dtype=np.int64)
    return {
        "binomials": np.array([[comb(x, k) for k in sizes] for x in range(n + 1)], dtype=np.int64),
        "of_size": np.array([sum(sets[:k]) for k in range(depth + 2)], dtype=np.int64),
        "begin": np.array([0, *np.cumsum((count - 1) * width)], dtype=np.int64),
        "width": width,
        "budgets": count,
        "smaller": smaller,
        "splits": table,
    }


_ADDRESS: list[int] = []


def _absorb_address(tables: Tables) -> int:
    """Of the machine code of `absorb_prefix`, made or loaded once: all tables have arrays of one layout."""
    if not _ADDRESS:
        n = numba.int64
        _ADDRESS.append(address(absorb_prefix, numba.void(numba.typeof(tables), n[::1], n, n, n, n)))
    return _ADDRESS[0]


class _Helper:
    """One more thread of a search: what it writes is its own, but for moments."""

    def __init__(self, tables: Tables, rows: Rows) -> None:
        self._shared = tables, rows

    @cached_property
    def tables(self) -> Tables:
        """Tables of its own, made by the thread itself when it is first at work."""
        tables = self._shared[0]
        names = ("pairs", "sums", "costs", "single", "without", "price", "paid")
        return tables._replace(
            least=np.full_like(tables.least, INFINITY),
            curves=tables.curves.for_another(),
            **{name: np.empty_like(getattr(tables, name)) for name in names},
        )

    @cached_property
    def _rows(self) -> Rows:
        rows = self._shared[1]
        names = ("kept", "n_below", "size", "single", "pairs")
        return rows._replace(**{name: getattr(rows, name).copy() for name in names})

    def visit(self, *task: Any) -> None:
        """Take features from the queue of a task, the last arguments of `visit`."""
        visit(self.tables, self._rows, *task)


def _of_pairs(tables: Tables) -> Tables:
    """What is left of tables when those of sets of more than two features are not needed any more."""
    if len(tables.budgets) == 3:  # a search of depth 2 has no others
        return tables
    moments, least = tables.moments[:, : tables.of_size[3]], tables.least[: tables.begin[3]]
    return tables._replace(moments=moments.copy(), least=least.copy(), pairs=np.empty((len(moments), 0)))


@dataclass(frozen=True)
class CompiledProblem:
    """Distinct rows to grow trees on, and what leaves cost and need."""

    literals: npt.NDArray[np.uint8]  # (U, F) uint8
    # (F,), where the chain of each feature begins; rows that have a feature have those before it in its chain
    chain: IntArray
    values: FloatArray  # (C, U), sums of the rows: channels of the task, then those that leaves need some of
    form: Form  # of the cost of a leaf
    curves: Curves  # the same rows by time, where these are followed
    prices: Prices  # of tests below those that led to the rows

    def __post_init__(self) -> None:
        say_compiling()

    def where(self, feature: int, present: bool) -> CompiledProblem:
        """The rows in which the literal of a feature is 1, or is 0."""
        kept = self.literals[:, feature] == present
        # Kernels are compiled anew for arrays of another layout, which indices in brackets would give.
        return replace(
            self,
            literals=self.literals.compress(kept, axis=0),
            values=self.values.compress(kept, axis=1),
            curves=self.curves.where(feature, present),
            prices=self.prices.below(feature),
        )

    def search(self, depth: int, max_nodes: int, deadline: Deadline = NEVER, n_threads: int = 1) -> Found:
        """Least costs of all budgets, for any number of threads the same; ValueError: depth too large."""
        depth = min(depth, max_nodes)
        if depth > MAX_EXACT_DEPTH:
            raise ValueError(f"depth must be at most {MAX_EXACT_DEPTH}, got {depth}; use `Deep` beyond it")
        if depth < 2:
            return self._search_singles(depth)
        n = self.literals.shape[1]
        tables, rows = self._tables(depth, max_nodes), self._rows(depth)
        last = next(_steps(n, 2, 1, len(self.literals))) if depth == 2 else n
        begin(tables, rows, self.literals, depth, last)
        if depth > 2 or last < n:
            last = self._visit(tables, rows, depth, last if depth == 2 else 0, deadline, n_threads)
        states = budgets(depth, max_nodes)
        least = [float(tables.costs[0, 2 * n])]
        smaller = tables.smaller[0].tolist()
        for number, cost in enumerate(tables.least[: len(states) - 1].tolist(), start=1):
            least.append(min(cost, least[smaller[number]]))
        costs = dict(zip(states, least, strict=True))
        # For the tree subtrees are searched again, among the features that were visited.
        problem = self if last == n else self._with_first(last)
        below = budgets(depth - 1, max_nodes)
        singles = tables.costs[: len(below), : 2 * n].reshape(len(below), 2, n)[..., :last].copy()
        of_budget = dict(zip(below, singles, strict=True))
        trees = _BestTrees(problem, None, costs, of_budget, self._paid[:last], _of_pairs(tables), n_threads)
        return Found(costs, trees.tree, last == n)

    def _search_singles(self, depth: int) -> Found:
        """The search for a leaf or a stump."""
        n = self.literals.shape[1]
        sums, cost = np.empty((len(self.values), 2 * n + 1)), np.empty(2 * n + 1)
        costs_of_singles(self.form, self._curves(1), self.values, self.literals, sums, cost)
        costs, singles = {Budget(0, 0): float(cost[-1])}, cost[:-1].reshape(2, n)
        if depth == 1:
            stump = float((singles[0] + singles[1] + self._paid).min(initial=INFINITY))
            costs[Budget(1, 1)] = min(costs[Budget(0, 0)], stump)
        trees = _BestTrees(self, None, costs, {Budget(0, 0): singles}, self._paid, None, 1)
        return Found(costs, trees.tree, True)

    @cached_property
    def _paid(self) -> FloatArray:
        """What all rows pay for a test of each feature, (F,)."""
        if not len(self.prices.full):
            return np.zeros(len(self.chain))
        paid: FloatArray = self.prices.full * self.values[-len(self.form.least)].sum()
        return paid

    def moments(self, size: int) -> FloatArray:
        """(C, sets), sums over the rows that have all features of a set, of all sets of up to 2 or 3."""
        tables, rows = self._tables(size + 1, 0, searched=False), self._rows(size + 1)
        begin(tables, rows, self.literals, size + 1, self.literals.shape[1])
        if size > 2:
            count_triples(tables, rows, self.literals.shape[1])
        return tables.moments

    def _with_first(self, n: int) -> CompiledProblem:
        """The same rows with so many of their features; some may then be equal."""
        return replace(
            self,
            literals=self.literals[:, :n].copy(),
            chain=self.chain[:n],
            curves=self.curves.with_first(n),
            prices=self.prices.with_first(n),
        )

    def _visit(
        self, tables: Tables, rows: Rows, depth: int, first: int, deadline: Deadline, n_threads: int
    ) -> int:
        """Visit sets of features from `first` on until the deadline, and finish; returns their end."""
        n = self.literals.shape[1]
        n_threads = n_threads if depth > 2 else 1
        # This thread has the tables themselves, the others their own, which in the end lower them.
        helpers = [_Helper(tables, rows) for _ in range(n_threads - 1)]
        # Between steps the interpreter sees to Ctrl-C.
        for last in _steps(n, depth, n_threads, len(self.literals)):
            if last <= first:
                continue
            if deadline.passed:
                break
            for longest in range(max(1, depth - 3), max(2, depth - 1)):
                task = depth, longest, first, last, np.zeros(1, dtype=np.int64)
                calls = [partial(visit, tables, rows, *task)]
                calls += [partial(helper.visit, *task) for helper in helpers]
                on_threads(operator.call, calls, n_threads)
            first = last
        for helper in helpers:
            level = slice(*tables.begin[depth - 1 : depth + 1])
            np.minimum(tables.least[level], helper.tables.least[level], out=tables.least[level])
        finish(tables, depth, first)
        return first

    def _tables(self, depth: int, max_nodes: int, searched: bool = True) -> Tables:
        n, n_channels = self.literals.shape[1], len(self.values)
        plan, most = _plan(n, depth, max_nodes), _most_cells(n, depth, n_channels)
        tables = Tables(
            **plan,
            absorb=0,
            moments=np.empty((n_channels, max(int(plan["of_size"][depth]), 1 + n))),
            pairs=np.empty((n_channels, comb(n, 2))),
            least=np.full(int(plan["begin"][-1]), INFINITY),
            sums=np.empty((n_channels, most)),
            costs=np.empty((int(plan["budgets"][1]), most)),
            single=np.empty((8, n)),
            without=np.empty((16, n)),
            most=_SUMS_AT_ONCE // max(n_channels, 16),
            form=self.form,
            curves=self._curves(depth),
            prices=self.prices,
            price=np.empty((depth if len(self.prices.full) else 0, max(most >> 2, n))),
            paid=np.empty((2, most if len(self.prices.full) else 0)),
        )
        return tables._replace(absorb=_absorb_address(tables)) if searched else tables

    def _curves(self, depth: int) -> Curves:
        # Also of rows that all leave before the first event: their leaves have a state, too.
        return self.curves.at_work(depth) if self.form.followed else self.curves

    def _rows(self, depth: int) -> Rows:
        n_rows, n = self.literals.shape
        levels = depth - 1
        return Rows(
            chain=self.chain,
            last=np.empty(int(self.literals.sum()) + 1, dtype=np.int64),
            begin=np.empty(n_rows, dtype=np.int64),
            below=np.empty((n, n_rows), dtype=np.int32),
            kept=np.empty((levels, n_rows), dtype=np.int64),
            n_below=np.empty((levels, n_rows), dtype=np.int64),
            values=self.values,
            size=np.empty(levels, dtype=np.int64),
            single=np.empty((2, n)),
            pairs=np.empty((comb(n, 2), 2)),
        )


@dataclass(frozen=True)
class _BestTrees:
    """The way from the tables of a search to trees."""

    searched: CompiledProblem  # with the features that there was time for
    above: tuple[int, bool] | None  # of its rows those of trees, by feature and sign; None are all
    costs: dict[Budget, float]
    singles: dict[Budget, FloatArray]  # (2, F), least cost below each literal for every budget of a child
    paid: FloatArray  # (F,), what the rows pay for a test of each feature
    tables: Tables | None  # with the least costs of pairs; None where subtrees are searched again
    n_threads: int  # of the search

    @cached_property
    def _rows(self) -> CompiledProblem:
        return self.searched if self.above is None else self.searched.where(*self.above)

    def tree(self, target: Budget) -> Nested:
        """A tree of least cost within a budget, and few nodes: roots by tables, the rest searched again."""
        target = smallest(self.costs, target)
        if target.nodes == 0:
            return None
        best = (INFINITY, 0, (target, target))
        for left, right in splits(target):
            sums = self.singles[left][0] + self.singles[right][1] + self.paid
            feature = int(sums.argmin())
            if sums[feature] < best[0]:
                best = (float(sums[feature]), feature, (left, right))
        _, feature, halves = best
        if target.nodes == 1:
            return feature, None, None
        parts = None if self.tables is None else self._halves(self.tables, feature)

        def below(sign: int) -> Nested:
            if parts is not None:
                return parts[sign].tree(halves[sign])
            if halves[sign].nodes == 0:
                return None
            return self._rows.where(feature, bool(sign)).search(*halves[sign]).tree(halves[sign])

        absent, present = on_threads(below, (0, 1), self.n_threads if target.depth > 2 else 1)
        return feature, absent, present

    def _halves(self, tables: Tables, feature: int) -> list[_BestTrees]:
        """Trees of the rows without a feature and of those with it."""
        n, last = len(tables.binomials) - 1, len(self.paid)
        found = np.empty((2, int(tables.budgets[2]) + 1, 2, n))
        pairs_below(tables, feature, found.reshape(2, -1, 2 * n))
        parts = []
        for sign, least in enumerate(found[..., :last]):
            own = {state: float(cost[sign, feature]) for state, cost in self.singles.items()}
            # The budgets of smaller sets come first, in one order.
            singles = dict(zip(self.singles, least[:-1], strict=False))
            literal = feature, bool(sign)
            parts.append(_BestTrees(self.searched, literal, own, singles, least[-1, 0], None, 1))
        return parts

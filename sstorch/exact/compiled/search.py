"""The compiled search: its work space, its calls, and the way back to the best tree."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import comb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.counts import Rows, begin, count_triples, finish, visit
from sstorch.exact.compiled.curves import SECONDS_PER_ROW, Curves
from sstorch.exact.compiled.forms import Form
from sstorch.exact.compiled.prices import Prices
from sstorch.exact.compiled.tables import Tables, stumps_below
from sstorch.exact.deadline import NEVER, Deadline
from sstorch.exact.moments import Patterns
from sstorch.exact.problem import INFINITY, Budget, Found, Work, budgets, smallest, splits
from sstorch.exact.tree import Nested
from sstorch.threads import on_threads

# Cells at once: those of all channels and budgets fit the second level cache, of many channels the third.
_CELLS_AT_ONCE = 1 << 14
_SUMS_AT_ONCE = 1 << 18
# Cells between two looks at the clock, some milliseconds.
_CELLS_A_STEP = 1 << 21
# Measured on one core.
_SECONDS_PER_CELL = 3e-9


def estimate_compiled(
    n_patterns: int,
    n_leaving: int,
    n_features: int,
    n_channels: int,
    depth: int,
    max_nodes: int,
    n_threads: int = 1,
) -> Work:
    """Work of a compiled search over distinct rows, of which some `n_leaving` are followed through time.

    As `sstorch.exact.problem.estimate` for the other one.
    """
    n, sets = n_features, [comb(n_features, k) for k in range(depth + 1)]
    cells = sum(s << k for k, s in enumerate(sets))
    moments, pairs = n_channels * sum(sets[:depth]), n_channels * comb(n, 2)
    least = sum((len(budgets(depth - k, max_nodes)) - 1) * (sets[k] << k) for k in range(depth))
    at_once = (n_channels + len(budgets(max(depth - 1, 0), max_nodes))) * _most_cells(n, depth, n_channels)
    # Features of the rows, at most half of all, and chains below each; then the rows of each level.
    rows, levels = n_patterns * (2 + n + n // 2), n_patterns * max(1, depth - 1) * (3 + n_channels)
    curves = n_leaving * (6 + n // 8) + ((6 * (n + 1)) << depth if n_leaving else 0)
    doubles = moments + rows + n_threads * (pairs + least + at_once + levels + curves)
    return Work(cells, 8 * doubles, cells * _SECONDS_PER_CELL + sum(sets) * n_leaving * SECONDS_PER_ROW)


def _steps(n: int, depth: int, n_threads: int) -> Iterator[int]:
    """Ends of ranges of first features, each with so many sets that neither calls nor waiting matter."""
    begin, most = 0, _CELLS_A_STEP
    if n_threads > 1 and n > 0:
        # Threads wait for the last one at the end of a step: several features each, of which the last has
        # most sets, and not less than some tenths of a second.
        most = max(most << 7, 4 * n_threads * comb(n - 1, depth - 1) << depth)
    for last in range(1, n + 1):
        if last == n or (comb(last, depth) - comb(begin, depth)) << depth > most:
            yield last
            begin = last


def _at_once(n_channels: int) -> int:
    """Cells of a block."""
    return min(_CELLS_AT_ONCE, _SUMS_AT_ONCE // max(n_channels, 1))


def _most_cells(n_features: int, depth: int, n_channels: int) -> int:
    """Room for the cells of a block: as many as a step makes, but at least those of one row of pairs."""
    block = min(_at_once(n_channels), comb(n_features, 2) << depth)
    return max(block, n_features << depth, 2 * n_features + 1)


class _Plan(NamedTuple):
    """Tables shared by all searches of a size; see :class:`Tables`."""

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
    sets, sizes = [comb(n, k) for k in range(depth + 1)], range(max(depth, 2) + 1)  # else above 64 bits
    width = np.array([s << k for k, s in enumerate(sets)], dtype=np.int64)
    return _Plan(
        binomials=np.array([[comb(x, k) for k in sizes] for x in range(n + 1)], dtype=np.int64),
        of_size=np.array([sum(sets[:k]) for k in range(depth + 2)], dtype=np.int64),
        begin=np.array([0, *np.cumsum((count - 1) * width)], dtype=np.int64),
        width=width,
        budgets=count,
        smaller=smaller,
        splits=table,
    )


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
        names = ("kept", "n_below", "differs", "values", "size", "single")
        return rows._replace(**{name: getattr(rows, name).copy() for name in names})

    def visit(self, *task: Any) -> None:
        """Take features from the queue of a task, the last arguments of `visit`."""
        visit(self.tables, self._rows, *task)


def _lower(tables: Tables, helpers: list[_Helper], size: int) -> None:
    """Lower the costs of the sets of a size to those that other threads have found."""
    level = slice(*tables.begin[size : size + 2])
    for helper in helpers:
        np.minimum(tables.least[level], helper.tables.least[level], out=tables.least[level])


@dataclass(frozen=True)
class CompiledProblem:
    """Distinct rows to grow trees on, sorted by their features, and what leaves cost and need."""

    literals: npt.NDArray[np.uint8]  # (U, F) uint8
    # (F,), where the chain of each feature begins; rows that have a feature have those before it in its chain
    chain: IntArray
    features: IntArray  # (F,), what they are called elsewhere
    values: FloatArray  # (C, U), sums of the rows: channels of the task, then those that leaves need some of
    form: Form  # of the cost of a leaf
    curves: Curves  # the same rows by time, where these are followed
    prices: Prices  # of tests below those that led to the rows

    @classmethod
    def of(
        cls, patterns: Patterns, values: FloatArray, form: Form, curves: Curves, prices: Prices
    ) -> CompiledProblem:
        """Problem of the distinct rows of a matrix; arguments as the attributes."""
        literals = patterns.literals[:, patterns.order]
        return cls(literals, patterns.chain, patterns.order, values, form, curves, prices)

    def where(self, feature: int, present: bool) -> CompiledProblem:
        """The rows in which the literal of a feature is 1, or is 0."""
        kept = self.literals[:, feature] == present
        curves = self.curves.where(self.curves.literals[:, feature] == present)
        prices = self.prices.below(feature)
        return replace(
            self, literals=self.literals[kept], values=self.values[:, kept], curves=curves, prices=prices
        )

    def search(self, depth: int, max_nodes: int, deadline: Deadline = NEVER, n_threads: int = 1) -> Found:
        """Least costs of all budgets; by however many threads, the same."""
        n = self.literals.shape[1]
        depth = depth if max_nodes > 0 else 0
        size = max(depth, 1)
        tables, rows = self._tables(size, max_nodes), self._rows(size)
        begin(tables, rows, self.literals, size)
        last = n
        if size > 2:
            last = self._visit(tables, rows, size, deadline, n_threads)
        states = budgets(depth, max_nodes)
        costs = {Budget(0, 0): float(tables.costs[0, 2 * n])}
        costs |= zip(states[1:], tables.least[: len(states) - 1].tolist(), strict=True)
        for state in states[1:]:
            fitting = [s for s in costs if s.depth <= state.depth and s.nodes <= state.nodes]
            costs[state] = min(costs[s] for s in fitting)
        # For the tree subtrees are searched again, among the features that were visited.
        problem = self if last == n else self._with_first(last)
        below = budgets(max(depth - 1, 0), max_nodes)
        singles = tables.costs[: len(below), : 2 * n].reshape(len(below), 2, n)[..., :last].copy()
        found = _BestTrees(
            problem, costs, dict(zip(below, singles, strict=True)), tables if depth == 2 else None, n_threads
        )
        n_cells = sum(comb(last, k) << k for k in range(states[-1].depth + 1))
        return Found(costs, found.tree, n_cells, last == n)

    def moments(self, size: int) -> FloatArray:
        """(C, sets), sums over the rows that have all features of a set, of all sets of up to 2 or 3."""
        tables, rows = self._tables(size + 1, 0), self._rows(size + 1)
        begin(tables, rows, self.literals, size + 1)
        if size > 2:
            count_triples(tables, rows, self.literals.shape[1])
        return tables.moments

    def of_features(self, features: IntArray, chain: IntArray) -> CompiledProblem:
        """The same rows with some features (F',) in the order of chains, sorted again; some may be equal.

        `chain` (F',) is where in them the chain of each begins.
        """
        literals = self.literals[:, features]
        rows = np.lexsort(literals.T[::-1]) if len(features) else np.arange(len(literals))
        return replace(
            self,
            literals=np.ascontiguousarray(literals[rows]),
            chain=chain,
            features=self.features[features],
            values=np.ascontiguousarray(self.values[:, rows]),
        )

    def _with_first(self, n: int) -> CompiledProblem:
        """The same rows with so many of their features; some may then be equal."""
        return replace(
            self,
            literals=self.literals[:, :n].copy(),
            chain=self.chain[:n],
            features=self.features[:n],
            curves=self.curves.with_first(n),
            prices=self.prices.with_first(n),
        )

    def _visit(self, tables: Tables, rows: Rows, depth: int, deadline: Deadline, n_threads: int) -> int:
        """Visit sets until the deadline and finish; returns the end of the features that they were among."""
        n = self.literals.shape[1]
        # This thread has the tables themselves, the others their own, which in the end lower them.
        helpers = [_Helper(tables, rows) for _ in range(n_threads - 1)]
        first = 0
        # Between steps the interpreter sees to interrupts.
        for last in _steps(n, depth, n_threads):
            if deadline.passed:
                break
            done = comb(first, depth) / max(comb(n, depth), 1)
            deadline.say(f"{done:.0%} of the sets of {depth} features")
            for longest in range(max(1, depth - 3), depth - 1):
                task = depth, longest, first, last, np.zeros(1, dtype=np.int64)
                calls = [partial(visit, tables, rows, *task)]
                calls += [partial(helper.visit, *task) for helper in helpers]
                on_threads(operator.call, calls, n_threads)
            first = last
        largest, queue = depth - 3, np.zeros(1, dtype=np.int64)
        _lower(tables, helpers, depth - 1)
        if helpers and largest > 0:
            # Sets of one feature less; of still smaller ones there are few.
            for helper in helpers:
                level = slice(*tables.begin[depth - 1 : depth + 1])
                helper.tables.least[level] = tables.least[level]
            task = depth, first, largest, largest, queue
            every = [tables, *(helper.tables for helper in helpers)]
            on_threads(lambda own: finish(own, *task), every, n_threads)
            _lower(tables, helpers, depth - 2)
            largest -= 1
        finish(tables, depth, first, largest, 0, queue)
        return first

    def _tables(self, depth: int, max_nodes: int) -> Tables:
        n, n_channels = self.literals.shape[1], len(self.values)
        plan, most = _plan(n, depth, max_nodes), _most_cells(n, depth, n_channels)
        return Tables(
            **plan._asdict(),
            moments=np.empty((n_channels, max(int(plan.of_size[depth]), 1 + n))),
            pairs=np.empty((n_channels, comb(n, 2) if depth > 1 else 0)),
            least=np.full(int(plan.begin[-1]), INFINITY),
            sums=np.empty((n_channels, most)),
            costs=np.empty((int(plan.budgets[1]), most)),
            single=np.empty((8, n)),
            without=np.empty((16, n)),
            most=_at_once(n_channels),
            form=self.form,
            curves=self.curves.at_work(depth),
            prices=self.prices,
            price=np.empty((depth if len(self.prices.full) else 0, most)),
            paid=np.empty((2, most if len(self.prices.full) else 0)),
        )

    def _rows(self, depth: int) -> Rows:
        n_rows, n = self.literals.shape
        levels = max(depth - 1, 1)
        rows = Rows(
            chain=self.chain,
            last=np.empty(int(self.literals.sum()), dtype=np.int64),
            begin=np.empty(n_rows, dtype=np.int64),
            below=np.empty((n_rows, n), dtype=np.int64),
            kept=np.empty((levels, n_rows), dtype=np.int64),
            n_below=np.empty((levels, n_rows), dtype=np.int64),
            differs=np.empty((levels, n_rows), dtype=np.int64),
            values=np.empty((levels, n_rows, len(self.values))),
            size=np.empty(levels, dtype=np.int64),
            single=np.empty(n),
        )
        rows.values[0] = self.values.T
        return rows


@dataclass(frozen=True)
class _BestTrees:
    """The way from the tables of a search to trees."""

    problem: CompiledProblem  # what was searched, with the features that there was time for
    costs: dict[Budget, float]
    singles: dict[Budget, FloatArray]  # (2, F), least cost below each literal for every budget of a child
    tables: Tables | None  # of a search of depth 2, whose sums over pairs give the stumps below a root
    n_threads: int  # of the search

    def tree(self, target: Budget) -> Nested:
        """A tree of least cost within a budget; of equal ones, one with few nodes.

        The tables of single literals give the root; its subtrees are searched again among its rows, or read
        from the tables of pairs.
        """
        target = smallest(self.costs, target)
        if target.nodes == 0:
            return None
        best = (INFINITY, 0, (target, target))
        prices, problem = self.problem.prices, self.problem
        paid = prices.full * problem.values[-len(problem.form.least)].sum() if len(prices.full) else 0.0
        for left, right in splits(target):
            sums = self.singles[left][0] + self.singles[right][1] + paid
            feature = int(sums.argmin())
            if sums[feature] < best[0]:
                best = (float(sums[feature]), feature, (left, right))
        _, feature, halves = best

        def below(sign: int) -> Nested:
            if halves[sign].nodes == 0:
                return None
            return problem.where(feature, bool(sign)).search(*halves[sign]).tree(halves[sign])

        if self.tables is not None:
            absent, present = self._stumps(self.tables, feature, halves)
        else:
            absent, present = on_threads(below, (0, 1), self.n_threads if target.depth > 2 else 1)
        return int(problem.features[feature]), absent, present

    def _stumps(self, tables: Tables, feature: int, halves: tuple[Budget, Budget]) -> Iterator[Nested]:
        """A leaf or stump of least cost on the rows without, and with, a feature."""
        found = np.empty((2, 3))
        stumps_below(tables, feature, found)
        for (leaf, stump, second), target in zip(found.tolist(), halves, strict=True):
            best = smallest({Budget(0, 0): leaf, Budget(1, 1): min(leaf, stump)}, target)
            yield (int(self.problem.features[int(second)]), None, None) if best.nodes else None

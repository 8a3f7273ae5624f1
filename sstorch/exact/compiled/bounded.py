"""Trees over every threshold of many columns: branch and bound, by the similarity of neighbouring thresholds.

A tree costs at least as much on more rows: what it costs, less what each distinct row would cost as a leaf of
its own, the excess, can only grow. Of the thresholds between two that were tried, the rows below are at least
those below the lower one, and the rows above at least those above the upper one. So no threshold between them
can do better than the sum of these two excesses, and where that is no less than the best tree known, all of
them are excluded. Conditions on leaves do not hold for parts of the rows: bounds come from trees without.

References:
    Brita, van der Linden and Demirović (2025), "Optimal classification trees for continuous feature data
    using dynamic programming with branch-and-bound", AAAI 39 (similarity bounds).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sstorch._types import IntArray
from sstorch.exact.compiled.root import Root
from sstorch.exact.compiled.search import CompiledProblem
from sstorch.exact.compiled.two_levels import (
    NOTHING,
    Columns,
    Rows,
    Space,
    halves_of,
    leaf,
    single_costs,
    stump,
    two_levels,
)
from sstorch.exact.deadline import NEVER, Deadline
from sstorch.exact.problem import INFINITY, Found, Work
from sstorch.exact.tree import Nested

# Features of the search over a part of the thresholds, whose tree is the first one known.
_FIRST_FEATURES = 120
# Measured on simulated rows: thresholds of each column that are tried, and seconds of a leaf.
_TRIES_AT_ROOT, _TRIES_BELOW = 70, 45
_SECONDS_PER_CELL = 1e-8


@dataclass(frozen=True)
class Bounded:
    """A search over all thresholds for the best tree of a depth, of however many nodes."""

    problem: CompiledProblem  # what is searched; its costs must be sums over rows, minimised in each leaf
    penalty: float  # cost of a leaf
    n_threads: int  # how many threads compute

    def work(self, depth: int) -> Work:
        """What a search takes: as in rows of which a tenth of the loss is explained, a guess for others."""
        (n_features, n_rows), n = self.problem.literals.shape[::-1], len(self._thresholds)
        tries = 1
        for most in (_TRIES_BELOW, _TRIES_AT_ROOT)[: max(depth - 1, 0)]:
            tries *= min(n_features, most * n)
        cells = 2 * tries * n_rows * n
        doubles = n_rows * n + self.n_threads * (4 * n_features + 10 * n_rows)
        return Work(cells, 8 * doubles, cells * _SECONDS_PER_CELL)

    def search(self, depth: int, deadline: Deadline = NEVER) -> Found:
        """The best tree of a depth of 0 to 3, and a bound of all of them."""
        best, tree = self._first(depth)
        bound = best  # all there is of depth 0
        if depth == 3:
            best, tree, bound = self._three_levels(best, tree, deadline)
        elif depth == 2:
            best, tree, bound = self._two_levels(best, tree, deadline)
        elif depth == 1:
            best, tree = self._stump(self._order)
            bound = best
        n_cells = sum(int(space.n_leaves[0]) for space in self.spaces)
        return Found.of_tree(tree, best, bound, self.penalty, depth, n_cells)

    @cached_property
    def _chains(self) -> tuple[list[int], list[int]]:
        """Starts and ends of the chains of features."""
        begins = np.flatnonzero(self.problem.chain == np.arange(len(self.problem.chain)))
        return begins.tolist(), [*begins[1:].tolist(), len(self.problem.chain)]

    @cached_property
    def _thresholds(self) -> list[list[tuple[int, bool]]]:
        """Of each column the feature of every threshold, and whether those below it have the feature.

        A column of which one half of the thresholds was turned over is two chains without common rows.
        """
        literals = self.problem.literals
        columns: list[list[tuple[int, bool]]] = []
        alone: int | None = None  # the first feature of a chain that the next one may go on
        for begin, end in zip(*self._chains, strict=True):
            rising = [(feature, False) for feature in range(begin, end)]
            if alone is not None and not (literals[:, alone] & literals[:, begin]).any():
                columns[-1] = [(feature, True) for feature, _ in reversed(columns[-1])] + rising
                alone = None
            else:
                columns.append(rising)
                alone = begin
        return columns

    @cached_property
    def columns(self) -> Columns:
        """The rows by columns."""
        literals, form = self.problem.literals, self.problem.form
        code = np.zeros((len(self._thresholds), len(literals)), dtype=np.int32)
        for row, column in zip(code, self._thresholds, strict=True):
            for feature, turned in column:
                row += literals[:, feature] != turned
        values, n_task = self.problem.values, len(self.problem.values) - len(form.least)
        free = form._replace(least=np.empty(0))
        floor = np.empty(values.shape[1])
        single_costs(values[:n_task], free, floor)
        return Columns(code, values, floor, form, free, self.penalty)

    @cached_property
    def _order(self) -> Rows:
        return np.argsort(self.columns.code, axis=1, kind="stable").astype(np.int32)

    @cached_property
    def spaces(self) -> list[Space]:
        """Work space of each thread."""
        size = *self.columns.values.shape[::-1], self.problem.literals.shape[1]
        return [Space.of(*size) for _ in range(self.n_threads)]

    @cached_property
    def slack(self) -> float:
        """Costs that differ by less are equal."""
        whole = float(leaf(self.columns, self.spaces[0], self._order[0])[0])
        return 1e-12 * (abs(whole) + float(np.abs(self.columns.floor).sum()) + 8.0 * self.penalty)

    def _first(self, depth: int) -> tuple[float, Nested]:
        """The best tree over a part of the thresholds: its cost with penalties, and itself."""
        n = len(self.problem.chain)
        kept = _spread(0, n, _FIRST_FEATURES)
        begins, ends = self._chains
        if len(begins) < _FIRST_FEATURES:
            # Some of each column.
            shares = (
                max(1, round(_FIRST_FEATURES * (end - begin) / n))
                for begin, end in zip(begins, ends, strict=True)
            )
            kept = np.concatenate([_spread(*part) for part in zip(begins, ends, shares, strict=True)])
        chain = np.searchsorted(kept, self.problem.chain[kept])
        found = self.problem.of_features(kept, chain).search(depth, 2**depth - 1)
        cost, target = found.best(self.penalty)
        return cost, found.tree(target)

    def _stump(self, order: Rows) -> tuple[float, Nested]:
        """The best tree of depth 1 on some rows, a leaf if no stump costs less."""
        cost = leaf(self.columns, self.spaces[0], order[0])[1]
        split, column, threshold = stump(self.columns, self.spaces[0], order)
        if column < 0 or not split < cost - self.slack:
            return cost, None
        return split, self._node(column, threshold, None, None)

    def _rooted(self, order: Rows, column: int, threshold: int) -> tuple[float, Nested]:
        """The best tree of depth 2 on some rows with a root, of column -1 a leaf."""
        if column < 0:
            return leaf(self.columns, self.spaces[0], order[0])[1], None
        (below, lower), (above, upper) = map(self._stump, halves_of(self.columns, order, column, threshold))
        return below + above, self._node(column, threshold, lower, upper)

    def _node(self, column: int, threshold: int, lower: Nested, upper: Nested) -> Nested:
        feature, turned = self._thresholds[column][threshold - 1]
        name = int(self.problem.features[feature])
        return (name, upper, lower) if turned else (name, lower, upper)

    def _two_levels(self, best: float, tree: Nested, deadline: Deadline) -> tuple[float, Nested, float]:
        """The best tree of depth 2: its cost, itself, and a bound of the cost of any."""
        t, order = self.columns, self._order
        floor = float(t.floor.sum())
        cutoff = best + self.slack - floor
        excess, proved, *root = two_levels(t, self.spaces[0], order, NOTHING, cutoff, self.slack, deadline)
        if excess + floor < best - self.slack:
            best, tree = self._rooted(order, *root)
        return best, tree, floor if proved == -INFINITY else best

    def _three_levels(self, best: float, tree: Nested, deadline: Deadline) -> tuple[float, Nested, float]:
        """The same of depth 3."""
        order, t = self._order, self.columns
        floor = float(t.floor.sum())
        root = Root(t, self.spaces, self.slack, order, best - floor)
        root.run(deadline)
        if root.split is not None:
            split, *roots = root.split
            halves = halves_of(t, order, *split)
            (left, lower), (right, upper) = (
                self._rooted(half, *one) for half, one in zip(halves, roots, strict=True)
            )
            best, tree = left + right, self._node(*split, lower, upper)
        # No less than the best tree, but for rounding: proved.
        proved = root.bound + floor
        return best, tree, best if proved >= best - 8.0 * self.slack else proved


def _spread(begin: int, end: int, count: int) -> IntArray:
    """So many numbers of a range, or all if there are fewer, evenly."""
    count = min(count, end - begin)
    return begin + ((np.arange(count) + 0.5) * (end - begin) / max(count, 1)).astype(np.int64)

"""Deep trees: best near the root, where what is below is judged by a greedy tree, and best again below.

References:
    Babbar, McTavish, Rudin and Seltzer (2025), "Near-optimal decision trees in a SPLIT second", ICML.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import leaf_costs
from sstorch.exact.compiled.forms import Form
from sstorch.exact.compiled.search import CompiledProblem
from sstorch.exact.deadline import NEVER, Deadline
from sstorch.exact.problem import INFINITY, Found, budget
from sstorch.exact.tree import Nested, nested_size
from sstorch.optim.compiled.jit import compiled, entry
from sstorch.threads import on_threads


class Sparse(NamedTuple):
    """Distinct rows by what they have, and what leaves cost."""

    literals: npt.NDArray[np.uint8]  # (U, F) uint8
    present: IntArray  # features of all rows, ascending in each
    begin: IntArray  # (U + 1,), where those of a row begin
    values: FloatArray  # (U, C), their sums
    form: Form  # of the cost of a leaf
    penalty: float  # what each leaf costs besides


@compiled
def _count(t, rows, lo, hi, counts):
    """Sums (C, F + 1) over some rows that have each feature, then over all of them."""
    n_channels, n = counts.shape[0], counts.shape[1] - 1
    counts[:] = 0.0
    for i in range(lo, hi):
        r = rows[i]
        for channel in range(n_channels):
            value = t.values[r, channel]
            counts[channel, n] += value
            if value != 0.0:
                for j in range(t.begin[r], t.begin[r + 1]):
                    counts[channel, t.present[j]] += value


@compiled
def _partition(t, rows, lo, hi, feature, spare):
    """Rows without a feature first, in their order; returns where those with it begin."""
    middle, n_with = lo, 0
    for i in range(lo, hi):
        r = rows[i]
        if t.literals[r, feature]:
            spare[n_with] = r
            n_with += 1
        else:
            rows[middle] = r
            middle += 1
    for i in range(n_with):
        rows[middle + i] = spare[i]
    return middle


@compiled
def _count_halves(t, rows, lo, middle, hi, whole, absent, present):
    """Sums of both halves of some rows: the smaller one is counted, the other follows."""
    if middle - lo < hi - middle:
        _count(t, rows, lo, middle, absent)
        present[:] = whole - absent
    else:
        _count(t, rows, middle, hi, present)
        absent[:] = whole - present


@compiled
def _greedy(t, rows, lo, hi, depth, counts, bounds, sums, costs, spare):
    """Cost of the greedy tree on the rows from lo to hi, which are reordered, leaves' penalties included.

    The first of `counts` (depth + 2, C, F + 1) has the sums of the rows. All else is work space: `bounds`
    (depth + 2, 3), `sums` (C, 2 F + 1), `costs` (2 F + 1,), `spare` (U,).
    """
    n = counts.shape[2] - 1
    total = 0.0
    bounds[0, 0], bounds[0, 1], bounds[0, 2] = lo, hi, depth
    top = 0
    while top >= 0:
        lo, hi, left = bounds[top, 0], bounds[top, 1], bounds[top, 2]
        here = counts[top]
        for channel in range(len(here)):
            whole = here[channel, n]
            for f in range(n):
                sums[channel, f] = whole - here[channel, f]
                sums[channel, n + f] = here[channel, f]
            sums[channel, 2 * n] = whole
        leaf_costs(sums, 2 * n + 1, t.form, costs)
        leaf = costs[2 * n]
        best, chosen = np.inf, -1
        if left > 0:
            for f in range(n):
                if costs[f] + costs[n + f] < best:
                    best, chosen = costs[f] + costs[n + f], f
        # A leaf that is too small itself may be cut into none that is large enough: it stays one.
        if chosen < 0 or not best + t.penalty < leaf - 1e-12 * abs(leaf):
            total += leaf + t.penalty
            top -= 1
            continue
        middle = _partition(t, rows, lo, hi, chosen, spare)
        # The half without the feature is next, on top of the other one, which takes the place of the whole.
        _count_halves(t, rows, lo, middle, hi, here, counts[top + 1], counts[top + 2])
        counts[top] = counts[top + 2]
        bounds[top, 0], bounds[top, 1], bounds[top, 2] = middle, hi, left - 1
        bounds[top + 1, 0], bounds[top + 1, 1], bounds[top + 1, 2] = lo, middle, left - 1
        top += 1
    return total


@entry
def greedy_halves(t, chosen, depth, out):
    """Cost of each split of the `chosen` rows (N,) whose halves are greedy trees of a depth, none below 0.

    Written to `out` (F + 1,): with each feature, infinite if it cuts nothing, and of no split.
    """
    n, n_channels = t.literals.shape[1], t.values.shape[1]
    counts = np.empty((max(depth, 0) + 2, n_channels, n + 1))
    whole, present = np.empty((n_channels, n + 1)), np.empty((n_channels, n + 1))
    bounds = np.empty((max(depth, 0) + 2, 3), dtype=np.int64)
    sums, costs = np.empty((n_channels, 2 * n + 1)), np.empty(2 * n + 1)
    rows, spare = chosen.copy(), np.empty_like(chosen)
    _count(t, rows, 0, len(rows), whole)
    out[:] = np.inf
    for f in range(n if depth >= 0 else 0):
        rows[:] = chosen
        middle = _partition(t, rows, 0, len(rows), f, spare)
        if 0 < middle < len(rows):
            _count_halves(t, rows, 0, middle, len(rows), whole, counts[0], present)
            out[f] = _greedy(t, rows, 0, middle, depth, counts, bounds, sums, costs, spare)
            counts[0] = present
            out[f] += _greedy(t, rows, middle, len(rows), depth, counts, bounds, sums, costs, spare)
    counts[0] = whole
    out[n] = _greedy(t, rows, 0, len(rows), 0, counts, bounds, sums, costs, spare)


@dataclass(frozen=True)
class Lookahead:
    """A search for a deep tree that is best in its first levels, and below them."""

    problem: CompiledProblem
    depth: int  # most tests on a path
    levels: int  # how many of them are searched together, 1 .. depth - 1, all below being greedy meanwhile.
    penalty: float  # cost of a leaf
    n_threads: int  # how many threads compute

    def search(self, deadline: Deadline = NEVER) -> Found:
        """The tree: its upper levels by the search, each subtree below of least cost for its rows."""
        every = np.arange(len(self.problem.literals))
        prefix = self._best(every, self.levels, deadline)[1]
        cost, tree, n_cells = self._completed(self.problem, prefix, 0, deadline)
        # Other trees of the same size may be better.
        return Found({budget(*nested_size(tree)): cost}, lambda target: tree, n_cells, complete=False)

    @cached_property
    def _rows(self) -> Sparse:
        literals = self.problem.literals
        return Sparse(
            literals=literals,
            present=np.nonzero(literals)[1],
            begin=np.concatenate([[0], np.cumsum(literals.sum(axis=1, dtype=np.int64))]),
            values=np.ascontiguousarray(self.problem.values.T),
            form=self.problem.form,
            penalty=self.penalty,
        )

    def _best(self, rows: IntArray, levels: int, deadline: Deadline) -> tuple[float, Nested]:
        """The tree of some levels of least cost with greedy trees below it, leaves' penalties included.

        Without time only what was seen is compared, in the end no split at all.
        """
        n = self.problem.literals.shape[1]
        costs = np.empty(n + 1)
        greedy_halves(self._rows, rows, self.depth - self.levels if levels == 1 else -1, costs)
        best: Nested = None
        least = float(costs[n])
        if levels == 1:
            feature = int(costs[:n].argmin()) if n else 0
            if n and costs[feature] < least - 1e-12 * abs(least):
                least, best = float(costs[feature]), (feature, None, None)
            return least, best
        for feature, (cost, halves) in zip(range(n), self._halves(rows, levels, deadline), strict=True):
            if cost < least - 1e-12 * abs(least):
                least, best = cost, (feature, *halves)
        return least, best

    def _halves(
        self, rows: IntArray, levels: int, deadline: Deadline
    ) -> list[tuple[float, tuple[Nested, Nested]]]:
        """Cost of the best trees below each feature, infinite if there was no time or nothing is cut."""

        def below(feature: int) -> tuple[float, tuple[Nested, Nested]]:
            has = self.problem.literals[rows, feature] == 1
            if deadline.passed or has.all() or not has.any():
                return INFINITY, (None, None)
            absent = self._best(rows[~has], levels - 1, deadline)
            present = self._best(rows[has], levels - 1, deadline)
            return absent[0] + present[0], (absent[1], present[1])

        features = range(self.problem.literals.shape[1])
        return on_threads(below, features, self.n_threads if levels == self.levels else 1)

    def _completed(
        self, problem: CompiledProblem, tree: Nested, level: int, deadline: Deadline
    ) -> tuple[float, Nested, int]:
        """A tree with the best subtrees in place of its leaves: its cost, itself, cells evaluated."""
        if isinstance(tree, tuple):
            feature, *halves = tree
            parts = [
                self._completed(problem.where(feature, bool(sign)), halves[sign], level + 1, deadline)
                for sign in (0, 1)
            ]
            (left, absent, here), (right, present, there) = parts
            name = int(problem.features[feature])
            return left + right, (name, absent, present), here + there
        depth = self.depth - max(level, self.levels)
        found = problem.search(depth, 2**depth - 1, deadline, self.n_threads)
        best = found.best(self.penalty)[1]
        return found.costs[best], found.tree(best), found.n_cells

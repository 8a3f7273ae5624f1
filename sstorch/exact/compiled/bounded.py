"""Trees over every threshold of many columns: branch and bound, by the similarity of neighbouring thresholds.

A tree costs at least as much on more rows: what it costs, less what each distinct row would cost as a leaf of
its own, the excess, can only grow. Of the thresholds between two that were tried, the rows below are at least
those below the lower one, and the rows above at least those above the upper one. So no threshold between them
can do better than the sum of these two excesses, and where that is no less than the best tree known, all of
them are done with. Conditions on leaves do not hold for parts of the rows: bounds come from trees without.

References:
    Brita, van der Linden and Demirović (2025), "Optimal classification trees for continuous feature data
    using dynamic programming with branch-and-bound", AAAI 39 (similarity bounds).
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import leaf_costs
from sstorch.exact.compiled.forms import Form
from sstorch.exact.compiled.search import CompiledProblem
from sstorch.exact.deadline import NEVER, Deadline
from sstorch.exact.problem import INFINITY, Budget, Work, budget
from sstorch.exact.tree import Nested, nested_size
from sstorch.optim.compiled.jit import compare, compiled, entry

# Features of the search over a part of the thresholds, whose tree is the first one known.
_FIRST_FEATURES = 120
# Measured on simulated rows: thresholds of each column that are tried, and seconds of a leaf.
_TRIES_AT_ROOT, _TRIES_BELOW = 70, 45
_SECONDS_PER_CELL = 1e-8
_NOTHING = np.empty((0, 4))
_NUMBERS = itertools.count()
Rows = npt.NDArray[np.int32]


class Columns(NamedTuple):
    """Distinct rows by columns, whose thresholds are 1 .. m: rows of a code below one, and others.

    Attributes:
        code: (p, U) int32, thresholds of each column that a row has passed.
        values: (C, U), sums of the rows: channels of the task, then those that leaves need some of.
        floor: (U,), cost of each row as a leaf of its own.
        form: of the cost of a leaf.
        free: the same without conditions.
        penalty: what each leaf costs besides.
    """

    code: Rows
    values: FloatArray
    floor: FloatArray
    form: Form
    free: Form
    penalty: float


class _Space(NamedTuple):
    """Work space of a thread: N rows at most, C channels.

    Attributes:
        side: (U,), the half that each row is in.
        below: (2, C, N), sums of the rows below each threshold, of both halves.
        above: (C, N), those of the rows above it, of one.
        costs: (2, N), of both.
        totals: (2, C), sums of both halves.
        sums: (C, 2), the same, as costs take them.
        sizes: (2,), thresholds of both.
        last: (2,), the code of the last row of both.
        place: (N,), see `_places`.
        found: (2, 2), least costs of both halves, without and with conditions.
        cuts: (N,), where thresholds are in a column's rows.
        floors: (N,), floors of the rows below each.
        under: (N,), bounds of the excess of the rows below each.
        over: (N,), of those above it.
        open: (N,), whether it has not been tried.
        tried: (p U, 4), see `two_levels`.
        n_tried: (1,), how many.
        n_leaves: (1,), leaves evaluated.
    """

    side: npt.NDArray[np.uint8]
    below: FloatArray
    above: FloatArray
    costs: FloatArray
    totals: FloatArray
    sums: FloatArray
    sizes: IntArray
    last: IntArray
    place: IntArray
    found: FloatArray
    cuts: IntArray
    floors: FloatArray
    under: FloatArray
    over: FloatArray
    open: npt.NDArray[np.uint8]
    tried: FloatArray
    n_tried: IntArray
    n_leaves: IntArray

    @classmethod
    def of(cls, n_rows: int, n_channels: int, n_thresholds: int) -> _Space:
        return cls(
            np.zeros(n_rows, dtype=np.uint8),
            np.empty((2, n_channels, n_rows)),
            np.empty((n_channels, n_rows)),
            np.empty((2, n_rows)),
            np.empty((2, n_channels)),
            np.empty((n_channels, 2)),
            np.empty(2, dtype=np.int64),
            np.empty(2, dtype=np.int64),
            np.empty(n_rows, dtype=np.int64),
            np.empty((2, 2)),
            np.empty(n_rows, dtype=np.int64),
            np.empty(n_rows),
            np.empty(n_rows),
            np.empty(n_rows),
            np.empty(n_rows, dtype=np.uint8),
            np.empty((n_thresholds, 4)),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
        )


@compiled
def _enough(t, sums, i):
    """Whether the sums of a leaf, column i, meet the conditions."""
    first = len(sums) - len(t.form.least)
    enough = True
    for k in range(len(t.form.least)):
        enough = enough and sums[first + k, i] >= t.form.least[k]
    return enough


@compiled
def _leaves(t, w, rows):
    """Sums of both halves, and their costs as leaves."""
    n_task = len(t.values) - len(t.form.least)
    w.totals[:] = 0.0
    for r in rows:
        for channel in range(len(t.values)):
            w.totals[w.side[r], channel] += t.values[channel, r]
    for k in range(2):
        for channel in range(len(t.values)):
            w.sums[channel, k] = w.totals[k, channel]
    leaf_costs(w.sums[:n_task], 2, t.free, w.costs[0])
    for k in range(2):
        w.found[k, 0] = w.costs[0, k] + t.penalty
        w.found[k, 1] = w.found[k, 0] if _enough(t, w.sums, k) else math.inf


@compiled
def _places(w, code, rows):
    """Where sums below each row of a column go, by the half that it is in; sizes are then in `w.sizes`."""
    half = w.below[0].size
    size0, size1 = np.int64(0), np.int64(0)
    last0, last1 = np.int64(-1), np.int64(-1)
    for i in range(len(rows)):
        # No branches: which half a row is in cannot be foreseen.
        r = rows[i]
        k, c = np.int64(w.side[r]), np.int64(code[r])
        last = last1 if k else last0
        # Of rows of one code the last one that goes to a place is the first of the next code.
        changed = np.int64((c != last) & (last >= 0))
        w.place[i] = half + size1 if k else size0
        size0 += changed * (1 - k)
        size1 += changed * k
        last0 = last0 if k else c
        last1 = c if k else last1
    w.sizes[0], w.sizes[1] = size0, size1


@compiled
def _sums_below(side, place, values, rows, below):
    """Sums below each threshold of a column, of one channel, each to its place."""
    # Sums of the channels are exact, and so is this choice between two of them.
    first, second = 0.0, 0.0
    for i in range(len(rows)):
        r = rows[i]
        k, value = float(side[r]), values[r]
        below[place[i]] = first + k * (second - first)
        second += k * value
        first += value - k * value


@compiled
def _thresholds(t, w, code, rows):
    """Sums below each threshold of a column in both halves, whose sizes are then in `w.sizes`."""
    _places(w, code, rows)
    for channel in range(len(t.values)):
        _sums_below(w.side, w.place, t.values[channel], rows, w.below.reshape(-1)[channel * len(w.side) :])


@compare
def _least_sum(first, second, n):
    least = math.inf
    for i in range(n):
        least = min(least, first[i] + second[i])
    return least


@compiled
def _stumps(t, w, order):
    """Least costs of both halves as leaves or stumps, without and with conditions, in `w.found`."""
    n_channels = len(t.values)
    n_task = n_channels - len(t.form.least)
    _leaves(t, w, order[0])
    for column in range(len(order)):
        _thresholds(t, w, t.code[column], order[column])
        for k in range(2):
            m = w.sizes[k]
            if m == 0:
                continue
            w.n_leaves[0] += 2 * m
            below = w.below[k]
            for channel in range(n_channels):
                for i in range(m):
                    w.above[channel, i] = w.totals[k, channel] - below[channel, i]
            leaf_costs(below[:n_task], m, t.free, w.costs[0])
            leaf_costs(w.above[:n_task], m, t.free, w.costs[1])
            least = _least_sum(w.costs[0], w.costs[1], m) + 2.0 * t.penalty
            w.found[k, 0] = min(w.found[k, 0], least)
            allowed = w.found[k, 1]
            if least >= allowed:
                continue
            for i in range(m):
                cost = w.costs[0, i] + w.costs[1, i] + 2.0 * t.penalty
                if cost < allowed and _enough(t, below, i) and _enough(t, w.above, i):
                    allowed = cost
            w.found[k, 1] = allowed


@compiled
def _cut(t, w, column, rows):
    """Where the thresholds of a column are in its rows, and the floors below; returns how many."""
    m, floor = 0, 0.0
    for i in range(len(rows)):
        if i > 0 and t.code[column, rows[i]] != t.code[column, rows[i - 1]]:
            w.cuts[m], w.floors[m] = i, floor
            m += 1
        floor += t.floor[rows[i]]
    return m


@entry
def thresholds(t, w, column, rows):
    """Thresholds that the rows of a column, in its order, have: how many, where in `w.cuts`; see `_cut`."""
    return _cut(t, w, column, rows)


@entry
def stump(t, w, order):
    """The best stump with conditions on some rows: cost, column and threshold, (inf, -1, 0) without any."""
    w.side[:] = 0
    n_channels = len(t.values)
    n_task = n_channels - len(t.form.least)
    _leaves(t, w, order[0])
    best, chosen, threshold = math.inf, -1, 0
    for column in range(len(order)):
        _thresholds(t, w, t.code[column], order[column])
        m, below = w.sizes[0], w.below[0]
        for channel in range(n_channels):
            for i in range(m):
                w.above[channel, i] = w.totals[0, channel] - below[channel, i]
        leaf_costs(below[:n_task], m, t.free, w.costs[0])
        leaf_costs(w.above[:n_task], m, t.free, w.costs[1])
        at = -1
        for i in range(m):
            cost = w.costs[0, i] + w.costs[1, i] + 2.0 * t.penalty
            if cost < best and _enough(t, below, i) and _enough(t, w.above, i):
                best, chosen, at = cost, column, i
        if at >= 0:
            _cut(t, w, column, order[column])
            threshold = t.code[column, order[column][w.cuts[at]]]
    return best, chosen, threshold


@entry
def single_costs(values, form, costs):
    """Costs (U,) of rows (C, U) as leaves of their own."""
    leaf_costs(values, values.shape[1], form, costs)


@entry
def leaf(t, w, rows):
    """Cost of a leaf of some rows, without and with conditions."""
    w.side[:] = 0
    _leaves(t, w, rows)
    return w.found[0, 0], w.found[0, 1]


@compiled
def _begin_column(t, w, rows, column, m, known, k):
    """Bounds below and above each threshold of a column from what is known; returns the next k."""
    first = k
    while k < len(known) and known[k, 0] == column:
        k += 1
    # What is known of rows below a threshold holds for later ones, of those above it for earlier ones.
    last = first
    bound = 0.0
    for j in range(m):
        while last < k and known[last, 1] <= t.code[column, rows[w.cuts[j]]]:
            bound = max(bound, known[last, 2])
            last += 1
        w.under[j], w.open[j] = bound, 1
    last = k - 1
    bound = 0.0
    for j in range(m - 1, -1, -1):
        while last >= first and known[last, 1] >= t.code[column, rows[w.cuts[j]]]:
            bound = max(bound, known[last, 3])
            last -= 1
        w.over[j] = bound
    return k


@compiled
def _most_open(w, m, enough):
    """The middle of the longest run of thresholds that are not done with, -1 without any."""
    chosen, longest, run = -1, 0, 0
    for j in range(m):
        if w.open[j] and w.under[j] + w.over[j] < enough:
            run += 1
            if run > longest:
                longest, chosen = run, j - run // 2
        else:
            run = 0
    return chosen


@entry
def two_levels(t, w, order, known, cutoff, slack):
    """The best tree of depth 2 on some rows, if its excess is below a cutoff.

    Args:
        t: columns.
        w: work space; thresholds that are tried are in the first `n_tried` rows of `tried`.
        order: (p, n), the rows sorted by each column.
        known: (K, 4), like `tried`, what a search on a part of the rows knows: columns, thresholds, and
            bounds of the excess of the rows below and above them; sorted by columns and thresholds.
        cutoff: see above.
        slack: differences that are none.

    Returns:
        Excess of the best tree that meets the conditions, or of some tree, or infinite, if none is below the
        cutoff; a bound of the excess of all trees, with conditions or without, not much above the cutoff; the
        column and threshold of the root, column -1 for a leaf.
    """
    whole = 0.0
    for r in order[0]:
        whole += t.floor[r]
        w.side[r] = 0
    _leaves(t, w, order[0])
    w.n_tried[0] = 0
    bound, best = w.found[0, 0] - whole, w.found[0, 1] - whole
    chosen, threshold = -1, 0
    k = 0
    for column in range(len(order)):
        rows = order[column]
        m = _cut(t, w, column, rows)
        k = _begin_column(t, w, rows, column, m, known, k)
        while True:
            j = _most_open(w, m, min(best, cutoff) - slack)
            if j < 0:
                break
            at = w.cuts[j]
            for i in range(len(rows)):
                w.side[rows[i]] = 1 if i >= at else 0
            _stumps(t, w, order)
            here = t.code[column, rows[at]]
            allowed = w.found[0, 1] + w.found[1, 1] - whole
            if allowed < best:
                best, chosen, threshold = allowed, column, here
            under = max(w.under[j], w.found[0, 0] - w.floors[j])
            over = max(w.over[j], w.found[1, 0] - (whole - w.floors[j]))
            w.open[j] = 0
            for i in range(j, m):
                w.under[i] = max(w.under[i], under)
            for i in range(j + 1):
                w.over[i] = max(w.over[i], over)
            tried = w.tried[w.n_tried[0]]
            tried[0], tried[1], tried[2], tried[3] = column, here, under, over
            w.n_tried[0] += 1
        for j in range(m):
            bound = min(bound, w.under[j] + w.over[j])
    return best, bound, chosen, threshold


@entry
def part(order, keep, out):
    """The rows of a part, (p, n), in the order of each column; `keep` (U,) says which, `out` is filled."""
    for column in range(len(order)):
        i = 0
        for r in order[column]:
            if keep[r]:
                out[column, i] = r
                i += 1


@dataclass(frozen=True)
class Bounded:
    """A search over all thresholds for the best tree of a depth, of however many nodes.

    Attributes:
        problem: what is searched; its costs must be sums over rows, minimised in each leaf.
        penalty: cost of a leaf.
        n_threads: how many threads compute.
    """

    problem: CompiledProblem
    penalty: float
    n_threads: int

    def work(self, depth: int) -> Work:
        """What a search takes: as in rows of which a tenth of the loss is explained, a guess for others."""
        (n_features, n_rows), n = self.problem.literals.shape[::-1], len(self._thresholds)
        tries = 1
        for most in (_TRIES_BELOW, _TRIES_AT_ROOT)[: max(depth - 1, 0)]:
            tries *= min(n_features, most * n)
        cells = 2 * tries * n_rows * n
        doubles = n_rows * n + self.n_threads * (4 * n_features + 10 * n_rows)
        return Work(cells, 8 * doubles, cells * _SECONDS_PER_CELL)

    def search(self, depth: int, deadline: Deadline = NEVER) -> BoundedTree:
        """The best tree of a depth of 0 to 3, and a bound of all of them."""
        best, tree = self._first(depth)
        bound = best  # all there is of depth 0
        if depth == 3:
            best, tree, bound = self._three_levels(best, tree, deadline)
        elif depth > 0:
            cost, grown = self._grow(self._order, depth, best + self.slack)
            if cost < best - self.slack:
                best, tree = cost, grown
            bound = best
        n_cells = sum(int(space.n_leaves[0]) for space in self.spaces)
        return BoundedTree(depth, best, tree, bound, self.penalty, n_cells)

    @cached_property
    def _chains(self) -> tuple[list[int], list[int]]:
        """Where the chains of features begin and end."""
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
    def spaces(self) -> list[_Space]:
        """Work space of each thread."""
        size = *self.columns.values.shape[::-1], self.problem.literals.shape[1]
        return [_Space.of(*size) for _ in range(self.n_threads)]

    @cached_property
    def slack(self) -> float:
        """Differences that are none."""
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
        target = min(found.costs, key=lambda s: found.costs[s] + self.penalty * (s.nodes + 1))
        tree = found.tree(target)
        return found.costs[target] + self.penalty * (nested_size(tree).nodes + 1), tree

    def _grow(self, order: Rows, depth: int, cutoff: float) -> tuple[float, Nested]:
        """The best tree of depth 0, 1 or 2 on some rows, if it costs less than a cutoff; a leaf if not."""
        space = self.spaces[0]
        cost, tree = leaf(self.columns, space, order[0])[1], None
        if depth == 0:
            return cost, None
        if depth == 1:
            split, column, threshold = stump(self.columns, space, order)
            if column < 0 or not split < cost - self.slack:
                return cost, None
            return split, self._node(column, threshold, None, None)
        floor = float(self.columns.floor[order[0]].sum())
        best, _, column, threshold = two_levels(
            self.columns, space, order, _NOTHING, cutoff - floor, self.slack
        )
        if column < 0 or not best + floor < cost - self.slack:
            return cost, tree
        halves = self.halves(order, column, threshold)
        (below, lower), (above, upper) = (self._grow(half, 1, INFINITY) for half in halves)
        return below + above, self._node(column, threshold, lower, upper)

    def halves(self, order: Rows, column: int, threshold: int) -> tuple[Rows, Rows]:
        """The rows below a threshold, and those above."""
        above = self.columns.code[column] >= threshold
        n = int(above[order[0]].sum())
        halves = (
            np.empty((len(order), order.shape[1] - n), dtype=np.int32),
            np.empty((len(order), n), dtype=np.int32),
        )
        for keep, half in zip((~above, above), halves, strict=True):
            part(order, keep, half)
        return halves

    def _node(self, column: int, threshold: int, lower: Nested, upper: Nested) -> Nested:
        feature, turned = self._thresholds[column][threshold - 1]
        name = int(self.problem.features[feature])
        return (name, upper, lower) if turned else (name, lower, upper)

    def _three_levels(self, best: float, tree: Nested, deadline: Deadline) -> tuple[float, Nested, float]:
        """The best tree of depth 3: its cost, itself, and a bound of the cost of any."""
        order, t = self._order, self.columns
        floor = float(t.floor.sum())
        root = _Root(self, order, best - floor)
        root.run(deadline)
        if root.split is not None:
            column, threshold, below, above = root.split
            halves = self.halves(order, column, threshold)
            slack = 4.0 * self.slack
            (left, lower), (right, upper) = (
                self._grow(half, 2, cost + slack) for half, cost in zip(halves, (below, above), strict=True)
            )
            best, tree = left + right, self._node(column, threshold, lower, upper)
        # No less than the best tree, but for rounding: proved.
        proved = root.bound + floor
        return best, tree, best if proved >= best - 8.0 * self.slack else proved


def _spread(begin: int, end: int, count: int) -> IntArray:
    """So many numbers of a range, or all if there are fewer, evenly."""
    count = min(count, end - begin)
    return begin + ((np.arange(count) + 0.5) * (end - begin) / max(count, 1)).astype(np.int64)


def _merged(space: _Space, known: FloatArray) -> FloatArray:
    """What is known of more rows: what was tried there, and else what is known of some of them."""
    both = np.concatenate([space.tried[: space.n_tried[0]], known])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    kept = np.ones(len(both), dtype=np.bool_)
    kept[1:] = (both[1:, :2] != both[:-1, :2]).any(axis=1)
    merged: FloatArray = both[kept]
    return merged


class _Interval(NamedTuple):
    """Thresholds of a column between two that were tried, or its ends.

    Attributes:
        bound: no tree with one of them has a smaller excess.
        number: different for all.
        column: see above.
        low: number of the threshold below all of them.
        high: of that above all of them.
        below: bound of the excess of the rows below the former.
        above: of those above the latter.
        lower: what is known of their subtree below the former, see `two_levels`.
        upper: of that above the latter.
    """

    bound: float
    number: int
    column: int
    low: int
    high: int
    below: float
    above: float
    lower: FloatArray
    upper: FloatArray


@dataclass
class _Root:
    """Intervals of thresholds of the root of a tree of depth 3, in the order of their bounds.

    Attributes:
        search: of which this is the root.
        order: (p, U), all rows by column.
        best: excess of the best tree known.
        split: its root, column and threshold, and what it costs below and above; None if it is not of here.
        done: least bound of intervals that are done with.
        intervals: a heap of the others, but for those that threads are working on.
    """

    search: Bounded
    order: Rows
    best: float
    split: tuple[int, int, float, float] | None = None
    done: float = INFINITY
    intervals: list[_Interval] = field(default_factory=list)
    _working: dict[int, float] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def bound(self) -> float:
        """No tree has a smaller excess."""
        first = (interval.bound for interval in self.intervals[:1])
        return min(self.best, self.done, *first, *self._working.values())

    @cached_property
    def _cuts(self) -> list[IntArray]:
        """Of each column where thresholds are in its rows."""
        t, space = self.search.columns, self.search.spaces[0]
        counts = (thresholds(t, space, c, rows) for c, rows in enumerate(self.order))
        return [space.cuts[:m].copy() for m in counts]

    def run(self, deadline: Deadline) -> None:
        """Try thresholds until no interval can have a better one, or the time has passed."""
        self.intervals = [
            _Interval(0.0, next(_NUMBERS), c, -1, len(cuts), 0.0, 0.0, _NOTHING, _NOTHING)
            for c, cuts in enumerate(self._cuts)
        ]
        self.intervals = [interval for interval in self.intervals if interval.high > 0]
        heapq.heapify(self.intervals)
        spaces = self.search.spaces
        if len(spaces) == 1:
            self._work(spaces[0], deadline)
            return
        with ThreadPoolExecutor(len(spaces), thread_name_prefix="sstorch") as pool:
            for task in [pool.submit(self._work, space, deadline) for space in spaces]:
                task.result()

    def _work(self, space: _Space, deadline: Deadline) -> None:
        """Take intervals as long as there are any."""
        while (interval := self._take(deadline)) is not None:
            parts: list[_Interval] = []
            try:
                parts = self._try(space, interval)
            finally:
                with self._news:
                    del self._working[interval.number]
                    for one in parts:
                        self._keep(one)
                    self._news.notify_all()
                    gap = self.best - self.bound
            deadline.say(f"the best tree is at most {gap:.4g} above the optimum")

    def _take(self, deadline: Deadline) -> _Interval | None:
        """The interval of the least bound, or None when all is done."""
        with self._news:
            while True:
                while not self.intervals and self._working:
                    self._news.wait()
                if deadline.passed or not self.intervals:
                    return None
                interval = heapq.heappop(self.intervals)
                if interval.bound < self.best - self.search.slack:
                    self._working[interval.number] = interval.bound
                    return interval
                # With this one all others are done with.
                self.done = min(self.done, interval.bound)
                self.intervals.clear()

    def _keep(self, interval: _Interval) -> None:
        if interval.bound >= self.best - self.search.slack:
            self.done = min(self.done, interval.bound)
        else:
            heapq.heappush(self.intervals, interval)

    def _try(self, space: _Space, interval: _Interval) -> list[_Interval]:
        """Try the threshold in the middle of an interval; returns what is left of it.

        The tree of least cost there is found if it is better than the best one: the threshold is done with.
        """
        t, slack = self.search.columns, self.search.slack
        column, low, high, below, above = interval[2:7]
        middle = (low + high) // 2
        threshold = int(t.code[column, self.order[column, self._cuts[column][middle]]])
        lower, upper = self.search.halves(self.order, column, threshold)
        # Up to what excludes the other part of the interval, not this threshold alone.
        best = self.best
        left, under, *_ = two_levels(t, space, lower, interval.lower, best - above, slack)
        of_lower = _merged(space, interval.lower)
        right, over, *_ = two_levels(t, space, upper, interval.upper, best - below, slack)
        of_upper = _merged(space, interval.upper)
        under, over = max(under, below), max(over, above)
        with self._news:
            if left + right < self.best - slack:
                self.best = left + right
                costs = (left + float(t.floor[lower[0]].sum()), right + float(t.floor[upper[0]].sum()))
                self.split = (column, threshold, *costs)
        parts = (
            _Interval(
                below + over, next(_NUMBERS), column, low, middle, below, over, interval.lower, of_upper
            ),
            _Interval(
                under + above, next(_NUMBERS), column, middle, high, under, above, of_lower, interval.upper
            ),
        )
        return [one for one in parts if one.high - one.low > 1]


@dataclass(frozen=True)
class BoundedTree:
    """What a `Bounded` search has found.

    Attributes:
        depth: most tests on a path.
        objective: cost of the tree, with penalties.
        nested: the tree.
        objective_bound: no tree of the depth costs less, penalties included.
        penalty: of each leaf.
        n_cells: leaves evaluated.
    """

    depth: int
    objective: float
    nested: Nested
    objective_bound: float
    penalty: float
    n_cells: int

    @property
    def costs(self) -> dict[Budget, float]:
        """Of its own budget."""
        size = nested_size(self.nested)
        return {budget(*size): self.objective - self.penalty * (size.nodes + 1)}

    @property
    def complete(self) -> bool:
        """True if no tree of the depth, with penalties, was left out."""
        return self.objective_bound >= self.objective

    def lower_bound(self, target: Budget) -> float:
        """No tree within a budget costs less, without penalties; -inf beyond the depth."""
        if target.depth > self.depth:
            return -INFINITY
        return self.objective_bound - self.penalty * (target.nodes + 1)

    def tree(self, target: Budget) -> Nested:
        """The tree itself."""
        return self.nested

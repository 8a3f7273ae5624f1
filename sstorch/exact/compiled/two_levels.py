"""The best tree of depth 2 over every threshold of many columns, by bounds from neighbouring thresholds.

See :mod:`sstorch.exact.compiled.bounded` for the bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import leaf_costs
from sstorch.exact.compiled.forms import Form
from sstorch.exact.deadline import Deadline
from sstorch.optim.compiled.jit import compare, compiled, entry

NOTHING = np.empty((0, 4))
# Rows of columns, about a tenth of a second, between two looks at the clock.
_VISITS_AT_ONCE = 1 << 23
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


class Space(NamedTuple):
    """Work space of a thread: N rows at most, C channels."""

    side: npt.NDArray[np.uint8]  # (U,), the half that each row is in
    below: FloatArray  # (2, C, N), sums of the rows below each threshold, of both halves
    above: FloatArray  # (C, N), those of the rows above it, of one
    costs: FloatArray  # (2, N), of both
    totals: FloatArray  # (2, C), sums of both halves
    sums: FloatArray  # (C, 2), the same, as costs take them
    sizes: IntArray  # (2,), thresholds of both
    last: IntArray  # (2,), the code of the last row of both
    place: IntArray  # (N,), see `_places`
    found: FloatArray  # (2, 2), least costs of both halves, without and with conditions
    cuts: IntArray  # (N,), where thresholds are in a column's rows
    floors: FloatArray  # (N,), floors of the rows below each
    under: FloatArray  # (N,), bounds of the excess of the rows below each
    over: FloatArray  # (N,), of those above it
    open: npt.NDArray[np.uint8]  # (N,), whether it has not been tried
    tried: FloatArray  # (p U, 4), see `two_levels`
    n_tried: IntArray  # (1,), how many
    n_leaves: IntArray  # (1,), leaves evaluated

    @classmethod
    def of(cls, n_rows: int, n_channels: int, n_thresholds: int) -> Space:
        """Space for so many rows, channels and thresholds."""
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
def _split_costs(t, w, k, m):
    """Costs of both leaves of each threshold in half k, in `w.costs`, and sums above it, in `w.above`."""
    below, n_task = w.below[k], len(t.values) - len(t.form.least)
    for channel in range(len(t.values)):
        for i in range(m):
            w.above[channel, i] = w.totals[k, channel] - below[channel, i]
    leaf_costs(below[:n_task], m, t.free, w.costs[0])
    leaf_costs(w.above[:n_task], m, t.free, w.costs[1])


@compiled
def _stumps(t, w, order):
    """Least costs of both halves as leaves or stumps, without and with conditions, in `w.found`."""
    _leaves(t, w, order[0])
    for column in range(len(order)):
        _thresholds(t, w, t.code[column], order[column])
        for k in range(2):
            m = w.sizes[k]
            if m == 0:
                continue
            w.n_leaves[0] += 2 * m
            below = w.below[k]
            _split_costs(t, w, k, m)
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
    _leaves(t, w, order[0])
    best, chosen, threshold = math.inf, -1, 0
    for column in range(len(order)):
        _thresholds(t, w, t.code[column], order[column])
        m, below = w.sizes[0], w.below[0]
        _split_costs(t, w, 0, m)
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
    """Bounds below and above each threshold of a column from known ones; returns the next k."""
    first = k
    while k < len(known) and known[k, 0] == column:
        k += 1
    # Bounds of rows below a threshold hold for later ones, those of rows above it for earlier ones.
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
    """The middle of the longest run of open thresholds, -1 without any."""
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
def _try_columns(t, w, order, known, cutoff, slack, state, most):
    """Try thresholds of the next columns until `most` were tried; the `state`, see `two_levels`, after it."""
    column, k, best, bound, chosen, threshold = state
    whole = 0.0
    for r in order[0]:
        whole += t.floor[r]
    if column < 0:
        column = 0
        for r in order[0]:
            w.side[r] = 0
        _leaves(t, w, order[0])
        w.n_tried[0] = 0
        bound, best = w.found[0, 0] - whole, w.found[0, 1] - whole
    n_tried = w.n_tried[0] + most
    while column < len(order) and w.n_tried[0] < n_tried:
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
        column += 1
    return column, k, best, bound, chosen, threshold


def two_levels(
    t: Columns, w: Space, order: Rows, known: FloatArray, cutoff: float, slack: float, deadline: Deadline
) -> tuple[float, float, int, int]:
    """The best tree of depth 2 on some rows, if its excess is below a cutoff.

    `order` (p, n) has the rows sorted by each column. `known` (K, 4) has bounds from a search on a
    part of the rows: columns, thresholds, and bounds of the excess below and above them, sorted; those of
    this search are in the first `n_tried` rows of `w.tried`. Differences up to `slack` are none.

    Returns the excess of the best tree that satisfies the conditions, or of some tree, or infinite, if none
    is below the cutoff; a bound of the excess of all trees, with conditions or without, not much above the
    cutoff, minus infinity where the deadline has passed before all columns were tried; the column and
    threshold of the root, column -1 for a leaf.
    """
    state = (-1, 0, math.inf, math.inf, -1, 0)
    most = 1 + _VISITS_AT_ONCE // max(order.size, 1)
    while state[0] < len(order):
        if state[0] > 0 and deadline.passed:
            return state[2], -math.inf, *state[4:]
        state = _try_columns(t, w, order, known, cutoff, slack, state, most)
    return state[2:]


@entry
def part(order, keep, out):
    """The rows of a part, (p, n), in the order of each column; given by `keep` (U,); `out` is filled."""
    for column in range(len(order)):
        i = 0
        for r in order[column]:
            if keep[r]:
                out[column, i] = r
                i += 1


def halves_of(t: Columns, order: Rows, column: int, threshold: int) -> tuple[Rows, Rows]:
    """The rows below a threshold, and those above."""
    above = t.code[column] >= threshold
    n = int(above[order[0]].sum())
    halves = (
        np.empty((len(order), order.shape[1] - n), dtype=np.int32),
        np.empty((len(order), n), dtype=np.int32),
    )
    for keep, half in zip((~above, above), halves, strict=True):
        part(order, keep, half)
    return halves


def merged(space: Space, known: FloatArray) -> FloatArray:
    """Bounds for a superset of rows: those of the thresholds tried there, else those of some of the rows."""
    both = np.concatenate([space.tried[: space.n_tried[0]], known])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    kept = np.ones(len(both), dtype=np.bool_)
    kept[1:] = (both[1:, :2] != both[:-1, :2]).any(axis=1)
    merged: FloatArray = both[kept]
    return merged

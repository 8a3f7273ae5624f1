"""Moments: sums over the rows that have all features of a set, counted from what each row has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.tables import absorb_prefix, absorb_singles
from sstorch.optim.compiled.jit import compiled, entry, take


class Rows(NamedTuple):
    """Distinct rows, sorted by their features, the first feature first.

    Rows that agree in the features below any one are then neighbours, also among those that have some other
    features: once these are given, they are one row.

    Attributes:
        present: features of all rows, ascending in each.
        begin: (U,), where those of a row begin.
        below: (U, F), how many features below each one a row has; -1 where it lacks the feature itself.
        kept: (D - 1, U), rows that have the first, the first two, ... features of a prefix.
        n_below: (D - 1, U), how many of their features are below these.
        differs: (D - 1, U), the first feature in which each differs from the one before.
        values: (D - 1, U, C), their sums.
        size: (D - 1,), how many there are.
    """

    present: IntArray
    begin: IntArray
    below: IntArray
    kept: IntArray
    n_below: IntArray
    differs: IntArray
    values: FloatArray
    size: IntArray


@compiled
def _read(rows, literals):
    """Fill `rows` but for values, from sorted rows (U, F)."""
    n_rows, n = literals.shape
    at = 0
    for r in range(n_rows):
        rows.begin[r] = at
        count = 0
        for f in range(n):
            if literals[r, f]:
                rows.present[at + count] = f
                rows.below[r, f] = count
                count += 1
            else:
                rows.below[r, f] = -1
        at += count
        f = 0
        if r > 0:
            while f < n and literals[r, f] == literals[r - 1, f]:
                f += 1
        rows.kept[0, r], rows.n_below[0, r], rows.differs[0, r] = r, count, f
    rows.size[0] = n_rows


@compiled
def _keep(rows, level, feature):
    """The rows of a level that have one more feature, and two below it; equal ones added up."""
    above = level - 1
    count = 0
    differs = feature
    for i in range(rows.size[above]):
        r = rows.kept[above, i]
        differs = min(differs, rows.differs[above, i])
        n_below = rows.below[r, feature]
        if n_below < 2:
            continue
        if count > 0 and differs >= feature:
            for channel in range(rows.values.shape[2]):
                rows.values[level, count - 1, channel] += rows.values[above, i, channel]
        else:
            rows.kept[level, count], rows.n_below[level, count] = r, n_below
            rows.differs[level, count] = differs
            for channel in range(rows.values.shape[2]):
                rows.values[level, count, channel] = rows.values[above, i, channel]
            count += 1
        differs = feature
    rows.size[level] = count


@compiled
def _count_pairs(rows, level, binomials, out, start, n):
    """Sums (C, n) of the rows of a level over the pairs of their features below the prefix."""
    for channel in range(len(out)):
        out[channel, start : start + n] = 0.0
    for i in range(rows.size[level]):
        begin = rows.begin[rows.kept[level, i]]
        end = begin + rows.n_below[level, i]
        for channel in range(len(out)):
            sums = out[channel]
            value = rows.values[level, i, channel]
            if value == 0.0:
                continue
            for j in range(begin + 1, end):
                place = start + binomials[rows.present[j], 2]
                for k in range(begin, j):
                    sums[place + rows.present[k]] += value


@compiled
def _begin(t, rows, depth):
    """Moments of single features and of pairs."""
    n = rows.below.shape[1]
    n_channels = len(t.moments)
    for channel in range(n_channels):
        t.moments[channel, : 1 + n] = 0.0
        sums = t.moments[channel]
        for i in range(rows.size[0]):
            value = rows.values[0, i, channel]
            sums[0] += value
            if value == 0.0:
                continue
            at = rows.begin[i]
            for j in range(at, at + rows.n_below[0, i]):
                sums[1 + rows.present[j]] += value
    if depth > 1:
        pairs, start = (t.pairs, 0) if depth == 2 else (t.moments, t.of_size[2])
        _count_pairs(rows, 0, t.binomials, pairs, start, t.binomials[n, 2])


@compiled
def _visit(t, rows, depth, longest, first):
    """All prefixes of up to `longest` features, the first one given.

    Below those of `depth` - 2 features: moments of `depth` features, and the splits of these sets. Below
    shorter ones: moments of sets with two features more, which later prefixes need.
    """
    prefix = np.zeros(3, dtype=np.int64)
    after = np.zeros(4, dtype=np.int64)
    prefix[0] = first
    size = 1
    entering = True
    while size > 0:
        if entering:
            c = prefix[size - 1]
            _keep(rows, size, c)
            n = t.binomials[c, 2]
            if size == depth - 2:
                _count_pairs(rows, size, t.binomials, t.pairs, 0, n)
                absorb_prefix(t, prefix, size, depth, c)
            elif longest < depth - 2:
                start = t.of_size[size + 2]
                for i in range(size):
                    start += t.binomials[prefix[i], size + 2 - i]
                _count_pairs(rows, size, t.binomials, t.moments, start, n)
            after[size] = 2
        if size < longest and after[size] < prefix[size - 1]:
            prefix[size] = after[size]
            after[size] += 1
            size += 1
            entering = True
        else:
            size -= 1
            entering = False


@entry
def begin(t, rows, literals, depth):
    """Begin a search: moments of single features and of pairs.

    Args:
        t: tables; all least costs are infinite.
        rows: work space, of which the values of the first level are given.
        literals: (U, F) sorted rows.
        depth: D >= 1.
    """
    _read(rows, literals)
    _begin(t, rows, depth)


@entry
def visit(t, rows, depth, longest, first, last, queue):
    """Go on with a search of depth 3 or more by all sets whose first feature is first .. last - 1.

    Several threads may share these features, with tables that have the moments in common and rows of their
    own: first with `longest` = D - 3, for the moments of smaller sets, then, when all are done, with D - 2.

    Args:
        t: tables.
        rows: work space.
        depth: D.
        longest: features of a prefix, at most D - 2.
        first: smallest of the features.
        last: one beyond the largest, from which threads begin: it has most sets.
        queue: (1,), how many features threads have taken.
    """
    while True:
        feature = last - 1 - take(queue)
        if feature < max(first, 2):
            break
        _visit(t, rows, depth, longest, feature)


@entry
def finish(t, depth, n_visited):
    """End a search: all sets of features below `n_visited` that are smaller than `depth`, and the root.

    Larger ones first. In a search of depth 2, which has no visits, pairs are among them.
    """
    prefix = np.zeros(3, dtype=np.int64)
    for size in range(0 if depth == 2 else depth - 3, -1, -1):
        # All prefixes, the last feature changing fastest.
        for i in range(size):
            prefix[i] = size - i + 1
        while size == 0 or prefix[0] < n_visited:
            absorb_prefix(t, prefix, size, depth, n_visited if size == 0 else prefix[size - 1])
            i = size - 1
            while i > 0 and prefix[i] + 1 == prefix[i - 1]:
                prefix[i] = size - i + 1
                i -= 1
            if i < 0:
                break
            prefix[i] += 1
    absorb_singles(t, n_visited)

"""Moments: sums over the rows that have all features of a set, counted from what each row has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.tables import absorb_singles, rank
from sstorch.optim.compiled.jit import borrowed, call, compiled, entry, take

_ROWS_AT_ONCE = 64


class Rows(NamedTuple):
    """Distinct rows; what a row has follows from the last feature of each chain, sums by adding up."""

    chain: IntArray  # (F,), where the chain of each feature begins
    last: IntArray  # the last features of the chains of all rows, ascending in each
    begin: IntArray  # (U,), where those of a row begin
    # (F, U) int32, how many chains before that of each feature a row has some of; -1 if it lacks the feature
    below: IntArray
    kept: IntArray  # (D - 1, U), rows that have the first, the first two, ... features of a prefix.
    # (D - 1, U), how many chains they have some of, before that of the last of these features
    n_below: IntArray
    values: FloatArray  # (C, U), their sums
    size: IntArray  # (D - 1,), how many there are
    single: FloatArray  # (2, F), work space for two channels
    pairs: FloatArray  # (F over 2, 2), the same


@compiled
def _read(rows, literals):
    """Fill `rows` but for chains and values, from rows (U, F)."""
    n_rows, n = literals.shape
    at = 0
    # Block by block, which stay in the first level cache, and without branches.
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, n_rows)
        for r in range(start, end):
            rows.begin[r] = at
            count = 0
            for f in range(n):
                has = np.int64(literals[r, f])
                # All of a chain have the count of the chains before it; what is written too far is replaced.
                count += has & (f == rows.chain[f])
                rows.last[at + count - has] = f
            at += count
            rows.kept[0, r], rows.n_below[0, r] = r, 0
        for f in range(n):
            begins = f == rows.chain[f]
            for r in range(start, end):
                has = np.int64(literals[r, f])
                rows.n_below[0, r] += has & begins
                rows.below[f, r] = has * rows.n_below[0, r] - 1
    rows.size[0] = n_rows


@compiled
def _keep(rows, level, feature):
    """The rows of a level that have one more feature, and some below it."""
    count, least = 0, 0 if rows.chain[feature] < feature else 1
    for i in range(rows.size[level - 1]):
        r = rows.kept[level - 1, i]
        n_below = rows.below[feature, r]
        rows.kept[level, count], rows.n_below[level, count] = r, n_below
        count += n_below >= least  # a branch would be guessed wrong for every other row
    rows.size[level] = count


@compiled
def _add_up(rows, sums, below):
    """From sums over the last features of chains to those over all features, below some feature."""
    for d in range(below - 2, -1, -1):
        if rows.chain[d + 1] <= d:
            sums[d] += sums[d + 1]


@compiled
def _first_from(last, begin, end, low):
    """Where in the ascending last features begin .. end - 1 of a row those from `low` on begin."""
    while begin < end:
        middle = (begin + end) // 2
        if last[middle] < low:
            begin = middle + 1
        else:
            end = middle
    return begin


@intrinsic
def _add_two(typingctx: Any, sums: Any, place: Any, last: Any, k: Any, first: Any, second: Any) -> Any:
    """Add two values to sums[place + last[k]], (n, 2), by one instruction."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2)]
        number = builder.load(builder.gep(arrays[1].data, [arguments[3]]))
        entry = builder.gep(arrays[0].data, [builder.mul(builder.add(arguments[1], number), number.type(2))])
        two = ir.VectorType(ir.DoubleType(), 2)
        values = two(ir.Undefined)
        for i in range(2):
            values = builder.insert_element(values, arguments[4 + i], ir.IntType(32)(i))
        entry = builder.bitcast(entry, two.as_pointer())
        builder.store(builder.fadd(builder.load(entry, align=8), values), entry, align=8)
        return context.get_dummy_value()

    return types.none(sums, place, last, k, first, second), codegen


@compiled
def _count_two(rows, level, low, feature, binomials, channel, second):
    """Sums of two channels over the rows of a level, of pairs, single features and all, in `rows`."""
    pairs, single = rows.pairs, rows.single
    pairs[binomials[low, 2] : binomials[feature, 2]] = 0.0
    single[:, :feature] = 0.0
    total, second_total = 0.0, 0.0
    for i in range(rows.size[level]):
        r = rows.kept[level, i]
        begin = rows.begin[r]
        end = begin + rows.n_below[level, i]
        value, other = rows.values[channel, r], rows.values[second, r]
        if value == 0.0 and other == 0.0:
            continue
        total += value
        second_total += other
        for j in range(_first_from(rows.last, begin, end, low) if low > 0 else begin, end):
            d = rows.last[j]
            if d >= feature:  # of its chain a row has what comes before
                if rows.chain[d] >= feature:
                    break
                d = feature - 1
            single[0, d] += value
            single[1, d] += other
            place = binomials[d, 2]
            for k in range(begin, j):
                _add_two(pairs, place, rows.last, k, value, other)
    return total, second_total


@compiled
def _from_last(rows, single, sums, low, feature, binomials):
    """From sums over the last features of chains to those over all features and their pairs."""
    _add_up(rows, single, feature)
    for d in range(feature - 1, max(low, 1) - 1, -1):
        first, place = rows.chain[d], binomials[d, 2]
        # Rows that have the next one of the chain have this one.
        if d + 1 < feature and rows.chain[d + 1] <= d:
            after = binomials[d + 1, 2]
            sums[place : place + first] += sums[after : after + first]
        sums[place + first : place + d] = single[d]
    for d in range(max(low, 1), feature):
        _add_up(rows, sums[binomials[d, 2] : binomials[d, 2] + d], rows.chain[d])


@compiled
def _count_pairs(rows, level, low, feature, binomials, out, start):
    """Sums (C, n) of rows of a level over pairs, the first low .. feature - 1; above level 0 `low` is 0."""
    n = binomials[feature, 2]
    # The features before this one in its chain: all rows have them.
    rest = feature - 1 if level > 0 and rows.chain[feature] < feature else -1
    for channel in range(0, len(out), 2):
        second = min(channel + 1, len(out) - 1)
        totals = _count_two(rows, level, low, feature, binomials, channel, second)
        for half in range(second - channel + 1):
            sums, single = out[channel + half, start : start + n], rows.single[half]
            for i in range(binomials[low, 2], n):
                sums[i] = rows.pairs[i, half]
            if rest >= 0:
                # Sums with this feature are those of single ones.
                place = binomials[rest, 2]
                first = rows.chain[feature]
                sums[place : place + first] = single[:first]
                single[rest] = totals[half]
            _from_last(rows, single, sums, low, feature, binomials)


@compiled
def _count_below(t, rows, prefix, size, out, start):
    """Sums (C, n) of the rows that have all features of a prefix, over the pairs below it."""
    n = t.binomials[prefix[size - 1], 2]
    for i in range(1, size):
        if rows.chain[prefix[i - 1]] <= prefix[i]:  # what has the one before has it: as without it
            place = t.of_size[size + 1]
            place += rank(t.binomials, prefix, (1 << size) - 1 - (1 << (size - 1 - i)), size, 2)
            for channel in range(len(out)):
                out[channel, start : start + n] = t.moments[channel, place : place + n]
            return
    _keep(rows, size, prefix[size - 1])
    _count_pairs(rows, size, 0, prefix[size - 1], t.binomials, out, start)


@compiled
def _begin(t, rows, depth):
    """Moments of single features and, of a search deeper than 2, of pairs."""
    n = len(rows.below)
    for channel in range(len(t.moments)):
        sums = t.moments[channel, 1 : 1 + n]
        sums[:] = 0.0
        total = 0.0
        for i in range(rows.size[0]):
            value = rows.values[channel, i]
            total += value
            if value == 0.0:
                continue
            at = rows.begin[i]
            for j in range(at, at + rows.n_below[0, i]):
                sums[rows.last[j]] += value
        _add_up(rows, sums, n)
        t.moments[channel, 0] = total
    if depth > 2:
        _count_pairs(rows, 0, 0, n, t.binomials, t.moments, t.of_size[2])


@compiled
def _visit(t, rows, depth, longest, first):
    """Visit all prefixes of up to `longest` features, the first one given."""
    # Of `depth` - 2 features: splits of the sets below; shorter: moments that later prefixes need.
    prefix = np.zeros(3, dtype=np.int64)
    after = np.zeros(4, dtype=np.int64)
    prefix[0] = first
    size = 1
    entering = True
    while size > 0:
        if entering:
            if size == depth - 2:
                _count_below(t, rows, prefix, size, t.pairs, 0)
                call(t.absorb, (t, prefix, size, depth, 1, prefix[size - 1]))
            elif longest < depth - 2:
                start = t.of_size[size + 2] + rank(t.binomials, prefix, (1 << size) - 1, size, 2)
                _count_below(t, rows, prefix, size, t.moments, start)
            else:
                _keep(rows, size, prefix[size - 1])
            after[size] = 2
        if size < longest and after[size] < prefix[size - 1]:
            prefix[size] = after[size]
            after[size] += 1
            size += 1
            entering = True
        else:
            size -= 1
            entering = False


@compiled
def _visit_pairs(t, rows, first, last):
    """All pairs of a search of depth 2 whose first feature is first .. last - 1."""
    _count_pairs(rows, 0, first, last, t.binomials, t.pairs, 0)
    call(t.absorb, (t, np.zeros(3, dtype=np.int64), 0, 2, max(first, 1), last))


@entry
def begin(t, rows, literals, depth, last):
    """Begin a search of depth >= 2 over rows (U, F): moments of single features and of pairs."""
    # At depth 2 also visit pairs below `last`; where these are all, the search ends.
    t, rows = borrowed(t), borrowed(rows)
    _read(rows, literals)
    _begin(t, rows, depth)
    if depth == 2:
        _visit_pairs(t, rows, 0, last)
        if last == literals.shape[1]:
            absorb_singles(t, last)


@entry
def count_triples(t, rows, n):
    """Moments of all sets of three of n features, after `begin` of a search of depth 4."""
    t, rows = borrowed(t), borrowed(rows)
    for first in range(2, n):
        _keep(rows, 1, first)
        _count_pairs(rows, 1, 0, first, t.binomials, t.moments, t.of_size[3] + t.binomials[first, 3])


@entry
def visit(t, rows, depth, longest, first, last, queue):
    """Go on with a search of depth >= 2 by all sets whose first feature is first .. last - 1."""
    # At depth 2 by one thread. Else threads take features from `queue` (1,), the last first, and share
    # moments: first `longest` = D - 3, for those of smaller sets, then, when all are done, D - 2.
    t, rows = borrowed(t), borrowed(rows)
    if depth == 2:
        _visit_pairs(t, rows, first, last)
        return
    while True:
        feature = last - 1 - take(queue)
        if feature < max(first, 2):
            break
        _visit(t, rows, depth, longest, feature)


@compiled
def _absorb_first(t, size, depth, first):
    """All sets of a prefix of `size` >= 1 features, the first one given, and a pair of smaller ones."""
    prefix = np.zeros(3, dtype=np.int64)
    prefix[0] = first
    for i in range(1, size):
        prefix[i] = size - i + 1
    i = size
    while i > 0:
        call(t.absorb, (t, prefix, size, depth, 1, prefix[size - 1]))
        # The last feature changes fastest.
        i = size - 1
        while i > 0 and prefix[i] + 1 == prefix[i - 1]:
            prefix[i] = size - i + 1
            i -= 1
        prefix[i] += 1


@entry
def finish(t, depth, n_visited):
    """End a search with the sets of features below `n_visited` smaller than `depth`, larger ones first."""
    t = borrowed(t)
    for size in range(depth - 3, 0, -1):
        for first in range(n_visited - 1, size, -1):
            _absorb_first(t, size, depth, first)
    if depth > 2:
        call(t.absorb, (t, np.zeros(3, dtype=np.int64), 0, depth, 1, n_visited))
    absorb_singles(t, n_visited)

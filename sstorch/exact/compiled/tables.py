"""Cells of sets of features, their costs, and the least costs of the sets with one feature less.

A set of k features p1 > p2 > ... > pk is its prefix of the first k - 2 and the pair of the last two, d > e.
Sets come in colexicographic order, so that the pairs below a prefix, and below every part of it, are
neighbours: all loops run over pairs. The signs of a set are bits of a number, that of p1 the highest.

Loops run over slices: an index that is a sum could be negative, and its loop would not become vector code.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import (
    Form,
    Prices,
    leaf_costs,
    lower_paid,
    pay,
    price_below,
    prices_of_pairs,
)
from sstorch.exact.compiled.curves import Curves, add_curves_of_pairs, add_curves_of_singles, sign_rows
from sstorch.optim.compiled.jit import borrowed, compare, compiled, elementwise, entry


class Tables(NamedTuple):
    """Tables of a search of depth D over F features; C channels, including those of sizes."""

    binomials: IntArray  # (F + 1, D + 1), at least 3 columns, x over k
    moments: FloatArray  # (C, sets of up to D - 1 features), sums over rows that have all features of a set
    of_size: IntArray  # (D + 2,), where the sets of a size begin
    pairs: FloatArray  # (C, F over 2), moments of the sets of D features below one prefix
    least: FloatArray  # of the sets of k features for each budget but the leaf's, (2^k, sets) by prefix
    begin: IntArray  # (D + 2,), where those of k features begin
    width: IntArray  # (D + 1,), how many each budget has
    budgets: IntArray  # (D + 1,), how many there are below k features
    smaller: IntArray  # (D + 1, budgets), the best budget that every other one contains
    # (D + 1, n, 3), a budget of a set of k - 1 features, and those of its parts; ended by -1
    splits: IntArray
    sums: FloatArray  # (C, most cells at once)
    costs: FloatArray  # (budgets, most cells at once)
    single: FloatArray  # (8, F), sums of a set and one feature
    without: FloatArray  # (16, F), least costs of sets that lack the last but one feature
    most: int  # cells to be made at once
    absorb: int  # where the machine code of `absorb_prefix` is
    form: Form  # of the cost of a leaf
    curves: Curves  # rows in the order of time, where these are followed
    prices: Prices  # of tests
    price: FloatArray  # (D, most cells at once), work space; no rows where tests are free
    paid: FloatArray  # (2, most cells at once), the same


@compiled
def rank(binomials, prefix, chosen, size, more):
    """Where the sets begin that are `chosen` features of a prefix and `more` smaller ones."""
    k = 0
    for i in range(size):
        k += (chosen >> i) & 1
    k += more
    place = 0
    for i in range(size):
        if (chosen >> (size - 1 - i)) & 1:
            place += binomials[prefix[i], k]
            k -= 1
    return place


@elementwise
def _four_cells(cells, single, total, low, high):
    """Cells (4, n) of the pairs low <= d < high, e < d, from sums with both, the last of the four."""
    at = 0
    for d in range(low, high):
        with_d = single[d]
        rest = total - with_d
        neither, only_e = cells[0, at : at + d], cells[1, at : at + d]
        only_d, both = cells[2, at : at + d], cells[3, at : at + d]
        for e in range(d):
            no_d = single[e] - both[e]
            only_d[e] = with_d - both[e]
            only_e[e] = no_d
            neither[e] = rest - no_d
        at += d


@compiled
def _cells(t, prefix, size, depth, low, high):
    """Sums of the cells of a prefix and the pairs with low <= d < high, (C, signs, pairs) in `t.sums`."""
    start = t.binomials[low, 2]
    n = t.binomials[high, 2] - start
    subsets = 1 << size
    total = np.empty(8)
    place = np.empty((3, 8), dtype=np.int64)  # of the moments with 0, 1 and 2 more features
    for s in range(subsets):
        k = 0
        for i in range(size):
            k += (s >> i) & 1
        for more in range(3):
            place[more, s] = t.of_size[k + more] + rank(t.binomials, prefix, s, size, more)
    single = t.single
    for channel in range(len(t.moments)):
        moments, cells = t.moments[channel], t.sums[channel, : 4 * subsets * n].reshape(subsets, 4, n)
        for s in range(subsets):
            total[s] = moments[place[0, s]]
            first, second = place[1, s], place[2, s] + start
            single[s, :high] = moments[first : first + high]
            if size + 2 < depth or s + 1 < subsets:
                cells[s, 3] = moments[second : second + n]
            else:
                cells[s, 3] = t.pairs[channel, start : start + n]
        for i in range(size):
            for s in range(subsets):
                if (s >> i) & 1:
                    lower = s ^ (1 << i)
                    total[lower] -= total[s]
                    single[lower, :high] -= single[s, :high]
                    cells[lower, 3] -= cells[s, 3]
        for s in range(subsets):
            _four_cells(cells[s], single[s], total[s], low, high)
    return n


@compare
def _lesser(out, one, other):
    for i in range(len(out)):
        out[i] = min(one[i], other[i])


@compare
def _lower(table, place, width, left, right, n, signs, bit):
    """Lower n entries of each sign of the other features to sums of costs without and with that of a bit."""
    for s in range(signs):
        without = ((s >> bit) << (bit + 1)) | (s & ((1 << bit) - 1))
        at, upper = place + s * width, without | (1 << bit)
        least = table[at : at + n]
        a, b = left[without * n : (without + 1) * n], right[upper * n : (upper + 1) * n]
        for i in range(n):
            least[i] = min(least[i], a[i] + b[i])


@compare
def _lower_by_pairs(table, place, width, by_d, by_e, right, at, n, low, high, without, s):
    """Split the pairs low <= d < high, e < d of one sign of the prefix by e, in the table, and by d."""
    # Costs without the feature that splits are in `by_d`, `by_e`, with it in `right`, n of a sign, from `at`
    # on. Entries of d: from `place` on, `width` of each sign; of e: rows 2 s, 2 s + 1 of `without`.
    absent, present = without[2 * s], without[2 * s + 1]
    for d in range(low, high):
        least0, least1 = math.inf, math.inf
        not_d, not_d_e = by_d[at : at + d], by_d[at + n : at + n + d]
        not_e, not_e_d = by_e[at : at + d], by_e[at + 2 * n : at + 2 * n + d]
        only_e, only_d = right[at + n : at + n + d], right[at + 2 * n : at + 2 * n + d]
        both = right[at + 3 * n : at + 3 * n + d]
        for e in range(d):
            least0 = min(least0, not_e[e] + only_e[e])
            least1 = min(least1, not_e_d[e] + both[e])
            absent[e] = min(absent[e], not_d[e] + only_d[e])
            present[e] = min(present[e], not_d_e[e] + both[e])
        table[place + d] = min(table[place + d], least0)
        table[place + width + d] = min(table[place + width + d], least1)
        at += d


@compiled
def _absorb(t, prefix, size, low, high, n, table, left, right):
    """Split the sets of a prefix by each of their features."""
    start = t.binomials[low, 2]
    n_features = len(t.binomials) - 1
    least = t.least
    priced = len(t.price) > 0
    by_d, by_e, rows = left, left, left
    if priced:
        by_d, by_e = t.paid[0], t.paid[1]
        rows = t.sums[len(t.sums) - len(t.form.least)]
    shorter = np.empty(3, dtype=np.int64)
    for j in range(size):
        k = 0
        for i in range(size):
            if i != j:
                shorter[k] = prefix[i]
                k += 1
        last = n_features if k == 0 else shorter[k - 1]
        width = t.binomials[last, 2]
        signs = 1 << (size + 1)
        block = table + signs * rank(t.binomials, shorter, (1 << k) - 1, k, 2) + start
        bit = size + 1 - j
        if priced:
            lower_paid(least, block, width, left, right, n, signs, bit, t.price, j, rows)
        else:
            _lower(least, block, width, left, right, n, signs, bit)
    # The two last features: sets of the prefix and one of them, for which c is the pair's first.
    signs = 2 << size
    if size == 0:
        block, width = table, n_features
    else:
        c = prefix[size - 1]
        width = t.binomials[n_features if size == 1 else prefix[size - 2], 2]
        block = (
            table + signs * rank(t.binomials, prefix, (1 << (size - 1)) - 1, size - 1, 2) + t.binomials[c, 2]
        )
    if priced:
        pay(left, rows, t.price, size, n, signs, by_d, by_e)
    without = t.without
    without[:signs, :high] = math.inf
    for s in range(1 << size):
        place = block + 2 * s * width
        _lower_by_pairs(least, place, width, by_d, by_e, right, 4 * s * n, n, low, high, without, s)
    for s in range(signs):
        place = block + s * width
        best = least[place : place + high]
        _lesser(best, best, without[s, :high])


@compiled
def absorb_prefix(t, prefix, size, depth, low, below):
    """All sets of a prefix and a pair of features, the first low .. below - 1: cells, costs and splits."""
    # `low` is 1 where there is a prefix. Sets of `depth` features take their moments from `t.pairs`.
    t = borrowed(t)
    if t.form.followed:
        sign_rows(t.curves, prefix, size)
    k = size + 2
    last = t.binomials[below if size else len(t.binomials) - 1, 2]
    while low < below:
        high = low + 1
        while high < below and (t.binomials[high + 1, 2] - t.binomials[low, 2]) << k <= t.most:
            high += 1
        n = _cells(t, prefix, size, depth, low, high)
        leaf_costs(t.sums, n << k, t.form, t.costs[0])
        start = t.binomials[low, 2]
        if t.form.followed:
            for d in range(low, high):
                add_curves_of_pairs(t.curves, size, d, t.sums[0], t.binomials[d, 2] - start, n, t.costs[0])
        if len(t.price):
            prices_of_pairs(t.prices, prefix, size, low, high, t.price)
        block = t.begin[k] + (rank(t.binomials, prefix, (1 << size) - 1, size, 2) << k) + start
        for b in range(1, t.budgets[k]):
            for s in range(1 << k):
                place, at = block + (b - 1) * t.width[k] + s * last, s * n
                smaller = t.costs[t.smaller[k, b], at : at + n]
                _lesser(t.costs[b, at : at + n], t.least[place : place + n], smaller)
        for i in range(t.splits.shape[1]):
            target = t.splits[k, i, 0]
            if target < 0:
                break
            table = t.begin[k - 1] + (target - 1) * t.width[k - 1]
            left, right = t.costs[t.splits[k, i, 1]], t.costs[t.splits[k, i, 2]]
            _absorb(t, prefix, size, low, high, n, table, left, right)
        low = high


@compiled
def absorb_singles(t, below):
    """Costs (budgets, 2, F) below literals, then of the root, split by features < `below`, in `t.costs`."""
    n = len(t.binomials) - 1
    for channel in range(len(t.moments)):
        total = t.moments[channel, 0]
        for x in range(n):
            present = t.moments[channel, 1 + x]
            t.sums[channel, n + x] = present
            t.sums[channel, x] = total - present
        t.sums[channel, 2 * n] = total
    leaf_costs(t.sums, 2 * n + 1, t.form, t.costs[0])
    if t.form.followed:
        add_curves_of_singles(t.curves, -1, 0, t.sums[0], t.costs[0])
    for b in range(1, t.budgets[1]):
        place = t.begin[1] + (b - 1) * t.width[1]
        _lesser(t.costs[b, : 2 * n], t.least[place : place + 2 * n], t.costs[t.smaller[1, b], : 2 * n])
    for i in range(t.splits.shape[1]):
        target = t.splits[1, i, 0]
        if target < 0:
            break
        place = t.begin[0] + target - 1
        left, right = t.costs[t.splits[1, i, 1]], t.costs[t.splits[1, i, 2]]
        for x in range(below):
            cost = left[x] + right[n + x]
            if len(t.price):
                cost += t.prices.full[x] * t.sums[len(t.sums) - len(t.form.least), 2 * n]
            t.least[place] = min(t.least[place], cost)


@elementwise
def _add_row(sums, value, literals):
    for x in range(len(literals)):
        sums[x] += value * literals[x]


@entry
def costs_of_singles(form, curves, values, literals, sums, costs):
    """Costs (2 F + 1,) of leaves without each feature, with each, and of all rows (U, F), and their sums."""
    n = literals.shape[1]
    for channel in range(len(sums)):
        present, total = sums[channel, n : 2 * n], 0.0
        present[:] = 0.0
        for r in range(len(literals)):
            total += values[channel, r]
            _add_row(present, values[channel, r], literals[r])
        for x in range(n):
            sums[channel, x] = total - present[x]
        sums[channel, 2 * n] = total
    leaf_costs(sums, len(costs), form, costs)
    if form.followed:
        add_curves_of_singles(curves, -1, 0, sums[0], costs)


@entry
def pairs_below(t, feature, found):
    """Write least costs of pairs of a feature and each other one, after a search of depth >= 2."""
    # `found` (2, 1 + budgets, 2 F), by sign: costs without each other, with each; what rows pay.
    t = borrowed(t)
    n = len(t.binomials) - 1
    costs, n_pairs = t.costs[0], t.binomials[n, 2]
    whole_table = len(t.of_size) > 4  # of a deeper search moments of pairs are with those of all sets
    for sign in range(2):
        for channel in range(len(t.moments)):
            moments, out = t.moments[channel], t.sums[channel]
            pairs = moments[t.of_size[2] :] if whole_table else t.pairs[channel]
            for x in range(n):
                if x == feature:
                    both = moments[1 + x]
                else:
                    both = pairs[t.binomials[max(x, feature), 2] + min(x, feature)]
                out[n + x] = both if sign else moments[1 + x] - both
            whole = moments[1 + feature] if sign else moments[0] - moments[1 + feature]
            for x in range(n):
                out[x] = whole - out[n + x]
            out[2 * n] = whole
        leaf_costs(t.sums, 2 * n + 1, t.form, costs)
        if t.form.followed:
            add_curves_of_singles(t.curves, feature, sign, t.sums[0], costs)
        for x in range(n):
            found[sign, 0, x], found[sign, 0, n + x], paid = costs[x], costs[n + x], 0.0
            if len(t.price):
                paid = price_below(t.prices, x, t.prices.full[x], t.prices.discounted[x], feature)[0]
                paid *= t.sums[len(t.sums) - len(t.form.least), 2 * n]
            found[sign, t.budgets[2], x] = paid
        for b in range(1, t.budgets[2]):
            table, smaller = t.begin[2] + (b - 1) * t.width[2], t.smaller[2, b]
            for answer in range(2):
                for x in range(n):
                    i = answer * n + x
                    found[sign, b, i] = found[sign, smaller, i]
                    if x == feature:
                        continue
                    # The larger feature's sign is the higher bit.
                    signs = 2 * sign + answer if feature > x else 2 * answer + sign
                    place = table + signs * n_pairs + t.binomials[max(x, feature), 2] + min(x, feature)
                    found[sign, b, i] = min(found[sign, b, i], t.least[place])

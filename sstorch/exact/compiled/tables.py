"""Cells of sets of features, their costs, and the least costs of the sets with one feature less.

A set of k features p1 > p2 > ... > pk is its prefix of the first k - 2 and the pair of the last two, d > e.
Sets come in colexicographic order, so that the pairs below a prefix, and below every part of it, are
neighbours: all loops run over pairs. The signs of a set are bits of a number, that of p1 the highest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.exact.compiled.costs import leaf_costs
from sstorch.exact.compiled.curves import Curves, add_curves_of_pairs, add_curves_of_singles, sign_rows
from sstorch.exact.compiled.forms import FOLLOWED, Form
from sstorch.exact.compiled.prices import Prices, pay, price_below, prices_of_pairs
from sstorch.optim.compiled.jit import compare, compiled, entry


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
    form: Form  # of the cost of a leaf
    curves: Curves  # rows in the order of time, where these are followed
    prices: Prices  # of tests
    price: FloatArray  # (D, most cells at once), work space; no rows where tests are free
    paid: FloatArray  # (2, most cells at once), the same


@compiled
def _rank(binomials, prefix, chosen, size, more):
    """Where the sets begin that are `chosen` features of a prefix and `more` smaller ones."""
    k = 0
    for i in range(size):
        k += (chosen >> i) & 1
    k += more
    rank = 0
    for i in range(size):
        if (chosen >> (size - 1 - i)) & 1:
            rank += binomials[prefix[i], k]
            k -= 1
    return rank


@compiled
def _subtract(array, lower, upper, n):
    for i in range(n):
        array[lower + i] -= array[upper + i]


@compiled
def _four_cells(out, none, first, second, both, pair, single, total, d):
    """Cells of the pairs of d with each smaller feature, from sums of those with it."""
    with_d = single[d]
    rest = total - with_d
    for e in range(d):
        p = pair[both + e]
        no_d = single[e] - p
        out[first + e] = with_d - p
        out[second + e] = no_d
        out[none + e] = rest - no_d


@compiled
def _cells(t, prefix, size, depth, low, high):
    """Sums of the cells of a prefix and the pairs with low <= d < high, (C, signs, pairs) in `t.sums`."""
    start = t.binomials[low, 2]
    n = t.binomials[high, 2] - start
    subsets = 1 << size
    total = np.empty(8)
    for channel in range(len(t.moments)):
        moments, out = t.moments[channel], t.sums[channel]
        for s in range(subsets):
            k = 0
            for i in range(size):
                k += (s >> i) & 1
            total[s] = moments[t.of_size[k] + _rank(t.binomials, prefix, s, size, 0)]
            place = t.of_size[k + 1] + _rank(t.binomials, prefix, s, size, 1)
            for x in range(high):
                t.single[s, x] = moments[place + x]
            both = (4 * s + 3) * n
            if k + 2 == depth:
                source, place = t.pairs[channel], start
            else:
                source, place = moments, t.of_size[k + 2] + _rank(t.binomials, prefix, s, size, 2) + start
            for i in range(n):
                out[both + i] = source[place + i]
        for i in range(size):
            for s in range(subsets):
                if (s >> i) & 1:
                    lower = s ^ (1 << i)
                    total[lower] -= total[s]
                    for x in range(high):
                        t.single[lower, x] -= t.single[s, x]
                    _subtract(out, (4 * lower + 3) * n, (4 * s + 3) * n, n)
        for s in range(subsets):
            for d in range(low, high):
                at = t.binomials[d, 2] - start
                none = 4 * s * n + at
                _four_cells(out, none, none + 2 * n, none + n, none + 3 * n, out, t.single[s], total[s], d)
    return n


@compiled
def _lower(table, place, left, lower, right, upper, n):
    """Lower n entries to sums of costs without and with a feature."""
    for i in range(n):
        table[place + i] = min(table[place + i], left[lower + i] + right[upper + i])


@compare
def _without_one_of_two(by_d, by_e, right, at, n, count, no_d, yes_d):
    """Split the pairs (d, e), e < count, by e and by d: least costs by the sign of d, and of all e.

    Costs of leaves without the feature that splits are in `by_d` and `by_e`, with it in `right`.
    """
    least0, least1 = math.inf, math.inf
    for e in range(count):
        i = at + e
        d = right[i + 3 * n]
        least0 = min(least0, by_e[i] + right[i + n])
        least1 = min(least1, by_e[i + 2 * n] + d)
        no_d[e] = min(no_d[e], by_d[i] + right[i + 2 * n])
        yes_d[e] = min(yes_d[e], by_d[i + n] + d)
    return least0, least1


@compiled
def _absorb(t, prefix, size, low, high, n, table, left, right):
    """Split the sets of a prefix by each of their features."""
    start = t.binomials[low, 2]
    n_features = len(t.binomials) - 1
    least = t.least
    priced = len(t.price) > 0
    by_d, by_e = left, left
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
        block = table + signs * _rank(t.binomials, shorter, (1 << k) - 1, k, 2) + start
        bit = size + 1 - j
        for s in range(signs):
            without = ((s >> bit) << (bit + 1)) | (s & ((1 << bit) - 1))
            lower, upper = without * n, (without | (1 << bit)) * n
            if priced:
                pay(left, rows, t.price[j], lower, upper, n, by_d)
            _lower(least, block + s * width, by_d, lower, right, upper, n)
    # The two last features: sets of the prefix and one of them, for which c is the pair's first.
    signs = 2 << size
    if size == 0:
        block, width = table, n_features
    else:
        c = prefix[size - 1]
        width = t.binomials[n_features if size == 1 else prefix[size - 2], 2]
        block = (
            table + signs * _rank(t.binomials, prefix, (1 << (size - 1)) - 1, size - 1, 2) + t.binomials[c, 2]
        )
    if priced:
        for s in range(1 << size):
            at = 4 * s * n
            for i in range(2):
                pay(left, rows, t.price[size], at + i * n, at + (i + 2) * n, n, by_d)
                pay(left, rows, t.price[size + 1], at + 2 * i * n, at + (2 * i + 1) * n, n, by_e)
    t.without[:signs, :high] = math.inf
    for s in range(1 << size):
        for d in range(low, high):
            at = 4 * s * n + t.binomials[d, 2] - start
            least0, least1 = _without_one_of_two(
                by_d, by_e, right, at, n, d, t.without[2 * s], t.without[2 * s + 1]
            )
            place = block + 2 * s * width + d
            least[place] = min(least[place], least0)
            least[place + width] = min(least[place + width], least1)
    for s in range(signs):
        for e in range(high):
            place = block + s * width + e
            least[place] = min(least[place], t.without[s, e])


@compiled
def absorb_prefix(t, prefix, size, depth, below):
    """All sets of a prefix and a pair of features below `below`: their cells, costs and splits.

    Sets of `depth` features take their moments from `t.pairs`.
    """
    if t.form.kind == FOLLOWED:
        sign_rows(t.curves, prefix, size)
    k = size + 2
    last = t.binomials[below if size else len(t.binomials) - 1, 2]
    low = 1
    while low < below:
        high = low + 1
        while high < below and (t.binomials[high + 1, 2] - t.binomials[low, 2]) << k <= t.most:
            high += 1
        n = _cells(t, prefix, size, depth, low, high)
        leaf_costs(t.sums, n << k, t.form, t.costs[0])
        start = t.binomials[low, 2]
        if t.form.kind == FOLLOWED:
            for d in range(low, high):
                add_curves_of_pairs(t.curves, size, d, t.sums[0], t.binomials[d, 2] - start, n, t.costs[0])
        if len(t.price):
            prices_of_pairs(t.prices, prefix, size, low, high, t.price)
        block = t.begin[k] + (_rank(t.binomials, prefix, (1 << size) - 1, size, 2) << k) + start
        for b in range(1, t.budgets[k]):
            for s in range(1 << k):
                place = block + (b - 1) * t.width[k] + s * last
                for i in range(n):
                    t.costs[b, s * n + i] = min(t.least[place + i], t.costs[t.smaller[k, b], s * n + i])
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
    """Costs (budgets, 2, F) below each literal, then that of the root as a leaf, in `t.costs`.

    The root is split by features below `below`.
    """
    n = len(t.binomials) - 1
    for channel in range(len(t.moments)):
        total = t.moments[channel, 0]
        for x in range(n):
            present = t.moments[channel, 1 + x]
            t.sums[channel, n + x] = present
            t.sums[channel, x] = total - present
        t.sums[channel, 2 * n] = total
    leaf_costs(t.sums, 2 * n + 1, t.form, t.costs[0])
    if t.form.kind == FOLLOWED:
        add_curves_of_singles(t.curves, -1, 0, t.sums[0], t.costs[0])
    for b in range(1, t.budgets[1]):
        place = t.begin[1] + (b - 1) * t.width[1]
        for i in range(2 * n):
            t.costs[b, i] = min(t.least[place + i], t.costs[t.smaller[1, b], i])
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


@entry
def stumps_below(t, feature, found):
    """After a search of depth 2: the best trees of up to one test on the rows without, and with, a feature.

    Writes to `found` (2, 3) the cost of a leaf, that of the best stump, and the feature of this.
    """
    n = len(t.binomials) - 1
    costs = t.costs[0]
    for sign in range(2):
        for channel in range(len(t.moments)):
            moments, pairs, out = t.moments[channel], t.pairs[channel], t.sums[channel]
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
        if t.form.kind == FOLLOWED:
            add_curves_of_singles(t.curves, feature, sign, t.sums[0], costs)
        found[sign, 0], found[sign, 1], found[sign, 2] = costs[2 * n], math.inf, 0.0
        for x in range(n):
            cost = costs[x] + costs[n + x]
            if len(t.price):
                price = price_below(t.prices, x, t.prices.full[x], t.prices.discounted[x], feature)[0]
                cost += price * t.sums[len(t.sums) - len(t.form.least), 2 * n]
            if cost < found[sign, 1]:
                found[sign, 1], found[sign, 2] = cost, x

"""Points of trees on a side of a root, and their cheapest pair; largest areas under ROC curves."""

from __future__ import annotations

import numpy as np

from sstorch.exact.compiled.fronts import (
    add_point,
    fill_sides,
    least_sums,
    lowest_sum,
    points_below,
    tree_number,
)
from sstorch.optim.compiled.jit import compiled, entry


@entry
def lowest_prices(t, root, nodes, rate, lows):
    """Least prices, cost + rate * balance, (S, 2) of both sides of a root, for numbers of nodes (S, 2)."""
    fill_sides(t, root)
    for side in range(2):
        leaf = least_sums(t, side, 1.0, rate, t.least[0, side])
        for split in range(len(nodes)):
            lows[split, side] = lowest_sum(t, 0, side, nodes[split, side], leaf)


@compiled
def _keep_cheap(points, size, rate, most):
    """Keep points with a price of at most `most`; returns their number."""
    kept = 0
    for i in range(size):
        if points[0, i] + rate * points[1, i] <= most:
            for row in range(len(points)):
                points[row, kept] = points[row, i]
            kept += 1
    return kept


@compiled
def _least_price(points, size, rate):
    least = np.inf
    for i in range(size):
        least = min(least, points[0, i] + rate * points[1, i])
    return least


@entry
def points_within(t, side, nodes, rate, most, limit, first, out):
    """Write points of a side's trees of price <= `most`; return where to go on, F at the end, and a count."""
    # Leaves, unless `first` >= 0, and tests from `first` on; balances within ± `limit`.
    n, n_decisions, size = len(t.binomials) - 1, len(t.moments) // 2, 0
    left, right = np.empty((3, 64)), np.empty((3, 64))
    for k in range(n_decisions if first < 0 and t.total[side, 2 * n_decisions] >= t.min_leaf else 0):
        left, size = add_point(left, size, t.total[side, 2 * k], t.total[side, 2 * k + 1], k, True)
    size = _keep_cheap(left, size, rate, most)
    out[:, :size] = left[:, :size]
    for x in range(max(first, 0), n):
        begin = size
        for more in range(max(nodes - 2, 0), min(nodes, 2)):
            left, n_left = points_below(t, side, x, False, more == 1, True, left)
            right, n_right = points_below(t, side, x, True, nodes - 1 - more == 1, True, right)
            n_left = _keep_cheap(left, n_left, rate, most - _least_price(right, n_right, rate))
            low = _least_price(left, n_left, rate)
            n_right = _keep_cheap(right, n_right, rate, most - low)
            for i in range(n_left):
                price = left[0, i] + rate * left[1, i]
                for j in range(n_right):
                    balance = left[1, i] + right[1, j]
                    if price + (right[0, j] + rate * right[1, j]) > most or abs(balance) > limit:
                        continue
                    if size == out.shape[1]:
                        return x, begin
                    out[0, size], out[1, size] = left[0, i] + right[0, j], balance
                    out[2, size] = tree_number(t, x, left[2, i], right[2, j])
                    size += 1
    return n, size


@entry
def cheapest_pair(left, right, limit, least):
    """Places of the points, (3, n) by increasing balance, of least cost in sum, within `limit`; or -1, -1."""
    waiting, first, last, after = np.empty(right.shape[1], dtype=np.int64), 0, 0, 0
    best = -1, -1
    # From the largest balance on the left: the right points that go with it are a window that moves on.
    for i in range(left.shape[1] - 1, -1, -1):
        while after < right.shape[1] and right[1, after] <= limit - left[1, i]:
            # What is dearer than a later point of the window is never the cheapest one again.
            while last > first and right[0, waiting[last - 1]] >= right[0, after]:
                last -= 1
            waiting[last] = after
            last += 1
            after += 1
        while first < last and right[1, waiting[first]] < -limit - left[1, i]:
            first += 1
        if first < last and left[0, i] + right[0, waiting[first]] < least:
            least = left[0, i] + right[0, waiting[first]]
            best = i, waiting[first]
    return best


@compiled
def _area(positive, negative, k, most):
    """Area under the curve of k leaves up to `most` false positives; the leaves are then in its order."""
    for i in range(1, k):
        p, n, j = positive[i], negative[i], i
        while j > 0 and p * negative[j - 1] > positive[j - 1] * n:
            positive[j], negative[j] = positive[j - 1], negative[j - 1]
            j -= 1
        positive[j], negative[j] = p, n
    area, height, passed = 0.0, 0.0, 0.0
    for i in range(k):
        p, n = positive[i], negative[i]
        width = min(n, most - passed)
        if width > 0.0:
            area += width * (height + 0.5 * p * width / n)
        height += p
        passed += n
    return area


@entry
def largest_areas(t, most, area, tests):
    """Largest areas up to `most` false positives of trees of 0, 1, ... tests; their tests, -1 for none."""
    fill_sides(t, -1)
    n = t.single.shape[2]
    positive, negative = np.empty(4), np.empty(4)
    positive[0], negative[0] = t.total[0, 0], t.total[0, 1]
    area[0] = _area(positive, negative, 1, most)
    last = n if len(area) > 2 else 0
    for root in range(n):
        fill_sides(t, root)
        if min(t.total[0, 2], t.total[1, 2]) < t.min_leaf:
            continue
        for first in range(-1, last):
            if first >= 0 and _smaller_part(t, 0, first) < t.min_leaf:
                continue
            for second in range(-1, last):
                if second >= 0 and _smaller_part(t, 1, second) < t.min_leaf:
                    continue
                k = 0
                for side in range(2):
                    test = second if side else first
                    positive[k], negative[k] = t.total[side, 0], t.total[side, 1]
                    if test >= 0:
                        k += 1
                        positive[k], negative[k] = t.single[side, 0, test], t.single[side, 1, test]
                        positive[k - 1] -= positive[k]
                        negative[k - 1] -= negative[k]
                    k += 1
                found = _area(positive, negative, k, most)
                if found > area[k - 1]:
                    area[k - 1] = found
                    tests[k - 1, 0], tests[k - 1, 1], tests[k - 1, 2] = root, first, second


@compiled
def _smaller_part(t, side, test):
    """Rows of a side without or with a feature, the fewer."""
    return min(t.single[side, 2, test], t.total[side, 2] - t.single[side, 2, test])

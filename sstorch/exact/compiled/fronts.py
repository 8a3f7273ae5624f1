"""Fronts of two totals that add up over rows: trees of depth up to 3, root by root, in machine code.

Each weighted sum of the two costs of a tree is at least the sum of the least ones of both sides of its root:
a root, or a second test, is excluded where, for each corner of the front so far, some weighted sum is too
large.

A point has its two totals and the number of its tree. With K decisions and F features a leaf has the number
of its decision k; a stump of a test x has K + (x K + k) K + k', k without the feature and k' with it; and a
tree of depth 2 has K + (x M + s) M + s', M = K + F K² being how many numbers stumps s have. In a front of
trees of depth 3 a point has five rows: the totals, the root and the numbers of both sides; the root is -1
where the first number is that of a tree of depth 2.
"""

from __future__ import annotations

import math
from math import comb
from typing import NamedTuple

import numpy as np

from sstorch._types import FloatArray, IntArray
from sstorch.optim.compiled.jit import compare, compiled, elementwise, entry

# Weighted sums for each root, at most.
_N_WEIGHTS = 8
# Rounding of weighted sums, relative to the largest costs.
_ROUNDING = 1e-13


class Sums(NamedTuple):
    """Sums over rows, of which leaves take one of K decisions; C = 2 K + 1 channels, F features."""

    binomials: IntArray  # (F + 1, 4), x over k
    of_size: IntArray  # where the sets of each size begin in `moments`
    # (C, sets of up to 3 features), both totals of each decision, then rows, of the rows that have all
    # features of a set
    moments: FloatArray
    min_leaf: float  # least rows of a leaf
    largest: float  # no total of a tree is larger, in absolute value
    total: FloatArray  # (2, C), work space: sums of the rows of each side of a root
    single: FloatArray  # (2, C, F), those with each feature
    pairs: FloatArray  # (2, C, F over 2), with two
    # (weights, 2, 2, 2, F), least weighted sums on each side, of a leaf and of a stump, on the rows without
    # and with each feature
    least: FloatArray
    weights: FloatArray  # (weights, 2), of the two costs
    lowest: FloatArray  # (weights, 2), least weighted sums of both sides

    @classmethod
    def of(cls, moments: FloatArray, n: int, min_leaf: float, largest: float) -> Sums:
        """With work space, for n features."""
        binomials = np.array([[comb(x, k) for k in range(4)] for x in range(n + 1)], dtype=np.int64)
        n_channels = len(moments)
        return cls(
            binomials,
            np.cumsum([0, 1, n, comb(n, 2)]),
            moments,
            min_leaf,
            largest,
            np.empty((2, n_channels)),
            np.empty((2, n_channels, n)),
            np.empty((2, n_channels, int(binomials[n, 2]))),
            np.empty((_N_WEIGHTS, 2, 2, 2, n)),
            np.empty((_N_WEIGHTS, 2)),
            np.empty((_N_WEIGHTS, 2)),
        )


@entry
def fill_sides(t, root):
    """Sums of the rows without (side 0) and with (1) a feature; of all rows, as side 0, below 0."""
    n = len(t.binomials) - 1
    two, three = t.of_size[2], t.of_size[3]
    over = t.binomials
    for c in range(len(t.moments)):
        moments, single, pairs = t.moments[c], t.single[:, c], t.pairs[:, c]
        if root < 0:
            t.total[0, c] = moments[0]
            single[0, :] = moments[1 : 1 + n]
            pairs[0, :] = moments[two : two + pairs.shape[1]]
            continue
        t.total[1, c] = moments[1 + root]
        t.total[0, c] = moments[0] - moments[1 + root]
        for x in range(n):
            with_root = moments[1 + x]
            if x != root:
                with_root = moments[two + over[max(x, root), 2] + min(x, root)]
            single[1, x], single[0, x] = with_root, moments[1 + x] - with_root
        for d in range(1, n):
            at = over[d, 2]
            for e in range(d):
                if root in (d, e):
                    with_root = moments[two + at + e]
                elif len(moments) == three:  # sums of three features are for depth 3 alone
                    continue
                elif d < root:
                    with_root = moments[three + over[root, 3] + at + e]
                elif e < root:
                    with_root = moments[three + over[d, 3] + over[root, 2] + e]
                else:
                    with_root = moments[three + over[d, 3] + over[e, 2] + root]
                pairs[1, at + e], pairs[0, at + e] = with_root, moments[two + at + e] - with_root


@elementwise
def _weigh(first, second, a, b, n, out):
    for i in range(n):
        out[i] = a * first[i] + b * second[i]


@elementwise
def _cheaper(pairs, single, total, with_d, n, cells):
    """Lower the costs (4, n) of the cells of d and a smaller feature, none, e, d, both, to a decision's."""
    for e in range(n):
        both = pairs[e]
        no_d = single[e] - both
        cells[3, e] = min(cells[3, e], both)
        cells[2, e] = min(cells[2, e], with_d - both)
        cells[1, e] = min(cells[1, e], no_d)
        cells[0, e] = min(cells[0, e], total - with_d - no_d)


@compiled
def _too_small(pairs, single, total, with_d, n, min_leaf, cells):
    """Set the costs of cells of too few rows to infinity."""
    for e in range(n):
        both = pairs[e]
        no_d = single[e] - both
        cells[3, e] = cells[3, e] if both >= min_leaf else math.inf
        cells[2, e] = cells[2, e] if with_d - both >= min_leaf else math.inf
        cells[1, e] = cells[1, e] if no_d >= min_leaf else math.inf
        cells[0, e] = cells[0, e] if total - with_d - no_d >= min_leaf else math.inf


@compare
def _stumps(cells, n, without, present):
    """Lower the costs of stumps below smaller features; returns the least below d, without and with it."""
    least0, least1 = math.inf, math.inf
    for e in range(n):
        without[e] = min(without[e], cells[0, e] + cells[2, e])
        present[e] = min(present[e], cells[1, e] + cells[3, e])
        least0 = min(least0, cells[0, e] + cells[1, e])
        least1 = min(least1, cells[2, e] + cells[3, e])
    return least0, least1


@compiled
def least_sums(t, side, a, b, least):
    """Least weighted sums (2, 2, F) on a side, of leaf and stump, without and with each feature; of all."""
    n, n_decisions = len(t.binomials) - 1, len(t.moments) // 2
    single = np.empty((n_decisions, n))
    pair, cells, total = np.empty(n), np.empty((4, n)), np.empty(n_decisions)
    rows = t.single[side, 2 * n_decisions]
    n_rows = t.total[side, 2 * n_decisions]
    leaf = math.inf
    least[0] = math.inf
    for k in range(n_decisions):
        _weigh(t.single[side, 2 * k], t.single[side, 2 * k + 1], a, b, n, single[k])
        total[k] = a * t.total[side, 2 * k] + b * t.total[side, 2 * k + 1]
        leaf = min(leaf, total[k])
        for x in range(n):
            least[0, 0, x] = min(least[0, 0, x], total[k] - single[k, x])
            least[0, 1, x] = min(least[0, 1, x], single[k, x])
    for x in range(n):
        if n_rows - rows[x] < t.min_leaf:
            least[0, 0, x] = math.inf
        if rows[x] < t.min_leaf:
            least[0, 1, x] = math.inf
    least[1] = least[0]
    for d in range(1, n):
        at = t.binomials[d, 2]
        cells[:, :d] = math.inf
        for k in range(n_decisions):
            first, second = t.pairs[side, 2 * k, at:], t.pairs[side, 2 * k + 1, at:]
            _weigh(first, second, a, b, d, pair)
            _cheaper(pair, single[k], total[k], single[k, d], d, cells)
        _too_small(t.pairs[side, 2 * n_decisions, at:], rows, n_rows, rows[d], d, t.min_leaf, cells)
        least0, least1 = _stumps(cells, d, least[1, 0], least[1, 1])
        least[1, 0, d] = min(least[1, 0, d], least0)
        least[1, 1, d] = min(least[1, 1, d], least1)
    return leaf if n_rows >= t.min_leaf else math.inf


@compiled
def lowest_sum(t, w, side, nodes, leaf):
    """Least weighted sum of the trees of up to so many nodes on a side."""
    lowest = leaf
    least = t.least[w, side]
    for more in range(max(nodes - 2, 0), min(nodes, 2)):  # whether what is without a feature has a node
        for x in range(least.shape[2]):
            lowest = min(lowest, least[more, 0, x] + least[nodes - 1 - more, 1, x])
    return lowest


@compiled
def _place(front, size, first):
    """Number of points of a front with at most a given first cost."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if front[0, middle] <= first:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _room(points, size):
    """The points, of which there are `size`, with room for one more."""
    if size < points.shape[1]:
        return points
    larger = np.empty((len(points), 2 * size + 1))
    larger[:, :size] = points
    return larger


@compiled
def _add(front, size, at, first, second):
    """Add a point that none beats, `at` being its `_place`; returns the front, its size, the place after."""
    begin = at
    if begin > 0 and front[0, begin - 1] == first:
        begin -= 1
    end = begin
    while end < size and front[1, end] >= second:
        end += 1
    front = _room(front, size)
    for row in range(len(front) if end != begin + 1 else 0):
        if end == begin:
            for i in range(size, begin, -1):
                front[row, i] = front[row, i - 1]
        else:
            for i in range(end, size):
                front[row, i - end + begin + 1] = front[row, i]
    front[0, begin], front[1, begin] = first, second
    return front, size + 1 - (end - begin), begin + 1


@compiled
def tree_number(t, feature, absent, present):
    """Number of a tree of depth 2 from those of its parts."""
    n, n_decisions = len(t.binomials) - 1, len(t.moments) // 2
    width = 1.0 * n_decisions + n * n_decisions**2
    return n_decisions + (feature * width + absent) * width + present


@compiled
def _add_sums(t, feature, front, size, left, n_left, right, n_right, known, n_known, first, second):
    """Add sums of points of both sides of a feature that none beats; in five rows those of a whole tree."""
    # Not what `known` points beat even with the least costs `first` and `second` of the rest of the tree.
    for i in range(n_left):
        at = _place(front, size, left[0, i] + right[0, 0]) if n_right else 0
        for j in range(n_right):
            a, b = left[0, i] + right[0, j], left[1, i] + right[1, j]
            while at < size and front[0, at] <= a:
                at += 1
            if at > 0 and front[1, at - 1] <= b:
                continue
            if n_known > 0:
                before = _place(known, n_known, a + first)
                if before > 0 and known[1, before - 1] <= b + second:
                    continue
            front, size, at = _add(front, size, at, a, b)
            if len(front) > 3:
                front[2, at - 1], front[3, at - 1], front[4, at - 1] = feature, left[2, i], right[2, j]
            else:
                front[2, at - 1] = tree_number(t, feature, left[2, i], right[2, j])
    return front, size


@compiled
def add_point(points, size, first, second, number, every):
    """Add a point with the number of its tree, unless another one beats it, or in any case, at the end."""
    if every:
        points, at = _room(points, size), size
        points[0, at], points[1, at], size = first, second, size + 1
    else:
        at = _place(points, size, first)
        if at > 0 and points[1, at - 1] <= second:
            return points, size
        points, size, at = _add(points, size, at, first, second)
        at -= 1
    points[2, at] = number
    return points, size


@compiled
def points_below(t, side, feature, present, stumps, every, points):
    """Points of leaves, and `stumps`, on rows of a side without or with a feature: `every`, or a front."""
    n, n_decisions = len(t.binomials) - 1, len(t.moments) // 2
    n_channels = len(t.moments)
    total, without, having = np.empty(n_channels), np.empty(n_channels), np.empty(n_channels)
    for c in range(n_channels):
        total[c] = t.single[side, c, feature]
        if not present:
            total[c] = t.total[side, c] - total[c]
    size = 0
    if total[n_channels - 1] < t.min_leaf:
        return points, size
    for k in range(n_decisions):
        points, size = add_point(points, size, total[2 * k], total[2 * k + 1], k, every)
    for x in range(n if stumps else 0):
        if x == feature:
            continue
        place = t.binomials[max(x, feature), 2] + min(x, feature)
        for c in range(n_channels):
            both = t.pairs[side, c, place]
            having[c] = both if present else t.single[side, c, x] - both
            without[c] = total[c] - having[c]
        if min(having[n_channels - 1], without[n_channels - 1]) < t.min_leaf:
            continue
        for k in range(n_decisions):
            for j in range(n_decisions):
                if j != k:
                    first, second = without[2 * k] + having[2 * j], without[2 * k + 1] + having[2 * j + 1]
                    number = n_decisions + (x * n_decisions + k) * n_decisions + j
                    points, size = add_point(points, size, first, second, number, every)
    return points, size


@compiled
def _allowed(t, w, known, n_known, corner):
    """The weighted sum of the largest costs in a corner of a front, with room for rounding."""
    a, b = t.weights[w, 0], t.weights[w, 1]
    room = _ROUNDING * (a + b) * t.largest
    if a > 0.0:
        room = math.inf if corner == n_known else room + a * (known[0, corner] - 1.0)
    if b > 0.0:
        room = math.inf if corner == 0 else room + b * (known[1, corner - 1] - 1.0)
    return room


@compiled
def _reaches(t, n_weights, side, x, more, less, known, n_known, corners, n_corners):
    """Whether a second test can be part of a tree that improves the front in some corner."""
    for i in range(n_corners):
        reached = True
        for w in range(n_weights):
            cost = t.least[w, side, more, 0, x] + t.least[w, side, less, 1, x] + t.lowest[w, 1 - side]
            if cost > _allowed(t, w, known, n_known, corners[i]):
                reached = False
                break
        if reached:
            return True
    return False


@compiled
def _side_front(t, n_weights, side, nodes, known, n_known, corners, n_corners):
    """The front (3, room) of trees of up to so many nodes on a side that can improve `known`; its size."""
    n, n_decisions = len(t.binomials) - 1, len(t.moments) // 2
    front, size = np.empty((3, 64)), 0
    left, right = np.empty((3, 64)), np.empty((3, 64))
    first, second = 0.0, 0.0
    if n_known > 0:
        first, second = t.lowest[0, 1 - side], t.lowest[1, 1 - side]
    if t.total[side, 2 * n_decisions] >= t.min_leaf:
        for k in range(n_decisions):
            front, size = add_point(front, size, t.total[side, 2 * k], t.total[side, 2 * k + 1], k, False)
    for most in range(1, nodes + 1):
        if 1 < most < nodes:
            continue
        for more in range(max(most - 2, 0), min(most, 2)):
            less = most - 1 - more
            for x in range(n):
                if n_known > 0 and not _reaches(
                    t, n_weights, side, x, more, less, known, n_known, corners, n_corners
                ):
                    continue
                left, n_left = points_below(t, side, x, False, more == 1, False, left)
                right, n_right = points_below(t, side, x, True, less == 1, False, right)
                front, size = _add_sums(
                    t, x, front, size, left, n_left, right, n_right, known, n_known, first, second
                )
    return front, size


@compiled
def _next_weights(t, w, known, n_known, corners, n_corners):
    """Weights that may rule out corners: of the axes, then normals of the front at those that are left."""
    if w < 2:
        t.weights[w, 0], t.weights[w, 1] = 1.0 - w, 1.0 * w
        return
    # In turns from the middle: 1/2, 1/4, 3/4, 1/8, 3/8, ...
    parts = 2
    while parts <= w - 1:
        parts *= 2
    place = (2 * (w - 1 - parts // 2) + 1) * n_corners // parts
    corner, wide = corners[min(place, n_corners - 1)], n_known // 8 + 1
    low, high = max(corner - wide, 0), min(corner + wide - 1, n_known - 1)
    a, b = known[1, low] - known[1, high], known[0, high] - known[0, low]
    largest = max(a, b)
    t.weights[w, 0] = a / largest if largest > 0.0 else 1.0
    t.weights[w, 1] = b / largest if largest > 0.0 else 1.0


@entry
def whole_front(t, nodes):
    """The front (3, size) of all trees of depth 2 of up to so many nodes, 0 to 3."""
    fill_sides(t, -1)
    front, size = _side_front(t, 0, 0, nodes, np.empty((2, 0)), 0, np.empty(0, dtype=np.int64), 0)
    return front[:, :size].copy()


@entry
def add_root(t, root, splits, front):
    """The front (5, size) and the trees of depth 3 with a root, `splits` (S, 2) being nodes of both sides."""
    fill_sides(t, root)
    leaf, n_weights, size = np.empty((_N_WEIGHTS, 2)), 0, front.shape[1]
    for split in range(len(splits)):
        corners, n_corners = np.arange(size + 1), size + 1
        w = 0
        while n_corners > 0 and w < _N_WEIGHTS:
            if w == n_weights:
                _next_weights(t, w, front, size, corners, n_corners)
                for side in range(2):
                    leaf[w, side] = least_sums(t, side, t.weights[w, 0], t.weights[w, 1], t.least[w, side])
                n_weights += 1
            for side in range(2):
                t.lowest[w, side] = lowest_sum(t, w, side, splits[split, side], leaf[w, side])
            kept = 0
            for i in range(n_corners):
                if t.lowest[w, 0] + t.lowest[w, 1] <= _allowed(t, w, front, size, corners[i]):
                    corners[kept] = corners[i]
                    kept += 1
            n_corners = kept
            w += 1
        if n_corners == 0:
            continue
        left, n_left = _side_front(t, w, 0, splits[split, 0], front, size, corners, n_corners)
        right, n_right = _side_front(t, w, 1, splits[split, 1], front, size, corners, n_corners)
        front, size = _add_sums(t, root, front, size, left, n_left, right, n_right, front, 0, 0.0, 0.0)
    return front[:, :size].copy()

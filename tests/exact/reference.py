"""Plain loops: losses by their definition, all trees and the points of all trees, the front of a list."""

import functools
import itertools
import math
import operator

import numpy as np


def exposures(time, event, entry, weight=None):
    """What the Nelson-Aalen estimate of rows at risk, entry < t <= time, rises by from entry to time."""
    found, weight = [], weight or [1] * len(time)
    for start, end in zip(entry, time, strict=True):
        total = 0.0
        for u in sorted(set(time)):
            if start < u <= end:
                at_risk = sum(w for w, a, b in zip(weight, entry, time, strict=True) if a < u <= b)
                total += sum(w for w, s, d in zip(weight, time, event, strict=True) if s == u and d) / at_risk
        found.append(total)
    return found


def hazards(time, event, weight=None):
    """Nelson-Aalen estimate at each row's time, 1 / (N + 1) before the first event.

    With weights N is their sum in multiples of the smallest one.
    """
    weight = weight or [1] * len(time)
    rises = exposures(time, event, [-math.inf] * len(time), weight)
    return [rise or 1 / (sum(weight) / min(weight) + 1) for rise in rises]


def deviance(rows, time, event, hazard, weight=None):
    """Half the deviance of one leaf, row by row."""
    weight = weight or [1] * len(time)
    n_events = sum(weight[i] for i in rows if event[i])
    if n_events == 0:
        return 0.0
    theta = n_events / sum(weight[i] * hazard[i] for i in rows)
    total = 0.0
    for i in rows:
        total += weight[i] * hazard[i] * theta
        if event[i]:
            total -= weight[i] * (math.log(hazard[i]) + math.log(theta) + 1)
    return total


def censoring(time, event, weight):
    """G at each distinct time, tied events at risk."""
    curve, g = {}, 1.0
    for u in sorted(set(time)):
        at_risk = sum(w for w, s in zip(weight, time, strict=True) if s >= u)
        g *= 1 - sum(w for w, s, d in zip(weight, time, event, strict=True) if s == u and not d) / at_risk
        curve[u] = g
    return curve


def leaf_curve(rows, time, event, weight=None):
    """The leaf's Kaplan-Meier curve at each distinct time of all rows."""
    weight = weight or [1] * len(time)
    curve, s = {}, 1.0
    for u in sorted(set(time)):
        at_risk = sum(weight[i] for i in rows if time[i] >= u)
        if at_risk:
            s *= 1 - sum(weight[i] for i in rows if time[i] == u and event[i]) / at_risk
        curve[u] = s
    return curve


def brier(rows, time, event, weight=None):
    """What the rows of one leaf add to the integrated Brier score, row by row and time by time."""
    weight = weight or [1] * len(time)
    grid, g = sorted(set(time)), censoring(time, event, weight)
    curve = leaf_curve(rows, time, event, weight)
    total = 0.0
    for i in rows:
        for u, v in itertools.pairwise(grid):
            if time[i] > u:
                inverse = weight[i] / g[u] if g[u] > 0 else 0.0
                total += (v - u) * (1 - curve[u]) ** 2 * inverse
            elif event[i]:
                inverse = weight[i] / g[time[i]] if g[time[i]] > 0 else 0.0
                total += (v - u) * curve[u] ** 2 * inverse
    return total / (grid[-1] - grid[0]) / sum(weight)


def all_trees(features, cost, max_depth, allowed, pay=None):
    """Least cost of any tree by (depth, nodes), from every split of every set of rows.

    A split costs pay(columns above, column) for each row; nothing without `pay`.
    """
    n, p = features.shape

    @functools.cache
    def leaf(rows):
        return cost(rows) if allowed(rows) else math.inf

    @functools.cache
    def least(rows, above, depth, nodes):
        found = leaf(rows)
        if depth == 0 or nodes == 0:
            return found
        for j in range(p):
            parts = [tuple(i for i in rows if features[i, j] == v) for v in (False, True)]
            if not all(parts):
                continue
            below = above | {j} if pay else above
            paid = len(rows) * pay(above, j) if pay else 0.0
            for left in range(nodes):
                a = least(parts[0], below, depth - 1, min(left, 2 ** (depth - 1) - 1))
                b = least(parts[1], below, depth - 1, min(nodes - 1 - left, 2 ** (depth - 1) - 1))
                found = min(found, a + b + paid)
        return found

    every = tuple(range(n))
    return {(d, m): least(every, frozenset(), d, m) for d in range(max_depth + 1) for m in range(d, 2**d)}


def class_cost(rows, labels, weight, matrix):
    """Least Σ w M[true, predicted] over one predicted class for all rows."""
    return min(sum(weight[i] * matrix[labels[i]][k] for i in rows) for k in range(len(matrix)))


def treatment_cost(rows, scores):
    """Minus the greatest summed score of one treatment for all rows."""
    return -max(sum(scores[i][k] for i in rows) for k in range(len(scores[0])))


def squared_cost(rows, y, weight):
    """Weighted squares around the weighted mean."""
    total = sum(weight[i] for i in rows)
    if total == 0:
        return 0.0
    mean = sum(weight[i] * y[i] for i in rows) / total
    return sum(weight[i] * (y[i] - mean) ** 2 for i in rows)


def price(attribute, above, column, full, discounted, group):
    """What one row pays for a test: nothing again, less after another of the group."""
    asked = attribute[column]
    known = {attribute[c] for c in above}
    if asked in known:
        return 0.0
    if group[asked] >= 0 and any(group[a] == group[asked] for a in known):
        return discounted[asked]
    return full[asked]


def random_features(seed, n_rows=(8, 24), n_features=(1, 5)):
    """A binary matrix, some columns of which may repeat or complement others."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(*n_rows)), int(rng.integers(*n_features, endpoint=True))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    if p > 2 and seed % 3 == 0:
        features[:, 1] = ~features[:, 0]
    return features, rng


def all_totals(features, leaf_points, max_depth, max_nodes, min_leaf):
    """The set of totals of every tree within a budget.

    Args:
        features: (N, p) bool.
        leaf_points: from a tuple of rows to the points of its decisions.
        max_depth: most tests on a path.
        max_nodes: most tests.
        min_leaf: least rows of a leaf.
    """
    n, p = features.shape

    @functools.cache
    def leaf(rows):
        return frozenset(leaf_points(rows)) if len(rows) >= min_leaf else frozenset()

    @functools.cache
    def trees(rows, depth, nodes):
        found = set(leaf(rows))
        if depth == 0 or nodes == 0:
            return frozenset(found)
        for j in range(p):
            parts = [tuple(i for i in rows if features[i, j] == v) for v in (False, True)]
            if not all(parts):
                continue
            for left in range(nodes):
                for a in trees(parts[0], depth - 1, left):
                    for b in trees(parts[1], depth - 1, nodes - 1 - left):
                        found.add(tuple(map(operator.add, a, b)))
        return frozenset(found)

    return trees(tuple(range(n)), max_depth, max_nodes)


def every_sum(features, points, nodes, min_leaf, reduce):
    """Points (2, n) of all trees of depth 3 of `nodes` nodes, after `reduce` at each root and its sides.

    `points` (2, K, N) are those of rows.
    """

    def leaves(rows):
        here = points[:, :, rows].sum(-1)
        return here if rows.sum() >= min_leaf else here[:, :0]

    def split(rows, most, below):
        """Trees of up to `most` nodes on some rows, whose parts are made by `below`."""
        found = [leaves(rows)]
        for x in features.T if most else ():
            for left in range(most):
                a, b = below(rows & ~x, left), below(rows & x, most - 1 - left)
                found.append(reduce((a[:, :, None] + b[:, None]).reshape(2, -1)))
        return reduce(np.concatenate(found, axis=1))

    def stumps(rows, most):
        return split(rows, min(most, 1), lambda part, _: leaves(part))

    @functools.cache
    def two(key, most):
        return split(np.frombuffer(key, dtype=bool), min(most, 3), stumps)

    return split(np.ones(len(features), dtype=bool), nodes, lambda rows, most: two(rows.tobytes(), most))


def front_of(points):
    """The points (2, n) that no other one beats in both costs."""
    points = points[:, np.lexsort(points[::-1])]
    least = np.minimum.accumulate(points[1])
    return points[:, np.append(True, points[1, 1:] < least[:-1])[: points.shape[1]]]


def by_balance(points):
    """The cheapest point of each balance."""
    points = points[:, np.lexsort(points)]
    return points[:, np.append(True, np.diff(points[1]) != 0)[: points.shape[1]]]


def front(totals):
    """The points that no other one beats in both costs, by increasing first cost."""
    found = []
    for a, b in sorted(totals):
        if not found or b < found[-1][1]:
            found.append((a, b))
    return found


def all_areas(features, y, weight, min_leaf, area):
    """Largest area by nodes, from every tree of depth 2."""
    p = features.shape[1]
    best = [0.5, 0.0, 0.0, 0.0]
    for root in range(p):
        for tests in itertools.product([None, *range(p)], repeat=2):
            side = features[:, root].astype(int)
            leaf = 2 * side
            for value, test in enumerate(tests):
                if test is not None:
                    leaf = np.where(side == value, leaf + features[:, test], leaf)
            n_nodes = 1 + sum(test is not None for test in tests)
            sizes = np.unique(leaf, return_counts=True)[1]
            if len(sizes) == n_nodes + 1 and sizes.min() >= min_leaf:
                best[n_nodes] = max(best[n_nodes], area(leaf, y, weight))
    return np.maximum.accumulate(best)

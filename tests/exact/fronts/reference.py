"""Plain loops: the points of all trees, and the front of a list of them."""

import functools
import itertools
import operator

import numpy as np


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

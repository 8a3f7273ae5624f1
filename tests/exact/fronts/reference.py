"""Plain loops: the totals of all trees, and the front of a list of them."""

import functools
import operator


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


def front(totals):
    """The points that no other one beats in both costs, by increasing first cost."""
    found = []
    for a, b in sorted(totals):
        if not found or b < found[-1][1]:
            found.append((a, b))
    return found

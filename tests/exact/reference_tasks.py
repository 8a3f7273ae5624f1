"""Plain loops: losses of classes, treatments and means by definition, and all trees whose tests cost."""

import functools
import math

import numpy as np


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


def all_priced_trees(features, cost, pay, max_depth, allowed):
    """Least cost of any tree by (depth, nodes); a split of rows costs pay(columns above, column) for each."""
    p = features.shape[1]

    @functools.cache
    def least(rows, above, depth, nodes):
        found = cost(rows) if allowed(rows) else math.inf
        if depth == 0 or nodes == 0:
            return found
        for j in range(p):
            parts = [tuple(i for i in rows if features[i, j] == v) for v in (False, True)]
            if not all(parts):
                continue
            for left in range(nodes):
                a = least(parts[0], above | {j}, depth - 1, min(left, 2 ** (depth - 1) - 1))
                b = least(parts[1], above | {j}, depth - 1, min(nodes - 1 - left, 2 ** (depth - 1) - 1))
                found = min(found, a + b + len(rows) * pay(above, j))
        return found

    every = tuple(range(len(features)))
    return {(d, m): least(every, frozenset(), d, m) for d in range(max_depth + 1) for m in range(d, 2**d)}


def random_features(seed, n_rows=(8, 24), n_features=(1, 5)):
    """A binary matrix, some columns of which may repeat or complement others."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(*n_rows)), int(rng.integers(*n_features, endpoint=True))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    if p > 2 and seed % 3 == 0:
        features[:, 1] = ~features[:, 0]
    return features, rng

"""Plain loops: losses of classes, treatments and means by definition, and prices of tests."""

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


def random_features(seed, n_rows=(8, 24), n_features=(1, 5)):
    """A binary matrix, some columns of which may repeat or complement others."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(*n_rows)), int(rng.integers(*n_features, endpoint=True))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    if p > 2 and seed % 3 == 0:
        features[:, 1] = ~features[:, 0]
    return features, rng

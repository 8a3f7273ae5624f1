import itertools

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sstorch.exact.fronts import solve_roc_hull
from sstorch.exceptions import ConfigError, DataError
from tests.conftest import nightly


def area(leaf, y, weight):
    """Share of pairs of a positive and a negative row in the right order, by leaves' rates."""
    numbers = np.unique(leaf)
    positive = {i: (weight * y)[leaf == i].sum() for i in numbers}
    negative = {i: (weight * (1 - y))[leaf == i].sum() for i in numbers}
    total = 0.0
    for i, j in itertools.product(numbers, numbers):
        difference = positive[i] * negative[j] - positive[j] * negative[i]
        total += positive[i] * negative[j] * (0.5 if difference == 0 else float(difference > 0))
    return total / (sum(positive.values()) * sum(negative.values()))


def all_areas(features, y, weight, min_leaf, area=area):
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


def partial_area(leaf, y, weight, max_fpr):
    """The same up to a false positive rate, standardised, from scikit-learn's curve."""
    rate = np.bincount(leaf, weight * y) / np.maximum(np.bincount(leaf, weight), 1e-300)
    return roc_auc_score(y, rate[leaf], sample_weight=weight, max_fpr=max_fpr)


@pytest.mark.parametrize("max_fpr", [0.1, 0.35])
@pytest.mark.parametrize("seed", [*range(6), *map(nightly, range(6, 100))])
def test_partial_area_equals_brute_force(seed, max_fpr):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 60)), int(rng.integers(2, 6))
    features, y = rng.random((n, p)) < rng.uniform(0.2, 0.8, p), (rng.random(n) < 0.4).astype(int)
    y[:2] = 0, 1
    weight = rng.integers(1, 5, n) / 2
    found = solve_roc_hull(features, y, sample_weight=weight, max_fpr=max_fpr)
    expected = all_areas(features, y, weight, 1, lambda *rows: partial_area(*rows, max_fpr))
    np.testing.assert_allclose(found.auc, expected, rtol=1e-10)
    assert [found.tree(nodes).auc for nodes in range(4)] == pytest.approx(found.auc)


@pytest.mark.parametrize("seed", range(30))
def test_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(8, 40)), int(rng.integers(1, 6))
    features = rng.random((n, p)) < rng.uniform(0.2, 0.8, p)
    y = (rng.random(n) < 0.4).astype(int)
    y[:2] = 0, 1
    weight = rng.integers(1, 5, n) / 2 if seed % 2 else np.ones(n)
    min_leaf = int(rng.integers(1, 4))
    found = solve_roc_hull(features, y, sample_weight=weight, min_leaf=min_leaf)
    expected = all_areas(features, y, weight, min_leaf)
    np.testing.assert_allclose(found.auc, expected, rtol=1e-12)
    for nodes, value in enumerate(found.auc):
        tree = found.tree(nodes)
        assert tree.tree.n_nodes <= nodes
        leaf = tree.tree.apply(features)
        assert np.bincount(leaf).min() >= min_leaf
        assert area(leaf, y, weight) == pytest.approx(value)
    for depth, nodes in [(0, None), (1, None), (2, 2), (2, 0)]:
        part = solve_roc_hull(features, y, depth, nodes, sample_weight=weight, min_leaf=min_leaf)
        most = min(2**depth - 1, 3 if nodes is None else nodes)
        assert part.auc == found.auc[: most + 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_depth": 3}, ConfigError, "max_depth must be 0 to 2"),
        ({"max_fpr": 0.0}, ConfigError, "max_fpr must be above 0"),
        ({"max_nodes": -1}, ConfigError, "max_nodes must be .* got -1"),
        ({"min_leaf": 0}, ConfigError, "min_leaf must be .* got 0"),
        ({"y": [0, 1, 1]}, DataError, "y has 3"),
        ({"sample_weight": [0.0, 1.0]}, ConfigError, "no weight"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        solve_roc_hull(np.eye(2), **{"y": [0, 1], **arguments})
    with pytest.raises(ConfigError, match="nodes=4"):
        solve_roc_hull(np.eye(2), [0, 1]).tree(4)

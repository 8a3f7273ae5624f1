"""The area under the ROC curve of a tree's leaves, or a part of it, exact at depth 2."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.exact.fronts.solve import DecidedTree
from sstorch.exact.fronts.tasks import exact_weights, two_values
from sstorch.exact.patterns import Patterns
from sstorch.exact.problem import check_limits, check_rows
from sstorch.exact.tree import BinaryTree
from sstorch.exceptions import ConfigError, TrainingError


def solve_areas(
    features: object,
    y: npt.ArrayLike,
    max_depth: int = 2,
    max_nodes: int | None = None,
    min_leaf: int = 1,
    *,
    sample_weight: npt.ArrayLike | None = None,
    max_fpr: float = 1.0,
) -> list[DecidedTree]:
    """Find the trees of depth up to 2 with the largest (partial) area under the ROC curve of the leaves.

    The leaves are ranked by their share of positive rows, which makes the curve its own convex hull: the
    areas of GOSDT. Subtrees cannot be optimised separately: all F^3 trees of depth 2 are evaluated.

    Args:
        features: binary matrix, array or DataFrame (N, p).
        y: 0 or 1, shape (N,).
        max_depth: 0 to 2.
        max_nodes: maximum number of branch nodes; None for the maximum at this depth.
        min_leaf: minimum number of rows per leaf.
        sample_weight: whole numbers, or None for 1.
        max_fpr: largest false positive rate, in (0, 1]. Below 1 the score is the part of the area up to it,
            standardised to .5 for a random and 1 for a perfect ranking (McClish, 1989), as `roc_auc_score` of
            scikit-learn has it.

    Returns:
        The trees with the largest area for at most 0, 1, ... branch nodes.

    Raises:
        DataError: invalid features or labels.
        ConfigError: an argument out of range, or weights that are not whole.
        TrainingError: an area, recomputed from the rows, differs from that of the search.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML.

    Examples:
        >>> features = [[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, 1]]
        >>> areas = solve_areas(features, [0, 0, 1, 0, 1, 1])
        >>> [round(tree.score, 4) for tree in areas], areas[-1].decision.tolist()
        ([0.5, 0.6667, 0.7778, 0.7778], [0.0, 1.0, 0.5])
    """
    patterns = Patterns.of(features)
    labels = two_values("y", y, "1 is positive")
    weight = exact_weights(sample_weight, len(labels))
    check_rows(len(patterns.of_row), len(labels), min_leaf, "y")
    if not 0 <= max_depth <= 2:
        raise ConfigError(f"max_depth must be 0 to 2 for areas, got {max_depth}")
    if not 0.0 < max_fpr <= 1.0:
        raise ConfigError(f"max_fpr must be above 0, at most 1, got {max_fpr}")
    check_limits(max_nodes, None)
    points = np.stack([weight * labels, weight * (1 - labels)])
    positives, negatives = points.sum(axis=1).tolist()
    if not 0 < positives * negatives < 2**53:
        raise ConfigError("sample_weight: a class has no weight, or products of weights are not exact")
    from sklearn.metrics import roc_auc_score  # loads much of scikit-learn

    from sstorch.exact.compiled.roc import largest_areas  # numba takes a while to load
    from sstorch.exact.fronts.search import sums_of

    sums = sums_of(patterns, points[:, None], 2, min_leaf, 4 * 2**30)
    areas, tests = np.zeros(4 if max_depth > 1 else 2), np.full((4, 3), -1, dtype=np.int64)
    largest_areas(sums, max_fpr * negatives, areas, tests)
    areas /= positives * negatives
    if max_fpr < 1.0:
        random = max_fpr**2 / 2.0
        areas = 0.5 * (1.0 + (areas - random) / (max_fpr - random))
    most, trees = min(2**max_depth - 1, 3 if max_nodes is None else max_nodes), list[DecidedTree]()
    for nodes in range(most + 1):
        best = int(areas[: nodes + 1].argmax())
        root, *below = tests[best].tolist()
        absent, present = (None if test < 0 else (test, None, None) for test in below)
        nested = patterns.in_columns(None if root < 0 else (root, absent, present))
        tree = BinaryTree.build(nested, patterns.names)
        leaf = patterns.leaves(tree)
        total = np.bincount(leaf, weight, tree.n_leaves)
        rate: FloatArray = np.bincount(leaf, points[0], tree.n_leaves) / np.where(total > 0.0, total, 1.0)
        part = None if max_fpr == 1.0 else max_fpr
        area = float(roc_auc_score(labels, rate[leaf], sample_weight=weight, max_fpr=part))
        if abs(area - areas[best]) > 1e-9:
            raise TrainingError(
                f"the tree has the area {area!r}, but the search reports {areas[best]!r}; please report it"
            )
        trees.append(DecidedTree(tree, rate, area))
    return trees

"""The area under the ROC curve of a tree's leaves, exact at depth 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.exact.fronts.tasks import two_values, whole_weights
from sstorch.exact.moments import Moments, Patterns
from sstorch.exact.problem import check_limits, check_rows, pair_cells
from sstorch.exact.task import Entries
from sstorch.exact.tree import BinaryTree, Nested
from sstorch.exceptions import ConfigError, TrainingError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class RankingTree:
    """Tree with leaves ranked by their share of positive rows.

    Attributes:
        tree: the tests.
        rate: (L,), share of positive rows of each leaf, by weight.
        auc: area under the ROC curve on the rows of the search.
    """

    tree: BinaryTree
    rate: FloatArray
    auc: float

    def predict(self, features: npt.ArrayLike) -> FloatArray:
        """Predict the share of positive rows in the leaf, (n,), for a binary matrix (n, p)."""
        return self.rate[self.tree.apply(features)]


class _Best(NamedTuple):
    """A tree by its tests: at the root, where that is 0, where it is 1; None is a leaf."""

    area: int
    tests: tuple[int | None, int | None, int | None]


class RocSolution:
    """Trees with the largest area under the ROC curve for every number of nodes up to 3.

    Attributes:
        auc: the largest area for at most 0, 1, ... branch nodes.
    """

    def __init__(
        self,
        patterns: Patterns,
        best: list[_Best],
        y: IntArray,
        weight: IntArray,
    ) -> None:
        self._patterns, self._best, self._y, self._weight = patterns, best, y, weight
        self._product = int(weight[y == 1].sum()) * int(weight[y == 0].sum())
        self.auc = [0.5 + b.area / (2 * self._product) for b in best]

    def table(self) -> pd.DataFrame:
        """Nodes and largest area."""
        return pd.DataFrame({"nodes": range(len(self.auc)), "auc": self.auc})

    def tree(self, nodes: int | None = None) -> RankingTree:
        """Return the tree with the largest area for this maximum number of branch nodes.

        Raises:
            ConfigError: more nodes than searched, or fewer than 0.
            TrainingError: the area, recomputed from the rows, differs from that of the search.
        """
        most = len(self._best) - 1 if nodes is None else nodes
        if not 0 <= most < len(self._best):
            raise ConfigError(f"nodes={most}: this search covers 0 to {len(self._best) - 1}")
        area = self._best[most].area
        best = next(b for b in self._best if b.area == area)
        root, absent, present = best.tests
        leaf_or_test = [None if test is None else (test, None, None) for test in (absent, present)]
        nested: Nested = None if root is None else (root, leaf_or_test[0], leaf_or_test[1])
        tree = BinaryTree.build(self._patterns.in_columns(nested), self._patterns.names)
        leaf = tree.apply(self._patterns.features)
        weight = np.bincount(leaf, self._weight, tree.n_leaves)
        rate = np.bincount(leaf, self._weight * self._y, tree.n_leaves) / np.where(weight > 0.0, weight, 1.0)
        from sklearn.metrics import roc_auc_score  # loads much of scikit-learn

        auc = float(roc_auc_score(self._y, rate[leaf], sample_weight=self._weight))
        if abs(auc - self.auc[most]) > 1e-9:
            raise TrainingError(
                f"the tree has the area {auc!r}, but the search reports {self.auc[most]!r}; please report it"
            )
        return RankingTree(tree, rate, auc)


def solve_roc_hull(
    features: object,
    y: npt.ArrayLike,
    max_depth: int = 2,
    max_nodes: int | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    min_leaf: int = 1,
    device: str | torch.device = "cpu",
) -> RocSolution:
    """Find the trees of depth up to 2 with the largest area under the ROC curve of the leaves.

    The leaves are ranked by their share of positive rows, which makes the curve its own convex hull (the AUC
    of GOSDT). With p_i positive and n_i negative rows in leaf i, P and N in all, the area counts pairs:

        2 P N AUC = Σ_i p_i n_i + Σ_{i<j} 2 max(p_i n_j, p_j n_i)
                  = P N + Σ_{i<j} |p_i n_j - p_j n_i|,

    since 2 max(a, b) = a + b + |a - b| and all products p_i n_j add up to P N. The terms combine leaves of
    both sides of the root: subtrees cannot be optimised separately, and a front of totals of subtrees is not
    sufficient. At depth 2, with four leaves a, b | c, d, the area of all F^3 trees is a sum of six such
    terms; two of these depend on one side only: matrices (F, F) for every root, evaluated for all trees. The
    result is exact, in integers. A split never decreases the area (|(a + b) x c| <= |a x c| + |b x c|).

    Args:
        features: binary matrix, array or DataFrame (N, p).
        y: 0 or 1, shape (N,).
        max_depth: 0 to 2 (depth 3 would need the enumeration of F^7 trees).
        max_nodes: maximum number of branch nodes; None for the maximum at this depth.
        sample_weight: multiples of 2**-20, or None for 1.
        min_leaf: minimum number of rows per leaf.
        device: device of the search.

    Raises:
        DataError: invalid features or labels.
        ConfigError: an argument out of range, or weights that are not exact.

    References:
        Lin, Zhong, Hu, Rudin and Seltzer (2020), Generalized and scalable optimal sparse decision trees,
        ICML.

    Examples:
        >>> import numpy as np
        >>> features = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1], [0, 1]])
        >>> solution = solve_roc_hull(features, [0, 0, 1, 0, 1, 1])
        >>> [round(area, 4) for area in solution.auc], solution.tree().rate.tolist()
        ([0.5, 0.6667, 0.7778, 0.7778], [0.0, 1.0, 0.5])
    """
    patterns = Patterns.of(features)
    labels = two_values("y", y, "positive")
    weight, _ = whole_weights(sample_weight, len(labels))
    check_rows(patterns.n_rows, len(labels), min_leaf, "y")
    if not 0 <= max_depth <= 2:
        raise ConfigError(f"max_depth={max_depth}: the area is optimised for depths 0 to 2")
    check_limits(max_nodes, None)
    product = int(weight[labels == 1].sum()) * int(weight[labels == 0].sum())
    if not 0 < product < 2**60:
        raise ConfigError("sample_weight: a class has no weight, or weights are too fine to multiply exactly")
    channels = np.stack([weight * labels, weight * (1 - labels), np.ones_like(labels)]).astype(np.float64)
    moments = Moments.of(patterns, Entries.of_rows(channels), 1, torch.device(device))
    most = min(2**max_depth - 1, 3 if max_nodes is None else max_nodes)
    return RocSolution(patterns, _search(moments, most, min_leaf), labels, weight)


def _search(moments: Moments, most: int, min_leaf: int) -> list[_Best]:
    best = [_Best(0, (None, None, None))]
    n = moments.n_features
    if most == 0 or n == 0:
        return best * (most + 1)
    singles, total = next(moments.singles()), next(moments.total())
    sides = torch.stack([total[:, None] - singles, singles], dim=1).to(torch.int64)  # (3, 2, F)
    allowed = sides[2] >= min_leaf
    area = _cross(sides[:, 0], sides[:, 1]).masked_fill(~allowed.all(0), -1)
    value, root = area.max(0)
    best.append(max(best[0], _Best(int(value), (int(root), None, None)), key=lambda b: b.area))
    if most == 1:
        return best
    cells = pair_cells(next(moments.pairs())).to(torch.int64)  # (3, s_a, s_c, A, F)
    splits = (cells[2] >= min_leaf).all(1)  # (s_a, A, F)
    inside = _cross(cells[:, :, 0], cells[:, :, 1])
    best.append(best[1])
    for side in (0, 1):
        other = sides[:, 1 - side].unsqueeze(-1)
        area = inside[side] + _cross(cells[:, side, 0], other) + _cross(cells[:, side, 1], other)
        area = area.masked_fill(~(splits[side] & allowed[1 - side].unsqueeze(-1)), -1)
        value, place = area.flatten().max(0)
        feature, test = divmod(int(place), n)
        tests = (feature, test, None) if side == 0 else (feature, None, test)
        best[2] = max(best[2], _Best(int(value), tests), key=lambda b: b.area)
    if most == 2:
        return best
    best.append(best[2])
    step = max(1, _CHUNK // (n * n))
    for begin in range(0, n, step):
        part = slice(begin, begin + step)
        absent, present = cells[:, 0, :, part].unsqueeze(-1), cells[:, 1, :, part].unsqueeze(-2)
        area = inside[0, part].unsqueeze(-1) + inside[1, part].unsqueeze(-2)
        for first in (0, 1):
            for second in (0, 1):
                area += _cross(absent[:, first], present[:, second])
        area.masked_fill_(~(splits[0, part].unsqueeze(-1) & splits[1, part].unsqueeze(-2)), -1)
        value, place = area.flatten().max(0)
        feature, pair = divmod(int(place), n * n)
        tree = _Best(int(value), (begin + feature, pair // n, pair % n))
        best[3] = max(best[3], tree, key=lambda b: b.area)
    return best


def _cross(first: Tensor, second: Tensor) -> Tensor:
    """|p_1 n_2 - p_2 n_1|."""
    return (first[0] * second[1] - second[0] * first[1]).abs_()

"""Tests that cost something: what rows pay at the branch nodes of a tree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sstorch.exceptions import ConfigError
from sstorch.optimal.moments import Moments
from sstorch.optimal.packed import PackedCells, members
from sstorch.optimal.patterns import BoolArray
from sstorch.optimal.tasks.base import BranchCostTask, FloatArray, IntArray, Task
from sstorch.optimal.tree import BinaryTree

BranchCost = Callable[[IntArray, IntArray], FloatArray]


def branch_cost(task: Task, columns: IntArray) -> BranchCost | None:
    """What a row pays for a test, by features above and tested; None where tests are free.

    Args:
        task: the objective.
        columns: (F,), the column of the matrix behind each feature.
    """
    if not isinstance(task, BranchCostTask):
        return None
    return lambda above, feature: _checked(task, columns[above], columns[feature])


def _checked(task: BranchCostTask, above: IntArray, feature: IntArray) -> FloatArray:
    price = np.asarray(task.branch_cost(above, feature), dtype=np.float64)
    if price.shape != feature.shape or not np.isfinite(price).all() or (price < 0.0).any():
        raise ConfigError(
            f"branch_cost of the task gives {price.tolist()[:3] if price.ndim else price} for "
            f"{len(feature)} tests; expected one finite cost >= 0 for each"
        )
    return price


class Payments:
    """What the rows of each set of literals pay when it is split.

    Args:
        sizes: entries whose first channel counts rows.
        cost: of a test, by features.
        depth: D.
    """

    def __init__(self, sizes: Moments, cost: BranchCost, depth: int) -> None:
        self._rows, self._cost, self._n = PackedCells(sizes.row_sums(), depth), cost, sizes.n_features

    def at(self, k: int) -> Tensor:
        """(2, ..., 2, k, C(F, k)): of each k-set without its j-th feature, split by that feature.

        The axes of signs are those of the k - 1 features left.
        """
        (rows,) = (cells[0] for cells in self._rows.cells(k, slice(None)))
        sets = members(self._n, k)
        paid = []
        for j in range(k):
            price = torch.from_numpy(self._cost(np.delete(sets, j, axis=0), sets[j])).to(rows.device)
            paid.append((rows.select(j, 0) + rows.select(j, 1)) * price)
        return torch.stack(paid, dim=-2)


def total_branch_cost(task: Task, tree: BinaryTree, features: BoolArray) -> float:
    """What all rows pay for the tests of a tree, row by row from the definition; 0 where tests are free.

    Args:
        task: the objective.
        tree: over the columns of the matrix.
        features: (N, p).
    """
    if not isinstance(task, BranchCostTask):
        return 0.0

    def below(node: int, rows: IntArray, above: tuple[int, ...]) -> float:
        column = int(tree.feature[node])
        if column < 0:
            return 0.0
        tested = np.array(above, dtype=np.int64)[:, None]
        price = float(_checked(task, tested, np.array([column], dtype=np.int64))[0])
        answers, deeper = features[rows, column], (*above, column)
        absent = below(int(tree.absent[node]), rows[~answers], deeper)
        return len(rows) * price + absent + below(int(tree.present[node]), rows[answers], deeper)

    return below(0, np.arange(len(features), dtype=np.int64), ())

"""The protocol of an objective: a sum over leaves of a cost of sums over rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from sstorch._types import FloatArray, IntArray
from sstorch.exact.feature_costs import FeatureCosts
from sstorch.exact.tree import BinaryTree

LeafCost = Callable[[FloatArray, int], float]


def log(x: float) -> float:
    """The natural logarithm, x > 0: in a `leaf_cost` several times as fast as `math.log`."""
    return math.log(x)


class Task(Protocol):
    """A loss: a constant plus a sum over leaves of costs, functions of sums over the rows of the leaf.

    `check_task` tests whether a task satisfies this protocol. Optional members:

    * `decisions(leaf, n_leaves)`, (n_leaves, ...): the class, treatment, mean or curve of each leaf of a
      partition, from the leaf of each row (N,);
    * `event`, (N,) bool: for a minimum number of events per leaf;
    * `feature_costs`, a :class:`~sstorch.exact.FeatureCosts`: what rows of a branch node pay for its test, in
      the unit of `leaf_cost`;
    * `scale`: loss per unit of `leaf_cost` (1);
    * `floor_cost(sums, i)`: a lower bound on the cost of any tree on the rows, that of all rows being at
      least the sum of those of two parts (`leaf_cost`, for losses that no split increases);
    * `rounding`: bound on the error of losses in the search;
    * `costs_of_predictions(predicted)`, (N,): for :func:`~sstorch.exact.reference_costs`.

    Attributes:
        n_rows: N.
        constant: part of the loss of every tree apart from the costs of its leaves.
        leaf_cost: cost of leaf i from the sums (C, n) of n leaves, 0 for sums of 0: a static method of
            arithmetic on `sums[0, i]`, `sums[1, i]` and so on, which numba compiles.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def constant(self) -> float: ...  # noqa: D102
    @property
    def leaf_cost(self) -> LeafCost: ...  # noqa: D102

    def row_values(self) -> FloatArray:
        """Contributions of each row to the C sums of its leaf, (C, N)."""
        ...

    def loss(self, leaf: IntArray) -> float:
        """Total loss of a partition, (N,) leaf of each row, by definition, row by row."""
        ...


def scale_of(task: Task) -> float:
    """Loss per unit of `leaf_cost`."""
    return float(getattr(task, "scale", 1.0))


def loss_of(task: Task, tree: BinaryTree, leaf: IntArray) -> float:
    """Loss of a tree over columns, with what the rows pay for its tests, from the `leaf` of each row (N,)."""
    costs: FeatureCosts | None = getattr(task, "feature_costs", None)
    return task.loss(leaf) + (0.0 if costs is None else scale_of(task) * costs.paid(tree, leaf))

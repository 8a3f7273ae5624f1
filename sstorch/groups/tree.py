"""What functions of groups and figures need of a fitted survival tree, soft or exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.data.surv import OutcomeType
from sstorch.deploy.exports import Deployable

Recalibrate = Literal["intercept", "slope", "baseline"]
# Results about a tree's groups, which another tree does not have.
RESULTS = ("group_validation_", "stability_")


@dataclass(frozen=True)
class Partition:
    """Partition of rows by a tree.

    Attributes:
        leaf: number of the group of each row, 1 .. L, shape (n,).
        place: position of the leaf in the complete tree of this depth, 0 .. 2^depth - 1, shape (n,).
        depth: depth of the tree.
        branches: inner nodes, by heap number: root 1, children 2k and 2k + 1.
        columns: columns used by each node, by heap number, (p,) bool; none for an absent node.
    """

    leaf: IntArray
    place: IntArray
    depth: int
    branches: tuple[int, ...]
    columns: Callable[[int], BoolArray]

    def place_at(self, depth: int) -> IntArray:
        """Position in a deeper complete tree, (n,): the first leaf below the leaf of the row."""
        return self.place << (depth - self.depth)


# From rows that were read to the groups that a tree makes of them.
PartitionOf = Callable[[pd.DataFrame], Partition]


class SurvivalTree(Deployable, Protocol):
    """A fitted estimator whose leaves are groups of rows."""

    outcome_type_: OutcomeType
    time_varying_: bool

    @property
    def causes_(self) -> tuple[str, ...]:
        """Names of the causes; empty for one event."""

    @property
    def time_unit_(self) -> str | None:
        """Unit of the times; None if unknown."""

    def summary(self) -> str:
        """The tree, its groups and results about them, as text."""

    def falling_curves(self, X: object, times: FloatArray) -> FloatArray:
        """Predicted survival, (n, n_times)."""

    @property
    def _seed(self) -> int: ...  # of everything random

    @property
    def _can_divide(self) -> bool: ...  # whether the parameters allow more than one group

    @property
    def _chosen(self) -> Any: ...  # the estimator that holds the results, of a search that of its tree

    # Rows of positive weight with an outcome of the type of the training outcome.
    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData: ...

    # Survival of rows that were read, (n, n_times); of K causes their incidences, (n, K, n_times).
    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray: ...

    # Rule of each group with rows, by number; none of a tree with one group.
    def _group_rules(self, n_terms: int | None) -> dict[int, str]: ...

    def _partition(self, frame: pd.DataFrame) -> Partition: ...

    # Groups by trees with the parameters of the estimator, trained on each of some splits.
    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]: ...

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self: ...  # a copy

"""Interface of fitted trees, soft or exact, for functions of groups."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.base import SurvivalEstimator
from sstorch.data import SurvivalData
from sstorch.groups.recalibration import Recalibrate
from sstorch.groups.stability import Partition, Stability
from sstorch.groups.validation import GroupValidation

# From rows that were read to the groups that a tree makes of them.
PartitionOf = Callable[[pd.DataFrame], Partition]
# Results about a tree's groups, which another tree does not have.
RESULTS = ("group_validation_", "stability_")


@dataclass(frozen=True)
class CardFacts:
    """Facts for a model card of one kind of tree."""

    title: str  # "A soft survival tree"
    kind: str  # of tree, with its size
    rows: int  # that tables count
    events: str  # among them, as text
    groups: Sequence[str]  # a sentence on each group
    rules: str  # the tree as text
    more: Sequence[tuple[str, str]] = ()  # further facts, names and texts
    limits: Sequence[str] = ()  # further ones than those of all trees
    beyond: str = ""  # how curves go on after the last event, as the end of a sentence


class GroupedTree(SurvivalEstimator):
    """Base class of the trees whose leaves are groups of rows; not for use by itself."""

    # the last corrected result of :func:`~sstorch.validation.group_table`; of competing causes, before that,
    # the table of the training rows
    group_table_: pd.DataFrame
    # the last result of :func:`~sstorch.validation.validate_groups`; saved
    group_validation_: GroupValidation
    stability_: Stability  # the last result of :func:`~sstorch.validation.stability`; not saved

    @abstractmethod
    def apply(self, X: object) -> IntArray:
        """Group of each row, shape (n,)."""

    @abstractmethod
    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        """Leaf of each row that was read, (n,), without a warning."""

    @abstractmethod
    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        """Survival of rows that were read, (n, n_times); of K causes their incidences, (n, K, n_times)."""

    @property
    @abstractmethod
    def _unit_of_time(self) -> str | None:
        """Unit of the times; None if unknown."""

    @abstractmethod
    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        """Rule of each group with rows, by number; none of a tree with one group."""

    @property
    @abstractmethod
    def _can_divide(self) -> bool:
        """Whether the parameters allow more than one group."""

    @abstractmethod
    def _partition(self, frame: pd.DataFrame) -> Partition:
        """Groups that the tree makes of rows that were read."""

    @property
    @abstractmethod
    def _seed(self) -> int:
        """Seed of everything random."""

    @abstractmethod
    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]:
        """Groups by trees with the parameters of the estimator, trained on each of some splits."""

    @abstractmethod
    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self:
        """A copy, recalibrated on rows."""

    @abstractmethod
    def _card(self) -> CardFacts:
        """Facts of the fitted tree for the model card."""

    @property
    def _chosen(self) -> GroupedTree:
        """The estimator that holds the results, of a search that of the chosen tree."""
        return self

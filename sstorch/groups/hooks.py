"""What functions of groups need of the estimator of a fitted tree, soft or exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.data import OutcomeType, Schema, SurvivalData
from sstorch.groups.recalibration import Recalibrate
from sstorch.groups.stability import Partition

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


class GroupedTree(Protocol):
    """A survival estimator whose leaves are groups of rows."""

    event_times_: FloatArray
    outcome_type_: OutcomeType
    time_varying_: bool

    @property
    def causes_(self) -> tuple[str, ...]:
        """Names of the causes; empty for one event."""

    @property
    def time_unit_(self) -> str | None:
        """Unit of the times; None if unknown."""

    @property
    def _schema(self) -> Schema:
        """Columns of the training rows."""

    @property
    def _seed(self) -> int:
        """Seed of everything random."""

    @property
    def _can_divide(self) -> bool:
        """Whether the parameters allow more than one group."""

    @property
    def _chosen(self) -> Any:
        """The estimator that holds the results, of a search that of the chosen tree."""

    def apply(self, X: object) -> IntArray:
        """Group of each row, shape (n,)."""

    def falling_curves(self, X: object, times: FloatArray) -> FloatArray:
        """Predicted survival, (n, n_times)."""

    def _incidences(self, X: object, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Predicted incidences of the causes, (n, K, n_times)."""

    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData:
        """Rows of positive weight with an outcome of the type of the training outcome."""

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        """Group of each row that was read, (n,), without a warning."""

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        """Survival of rows that were read, (n, n_times); of K causes their incidences, (n, K, n_times)."""

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        """Rule of each group with rows, by number; none of a tree with one group."""

    def _partition(self, frame: pd.DataFrame) -> Partition:
        """Groups that the tree makes of rows that were read."""

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]:
        """Groups by trees with the parameters of the estimator, trained on each of some splits."""

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self:
        """A copy, recalibrated on rows."""

    def _card(self) -> CardFacts:
        """Facts of the fitted tree for the model card."""

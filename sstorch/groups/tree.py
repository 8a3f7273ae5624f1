"""What functions of groups and figures need of a fitted survival tree, soft or exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, Self

import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.data.surv import OutcomeType
from sstorch.deploy.exports import Deployable

Recalibrate = Literal["intercept", "slope", "baseline"]
# Results about a tree's groups, which another tree does not have.
RESULTS = ("group_validation_", "stability_")


class Partition(NamedTuple):
    """Groups that a tree makes of rows."""

    leaf: IntArray  # number of the group of each row, 1 .. L, (n,)
    columns: frozenset[str]  # those that its gates use


# From rows that were read to the groups that a tree makes of them.
PartitionOf = Callable[[pd.DataFrame], Partition]


class SurvivalTree(Deployable, Protocol):
    """A fitted estimator whose leaves are groups of rows."""

    outcome_type_: OutcomeType
    time_varying_: bool

    @property
    def causes_(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def time_unit_(self) -> str | None: ...  # noqa: D102

    def summary(self) -> str: ...  # noqa: D102

    def falling_curves(self, X: object, times: FloatArray) -> FloatArray: ...  # noqa: D102

    @property
    def _seed(self) -> int: ...

    @property
    def _can_divide(self) -> bool: ...  # whether the parameters allow more than one group

    @property
    def _chosen(self) -> Any: ...  # the estimator that holds the results, of a search that of its tree

    # Rows of positive weight with an outcome of the type of the training outcome.
    def _rows(self, X: object, y: object, sample_weight: object = None) -> SurvivalData: ...

    # Survival of rows that were read, (n, n_times); of K causes their incidences, (n, K, n_times).
    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray: ...

    def _group_rules(self, n_terms: int | None) -> dict[int, str]: ...  # by number, of groups with rows

    def _partition(self, frame: pd.DataFrame) -> Partition: ...

    # Groups by trees with the parameters of the estimator, trained on each of some splits.
    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]: ...

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self: ...  # a copy

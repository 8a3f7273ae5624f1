"""The protocol of an objective: a sum over leaves of a cost of sums over rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import numpy.typing as npt

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.exact.feature_costs import FeatureCosts

LeafCost = Callable[[FloatArray, int], float]


def log(x: float) -> float:
    """The natural logarithm, x > 0: in a `leaf_cost` several times as fast as `math.log`."""
    return math.log(x)


class Task(Protocol):
    """A loss: a constant plus a sum over leaves of costs, functions of sums over the rows of the leaf.

    `check_task` tests whether a task satisfies this protocol. Optional members: `scale`, loss per unit of
    `leaf_cost` (1); `floor_cost`, as `leaf_cost`, a lower bound on the cost of any tree on the rows, that of
    all rows being at least the sum of those of two parts (`leaf_cost`, for losses that no split increases);
    `rounding`, bound on the error of losses in the search; `costs_of_predictions`, for
    :func:`~sstorch.exact.reference_costs`; and those of `SurvivalTask`, `DecisionTask` and `PricedTask`.

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


class SurvivalTask(Task, Protocol):
    """A task with events, for a minimum number of events per leaf.

    Attributes:
        event: (N,) bool, True for an observed event.
    """

    @property
    def event(self) -> BoolArray: ...  # noqa: D102


class DecisionTask(Task, Protocol):
    """A task with a decision in each leaf: a class, a treatment, a mean, a curve."""

    def decisions(self, leaf: IntArray, n_leaves: int) -> npt.NDArray[Any]:
        """The decision of each leaf of a partition, (n_leaves, ...), from the leaf of each row (N,)."""
        ...


class PricedTask(Task, Protocol):
    """A task with costs of tests: each row of a branch node pays for its test.

    Attributes:
        feature_costs: prices in the unit of `leaf_cost`.
    """

    @property
    def feature_costs(self) -> FeatureCosts: ...  # noqa: D102


def has_events(task: Task) -> TypeGuard[SurvivalTask]:
    """Whether a task has events."""
    return hasattr(task, "event")


def has_decisions(task: Task) -> TypeGuard[DecisionTask]:
    """Whether the leaves of a task hold decisions."""
    return hasattr(task, "decisions")


def has_prices(task: Task) -> TypeGuard[PricedTask]:
    """Whether tests cost something."""
    return hasattr(task, "feature_costs")


def scale_of(task: Task) -> float:
    """Loss per unit of `leaf_cost`."""
    return float(getattr(task, "scale", 1.0))

"""The protocol of an objective: a sum over leaves of a cost of sums over rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray


class Entries(NamedTuple):
    """Contributions of rows to the sums of their leaf.

    Attributes:
        row: (n_entries,), row of the entry; a row can have several entries, or none.
        step: (n_entries,), step of the entry, 0 .. n_steps - 1.
        values: (C, n_entries), contribution in each of C channels.
    """

    row: IntArray
    step: IntArray
    values: FloatArray

    @classmethod
    def of_rows(cls, values: FloatArray) -> Entries:
        """One entry per row, (C, N) values, in the only step."""
        rows = np.arange(values.shape[1], dtype=np.int64)
        return cls(rows, np.zeros(len(rows), dtype=np.int64), values)


class Task(Protocol):
    """A loss: a constant plus a sum over leaves of costs, functions of sums over the rows of the leaf.

    The sums of a leaf are over its entries, in C channels and, for losses over time, in a sequence of steps.
    The engine computes sums for products of literals (moments), converts them by `accumulate` to the linear
    statistics of each step, obtains the cells of all sets of literals by inclusion and exclusion, and passes
    the steps to `cost` in order. All operations before `cost` are linear.

    Optional extensions: `SurvivalTask`, `DecisionTask` and `BranchCostTask`. `check_task` tests whether a
    task satisfies this protocol.

    Attributes:
        n_rows: N.
        n_steps: number of steps; 1 for a loss without a time axis.
        constant: part of the loss of every tree apart from the costs of its leaves.
    """

    @property
    def n_rows(self) -> int: ...  # noqa: D102
    @property
    def n_steps(self) -> int: ...  # noqa: D102
    @property
    def constant(self) -> float: ...  # noqa: D102

    def entries(self) -> Entries:
        """The entries of all rows."""
        ...

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """Convert the sums (C, ...) of each step to linear statistics (C', ...) of each step."""
        ...

    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Cost (...) of leaves from the statistics (C', ...) of each step, which can be overwritten.

        The cost of a leaf without rows is 0.
        """
        ...

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """Superadditive lower bound on the cost of any tree on these rows, from the arguments of `cost`.

        Superadditive: the floor of the union of two groups of rows is at least the sum of their floors.
        """
        ...

    def loss(self, leaf: IntArray) -> float:
        """Total loss of a partition, (N,) leaf of each row, by definition, row by row."""
        ...


@runtime_checkable
class SurvivalTask(Task, Protocol):
    """A task with events, for a minimum number of events per leaf.

    Attributes:
        event: (N,) bool, True for an observed event.
    """

    @property
    def event(self) -> BoolArray: ...  # noqa: D102


@runtime_checkable
class DecisionTask(Task, Protocol):
    """A task with a decision in each leaf: a class, a treatment, a mean, a curve."""

    def decisions(self, leaf: IntArray, n_leaves: int) -> npt.NDArray[Any]:
        """The decision of each leaf of a partition, (n_leaves, ...), from the leaf of each row (N,)."""
        ...


@runtime_checkable
class BranchCostTask(Task, Protocol):
    """A task with costs of tests: each row of a branch node pays for its test.

    The cost can depend on the columns tested above the node, but not on their order or results.
    """

    def branch_cost(self, above: IntArray, feature: IntArray) -> FloatArray:
        """Cost per row, (n,), >= 0, in the unit of the loss, for a test of the column `feature` (n,).

        The columns `above`, (k, n), are tested before, in any order.
        """
        ...


# `isinstance` would look at every member of a protocol, which takes longer than a small search.


def has_events(task: Task) -> TypeGuard[SurvivalTask]:
    """Whether a task has events."""
    return hasattr(task, "event")


def has_decisions(task: Task) -> TypeGuard[DecisionTask]:
    """Whether the leaves of a task hold decisions."""
    return hasattr(task, "decisions")


def has_branch_costs(task: Task) -> TypeGuard[BranchCostTask]:
    """Whether tests cost something."""
    return hasattr(task, "branch_cost")


class OneStepTask:
    """Base class of tasks without a time axis, the loss of which a split never raises."""

    n_steps = 1
    constant = 0.0

    def accumulate(self, sums: Iterator[Tensor]) -> Iterator[Tensor]:
        """The sums themselves."""
        return sums

    @abstractmethod
    def cost(self, cells: Iterator[Tensor]) -> Tensor:
        """Cost of leaves, as :class:`Task` has it."""

    def floor(self, cells: Iterator[Tensor]) -> Tensor:
        """The cost itself: a split never raises the loss."""
        return self.cost(cells)

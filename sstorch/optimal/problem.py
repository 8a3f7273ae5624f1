"""Rows, an objective and conditions on leaves: what is searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sstorch.optimal.branching import BranchCost
from sstorch.optimal.levels import INFINITY
from sstorch.optimal.moments import Moments
from sstorch.optimal.tasks import Task


class Problem:
    """Rows to grow trees on, a task, and the conditions that leaves have to meet.

    Args:
        task: the objective.
        moments: the task's entries.
        sizes: entries that count what leaves need, rows first, or None where there is no condition.
        least: how much of each a leaf needs.
        branch_cost: what a row pays for a test; None where tests are free. It needs `sizes`.
    """

    def __init__(
        self,
        task: Task,
        moments: Moments,
        sizes: Moments | None,
        *least: int,
        branch_cost: BranchCost | None = None,
    ) -> None:
        self.task, self.moments, self.sizes = task, moments, sizes
        self.least, self.branch_cost = least, branch_cost
        self.n_cells = 0

    def where(self, feature: int, present: bool) -> Problem:
        """The rows in which the literal of a feature is 1, or is 0."""
        moments = self.moments.where(self.moments.has(feature) == present)
        sizes = None if self.sizes is None else self.sizes.where(self.sizes.has(feature) == present)
        return Problem(self.task, moments, sizes, *self.least, branch_cost=self.branch_cost)

    def leaf(self) -> Tensor:
        """Cost of all rows as one leaf, a scalar tensor."""
        return self._total(lambda m: m.total(), lambda total: total)

    def singles(self) -> Tensor:
        """(2, F): costs of the rows without and with each literal."""

        def cells(pair: Tensor) -> Tensor:
            single, total = pair[:, :-1], pair[:, -1:]
            return torch.stack([total - single, single], dim=1)

        def sums(moments: Moments) -> Iterator[Tensor]:
            for single, total in zip(moments.singles(), moments.total(), strict=True):
                yield torch.cat([single, total[:, None]], dim=1)

        return self._total(sums, cells)

    def cost(self, cells: Iterator[Tensor], sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs of cells, infinite where a leaf has too few rows or whatever else it needs.

        Args:
            cells: what the task's `cost` takes.
            sizes: one tensor (C, ...), counts in the cells, or None without conditions.
        """
        return self.masked(self.task.cost(cells), sizes)

    def masked(self, cost: Tensor, sizes: Iterator[Tensor] | None) -> Tensor:
        """Costs, infinite where a leaf has too few rows or whatever else it needs; arguments as in `cost`."""
        if sizes is not None:
            for count, least in zip(next(sizes), self.least, strict=True):
                cost.masked_fill_(count < least, INFINITY)
        self.n_cells += cost.numel()
        return cost

    def _total(
        self, sums: Callable[[Moments], Iterator[Tensor]], cells: Callable[[Tensor], Tensor]
    ) -> Tensor:
        steps = sums(self.moments)
        if self.task.n_steps > 1:
            steps = self.task.accumulate(steps)
        sizes = None if self.sizes is None else (cells(step) for step in sums(self.sizes))
        return self.cost((cells(step) for step in steps), sizes)


class OutOfTimeError(Exception):
    """The time limit was reached; raised and caught inside the engine."""


def check_time(deadline: float) -> None:
    """Stop a search at a time of `time.perf_counter`.

    Raises:
        OutOfTimeError: the time is past.
    """
    if time.perf_counter() > deadline:
        raise OutOfTimeError

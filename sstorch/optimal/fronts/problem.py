"""Rows, a task with two totals and the least size of leaves: the candidate points of small trees."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sstorch.optimal.fronts.base import REACHED, UNREACHABLE, FrontTask
from sstorch.optimal.fronts.cells import pair_cells
from sstorch.optimal.moments import Moments
from sstorch.optimal.patterns import Patterns
from sstorch.optimal.states import Budget
from sstorch.optimal.tasks import Entries


class FrontProblem:
    """Rows to grow trees on, a task and the least rows of a leaf.

    Args:
        task: the objective.
        moments: the task's channels, and the number of rows as the last one.
        min_leaf: least number of rows of a leaf.
        pairs: sums (C, 1 + F, 1 + F) over the rows of two literals, as `Moments.pairs` gives them, where they
            are known already.
    """

    def __init__(self, task: FrontTask, moments: Moments, min_leaf: int, pairs: Tensor | None = None) -> None:
        self.task, self.moments, self.min_leaf = task, moments, min_leaf
        self._pairs = next(moments.pairs()) if pairs is None else pairs

    @classmethod
    def of(cls, task: FrontTask, patterns: Patterns, min_leaf: int, device: torch.device) -> FrontProblem:
        """All rows of a task."""
        channels = np.concatenate([task.channels(), np.ones((1, task.n_rows), dtype=np.int64)])
        rows = np.arange(task.n_rows, dtype=np.int64)
        entries = Entries(rows, np.zeros_like(rows), channels.astype(np.float64))
        return cls(task, Moments.of(patterns, entries, 1, device), min_leaf)

    @property
    def n_features(self) -> int:
        """F."""
        return self.moments.n_features

    def split(self, feature: int) -> tuple[FrontProblem, FrontProblem]:
        """The rows in which the literal of a feature is 0, and those in which it is 1."""
        has = self.moments.has(feature)
        present = FrontProblem(self.task, self.moments.where(has), self.min_leaf)
        # Literals are mostly 0: the products of the many rows are the difference of two known ones.
        absent = self._pairs - present._pairs
        return FrontProblem(self.task, self.moments.where(~has), self.min_leaf, absent), present

    @cached_property
    def leaf(self) -> Tensor:
        """(2, K): the points of all rows as one leaf."""
        return self._points(self._pairs[:, 0, 0])

    @cached_property
    def largest(self) -> int:
        """No tree of depth 3 has a larger absolute total, if no leaf exceeds those of more rows."""
        points = torch.cat([self.leaf, self._leaves.flatten(1), self._stumps.flatten(1)], dim=1)
        return 8 * int(points.abs().masked_fill_(points[0] >= REACHED, 0).max())

    def children(self, below: Budget) -> Tensor:
        """(2, 2, F, M): points of all trees within a budget among the rows of each literal.

        Args:
            below: (0, 0), a leaf, or (1, 1), a leaf or one test.
        """
        return self._stumps if below.nodes else self._leaves

    @cached_property
    def _leaves(self) -> Tensor:
        single, total = self._pairs[:, 1:, 0], self._pairs[:, :1, 0]
        points = self._points(torch.stack([total - single, single], dim=1))
        return points.movedim(1, -1)

    @cached_property
    def _stumps(self) -> Tensor:
        """The tests c among the rows of each literal (s, a), for the pairs of decisions that are of use."""
        points = self._points(pair_cells(self._pairs))  # (2, K, s_a, s_c, A, F)
        decisions = range(points.shape[1])
        pairs = [
            points[:, first, :, 0] + points[:, second, :, 1]
            for first in decisions
            for second in decisions
            if first != second or not self.task.linear
        ]
        return torch.cat([*pairs, self._leaves], dim=-1).clamp_max_(UNREACHABLE)

    def _points(self, sums: Tensor) -> Tensor:
        sums = sums.to(torch.int64)
        points = self.task.points(sums[:-1])
        return points.masked_fill_(sums[-1] < self.min_leaf, UNREACHABLE)

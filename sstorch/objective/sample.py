"""Training rows as the problems of a batch see them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sstorch.nn import DesignMatrix


@dataclass(frozen=True)
class Sample:
    """Features and right-censored times of every problem's own rows.

    Attributes:
        x: features, R problems with M rows each.
        log_time: log of time in model units, shape (R, M).
        event: 1 where the event was observed, else 0, shape (R, M), floating.
        weight: row weights >= 0, shape (R, M); 0 marks padding, which repeats a row of the problem.
        log_entry: log of the time from which a row was observed (left truncation), in model units, shape
            (R, M), -inf for time zero; None if all rows were observed from time zero.
        total_weight: of the rows of each problem in all shards, shape (R, 1), where these rows are one of
            several; None if they are all.
        group: sensitive group of each row, 0 .. n_groups - 1, shape (R, M), integer; None if not needed.
        n_groups: number of groups.
        merged_weight: weights that count rows of a group with the same features, and so the same curve, once:
            the first carries the weight of them all, the others none, shape (R, M); None to count each.
    """

    x: DesignMatrix
    log_time: Tensor
    event: Tensor
    weight: Tensor
    log_entry: Tensor | None = None
    total_weight: Tensor | None = None
    group: Tensor | None = None
    n_groups: int = 0
    merged_weight: Tensor | None = None

    @property
    def n_problems(self) -> int:
        """Number of problems R."""
        return self.weight.shape[0]

    @property
    def n_rows(self) -> Tensor:
        """Rows of each problem that carry weight, shape (R,), integer."""
        return (self.weight > 0).sum(-1)

    @property
    def normalised_weight(self) -> Tensor:
        """Weights that sum to one over the rows of each problem (zero for a problem without rows)."""
        total = self.weight.sum(-1, keepdim=True) if self.total_weight is None else self.total_weight
        return self.weight / torch.where(total > 0, total, torch.ones_like(total))

    def select(self, problems: Tensor | slice) -> Sample:
        """The same rows for the problems at ascending positions (K,), or in a slice."""
        return Sample(
            self.x.select(problems),
            self.log_time[problems],
            self.event[problems],
            self.weight[problems],
            None if self.log_entry is None else self.log_entry[problems],
            None if self.total_weight is None else self.total_weight[problems],
            None if self.group is None else self.group[problems],
            self.n_groups,
            None if self.merged_weight is None else self.merged_weight[problems],
        )

    def restrict(self, keep: Tensor) -> Sample:
        """Rows with ``keep`` (R, M) true, gathered so that the others leave the computation.

        Problems keep different numbers of rows; the shorter ones are padded with their first row at
        weight zero.
        """
        keep = keep & (self.weight > 0)
        count = keep.sum(-1)
        width = max(int(count.max()), 1)
        if width == keep.shape[-1]:
            merged = None if self.merged_weight is None else self.merged_weight * keep
            return replace(self, weight=self.weight * keep, total_weight=None, merged_weight=merged)
        rows = torch.sort((~keep).to(torch.uint8), dim=-1, stable=True).indices[:, :width]
        real = torch.arange(width, device=rows.device) < count[:, None]
        rows = torch.where(real, rows, rows[:, :1])
        part = self.take(rows)
        merged = None if part.merged_weight is None else part.merged_weight * real
        return replace(part, weight=part.weight * real, merged_weight=merged)

    def thin(self, stride: int) -> Sample:
        """Every stride-th of all rows of the design matrix; those that a problem has not kept at weight zero.

        Their log times and events are zero.
        """
        x, spread = self.x.thin(stride), self.x.spread
        real = self.weight > 0
        # Padding repeats a row that has already been counted.
        log_time, event = (spread(torch.where(real, v, 0.0), stride) for v in (self.log_time, self.event))
        weight = spread(self.weight, stride)
        return Sample(x, log_time, event, weight)

    def columns(self, rows: slice) -> Sample:
        """Consecutive rows, the same for all problems, as views; their design matrix holds no others.

        Raises:
            ValueError: problems have rows of their own.
        """
        if self.x.rows is not None:
            raise ValueError("columns of a sample whose problems have rows of their own")
        return Sample(
            DesignMatrix(self.x.matrices[:, rows], self.x.counts),
            self.log_time[:, rows],
            self.event[:, rows],
            self.weight[:, rows],
            None if self.log_entry is None else self.log_entry[:, rows],
        )

    def take(self, rows: Tensor) -> Sample:
        """The rows at positions ``rows`` (R, M') of each problem, with their weights."""
        return Sample(
            self.x.restrict(rows),
            self.log_time.gather(-1, rows),
            self.event.gather(-1, rows),
            self.weight.gather(-1, rows),
            None if self.log_entry is None else self.log_entry.gather(-1, rows),
            None,
            None if self.group is None else self.group.gather(-1, rows),
            self.n_groups,
            None if self.merged_weight is None else self.merged_weight.gather(-1, rows),
        )

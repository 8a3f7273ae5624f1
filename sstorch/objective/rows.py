"""Rows of a batch: samples, and blocks of problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.memory import at_once
from sstorch.nn import DesignMatrix
from sstorch.nn.hazards.base import LogTimes

# Elements of the largest intermediate, (problems, leaves, rows). On the CPU blocks that fit the second level
# cache take a fifth off the time of a run, smaller ones add more calls than they save; other devices want to
# be filled, within their memory.
CPU_ELEMENTS = 2**17
OTHER_ELEMENTS = 2**25
# Fields of a sample that have a value for each row.
_OF_ROWS = ("log_time", "event", "weight", "log_entry", "group", "merged_weight", "log_lower", "log_upper")


def problem_blocks(n_problems: int, n_elements: int, device: torch.device) -> list[slice]:
    """Slices of K problems, at least one each, within a budget of ``n_elements`` a problem; one if K is 0."""
    size = at_once(n_elements, CPU_ELEMENTS if device.type == "cpu" else OTHER_ELEMENTS)
    return [slice(first, min(first + size, n_problems)) for first in range(0, max(1, n_problems), size)]


@dataclass(frozen=True)
class Sample(Batched):
    """Features and times of the rows of each of R problems, M rows each; log times are in model units.

    Attributes:
        x: features.
        log_time: shape (R, M); of the middle of an interval.
        event: 1 if the event was observed, be it within an interval, else 0, shape (R, M), floating.
        weight: row weights >= 0, shape (R, M); 0 marks padding, which repeats a row of the problem.
        log_entry: time from which a row was observed (left truncation), shape (R, M), -inf for time zero;
            None if all rows were observed from time zero.
        group: sensitive group of each row, 0 .. n_groups - 1, shape (R, M), integer; None if not needed.
        n_groups: number of groups.
        merged_weight: weights that count rows of a group with the same features, and so the same curve, once:
            the first carries the weight of them all, the others none, shape (R, M); None to count each.
        log_lower: lower bounds of intervals, -inf for time zero, shape (R, M); None if there are none.
        log_upper: upper bounds, shape (R, M); +inf if the time is exact or right-censored.
        rows_per_subject: weight of the rows over that of the subjects whose they are, shape (R, 1): the
            objective is a mean over subjects. None if rows are subjects.
    """

    x: DesignMatrix
    log_time: Tensor
    event: Tensor
    weight: Tensor
    log_entry: Tensor | None = None
    group: Tensor | None = None
    n_groups: int = field(default=0, metadata=SHARED)
    merged_weight: Tensor | None = None
    log_lower: Tensor | None = None
    log_upper: Tensor | None = None
    rows_per_subject: Tensor | None = None

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
        total = self.weight.sum(-1, keepdim=True)
        return self.weight / torch.where(total > 0, total, torch.ones_like(total))

    @property
    def loss_weight(self) -> Tensor:
        """Weights of the losses in the objective, a mean over subjects, who may have several rows."""
        weight = self.normalised_weight
        return weight if self.rows_per_subject is None else weight * self.rows_per_subject

    @property
    def log_times(self) -> LogTimes:
        """Outcome of the rows, shapes (R, 1, M)."""
        times = LogTimes(self.log_time, self.event, self.log_entry, self.log_lower, self.log_upper)
        return times.unsqueeze(-2)

    def restrict(self, keep: Tensor) -> Sample:
        """Rows with ``keep`` (R, M) true, gathered; shorter problems repeat their first, at weight zero."""
        keep = keep & (self.weight > 0)
        count = keep.sum(-1)
        width = max(int(count.max()), 1)
        part, real = self, keep
        if width < keep.shape[-1]:
            rows = torch.sort((~keep).to(torch.uint8), dim=-1, stable=True).indices[:, :width]
            real = torch.arange(width, device=rows.device) < count[:, None]
            at = torch.where(real, rows, rows[:, :1])
            part = self._of_rows(self.x.restrict(at), lambda values: values.gather(-1, at))
        merged = None if part.merged_weight is None else part.merged_weight * real
        return replace(part, weight=part.weight * real, merged_weight=merged)

    def thin(self, stride: int) -> Sample:
        """One in stride of all rows of the design matrix; those that a problem has not kept are zero."""
        x, spread = self.x.thin(stride), self.x.spread
        real = self.weight > 0
        # Padding repeats a row that has already been counted.
        log_time, event = (spread(torch.where(real, v, 0.0), stride) for v in (self.log_time, self.event))
        weight = spread(self.weight, stride)
        return Sample(x, log_time, event, weight)

    def columns(self, rows: slice) -> Sample:
        """Views of the same rows of all problems; features stay those of all rows."""
        return self._of_rows(self.x, lambda values: values[:, rows])

    def _of_rows(self, x: DesignMatrix, some: Callable[[Tensor], Tensor]) -> Sample:
        """Some of the rows: their features, and what a function picks of the values (R, M) of all."""
        every = {name: getattr(self, name) for name in _OF_ROWS}
        own: dict[str, Any] = {name: None if each is None else some(each) for name, each in every.items()}
        return replace(self, x=x, **own)


def counted_weight(sample: Sample) -> Tensor:
    """Weight of rows in the loss, (R, M), with the effective sample size (sum w)^2 / sum w^2 as their sum."""
    weight = sample.weight.double()
    return weight * (weight.sum(-1, keepdim=True) / weight.square().sum(-1, keepdim=True))

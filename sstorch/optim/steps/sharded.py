"""A training step over all rows: the same parameters, its sums over rows formed shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.objective import Sample, Shards
from sstorch.objective.closed_form import with_gradient
from sstorch.objective.rows import problem_blocks
from sstorch.optim.lbfgs import BlockMetric, LBFGSOptions, OptimizationResult, minimize
from sstorch.optim.steps.base import Step, add_to_diagonal, by_autograd


@dataclass(frozen=True)
class ShardedStep(Batched):
    """The sum of steps over shards; a function of the parameters of some nodes for K problems.

    Attributes:
        steps: one for each shard of this process, of the same parameters.
        rows: the shards, which add up.
    """

    steps: tuple[Step, ...]
    rows: Shards = field(metadata=SHARED)

    @classmethod
    def make(cls, rows: Shards, make: Callable[[Sample], Step]) -> ShardedStep:
        """The step that ``make`` makes of the rows of a shard."""
        return cls(tuple(make(part) for part in rows.parts), rows)

    @classmethod
    def whole(cls, step: Step) -> ShardedStep:
        """A step over all rows at once."""
        return cls((step,), Shards.of(step.sample))

    @property
    def first(self) -> Step:
        """The step over the first shard of this process: tree and parameters are those of all."""
        return self.steps[0]

    def value(self) -> Tensor:
        """Objective (K,) at the present parameters, differentiable in these."""
        return self.value_at(self.first.flat())

    def value_at(self, x: Tensor) -> Tensor:
        """Objective (K,) at parameters ``x`` (K, d), differentiable once."""
        return with_gradient(x, *self._data_and_gradient(x.detach())) + self.first.penalty(x)

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at ``x`` (K, d); the tree stays as it is."""
        data, of_data = self._data_and_gradient(x)
        penalty, of_penalty = by_autograd(self.first.penalty, x)
        return data + penalty, of_data + of_penalty

    def metric(self, x: Tensor) -> BlockMetric:
        """Inverse curvature near ``x`` (K, d), in blocks: one a node."""
        curvatures = zip(*(step.curvature(x) for step in self.steps), strict=True)
        penalties = self.first.penalty_curvature(x)
        return BlockMetric.invert(
            *(
                add_to_diagonal(self.rows.total(parts), penalty)
                for parts, penalty in zip(curvatures, penalties, strict=True)
            )
        )

    def read(self) -> Tensor:
        """The thawed parameters (K, d)."""
        return self.first.read()

    def write(self, x: Tensor) -> None:
        """Set the thawed parameters to ``x`` (K, d)."""
        self.first.write(x)

    def _data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = [_evaluate(blocks, x) for blocks in self._blocks]
        if self.rows.is_whole:
            value, gradient = parts[0]
        else:
            joined = self.rows.total(
                [torch.cat([value[:, None], gradient], dim=1) for value, gradient in parts]
            )
            value, gradient = joined[:, 0], joined[:, 1:]
        return value, gradient

    @cached_property
    def _blocks(self) -> list[list[tuple[slice, Step]]]:
        """Each shard's step cut into blocks of problems that are evaluated together."""
        blocks = []
        for step in self.steps:
            weight = step.sample.weight
            cuts = problem_blocks(len(weight), step.n_elements, weight.device)
            blocks.append([(cut, step.select(cut) if len(cuts) > 1 else step) for cut in cuts])
        return blocks


def _evaluate(blocks: Sequence[tuple[slice, Step]], x: Tensor) -> tuple[Tensor, Tensor]:
    """The part of a shard in the objective (K,), and its gradient (K, d), block by block."""
    if len(blocks) == 1:
        return blocks[0][1].data_and_gradient(x)
    values, gradients = zip(*(block.data_and_gradient(x[some]) for some, block in blocks), strict=True)
    return torch.cat(values), torch.cat(gradients)


def minimize_step(step: ShardedStep, start: Tensor, options: LBFGSOptions) -> OptimizationResult:
    """Minimise a step from ``start`` (K, d), directions scaled by its curvature there."""
    return minimize(step, start, options, step.metric(start))

"""Training steps: an objective is minimised over the parameters of some nodes, all others frozen.

A :class:`Step` is parameters and their value and gradient. :mod:`~sstorch.optim.working_sets` makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from sstorch.batched import SHARED, Batched
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.rows import problem_blocks
from sstorch.optim.batched_lbfgs import BlockMetric, LBFGSOptions, OptimizationResult, Status, minimize

# Rows that a curvature is estimated from.
MAX_ROWS = 1024


@dataclass(frozen=True)
class StepObjective(Batched, ABC):
    """K functions of the parameters (K, d) of some nodes: a part from rows, and penalties.

    Attributes:
        tree: the K problems where the step began, for their structure.
        sample: rows of the K problems.
    """

    tree: SoftTree = field(metadata=SHARED)
    sample: Sample

    @abstractmethod
    def data(self, x: Tensor) -> Tensor:
        """The rows' part at parameters ``x`` (K, d), shape (K,), by plain operations, differentiable."""

    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`data` and its gradient (K, d), without a graph; in closed form where there is one."""
        return by_autograd(self.data, x)

    @abstractmethod
    def penalty(self, x: Tensor) -> Tensor:
        """The penalties, shape (K,), differentiable."""

    @abstractmethod
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """Second derivatives near ``x`` (K, d) with penalties, or bounds: blocks (K, n, b, b), one a node.

        There are as many tensors as sizes of blocks, in the order of the parameters.
        """

    @cached_property
    def _blocks(self) -> list[tuple[slice, Self]]:
        """The function cut into blocks of problems that are evaluated together, which bounds the memory."""
        weight = self.sample.weight
        n_elements = len(self.tree.topology.leaves) * weight.shape[-1]
        cuts = problem_blocks(len(weight), n_elements, weight.device)
        return [(cut, self.select(cut)) for cut in cuts] if len(cuts) > 1 else []

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at ``x`` (K, d); the tree stays as it is."""
        if self._blocks:
            parts = [block.data_and_gradient(x[some]) for some, block in self._blocks]
            value, gradient = (torch.cat(each) for each in zip(*parts, strict=True))
        else:
            value, gradient = self.data_and_gradient(x)
        penalty, of_penalty = by_autograd(self.penalty, x)
        return value + penalty, gradient + of_penalty

    def metric(self, x: Tensor) -> BlockMetric:
        """Inverse curvature near ``x`` (K, d), in blocks: one a node."""
        return BlockMetric.invert(*self.curvature(x))

    def _stride(self) -> int:
        """Number n such that every n-th row is enough for a curvature."""
        return -(-len(self.sample.x) // MAX_ROWS)


# Minimises a step from parameters (K, d) of K problems; a problem's result does not depend on the others.
Minimizer = Callable[[StepObjective, Tensor], OptimizationResult]


def lbfgs(step: StepObjective, start: Tensor, options: LBFGSOptions | None = None) -> OptimizationResult:
    """Minimise a step by batched L-BFGS from ``start`` (K, d), directions scaled by its curvature there."""
    return minimize(step, start, options, step.metric(start))


@dataclass(frozen=True)
class Batch(Batched):
    """K problems and the rows that a step trains them on.

    Attributes:
        tree: the problems.
        penalties: E, which has the penalties.
        rows: rows of the step.
        everything: all rows, for penalties on rows; None if they do not act.
        problems: ascending positions in the batch of a run, (K,); None outside of runs.
        left_share: share of the weight of the rows that is routed left before the step, (K,), for records.
    """

    tree: SoftTree
    penalties: TrainingObjective
    rows: Sample
    everything: Sample | None = None
    problems: Tensor | None = None
    left_share: Tensor | None = None


@dataclass(frozen=True)
class Step:
    """A training step: the thawed parameters of some nodes, and their value and gradient.

    Attributes:
        name: of the step in the records, such as ``"BN"``.
        node: its node in the records.
        batch: K problems.
        parameters: the thawed parameters, each of shape (K, ...).
        objective: function of the parameters, one row per problem, (K, d).
        leaves: the thawed leaves.
        minimizer: how the objective is minimised, or the options of :func:`lbfgs`.
    """

    name: str
    node: int
    batch: Batch
    parameters: tuple[nn.Parameter, ...]
    objective: StepObjective
    leaves: tuple[int, ...] = ()
    minimizer: Minimizer | LBFGSOptions = lbfgs

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at parameters ``x`` (K, d); the tree stays as it is."""
        return self.objective.value_and_gradient(x)

    @torch.no_grad()
    def read(self) -> Tensor:
        """Present parameters, one row per problem, shape (K, d)."""
        return torch.cat([p.reshape(len(p), p.shape[1:].numel()) for p in self.parameters], 1)

    @torch.no_grad()
    def write(self, x: Tensor) -> None:
        """Set the parameters from rows (K, d)."""
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, values in zip(self.parameters, x.split(sizes, dim=1), strict=True):
            parameter.copy_(values.reshape(parameter.shape))

    def minimize(self) -> tuple[OptimizationResult, Tensor]:
        """Freeze all other parameters, minimise from the present ones, and set them to the end.

        Where the objective is not finite at the start, thawed leaves restart from the family's start.

        Returns:
            The result, and where leaves were restarted, boolean (K,).
        """
        tree, rows = self.batch.tree, self.batch.rows
        tree.requires_grad_(False)
        for parameter in self.parameters:
            parameter.requires_grad_(True)

        def minimizer(objective: StepObjective, x: Tensor) -> OptimizationResult:
            if not isinstance(how := self.minimizer, LBFGSOptions):
                return how(objective, x)
            return minimize(objective, x, how, objective.metric(x))

        result = minimizer(self.objective, self.read())
        restarted = (result.status == Status.NON_FINITE) & bool(self.leaves)
        failed = restarted.nonzero().squeeze(-1)
        if len(failed):
            fresh, some = tree.select(failed), rows.select(failed)
            start = fresh.family.start(some.log_time, some.event, some.weight, some.log_entry)
            for leaf in self.leaves:
                fresh.leaf(leaf).reset(*start)
            tree.assign(failed, fresh)
            again = minimizer(self.objective.select(failed), self.read()[failed])
            # A restart that ends no lower must not move the leaf.
            worked = again.value < torch.nan_to_num(result.value[failed], nan=torch.inf)
            count, steps, before = result.n_evaluations, result.n_iterations, result.start_value
            count = count.index_add(0, failed, again.n_evaluations)
            result = result.replaced(failed[worked], again.select(worked))
            result = replace(result, n_evaluations=count, n_iterations=steps, start_value=before)
        self.write(result.x)
        return result, restarted


def by_autograd(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Value (K,) of a function at ``x`` (K, d), and its gradient (K, d), without a graph."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = function(x)
        if not value.requires_grad:
            return value, torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient

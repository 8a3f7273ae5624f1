"""Training steps: an objective is minimised over the parameters of some nodes, all others frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from sstorch.batched import SHARED, Batched
from sstorch.checks import check_integer
from sstorch.nn import SoftTree
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.rows import problem_blocks
from sstorch.optim.batched_lbfgs import BlockMetric, LBFGSOptions, OptimizationResult, Status, minimize

# Rows that a curvature is estimated from.
MAX_ROWS = 1024


@dataclass(frozen=True)
class StepObjective(Batched, ABC):
    """K functions of the parameters (K, d) of some nodes: a part from rows, and penalties."""

    tree: SoftTree = field(metadata=SHARED)  # where the step began, for its structure
    sample: Sample  # rows of the K problems

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
        """Second derivatives near ``x`` (K, d) with penalties, or bounds: blocks (K, n, b, b), one a node."""

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

    def stride(self) -> int:
        """Number n such that every n-th row is enough for a curvature."""
        return -(-len(self.sample.x) // MAX_ROWS)


# Minimises a step from parameters (K, d) of K problems; a problem's result does not depend on the others.
Minimizer = Callable[[StepObjective, Tensor], OptimizationResult]


def lbfgs(step: StepObjective, start: Tensor, options: LBFGSOptions | None = None) -> OptimizationResult:
    """Minimise a step by batched L-BFGS from ``start`` (K, d), directions scaled by its curvature there."""
    return minimize(step, start, options, BlockMetric.invert(*step.curvature(start)))


@dataclass(frozen=True)
class Batch(Batched):
    """K problems and the rows that a step trains them on."""

    tree: SoftTree
    penalties: TrainingObjective  # E, which has the penalties
    rows: Sample  # of the step
    everything: Sample | None = None  # all rows, for penalties on rows; None if they do not act
    problems: Tensor | None = None  # ascending positions in the batch of a run, (K,); None outside of runs


@dataclass(frozen=True)
class Step:
    """A training step: the thawed parameters of some nodes of K problems, and their objective."""

    name: str  # in the records, such as "BN"
    node: int  # in the records
    batch: Batch
    parameters: tuple[nn.Parameter, ...]  # thawed, each of shape (K, ...)
    objective: StepObjective  # function of the parameters, one row per problem, (K, d)
    leaves: tuple[int, ...] = ()  # thawed
    minimizer: Minimizer | LBFGSOptions = lbfgs  # or the options of :func:`lbfgs`

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

        Where the objective is not finite at the start, thawed leaves restart from the family's start: the
        second value, boolean (K,).
        """
        tree, rows, minimizer = self.batch.tree, self.batch.rows, self.minimizer
        if isinstance(minimizer, LBFGSOptions):
            minimizer = partial(lbfgs, options=minimizer)
        tree.requires_grad_(False)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
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
            count, before = result.n_evaluations, result.start_value
            count = count.index_add(0, failed, again.n_evaluations)
            result = result.replaced(failed[worked], again.select(worked))
            result = replace(result, n_evaluations=count, start_value=before)
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


_SMALL = LBFGSOptions().gradient_tolerance


@dataclass(frozen=True)
class torch_minimizer:  # noqa: N801  # a function, and a dataclass, which checkpoints can compare
    """Minimiser for :meth:`TrainingRun.step` by any optimiser of torch.

    The result of a problem is the best point that was evaluated, and does not depend on the other problems:
    optimisers treat parameters one by one, except ``torch.optim.LBFGS``, of which every problem has its own.

    Args:
        make: returns an optimiser for a list of parameters, one of shape (d,) per problem, such as
            ``lambda parameters: torch.optim.Adam(parameters, 0.1)``.
        steps: calls of ``optimizer.step``, at least 1. Each evaluates the step once, or as often as the
            optimiser calls its closure.

    Raises:
        ConfigError: ``steps`` is not an integer, at least 1.

    >>> torch_minimizer(lambda parameters: torch.optim.Adam(parameters, lr=0.1), steps=40).steps
    40
    """

    make: Callable[[list[Tensor]], torch.optim.Optimizer]
    steps: int = 100

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, least=1)

    def __call__(self, step: StepObjective, start: Tensor) -> OptimizationResult:
        """Minimise a step from parameters (K, d)."""
        parameters = [row.clone().requires_grad_() for row in start]
        optimizer = self.make(parameters)
        if isinstance(optimizer, torch.optim.LBFGS) and len(start) > 1:  # one direction for all parameters
            each = [slice(number, number + 1) for number in range(len(start))]
            parts = [astuple(self(step.select(own), start[own])) for own in each]
            return OptimizationResult(*map(torch.cat, zip(*parts, strict=True)))
        best, n_evaluations = start.clone(), 0
        lowest = start.new_full(start.shape[:1], torch.inf)
        norm = torch.full_like(lowest, torch.nan)
        value = before = lowest

        def closure() -> Any:
            nonlocal before, best, lowest, norm, value, n_evaluations
            x = torch.stack([parameter.detach() for parameter in parameters])
            value, gradient = step.value_and_gradient(x)
            for parameter, own in zip(parameters, gradient, strict=True):
                parameter.grad = own.clone()
            better = (value < lowest) & gradient.isfinite().all(-1)
            best = torch.where(better[:, None], x, best)
            lowest = torch.where(better, value, lowest)
            norm = torch.where(better, gradient.abs().amax(-1), norm)
            before = before if n_evaluations else value
            n_evaluations += 1
            return value.sum()

        for _ in range(self.steps):
            optimizer.step(closure)
        closure()
        status = torch.where(norm <= _SMALL, int(Status.CONVERGED), int(Status.MAX_ITER))
        status = status.masked_fill(~(value.isfinite() & lowest.isfinite()), int(Status.NON_FINITE))
        count = torch.full_like(status, n_evaluations)
        return OptimizationResult(best, lowest, norm, status, count, before)


def never_worse(minimizer: Minimizer) -> Minimizer:
    """The minimiser, whose ends are replaced by the start where the objective is higher or not finite."""

    def minimize(step: StepObjective, start: Tensor) -> OptimizationResult:
        result = minimizer(step, start)
        before, after = step.value_and_gradient(start), step.value_and_gradient(result.x)
        lower = after[0] <= torch.nan_to_num(before[0], nan=torch.inf)
        kept = lower & after[0].isfinite() & after[1].isfinite().all(-1)
        value = torch.where(kept, after[0], before[0])
        norm = torch.where(kept, after[1].abs().amax(-1), before[1].abs().amax(-1))
        finite = value.isfinite() & norm.isfinite()
        status = result.status.masked_fill(~kept, int(Status.STALLED))
        status = status.masked_fill(~finite, int(Status.NON_FINITE))
        x = torch.where(kept[:, None], result.x, start)
        return replace(result, x=x, value=value, gradient_norm=norm, status=status, start_value=before[0])

    return minimize

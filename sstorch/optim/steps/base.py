"""Training steps: batched functions of the parameters of the thawed nodes.

Second derivatives between nodes are excluded, and where a row's own second derivative is negative its size is
taken: the blocks scale the first direction of a minimisation, they do not decide where it ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from sstorch.batched import SHARED, Batched
from sstorch.nn import DesignMatrix, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import with_gradients
from sstorch.nn.losses import LogTimes, derivatives_by_autograd
from sstorch.objective import Sample
from sstorch.objective.closed_form import routing_slopes
from sstorch.objective.rows import problem_blocks
from sstorch.optim.batched_lbfgs import BlockMetric, LBFGSOptions, OptimizationResult, minimize

# Rows that a block is estimated from, and the largest block that is worth its cost: beyond, only diagonals.
MAX_ROWS = 1024
MAX_BLOCK = 64
# A leaf whose hazard overflows at a row gives an infinite loss there, which would make every gate step
# non-finite. At the ceiling the gates still send the row away from that leaf.
LOSS_CEILING = 1e10


def stride_of(x: DesignMatrix) -> int:
    """Number n such that every n-th row is enough for a curvature."""
    return -(-len(x) // MAX_ROWS)


def gate_curvature(x: DesignMatrix, logits: Tensor, losses: Tensor) -> Tensor:
    """Curvature of gates by ``logits`` (K, B, M) and weighted ``losses`` (K, B + 1, M)."""
    return curvature_blocks(x, (routing_slopes(logits, losses) * (1 - 2 * torch.sigmoid(logits))).abs_())


def leaf_curvature(
    family: HazardFamily, leaves: LeafParameters, sample: Sample, probability: Tensor
) -> Tensor:
    """Curvature (K, L, d, d) of the expected loss in leaves, weighted ``probability`` (K, L, M)."""
    count = 1 + leaves.shape.shape[-1]
    parts = []
    for some in problem_blocks(len(probability), count * probability[0].numel(), probability.device):
        hazard, parameters = family.select(some), leaves.select(some)
        rows, reach = sample.select(some), probability[some]
        linear, shape = parameters.linear_predictor(rows.x), parameters.shape_parameters(rows.x)
        times = LogTimes(rows.log_time[:, None], rows.event[:, None])
        if hazard.has_second_derivatives:
            pairs = hazard.second_derivatives(*times[:2], linear, shape, hazard.basis(rows.log_time))
        else:
            pairs = derivatives_by_autograd(hazard, times, linear, shape, reach)[2]
        weighted = {
            pair: torch.nan_to_num(torch.where(reach > 0, reach * second, 0.0), 0.0, 0.0, 0.0)
            for pair, second in pairs.items()
        }
        parts.append(
            _leaf_blocks(leaves.features(rows.x), weighted, count - 1, n_slopes=leaves.shape_slope.shape[-2])
        )
    return torch.cat(parts)


def curvature_blocks(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Moments of features and a one by weights (K, n, M): blocks (K, n, p + 1, p + 1), or their diagonals."""
    if x.shape[-1] + 1 <= MAX_BLOCK:
        return x.gram(weight)
    return _diagonal(_squares(x, weight))


def add_to_diagonal(curvature: Tensor, values: Tensor) -> Tensor:
    """Blocks with values (K, n, b) added to their diagonals."""
    if curvature.shape[-1] == 1:
        return curvature + _diagonal(values)
    return curvature + torch.diag_embed(values)


def freeze_except(tree: SoftTree, thawed: Sequence[nn.Parameter]) -> None:
    """Leave ``requires_grad`` on for ``thawed`` only."""
    tree.requires_grad_(False)
    for parameter in thawed:
        parameter.requires_grad_(True)


@dataclass(frozen=True)
class Step(Batched, ABC):
    """A function (K,) of the parameters (K, d) of some nodes, for K of the R problems of a tree.

    It is a part from rows, and penalties.

    Attributes:
        tree: R problems; only ``parameters`` require gradients.
        parameters: the thawed parameters, each of shape (R, ...).
        problems: ascending positions (K,) this step represents; all if None.
        sample: rows of the K problems.
    """

    tree: SoftTree = field(metadata=SHARED)
    parameters: tuple[nn.Parameter, ...] = field(metadata=SHARED)
    problems: Tensor | None = field(metadata=SHARED)
    sample: Sample

    @abstractmethod
    def penalty(self, x: Tensor) -> Tensor:
        """The penalties in the objective, shape (K,), differentiable."""

    @abstractmethod
    def plain_data(self, x: Tensor) -> Tensor:
        """The rows' part of the objective at parameters ``x`` (K, d), shape (K,), by plain autograd."""

    @abstractmethod
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same with its gradient (K, d) in closed form, without a graph; None if there is none."""

    @abstractmethod
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """Second derivatives near ``x`` (K, d) of the rows' part, blocks (K, n, b, b): one a node.

        There are as many tensors as sizes of blocks, in the order of the parameters.
        """

    @abstractmethod
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """Second derivatives of the penalties, or bounds >= 0, (K, n, b) for each of these tensors."""

    def select(self, problems: Tensor | slice) -> Self:
        """The step for the problems at ascending positions (K',) of the present K, or in a slice."""
        return replace(super().select(problems), problems=self._positions(problems))

    @property
    def n_elements(self) -> int:
        """Elements of the largest intermediate of an evaluation, for one problem."""
        return len(self.tree.topology.leaves) * self.sample.weight.shape[-1]

    @cached_property
    def _blocks(self) -> list[tuple[slice, Self]]:
        """The step cut into blocks of problems that are evaluated together, which bounds the memory."""
        weight = self.sample.weight
        cuts = problem_blocks(len(weight), self.n_elements, weight.device)
        return [(cut, self.select(cut)) for cut in cuts] if len(cuts) > 1 else []

    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The rows' part of the objective (K,), and its gradient (K, d), block by block."""
        if not self._blocks:
            return self.written_data(x) or by_autograd(self.plain_data, x)
        parts = [block.data_and_gradient(x[some]) for some, block in self._blocks]
        values, gradients = zip(*parts, strict=True)
        return torch.cat(values), torch.cat(gradients)

    def value(self) -> Tensor:
        """Objective (K,) at the present parameters, differentiable in these."""
        return self.value_at(self.flat())

    def value_at(self, x: Tensor) -> Tensor:
        """Objective (K,) at parameters ``x`` (K, d), differentiable."""
        value, gradient = self.data_and_gradient(x.detach())
        return with_gradients(self.plain_data, (x,), value, (gradient,)) + self.penalty(x)

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at ``x`` (K, d); the tree stays as it is."""
        value, gradient = self.data_and_gradient(x)
        penalty, of_penalty = by_autograd(self.penalty, x)
        return value + penalty, gradient + of_penalty

    def metric(self, x: Tensor) -> BlockMetric:
        """Inverse curvature near ``x`` (K, d), in blocks: one a node."""
        parts = zip(self.curvature(x), self.penalty_curvature(x), strict=True)
        return BlockMetric.invert(*(add_to_diagonal(*each) for each in parts))

    @torch.no_grad()
    def read(self) -> Tensor:
        """Present parameters, one row per problem, shape (K, d)."""
        return self.flat()

    @torch.no_grad()
    def read_from(self, tree: SoftTree) -> Tensor:
        """The same parameters of another tree, batch of K, as :meth:`read` lays them out."""
        name_of = {id(parameter): name for name, parameter in self.tree.named_parameters()}
        theirs = dict(tree.named_parameters())
        values = [theirs[name_of[id(parameter)]] for parameter in self.parameters]
        return torch.cat([value.reshape(tree.n_problems, -1) for value in values], dim=1)

    @torch.no_grad()
    def write(self, x: Tensor) -> None:
        """Set the parameters of the K problems from rows (K, d)."""
        sizes = [parameter[0].numel() for parameter in self.parameters]
        for parameter, values in zip(self.parameters, x.split(sizes, dim=1), strict=True):
            values = values.reshape(-1, *parameter.shape[1:])
            if self.problems is None:
                parameter.copy_(values)
            else:
                parameter[self.problems] = values

    def flat(self) -> Tensor:
        """Present parameters, one row per problem, shape (K, d), differentiable."""
        values = [p if self.problems is None else p[self.problems] for p in self.parameters]
        return torch.cat([value.flatten(1) if value.ndim > 1 else value[:, None] for value in values], 1)

    def _positions(self, problems: Tensor | slice) -> Tensor:
        if self.problems is not None:
            return self.problems[problems]
        if isinstance(problems, Tensor):
            return problems
        return torch.arange(len(self.sample.weight), device=self.sample.weight.device)[problems]


def by_autograd(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Value (K,) of a function at ``x`` (K, d), and its gradient (K, d), without a graph."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = function(x)
        if not value.requires_grad:
            return value, torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


# Minimises a step from parameters (K, d) of K problems; a problem's result does not depend on the others.
Minimizer = Callable[[Step, Tensor], OptimizationResult]


def lbfgs(step: Step, start: Tensor, options: LBFGSOptions | None = None) -> OptimizationResult:
    """Minimise a step by batched L-BFGS from ``start`` (K, d), directions scaled by its curvature there."""
    return minimize(step, start, options, step.metric(start))


def _leaf_blocks(
    x: DesignMatrix, pairs: dict[tuple[int, int], Tensor], n_shape: int, n_slopes: int
) -> Tensor:
    """Blocks of leaves from second derivatives of rows, (K, L, M) for each pair of g and m shapes."""
    n_features, zero = x.shape[-1], torch.zeros_like(pairs[0, 0])
    size = (n_features + 1) + n_shape + n_slopes * n_features
    if size > MAX_BLOCK:
        first = [_squares(x, pairs[0, 0])]
        shapes = [_squares(x, pairs.get((k, k), zero)) for k in range(1, n_shape + 1)]
        first += [shape[..., -1:] for shape in shapes]
        return _diagonal(torch.cat(first + [shape[..., :-1] for shape in shapes] * (n_slopes > 0), dim=-1))
    parts = [[zero] * (n_shape + 1) for _ in range(n_shape + 1)]
    for j in range(n_shape + 1):
        for k in range(j, n_shape + 1):
            rows = pairs.get((j, k), zero)
            if n_slopes or k == 0:
                part = x.gram(rows)
            elif j == 0:
                part = x.pull_back(rows)[..., None]
            else:
                part = rows.sum(-1)[..., None, None]
            parts[j][k], parts[k][j] = part, part.mT
    whole = torch.cat([torch.cat(row, dim=-1) for row in parts], dim=-2)
    if not n_slopes:
        return whole
    # From slopes and constant of g, of shape 1, ... to the order of the leaf's parameters.
    places = torch.arange(whole.shape[-1], device=whole.device).reshape(n_shape + 1, -1)
    order = torch.cat([places[0], places[1:, -1], places[1:, :-1].flatten()])
    return whole[..., order, :][..., order]


def _squares(x: DesignMatrix, weight: Tensor) -> Tensor:
    """Weighted sums of squared features and of ones, (K, n, p + 1)."""
    return DesignMatrix(x.to_dense().square(), x.counts, x.rows).pull_back(weight)


def _diagonal(values: Tensor) -> Tensor:
    """Blocks of size one, (K, n b, 1, 1), from diagonals (K, n, b)."""
    return values.flatten(1)[..., None, None]

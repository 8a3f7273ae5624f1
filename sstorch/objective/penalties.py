"""Penalties on the parameters of a tree, one value per problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from sstorch.nn import SoftTree
from sstorch.objective.sample import Sample


class Penalty(nn.Module):
    """A coefficient >= 0 times a smooth function of parameters.

    Args:
        coefficient: one value for all problems, or one per problem, shape (R,).
    """

    coefficient: Tensor

    def __init__(self, coefficient: float | Tensor) -> None:
        super().__init__()
        self.register_buffer("coefficient", torch.as_tensor(coefficient, dtype=torch.float64))

    def at(self, like: Tensor, problems: Tensor | None) -> Tensor:
        """The coefficient of each problem, in the device and dtype of ``like``."""
        coefficient = self.coefficient.to(like)
        return coefficient if problems is None or coefficient.ndim == 0 else coefficient[problems]

    @property
    def is_zero(self) -> bool:
        """Whether the penalty vanishes for every problem."""
        return not bool(self.coefficient.any())

    def select(self, problems: Tensor) -> Penalty:
        """The penalty of some of the problems."""
        if self.coefficient.ndim == 0:
            return type(self)(self.coefficient)
        return type(self)(self.coefficient[problems.to(self.coefficient.device)])


class StepTerm(ABC):
    """What a penalty on rows adds to one training step, with everything frozen in the step kept."""

    @abstractmethod
    def value(self, tree: SoftTree, problems: Tensor | None) -> Tensor:
        """Value at the present parameters of the problems at positions (K,) of ``tree``, shape (K,)."""

    @abstractmethod
    def select(self, problems: Tensor) -> StepTerm:
        """The term of the problems at positions (K',) of the present K."""


class RowPenalty(Penalty, ABC):
    """A penalty on what the tree predicts for its rows, all of them in every step.

    ``trains_gates`` tells whether it acts where gates are trained, by a relaxation that is smooth in them.
    """

    trains_gates: bool

    @abstractmethod
    def forward(
        self, tree: SoftTree, sample: Sample, problems: Tensor | None = None, relaxed: bool = False
    ) -> Tensor:
        """Value per problem, shape (K,).

        Args:
            tree: R problems.
            sample: rows of the problems at ``problems``.
            problems: ascending positions (K,) in ``tree``; all if None.
            relaxed: the relaxation instead of the penalty itself.
        """

    @abstractmethod
    def leaf_term(self, tree: SoftTree, sample: Sample, node: int) -> StepTerm:
        """The penalty as a function of the leaves under ``node``, gates frozen.

        Args:
            tree: K problems.
            sample: all rows of each problem.
            node: s. The loss of the step is a mean over its rows I_s, and the term weighs against it as the
                penalty does against the mean over all rows.
        """

    @abstractmethod
    def branch_term(self, tree: SoftTree, sample: Sample, node: int) -> StepTerm:
        """The relaxation as a function of the gates, leaves frozen; arguments as above."""


class Ridge(Penalty):
    """(lambda / 2) ||gamma||^2 over the slopes of the leaves, those of shapes too; intercepts are free."""

    def forward(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Value per problem, shape (K,)."""
        leaves = tree.topology.leaves
        slopes = torch.cat([tree.slopes(leaves, problems), _shape_slopes(tree, problems)], dim=-1)
        return self.at(slopes, problems) * slopes.square().sum((-2, -1)) / 2


class GateRidge(Penalty):
    """(lambda / 2) ||w||^2 over the weights of the gates; biases are free."""

    def forward(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Value per problem, shape (K,); zero for a tree without gates."""
        if not tree.topology.branches:
            count = tree.n_problems if problems is None else len(problems)
            return tree.log_time_scale.new_zeros(count)
        weights = tree.gate_weights(tree.topology.branches, problems)
        return self.at(weights, problems) * weights.square().sum((-2, -1)) / 2


class GateGroupLasso(Penalty):
    """lambda sum_j ||w_.j||, w_.j the weights of feature j over all gates: whole features leave the gates.

    The norm is smoothed, sqrt(||w_.j||^2 + e^2) - e, so that the minimisers of smooth functions apply;
    :meth:`vanishing` then tells which features the exact penalty puts at zero.

    References:
        Yuan and Lin (2006), Journal of the Royal Statistical Society B 68, 49-67.
    """

    SMOOTHING: ClassVar[float] = 1e-4
    CANDIDATE: ClassVar[float] = 1e-2

    def forward(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Value per problem, shape (K,); zero for a tree without gates."""
        if not tree.topology.branches:
            count = tree.n_problems if problems is None else len(problems)
            return tree.log_time_scale.new_zeros(count)
        weights = tree.gate_weights(tree.topology.branches, problems)
        norms = (weights.square().sum(-2) + self.SMOOTHING**2).sqrt() - self.SMOOTHING
        return self.at(weights, problems) * norms.sum(-1)

    def vanishing(self, tree: SoftTree, smooth: Callable[[SoftTree], Tensor]) -> Tensor:
        """Features with zero weight at the minimum of the exact penalty, by its first order conditions.

        Candidates have a small norm. One vanishes if, with all candidates at zero, the norm of the gradient
        of the rest of the objective with respect to its weights is at most lambda.

        Args:
            tree: R problems, trained.
            smooth: the objective of a tree without this penalty, shape (R,).

        Returns:
            boolean, shape (R, p).
        """
        with torch.no_grad():
            norms = tree.gate_weights(tree.topology.branches).norm(dim=-2)
            candidates = norms < self.CANDIDATE
        trial = tree.select(torch.arange(tree.n_problems, device=norms.device))
        zero_features(trial, candidates)
        weights = [trial.gate(node).weight for node in tree.topology.branches]
        with torch.enable_grad():
            trial.requires_grad_(False)
            for weight in weights:
                weight.requires_grad_(True)
            gradients = torch.autograd.grad(smooth(trial).sum(), weights)
        slope: Tensor = torch.linalg.vector_norm(torch.stack(gradients, dim=-2), dim=-2)
        vanishing: Tensor = candidates & (slope <= self.at(slope, None).reshape(-1, 1))
        return vanishing


@torch.no_grad()
def zero_features(tree: SoftTree, features: Tensor) -> None:
    """Set the weights of features, boolean (R, p), to zero in all gates."""
    for node in tree.topology.branches:
        tree.gate(node).weight.masked_fill_(features, 0.0)


class Fused(Penalty):
    """(lambda / 2) sum_n ||theta_n - mean theta||^2 over slopes and shapes of the leaves, intercepts free.

    At a large coefficient the leaves share slopes and shapes and differ in level only.
    """

    def forward(self, tree: SoftTree, problems: Tensor | None = None) -> Tensor:
        """Value per problem, shape (K,)."""
        leaves = tree.topology.leaves
        theta = torch.cat(
            [tree.slopes(leaves, problems), tree.shapes(leaves, problems), _shape_slopes(tree, problems)],
            dim=-1,
        )
        spread = theta - theta.mean(-2, keepdim=True)
        return self.at(theta, problems) * spread.square().sum((-2, -1)) / 2


def _shape_slopes(tree: SoftTree, problems: Tensor | None) -> Tensor:
    """Slopes of the shape parameters of all leaves, shape (K, L, m p)."""
    return tree.shape_slopes(tree.topology.leaves, problems).flatten(-2)

"""Penalties on the parameters of a tree, one value per problem."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sstorch.nn import SoftTree


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

"""WLR step: weighted logistic regression of one gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sstorch.nn import GateParameters, SoftTree
from sstorch.nn.functional import softplus
from sstorch.objective import Sample
from sstorch.objective.closed_form import logistic_value_and_gradient
from sstorch.optim.step_curvature import blocks, stride_of
from sstorch.optim.steps.base import Step, freeze_except


@dataclass(frozen=True)
class LogisticStep(Step):
    """Weighted logistic regression of one gate onto a left/right labelling of its rows.

    (1/2) ||w||^2 + sum_i o_i logloss_i with a free intercept: scikit-learn's ``LogisticRegression`` at
    C = 1. The penalty is needed, since the present routing is linear and so its classes are separable.

    Attributes:
        node: the gate.
        weight: o_i, shape (K, M).
        left_weight: o_i where the label is left, else 0, shape (K, M).
    """

    node: int
    weight: Tensor
    left_weight: Tensor

    @classmethod
    def make(cls, tree: SoftTree, sample: Sample, node: int, left: Tensor, weight: Tensor) -> Self:
        """Thaw the gate of ``node``, labels ``left`` (R, M) boolean, row weights (R, M)."""
        gate = tree.gate(node)
        parameters = (gate.weight, gate.bias)
        freeze_except(tree, parameters)
        return cls(tree, parameters, None, sample, node, weight, weight * left)

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`."""
        logits = GateParameters.unflatten(x[:, None]).logits(self.sample.x).squeeze(1)
        return (self.weight * softplus(logits) - self.left_weight * logits).sum(-1)

    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """See :meth:`Step.written_data`."""
        gate = GateParameters.unflatten(x[:, None])
        value, gradient = logistic_value_and_gradient(self.sample.x, gate, self.weight, self.left_weight)
        return value, gradient.flatten(1)

    def penalty(self, x: Tensor) -> Tensor:
        """See :meth:`Step.penalty`."""
        return x[:, :-1].square().sum(-1) / 2

    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.curvature`."""
        stride = stride_of(self.sample.x)
        rows, weight = self.sample.x.thin(stride), self.sample.x.spread(self.weight, stride) * stride
        left = torch.sigmoid(GateParameters.unflatten(x[:, None]).logits(rows))
        return (blocks(rows, weight[:, None] * left * (1 - left)),)

    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.penalty_curvature`."""
        ridge = torch.ones_like(x)
        ridge[:, -1] = 0
        return (ridge[:, None],)

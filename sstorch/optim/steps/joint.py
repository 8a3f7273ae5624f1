"""All parameters of a tree at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, TrainingObjective
from sstorch.objective.closed_form import tree_value_and_gradients
from sstorch.objective.training import parameter_losses
from sstorch.optim.steps.base import (
    LOSS_CEILING,
    Step,
    freeze_except,
    gate_curvature,
    leaf_curvature,
    stride_of,
)
from sstorch.optim.steps.node import leaves_at


@dataclass(frozen=True)
class JointStep(Step):
    """All parameters of the tree at once: the full objective E.

    Attributes:
        objective: E.
        family: of the leaves, for the K problems.
        basis: :meth:`HazardFamily.basis` of the log times.
        weight: normalised row weights, shape (K, M).
        relaxed: with the relaxation of penalties that are not smooth in the gates, as a minimiser needs it.
    """

    objective: TrainingObjective
    family: HazardFamily
    basis: Tensor | None
    weight: Tensor
    relaxed: bool = field(default=False, metadata=SHARED)

    @classmethod
    def make(
        cls, tree: SoftTree, objective: TrainingObjective, sample: Sample, relaxed: bool = False
    ) -> Self:
        """Thaw every parameter."""
        # A family may have no shape: a parameter without elements.
        parameters = tuple(parameter for parameter in tree.parameters() if parameter.numel())
        freeze_except(tree, parameters)
        basis, weight = tree.family.basis(sample.log_time), sample.loss_weight
        return cls(tree, parameters, None, sample, objective, tree.family, basis, weight, relaxed)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The leaves, all of them."""
        return tuple(self.tree.topology.leaves)

    @override
    def plain_data(self, x: Tensor) -> Tensor:
        return self.objective.plain_data_term(*self._parts(x), self.family, self.sample, self.weight)

    @override
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        if not self.objective.has_closed_form(self.family, self.sample):
            return None
        value, *gradients = tree_value_and_gradients(
            *self._parts(x), self.family, self.sample, self.weight, self.basis
        )
        return value, torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates, leaves = self._parts(x)
        rows = self.objective.parameter_row_penalty(gates, leaves, self.family, self.sample, self.relaxed)
        return self.objective.gate_penalty(gates) + self.objective.leaf_penalty(leaves) + rows

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        (gates, leaves), stride = self._parts(x), stride_of(self.sample.x)
        rows = self.sample.thin(stride)
        weight = self.sample.x.spread(self.weight, stride)[:, None, :] * stride
        logits = gates.logits(rows.x)
        probability = log_path_probability(self.tree.topology, logits).exp() * weight
        of_leaves = leaf_curvature(self.family, leaves, rows, probability)
        if logits.shape[1] == 0:
            return (of_leaves,)
        losses = parameter_losses(self.family, leaves, rows, probability > 0).clamp(max=LOSS_CEILING)
        return gate_curvature(gates.features(rows.x), logits, weight * losses), of_leaves

    @override
    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        gates, leaves = self._parts(x)
        of_leaves = self.objective.leaf_curvature(leaves)
        return (self.objective.gate_curvature(gates), of_leaves) if gates.bias.shape[1] else (of_leaves,)

    def _parts(self, x: Tensor) -> tuple[GateParameters, LeafParameters]:
        n_gates, n_leaves = len(self.tree.topology.branches), len(self.tree.topology.leaves)
        width = self.tree.n_gate_features + 1
        end = n_gates * width
        gates = GateParameters.unflatten(x[:, :end].reshape(len(x), n_gates, width))
        return gates, leaves_at(x[:, end:].unflatten(1, (n_leaves, -1)), self.tree)

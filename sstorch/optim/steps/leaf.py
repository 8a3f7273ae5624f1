"""LN step: the leaves under a node, gates frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sstorch.nn import HazardFamily, LeafParameters, SoftTree
from sstorch.objective import Sample, TrainingObjective, expected_loss
from sstorch.objective.closed_form import leaf_value_and_gradient
from sstorch.objective.likelihood import parameter_losses
from sstorch.objective.penalties import LeafTerm
from sstorch.optim.step_curvature import leaf_curvature, stride_of
from sstorch.optim.steps.base import Step, freeze_except


@dataclass(frozen=True)
class LeafStep(Step):
    """LN step: leaves under a node, with the gates frozen.

    Attributes:
        objective: gives the penalties on leaves.
        nodes: the thawed leaves.
        leaves: all leaves, where the step began.
        family: of the leaves, for the K problems.
        basis: see :meth:`HazardFamily.basis`.
        probability: P_in within the subtree x normalised weight, shape (K, L', M).
        terms: of the penalties on rows.
    """

    objective: TrainingObjective
    nodes: tuple[int, ...]
    leaves: LeafParameters
    family: HazardFamily
    basis: Tensor | None
    probability: Tensor
    terms: tuple[LeafTerm, ...] = ()

    @classmethod
    @torch.no_grad()
    def make(
        cls,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        node: int,
        probability: Tensor | None = None,
        everything: Sample | None = None,
    ) -> Self:
        """Thaw the leaves under ``node``.

        Args:
            tree: R problems.
            objective: gives the penalties.
            sample: rows I_s.
            node: root of the subtree.
            probability: of the leaves, shape (R, L', M); the tree's own soft routing if None.
            everything: all rows, for penalties on rows; without them these do not act.
        """
        nodes = tuple(tree.topology.leaves_under(node))
        if probability is None:
            probability = tree.log_leaf_probability(sample.x, node).exp()
        parameters = tuple(p for n in nodes for p in tree.leaf(n).trained())
        freeze_except(tree, parameters)
        weighted = probability * sample.normalised_weight[:, None, :]
        basis = tree.family.basis(sample.log_time)
        leaves = tree.leaf_parameters()
        terms = () if everything is None else objective.leaf_terms(tree, everything, node)
        return cls(
            tree, parameters, None, sample, objective, nodes, leaves, tree.family, basis, weighted, terms
        )

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`: E restricted to the subtree and to I_s, up to a constant."""
        losses = parameter_losses(self.family, self._thawed(x), self.sample, self.probability > 0)
        return expected_loss(self.probability, losses)

    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """See :meth:`Step.written_data`."""
        if not self.objective.has_closed_form(self.family, self.sample):
            return None
        value, gradient = leaf_value_and_gradient(
            self.family, self._thawed(x), self.sample, self.probability, self.basis
        )
        return value, gradient.flatten(1)

    def penalty(self, x: Tensor) -> Tensor:
        """See :meth:`Step.penalty`."""
        thawed = self._thawed(x)
        penalty = self.objective.leaf_penalty(self._all(thawed))
        return sum((term.value(thawed, self.family) for term in self.terms), penalty)

    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.curvature`."""
        stride = stride_of(self.sample.x)
        probability = self.sample.x.spread(self.probability, stride) * stride
        return (leaf_curvature(self.family, self._thawed(x), self.sample.thin(stride), probability),)

    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.penalty_curvature`."""
        return (self.objective.leaf_curvature(self._all(self._thawed(x)))[:, self._places],)

    @property
    def _places(self) -> Tensor:
        first = self.tree.topology.leaves[0]
        return torch.tensor(self.nodes, device=self.probability.device) - first

    def _thawed(self, x: Tensor) -> LeafParameters:
        return leaves_at(x.unflatten(1, (len(self.nodes), -1)), self.tree)

    def _all(self, thawed: LeafParameters) -> LeafParameters:
        if len(self.nodes) == len(self.tree.topology.leaves):
            return thawed
        return self.leaves.replaced(self._places, thawed)


def leaves_at(theta: Tensor, tree: SoftTree) -> LeafParameters:
    """Parameters of leaves from one row per leaf, (K, L, d)."""
    return LeafParameters.unflatten(theta, tree.n_features, len(tree.family.shape_names))

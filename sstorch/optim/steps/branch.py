"""BN step: the gates of a node's working set, leaves frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sstorch.nn import GateParameters, SoftTree, Topology
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, TrainingObjective, expected_loss, leaf_losses
from sstorch.objective.closed_form import gate_value_and_gradient
from sstorch.objective.penalties import GateTerm
from sstorch.optim.step_curvature import gate_curvature, stride_of
from sstorch.optim.steps.base import LOSS_CEILING, Step, freeze_except


@dataclass(frozen=True)
class BranchStep(Step):
    """BN step: gates of a connected top part of a subtree, with the losses below them frozen.

    Attributes:
        objective: gives the penalties on gates.
        nodes: the thawed gates, a full binary tree in heap order.
        gates: all gates, where the step began.
        losses: normalised weight x expected loss below each end of the thawed tree, shape (K, F, M).
        terms: of the penalties on rows that train gates.
    """

    objective: TrainingObjective
    nodes: tuple[int, ...]
    gates: GateParameters
    losses: Tensor
    terms: tuple[GateTerm, ...] = ()

    @classmethod
    @torch.no_grad()
    def make(
        cls,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        node: int,
        everything: Sample | None = None,
    ) -> Self:
        """Thaw the gates of the working set of ``node``: the root alone, or the node and all below it.

        Args:
            tree: R problems.
            objective: gives the penalties.
            sample: rows I_s.
            node: s.
            everything: all rows, for penalties on rows; without them these do not act.
        """
        whole = tree.topology
        nodes = [node] if node == 1 else whole.branches_under(node)
        losses = leaf_losses(tree, sample, whole.leaves_under(node)).clamp(max=LOSS_CEILING)
        if node == 1 and whole.depth > 1:
            below = [tree.log_leaf_probability(sample.x, child).exp() for child in (2, 3)]
            losses = torch.cat(below, dim=1) * losses
            losses = losses.unflatten(1, (2, -1)).sum(2)
        parameters = tuple(p for n in nodes for p in (tree.gate(n).weight, tree.gate(n).bias))
        freeze_except(tree, parameters)
        weighted = losses * sample.normalised_weight[:, None, :]
        terms = () if everything is None else objective.gate_terms(tree, everything, node)
        gates = tree.gate_parameters()
        return cls(tree, parameters, None, sample, objective, tuple(nodes), gates, weighted, terms)

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`: E restricted to the subtree and to I_s, up to a constant."""
        topology = Topology(len(self.nodes).bit_length())
        log_probability = log_path_probability(topology, self._thawed(x).logits(self.sample.x))
        return expected_loss(log_probability.exp(), self.losses)

    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """See :meth:`Step.written_data`."""
        if not self.objective.closed_form:
            return None
        value, gradient = gate_value_and_gradient(self.sample.x, self._thawed(x), self.losses)
        return value, gradient.flatten(1)

    def penalty(self, x: Tensor) -> Tensor:
        """See :meth:`Step.penalty`."""
        gates = self._all(self._thawed(x))
        return sum((term.value(gates) for term in self.terms), self.objective.gate_penalty(gates))

    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.curvature`."""
        stride = stride_of(self.sample.x)
        rows, losses = self.sample.x.thin(stride), self.sample.x.spread(self.losses, stride) * stride
        return (gate_curvature(rows, self._thawed(x).logits(rows), losses),)

    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.penalty_curvature`."""
        return (self.objective.gate_curvature(self._all(self._thawed(x)))[:, self._places],)

    @property
    def _places(self) -> Tensor:
        return torch.tensor(self.nodes, device=self.losses.device) - 1

    def _thawed(self, x: Tensor) -> GateParameters:
        return GateParameters.unflatten(x.unflatten(1, (len(self.nodes), -1)))

    def _all(self, thawed: GateParameters) -> GateParameters:
        if len(self.nodes) == len(self.tree.topology.branches):
            return thawed
        return self.gates.replaced(self._places, thawed)

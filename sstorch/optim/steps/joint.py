"""Any set of nodes at once, by default all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
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
    """The full objective E as a function of the parameters of some nodes; all others are frozen.

    Attributes:
        nodes: the thawed leaves.
        objective: E.
        family: of the leaves, for the K problems.
        basis: :meth:`HazardFamily.basis` of the log times.
        weight: normalised row weights, shape (K, M).
        relaxed: with the relaxation of penalties that are not smooth in the gates, as a minimiser needs it.
        thawed: positions of the thawed gates among all gates and of the thawed leaves among all leaves; None
            for all nodes.
        places: positions of the thawed parameters among all, (d,); None for all.
        whole: all parameters, where the step began, (K, D); None for all nodes.
    """

    nodes: tuple[int, ...] = field(metadata=SHARED)
    objective: TrainingObjective
    family: HazardFamily
    basis: Tensor | None
    weight: Tensor
    relaxed: bool = field(default=False, metadata=SHARED)
    thawed: tuple[Tensor, ...] | None = field(default=None, metadata=SHARED)
    places: Tensor | None = field(default=None, metadata=SHARED)
    whole: Tensor | None = None

    @classmethod
    @torch.no_grad()
    def make(
        cls,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        relaxed: bool = False,
        nodes: Collection[int] | None = None,
    ) -> Self:
        """Thaw every parameter of the gates and leaves ``nodes``, of all if None."""
        topology = tree.topology
        # A family may have no shape: a parameter without elements.
        of_nodes = {node: tuple(tree.gate(node).parameters()) for node in topology.branches}
        of_nodes |= {node: tree.leaf(node).trained() for node in topology.leaves}
        chosen = of_nodes if nodes is None else nodes
        parameters = tuple(part for node, own in of_nodes.items() if node in chosen for part in own)
        leaves = tuple(node for node in topology.leaves if node in chosen)
        freeze_except(tree, parameters)
        basis, weight = tree.family.basis(sample.log_time), sample.loss_weight
        step = cls(tree, parameters, None, sample, leaves, objective, tree.family, basis, weight, relaxed)
        if nodes is None:
            return step
        is_chosen = torch.tensor([node in chosen for node in of_nodes])
        n_gates = len(topology.branches)
        thawed = tuple(kind.nonzero().squeeze(-1) for kind in (is_chosen[:n_gates], is_chosen[n_gates:]))
        sizes = torch.tensor([sum(part[0].numel() for part in own) for own in of_nodes.values()])
        places = is_chosen.repeat_interleave(sizes).nonzero().squeeze(-1).to(weight.device)
        every = tuple(part for own in of_nodes.values() for part in own)
        whole = replace(step, parameters=every).flat()
        return replace(step, thawed=thawed, places=places, whole=whole)

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
        gradient = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
        return value, gradient if self.places is None else gradient[:, self.places]

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
        of_gates = gate_curvature(gates.features(rows.x), logits, weight * losses)
        return self._of_thawed(of_gates, of_leaves)

    @override
    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        gates, leaves = self._parts(x)
        of_leaves = self.objective.leaf_curvature(leaves)
        if gates.bias.shape[1] == 0:
            return (of_leaves,)
        return self._of_thawed(self.objective.gate_curvature(gates), of_leaves)

    def _of_thawed(self, of_gates: Tensor, of_leaves: Tensor) -> tuple[Tensor, ...]:
        """Those of the thawed nodes among blocks of all gates and of all leaves, (K, n, ...)."""
        if self.thawed is None:
            return of_gates, of_leaves
        counts, kept = (len(self.tree.topology.branches), len(self.tree.topology.leaves)), []
        for blocks, count, thawed in zip((of_gates, of_leaves), counts, self.thawed, strict=True):
            if len(thawed):  # diagonals have a block for each parameter of a node
                each = blocks.unflatten(1, (count, blocks.shape[1] // count))
                kept.append(each[:, thawed].flatten(1, 2))
        return tuple(kept)

    def _parts(self, x: Tensor) -> tuple[GateParameters, LeafParameters]:
        if self.whole is not None and self.places is not None:
            x = self.whole.index_copy(1, self.places, x)
        n_gates, n_leaves = len(self.tree.topology.branches), len(self.tree.topology.leaves)
        width = self.tree.n_gate_features + 1
        end = n_gates * width
        gates = GateParameters.unflatten(x[:, :end].reshape(len(x), n_gates, width))
        return gates, leaves_at(x[:, end:].unflatten(1, (n_leaves, -1)), self.tree)

"""Working sets of training steps: gates (BN), the regression of a gate (WLR), leaves (LN), or any nodes.

What is frozen is evaluated once, when the step is made; an evaluation touches only the thawed nodes, as rows
(K, d) of their parameters, node after node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import softplus
from sstorch.nn.routing import log_path_probability
from sstorch.objective import TrainingObjective
from sstorch.objective.closed_form import (
    gate_value_and_gradient,
    leaf_value_and_gradient,
    logistic_value_and_gradient,
    tree_value_and_gradients,
)
from sstorch.objective.row_penalties import RowTerm
from sstorch.objective.training import expected_loss, leaf_losses, parameter_losses
from sstorch.optim.curvature import (
    feature_blocks,
    gate_curvature,
    leaf_curvature,
    penalised_leaves,
    plus_diagonal,
)
from sstorch.optim.steps import Batch, Step, StepObjective

# A leaf whose hazard overflows at a row gives an infinite loss there, which would make every gate step
# non-finite. At the ceiling the gates still send the row away from that leaf.
LOSS_CEILING = 1e10


# ------------------------------------------------------------------ BN: gates


@dataclass(frozen=True)
class BranchObjective(StepObjective):
    """E restricted to a subtree and to I_s as a function of its upper gates, up to a constant."""

    penalties: TrainingObjective  # those on gates act
    # positions of the thawed gates, a full binary tree; on the device: a copy at each evaluation would wait
    places: Tensor = field(metadata=SHARED)
    gates: GateParameters  # all gates, where the step began
    losses: Tensor  # normalised weight x expected loss below each end of the thawed tree, (K, F, M)
    terms: tuple[RowTerm, ...] = ()  # of the penalties on rows that train gates

    @override
    def data(self, x: Tensor) -> Tensor:
        return expected_loss(self._thawed(x).leaf_probability(self.sample.x), self.losses)

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = gate_value_and_gradient(self.sample.x, self._thawed(x), self.losses)
        return value, gradient.flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates = self._all(self._thawed(x))
        return sum((term.value(gates) for term in self.terms), self.penalties.gate_penalty(gates))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, thawed = self._stride(), self._thawed(x)
        rows, losses = self.sample.x.thin(stride), self.sample.x.spread(self.losses, stride) * stride
        blocks = gate_curvature(thawed.features(rows), thawed.logits(rows), losses)
        return (plus_diagonal(blocks, self.penalties.gate_curvature(self._all(thawed))[:, self.places]),)

    def _thawed(self, x: Tensor) -> GateParameters:
        return GateParameters.unflatten(x.unflatten(1, (len(self.places), -1)))

    def _all(self, thawed: GateParameters) -> GateParameters:
        every = thawed.bias.shape == self.gates.bias.shape
        return thawed if every else self.gates.replaced(self.places, thawed)


@torch.no_grad()
def branch_step(batch: Batch, node: int) -> Step:
    """BN: thaw the gates of the working set of ``node``: the root alone, or the node and all below it."""
    tree, penalties, sample, topology = batch.tree, batch.penalties, batch.rows, batch.tree.topology
    nodes = [node] if node == 1 else topology.branches_under(node)
    losses = leaf_losses(tree, sample, topology.leaves_under(node)).clamp(max=LOSS_CEILING)
    if node == 1 and topology.depth > 1:
        below = [tree.log_leaf_probability(sample.x, child).exp() for child in (2, 3)]
        losses = torch.cat(below, dim=1) * losses
        losses = losses.unflatten(1, (2, -1)).sum(2)
    weighted, places = losses * sample.loss_weight[:, None, :], torch.tensor(nodes, device=losses.device) - 1
    terms = () if batch.everything is None else penalties.terms(tree, batch.everything, node, True)
    gates = tree.gate_parameters()
    objective = BranchObjective(tree, sample, penalties, places, gates, weighted, terms)
    return Step("BN", node, batch, tuple(p for n in nodes for p in tree.gate(n).parameters()), objective)


# ------------------------------------------------------------------ WLR: weighted logistic regression


@dataclass(frozen=True)
class LogisticObjective(StepObjective):
    """Weighted logistic regression of one gate onto a left/right labelling of its rows.

    (1/2) ||w||^2 + sum_i o_i logloss_i with a free intercept: scikit-learn's ``LogisticRegression`` at C = 1.
    The penalty is needed, since the present routing is linear and so its classes are separable.
    """

    weight: Tensor  # o_i, (K, M)
    left_weight: Tensor  # o_i where the label is left, else 0, (K, M)

    @override
    def data(self, x: Tensor) -> Tensor:
        logits = GateParameters.unflatten(x[:, None]).logits(self.sample.x).squeeze(1)
        return (self.weight * softplus(logits) - self.left_weight * logits).sum(-1)

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate = GateParameters.unflatten(x[:, None])
        value, gradient = logistic_value_and_gradient(self.sample.x, gate, self.weight, self.left_weight)
        return value, gradient.flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        return x[:, :-1].square().sum(-1) / 2

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride = self._stride()
        rows, weight = self.sample.x.thin(stride), self.sample.x.spread(self.weight, stride) * stride
        gate = GateParameters.unflatten(x[:, None])
        left = torch.sigmoid(gate.logits(rows))
        blocks = feature_blocks(gate.features(rows), weight[:, None] * left * (1 - left))
        ridge = torch.ones_like(x)
        ridge[:, -1] = 0
        return (plus_diagonal(blocks, ridge[:, None]),)


def logistic_step(batch: Batch, node: int, left: Tensor, weight: Tensor) -> Step:
    """WLR: thaw the gate of ``node``, labels ``left`` (K, M) boolean, row weights (K, M)."""
    objective = LogisticObjective(batch.tree, batch.rows, weight, weight * left)
    return Step("WLR", node, batch, tuple(batch.tree.gate(node).parameters()), objective)


# ------------------------------------------------------------------ LN: leaves


@dataclass(frozen=True)
class LeafObjective(StepObjective):
    """E restricted to a subtree and to I_s as a function of its leaves, up to a constant."""

    penalties: TrainingObjective  # those on leaves act
    places: Tensor = field(metadata=SHARED)  # of the thawed leaves among all leaves
    leaves: LeafParameters  # all leaves, where the step began
    family: HazardFamily
    basis: Tensor | None  # :meth:`HazardFamily.basis` of the log times
    probability: Tensor  # P_in within the subtree x normalised weight, (K, L', M)
    terms: tuple[RowTerm, ...] = ()  # of the penalties on rows

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not (self.family.closed_form and self.sample.is_plain):
            return super().data_and_gradient(x)
        value, gradient = leaf_value_and_gradient(
            self.family, self._thawed(x), self.sample, self.probability, self.basis
        )
        return value, gradient.flatten(1)

    @override
    def data(self, x: Tensor) -> Tensor:
        losses = parameter_losses(self.family, self._thawed(x), self.sample, self.probability > 0)
        return expected_loss(self.probability, losses)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        leaves = self._all(self._thawed(x))
        return sum((term.value(leaves) for term in self.terms), self.penalties.leaf_penalty(leaves))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, thawed = self._stride(), self._thawed(x)
        probability = self.sample.x.spread(self.probability, stride) * stride
        blocks = leaf_curvature(self.family, thawed, self.sample.thin(stride), probability)
        return (penalised_leaves(blocks, self.penalties, self._all(thawed), self.places),)

    def _thawed(self, x: Tensor) -> LeafParameters:
        return _leaves_at(x.unflatten(1, (len(self.places), -1)), self.tree)

    def _all(self, thawed: LeafParameters) -> LeafParameters:
        every = thawed.intercept.shape == self.leaves.intercept.shape
        return thawed if every else self.leaves.replaced(self.places, thawed)


@torch.no_grad()
def leaf_step(batch: Batch, node: int, probability: Tensor | None = None) -> Step:
    """LN: thaw the leaves under ``node``, of probability (K, L', M), the tree's soft routing if None."""
    tree, penalties, sample = batch.tree, batch.penalties, batch.rows
    nodes = tuple(tree.topology.leaves_under(node))
    if probability is None:
        probability = tree.log_leaf_probability(sample.x, node).exp()
    weighted, first = probability * sample.loss_weight[:, None, :], tree.topology.leaves[0]
    places = torch.arange(nodes[0] - first, nodes[-1] - first + 1, device=weighted.device)
    terms = () if batch.everything is None else penalties.terms(tree, batch.everything, node, False)
    leaves, basis = tree.leaf_parameters(), tree.family.basis(sample.log_time)
    objective = LeafObjective(tree, sample, penalties, places, leaves, tree.family, basis, weighted, terms)
    return Step("LN", node, batch, tuple(p for n in nodes for p in tree.leaf(n).trained()), objective, nodes)


# ------------------------------------------------------------------ any nodes


@dataclass(frozen=True)
class JointObjective(StepObjective):
    """The full objective E as a function of the parameters of some nodes; all others are frozen."""

    penalties: TrainingObjective  # E
    family: HazardFamily
    basis: Tensor | None  # :meth:`HazardFamily.basis` of the log times
    weight: Tensor  # of the rows, normalised, (K, M)
    # with the relaxation of penalties that are not smooth in the gates, as a minimiser needs it
    relaxed: bool = field(default=False, metadata=SHARED)
    # of some nodes: positions of the thawed gates and of the thawed leaves, of their parameters among all
    # (d,), and all parameters where the step began (K, D)
    thawed: tuple[Tensor, ...] | None = field(default=None, metadata=SHARED)
    places: Tensor | None = field(default=None, metadata=SHARED)
    whole: Tensor | None = None

    @override
    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not (self.family.closed_form and self.sample.is_plain):
            return super().data_and_gradient(x)
        value, *gradients = tree_value_and_gradients(
            *self._parts(x), self.family, self.sample, self.weight, self.basis
        )
        gradient = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
        return value, gradient if self.places is None else gradient[:, self.places]

    @override
    def data(self, x: Tensor) -> Tensor:
        return self.penalties.plain_data_term(*self._parts(x), self.family, self.sample, self.weight)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates, leaves = self._parts(x)
        rows = self.penalties.parameter_row_penalty(gates, leaves, self.family, self.sample, self.relaxed)
        return self.penalties.gate_penalty(gates) + self.penalties.leaf_penalty(leaves) + rows

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        (gates, leaves), stride = self._parts(x), self._stride()
        rows = self.sample.thin(stride)
        weight = self.sample.x.spread(self.weight, stride)[:, None, :] * stride
        logits = gates.logits(rows.x)
        probability = log_path_probability(self.tree.topology, logits).exp() * weight
        of_leaves = leaf_curvature(self.family, leaves, rows, probability)
        n_leaves = probability.shape[1]
        chosen = torch.arange(n_leaves, device=x.device) if self.thawed is None else self.thawed[1]
        each = of_leaves.unflatten(1, (n_leaves, of_leaves.shape[1] // n_leaves))
        of_leaves = penalised_leaves(each[:, chosen].flatten(1, 2), self.penalties, leaves, chosen)
        if logits.shape[1] == 0:
            return (of_leaves,)
        losses = parameter_losses(self.family, leaves, rows, probability > 0).clamp(max=LOSS_CEILING)
        of_gates = gate_curvature(gates.features(rows.x), logits, weight * losses)
        of_gates = plus_diagonal(of_gates, self.penalties.gate_curvature(gates))
        if self.thawed is not None:  # diagonals have a block for each parameter of a node
            each = of_gates.unflatten(1, (logits.shape[1], of_gates.shape[1] // logits.shape[1]))
            of_gates = each[:, self.thawed[0]].flatten(1, 2)
        return tuple(part for part in (of_gates, of_leaves) if part.shape[1])

    def _parts(self, x: Tensor) -> tuple[GateParameters, LeafParameters]:
        if self.whole is not None and self.places is not None:
            x = self.whole.index_copy(1, self.places, x)
        n_gates, n_leaves = len(self.tree.topology.branches), len(self.tree.topology.leaves)
        width = self.tree.n_gate_features + 1
        end = n_gates * width
        gates = GateParameters.unflatten(x[:, :end].reshape(len(x), n_gates, width))
        return gates, _leaves_at(x[:, end:].unflatten(1, (n_leaves, -1)), self.tree)


@torch.no_grad()
def joint_step(batch: Batch, nodes: Collection[int] | None = None, relaxed: bool = False) -> Step:
    """Thaw every parameter of the gates and leaves ``nodes``, of all if None."""
    tree, penalties, sample, topology = batch.tree, batch.penalties, batch.rows, batch.tree.topology
    # A family may have no shape: a parameter without elements.
    of_nodes = {node: tuple(tree.gate(node).parameters()) for node in topology.branches}
    of_nodes |= {node: tree.leaf(node).trained() for node in topology.leaves}
    chosen = of_nodes if nodes is None else nodes
    parameters = tuple(part for node, own in of_nodes.items() if node in chosen for part in own)
    leaves = tuple(node for node in topology.leaves if node in chosen)
    basis, weight = tree.family.basis(sample.log_time), sample.loss_weight
    objective = JointObjective(tree, sample, penalties, tree.family, basis, weight, relaxed)
    if nodes is not None:
        is_chosen = torch.tensor([node in chosen for node in of_nodes])
        n_gates = len(topology.branches)
        thawed = tuple(kind.nonzero().squeeze(-1) for kind in (is_chosen[:n_gates], is_chosen[n_gates:]))
        sizes = torch.tensor([sum(part.shape[1:].numel() for part in own) for own in of_nodes.values()])
        places = is_chosen.repeat_interleave(sizes).nonzero().squeeze(-1).to(weight.device)
        every = tuple(part for own in of_nodes.values() for part in own)
        whole = Step("", 1, batch, every, objective).read()
        objective = replace(objective, thawed=thawed, places=places, whole=whole)
    name, node = ("JOINT", 1) if nodes is None else ("+".join(map(str, sorted(nodes))), min(nodes))
    return Step(name, node, batch, parameters, objective, leaves)


def _leaves_at(theta: Tensor, tree: SoftTree) -> LeafParameters:
    """Parameters of leaves from one row per leaf, (K, L, d)."""
    return LeafParameters.unflatten(theta, tree.in_features, len(tree.family.shape_names))

"""Steps of one node: a gate, the logistic regression that rebalances it, or a leaf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.functional import softplus
from sstorch.objective import Sample, TrainingObjective, leaf_losses
from sstorch.objective.closed_form import (
    gate_value_and_gradient,
    leaf_value_and_gradient,
    logistic_value_and_gradient,
)
from sstorch.objective.row_penalties import GateTerm, LeafTerm
from sstorch.objective.training import expected_loss, parameter_losses
from sstorch.optim.steps.base import (
    LOSS_CEILING,
    MAX_BLOCK,
    Step,
    curvature_blocks,
    freeze_except,
    gate_curvature,
    leaf_curvature,
    stride_of,
)


@dataclass(frozen=True)
class BranchStep(Step):
    """BN step: gates of a connected top part of a subtree, with the losses below them frozen.

    Attributes:
        objective: gives the penalties on gates.
        nodes: the thawed gates, a full binary tree in heap order.
        places: their positions among all gates; on the device, since a copy at each evaluation would wait.
        gates: all gates, where the step began.
        losses: normalised weight x expected loss below each end of the thawed tree, shape (K, F, M).
        terms: of the penalties on rows that train gates.
    """

    objective: TrainingObjective
    nodes: tuple[int, ...] = field(metadata=SHARED)
    places: Tensor = field(metadata=SHARED)
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

        ``sample`` holds the rows I_s, ``everything`` all rows: without them penalties on rows do not act.
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
        weighted = losses * sample.loss_weight[:, None, :]
        terms = () if everything is None else objective.gate_terms(tree, everything, node)
        gates, places = tree.gate_parameters(), torch.tensor(nodes, device=losses.device) - 1
        return cls(tree, parameters, None, sample, objective, tuple(nodes), places, gates, weighted, terms)

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`: E restricted to the subtree and to I_s, up to a constant."""
        return expected_loss(self._thawed(x).leaf_probability(self.sample.x), self.losses)

    @override
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        value, gradient = gate_value_and_gradient(self.sample.x, self._thawed(x), self.losses)
        return value, gradient.flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        gates = self._all(self._thawed(x))
        return sum((term.value(gates) for term in self.terms), self.objective.gate_penalty(gates))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride = stride_of(self.sample.x)
        rows, losses = self.sample.x.thin(stride), self.sample.x.spread(self.losses, stride) * stride
        thawed = self._thawed(x)
        return (gate_curvature(thawed.features(rows), thawed.logits(rows), losses),)

    @override
    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.objective.gate_curvature(self._all(self._thawed(x)))[:, self.places],)

    def _thawed(self, x: Tensor) -> GateParameters:
        return GateParameters.unflatten(x.unflatten(1, (len(self.nodes), -1)))

    def _all(self, thawed: GateParameters) -> GateParameters:
        if len(self.nodes) == len(self.tree.topology.branches):
            return thawed
        return self.gates.replaced(self.places, thawed)


@dataclass(frozen=True)
class LogisticStep(Step):
    """Weighted logistic regression of one gate onto a left/right labelling of its rows.

    (1/2) ||w||^2 + sum_i o_i logloss_i with a free intercept: scikit-learn's ``LogisticRegression`` at
    C = 1. The penalty is needed, since the present routing is linear and so its classes are separable.

    Attributes:
        weight: o_i, shape (K, M).
        left_weight: o_i where the label is left, else 0, shape (K, M).
    """

    weight: Tensor
    left_weight: Tensor

    @classmethod
    def make(cls, tree: SoftTree, sample: Sample, node: int, left: Tensor, weight: Tensor) -> Self:
        """Thaw the gate of ``node``, labels ``left`` (R, M) boolean, row weights (R, M)."""
        gate = tree.gate(node)
        parameters = (gate.weight, gate.bias)
        freeze_except(tree, parameters)
        return cls(tree, parameters, None, sample, weight, weight * left)

    @override
    def plain_data(self, x: Tensor) -> Tensor:
        logits = GateParameters.unflatten(x[:, None]).logits(self.sample.x).squeeze(1)
        return (self.weight * softplus(logits) - self.left_weight * logits).sum(-1)

    @override
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        gate = GateParameters.unflatten(x[:, None])
        value, gradient = logistic_value_and_gradient(self.sample.x, gate, self.weight, self.left_weight)
        return value, gradient.flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        return x[:, :-1].square().sum(-1) / 2

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride = stride_of(self.sample.x)
        rows, weight = self.sample.x.thin(stride), self.sample.x.spread(self.weight, stride) * stride
        gate = GateParameters.unflatten(x[:, None])
        left = torch.sigmoid(gate.logits(rows))
        return (curvature_blocks(gate.features(rows), weight[:, None] * left * (1 - left)),)

    @override
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        ridge = torch.ones_like(x)
        ridge[:, -1] = 0
        return (ridge[:, None],)


@dataclass(frozen=True)
class LeafStep(Step):
    """LN step: leaves under a node, with the gates frozen.

    Attributes:
        objective: gives the penalties on leaves.
        nodes: the thawed leaves.
        places: their positions among all leaves, on the device.
        leaves: all leaves, where the step began.
        family: of the leaves, for the K problems.
        basis: :meth:`HazardFamily.basis` of the log times.
        probability: P_in within the subtree x normalised weight, shape (K, L', M).
        terms: of the penalties on rows.
    """

    objective: TrainingObjective
    nodes: tuple[int, ...] = field(metadata=SHARED)
    places: Tensor = field(metadata=SHARED)
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
        """Thaw the leaves under ``node``, of probability (R, L', M), the tree's soft routing if None.

        ``sample`` holds the rows I_s, ``everything`` all rows: without them penalties on rows do not act.
        """
        nodes = tuple(tree.topology.leaves_under(node))
        if probability is None:
            probability = tree.log_leaf_probability(sample.x, node).exp()
        parameters = tuple(p for n in nodes for p in tree.leaf(n).trained())
        freeze_except(tree, parameters)
        weighted = probability * sample.loss_weight[:, None, :]
        basis = tree.family.basis(sample.log_time)
        leaves, first = tree.leaf_parameters(), tree.topology.leaves[0]
        places = torch.arange(nodes[0] - first, nodes[-1] - first + 1, device=weighted.device)
        terms = () if everything is None else objective.leaf_terms(tree, everything, node)
        family = tree.family
        return cls(
            tree, parameters, None, sample, objective, nodes, places, leaves, family, basis, weighted, terms
        )

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`: E restricted to the subtree and to I_s, up to a constant."""
        losses = parameter_losses(self.family, self._thawed(x), self.sample, self.probability > 0)
        return expected_loss(self.probability, losses)

    @override
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        if not self.objective.has_closed_form(self.family, self.sample):
            return None
        value, gradient = leaf_value_and_gradient(
            self.family, self._thawed(x), self.sample, self.probability, self.basis
        )
        return value, gradient.flatten(1)

    @override
    def penalty(self, x: Tensor) -> Tensor:
        thawed = self._thawed(x)
        penalty = self.objective.leaf_penalty(self._all(thawed))
        return sum((term.value(thawed, self.family) for term in self.terms), penalty)

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        stride = stride_of(self.sample.x)
        probability = self.sample.x.spread(self.probability, stride) * stride
        return (leaf_curvature(self.family, self._thawed(x), self.sample.thin(stride), probability),)

    @override
    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.objective.leaf_curvature(self._all(self._thawed(x)))[:, self.places],)

    def _thawed(self, x: Tensor) -> LeafParameters:
        return leaves_at(x.unflatten(1, (len(self.nodes), -1)), self.tree)

    def _all(self, thawed: LeafParameters) -> LeafParameters:
        if len(self.nodes) == len(self.tree.topology.leaves):
            return thawed
        return self.leaves.replaced(self.places, thawed)


@dataclass(frozen=True)
class SharedSlopesStep(LeafStep):
    """LN step of all leaves, whose slopes are the same: rows are (slopes, then intercept and shapes of each).

    The order is that of one leaf's parameters as :meth:`LeafParameters.unflatten` has it, slopes of shapes
    last, with the intercepts and shapes of the other leaves behind.
    """

    @override
    def flat(self) -> Tensor:
        theta = super().flat().unflatten(1, (len(self.nodes), -1))
        return self._gather(theta, theta[:, 0])

    @override
    def read_from(self, tree: SoftTree) -> Tensor:
        theta = super().read_from(tree).unflatten(1, (len(self.nodes), -1))
        return self._gather(theta, theta[:, 0])

    @override
    def write(self, x: Tensor) -> None:
        super().write(self._spread(x).flatten(1))

    @override
    def plain_data(self, x: Tensor) -> Tensor:
        return super().plain_data(self._spread(x).flatten(1))

    @override
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        written = super().written_data(self._spread(x).flatten(1))
        if written is None:
            return None
        value, gradient = written
        gradient = gradient.unflatten(1, (len(self.nodes), -1))
        return value, self._gather(gradient, gradient.sum(1))

    @override
    def penalty(self, x: Tensor) -> Tensor:
        return super().penalty(self._spread(x).flatten(1))

    @override
    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        (blocks,) = super().curvature(self._spread(x).flatten(1))
        n_leaves, size = len(self.nodes), x.shape[1]
        places = self._positions_of_leaves
        if blocks.shape[-1] == 1 or size > MAX_BLOCK:
            diagonal = blocks.diagonal(dim1=-2, dim2=-1).reshape(len(x), -1)
            whole = x.new_zeros(len(x), size).index_add(1, places.flatten(), diagonal)
            return (whole[..., None, None],)
        whole = x.new_zeros(len(x), 1, size, size)
        for leaf in range(n_leaves):
            at = places[leaf]
            whole[:, 0, at[:, None], at] += blocks[:, leaf]
        return (whole,)

    @override
    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        (seconds,) = super().penalty_curvature(self._spread(x).flatten(1))
        places = self._positions_of_leaves.flatten()
        whole = x.new_zeros(len(x), x.shape[1]).index_add(1, places, seconds.flatten(1))
        diagonals = x.shape[1] > MAX_BLOCK or seconds.shape[-1] > MAX_BLOCK
        return (whole[..., None] if diagonals else whole[:, None],)

    @property
    def _own(self) -> Tensor:
        """Positions of intercept and shapes among the parameters of a leaf."""
        first = self.tree.in_features
        return torch.arange(
            first, first + 1 + len(self.tree.family.shape_names), device=self.probability.device
        )

    @property
    def _positions_of_leaves(self) -> Tensor:
        """Where each parameter of each leaf is in a row, (L, d)."""
        own, size = self._own, self.leaves.flatten().shape[-1]
        first = torch.arange(size, device=own.device)
        places = first.expand(len(self.nodes), -1).clone()
        others = torch.arange(len(self.nodes) - 1, device=own.device)[:, None] * len(own)
        places[1:, own] = size + others + torch.arange(len(own), device=own.device)
        return places

    def _spread(self, x: Tensor) -> Tensor:
        """Parameters of all leaves (K, L, d) from rows (K, d')."""
        return x[:, self._positions_of_leaves]

    def _gather(self, of_leaves: Tensor, first: Tensor) -> Tensor:
        """Rows from values of all leaves (K, L, d), with those of the slopes from ``first`` (K, d)."""
        own = self._own
        first = first.index_copy(1, own, of_leaves[:, 0, own])
        return torch.cat([first, of_leaves[:, 1:, own].flatten(1)], dim=1)


def leaves_at(theta: Tensor, tree: SoftTree) -> LeafParameters:
    """Parameters of leaves from one row per leaf, (K, L, d)."""
    return LeafParameters.unflatten(theta, tree.in_features, len(tree.family.shape_names))

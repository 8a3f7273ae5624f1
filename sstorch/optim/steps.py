"""The minimisation problems of a training step, each as a batched function of the thawed parameters.

What is frozen in a step is evaluated once, when the step is made; an evaluation touches only the thawed
nodes, as rows (K, d) of their parameters, node after node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree, Topology
from sstorch.nn.functional import softplus
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, TrainingObjective, expected_loss, leaf_losses
from sstorch.objective.closed_form import (
    gate_value_and_gradient,
    leaf_value_and_gradient,
    logistic_value_and_gradient,
    tree_value_and_gradients,
    with_gradient,
)
from sstorch.objective.likelihood import parameter_losses
from sstorch.optim.step_curvature import blocks, gate_curvature, leaf_curvature, stride_of

# A leaf whose hazard overflows at a row gives an infinite loss there, which would make every gate step
# non-finite. At the ceiling the gates still send the row away from that leaf.
LOSS_CEILING = 1e10


def freeze_except(tree: SoftTree, thawed: Sequence[nn.Parameter]) -> None:
    """Leave ``requires_grad`` on for ``thawed`` only."""
    tree.requires_grad_(False)
    for parameter in thawed:
        parameter.requires_grad_(True)


@dataclass(frozen=True)
class Step(ABC):
    """A function of the parameters of some nodes, for K of the R problems of a tree.

    Attributes:
        tree: R problems; only ``parameters`` require gradients.
        parameters: the thawed parameters, each of shape (R, ...).
        problems: ascending positions (K,) this step stands for; all if None.
        sample: rows of the K problems.
    """

    tree: SoftTree
    parameters: tuple[nn.Parameter, ...]
    problems: Tensor | None
    sample: Sample

    @abstractmethod
    def plain_data(self, x: Tensor) -> Tensor:
        """What the rows add to the objective at parameters ``x`` (K, d), shape (K,), by plain autograd."""

    @abstractmethod
    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same with its gradient (K, d) in closed form, without a graph; None if there is none."""

    @abstractmethod
    def penalty(self, x: Tensor) -> Tensor:
        """What penalties add to the objective, shape (K,), differentiable."""

    @abstractmethod
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """Second derivatives near ``x`` (K, d) of what the rows add, blocks (K, n, b, b): one a node.

        There are as many tensors as sizes of blocks, in the order of the parameters.
        """

    @abstractmethod
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """Second derivatives of the penalties, or bounds >= 0, (K, n, b) for each of these tensors."""

    @abstractmethod
    def select(self, problems: Tensor | slice) -> Self:
        """The step for the problems at ascending positions (K',) of the present K, or in a slice."""

    @property
    def n_elements(self) -> int:
        """Elements of the largest intermediate of an evaluation, for one problem."""
        return len(self.tree.topology.leaves) * self.sample.weight.shape[-1]

    def value(self) -> Tensor:
        """Objective (K,) at the present parameters, differentiable in these."""
        return self.value_at(self.flat())

    def value_at(self, x: Tensor) -> Tensor:
        """Objective (K,) at parameters ``x`` (K, d), differentiable."""
        found = self.written_data(x.detach())
        data = self.plain_data(x) if found is None else with_gradient(x, *found)
        return data + self.penalty(x)

    def data_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the rows add to the objective (K,), and its gradient (K, d)."""
        return self.written_data(x) or by_autograd(self.plain_data, x)

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at ``x`` (K, d); the tree stays as it is."""
        value, gradient = self.data_and_gradient(x)
        penalty, of_penalty = by_autograd(self.penalty, x)
        return value + penalty, gradient + of_penalty

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


@dataclass(frozen=True)
class BranchStep(Step):
    """BN step: gates of a connected top part of a subtree, with the losses below them frozen.

    Attributes:
        objective: gives the penalties on gates.
        nodes: the thawed gates, a full binary tree in heap order.
        gates: all gates, where the step began.
        losses: normalised weight x expected loss below each end of the thawed tree, shape (K, F, M).
    """

    objective: TrainingObjective
    nodes: tuple[int, ...]
    gates: GateParameters
    losses: Tensor

    @classmethod
    @torch.no_grad()
    def make(cls, tree: SoftTree, objective: TrainingObjective, sample: Sample, node: int) -> Self:
        """Thaw the gates of the working set of ``node``: the root alone, or the node and all below it."""
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
        return cls(tree, parameters, None, sample, objective, tuple(nodes), tree.gate_parameters(), weighted)

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
        return self.objective.gate_penalty(self._all(self._thawed(x)))

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

    def select(self, problems: Tensor | slice) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            objective=self.objective.select(problems),
            gates=self.gates.select(problems),
            losses=self.losses[problems],
        )

    @property
    def _places(self) -> Tensor:
        return torch.tensor(self.nodes, device=self.losses.device) - 1

    def _thawed(self, x: Tensor) -> GateParameters:
        return GateParameters.unflatten(x.unflatten(1, (len(self.nodes), -1)))

    def _all(self, thawed: GateParameters) -> GateParameters:
        if len(self.nodes) == len(self.tree.topology.branches):
            return thawed
        return self.gates.replaced(self._places, thawed)


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
    """

    objective: TrainingObjective
    nodes: tuple[int, ...]
    leaves: LeafParameters
    family: HazardFamily
    basis: Tensor | None
    probability: Tensor

    @classmethod
    @torch.no_grad()
    def make(
        cls,
        tree: SoftTree,
        objective: TrainingObjective,
        sample: Sample,
        node: int,
        probability: Tensor | None = None,
    ) -> Self:
        """Thaw the leaves under ``node``.

        Args:
            tree: R problems.
            objective: gives the penalties.
            sample: rows I_s.
            node: root of the subtree.
            probability: of the leaves, shape (R, L', M); the tree's own soft routing if None.
        """
        nodes = tuple(tree.topology.leaves_under(node))
        if probability is None:
            probability = tree.log_leaf_probability(sample.x, node).exp()
        parameters = tuple(p for n in nodes for p in tree.leaf(n).trained())
        freeze_except(tree, parameters)
        weighted = probability * sample.normalised_weight[:, None, :]
        basis = tree.family.basis(sample.log_time)
        leaves = tree.leaf_parameters()
        return cls(tree, parameters, None, sample, objective, nodes, leaves, tree.family, basis, weighted)

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
        return self.objective.leaf_penalty(self._all(self._thawed(x)))

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

    def select(self, problems: Tensor | slice) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            objective=self.objective.select(problems),
            leaves=self.leaves.select(problems),
            family=self.family.select(problems),
            basis=None if self.basis is None else self.basis[problems],
            probability=self.probability[problems],
        )

    @property
    def _places(self) -> Tensor:
        first = self.tree.topology.leaves[0]
        return torch.tensor(self.nodes, device=self.probability.device) - first

    def _thawed(self, x: Tensor) -> LeafParameters:
        return _leaves_at(x.unflatten(1, (len(self.nodes), -1)), self.tree)

    def _all(self, thawed: LeafParameters) -> LeafParameters:
        if len(self.nodes) == len(self.tree.topology.leaves):
            return thawed
        return self.leaves.replaced(self._places, thawed)


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

    def select(self, problems: Tensor | slice) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            weight=self.weight[problems],
            left_weight=self.left_weight[problems],
        )


@dataclass(frozen=True)
class JointStep(Step):
    """All parameters of the tree at once: the full objective E.

    Attributes:
        objective: E.
        family: of the leaves, for the K problems.
        basis: see :meth:`HazardFamily.basis`.
        weight: normalised row weights, shape (K, M).
    """

    objective: TrainingObjective
    family: HazardFamily
    basis: Tensor | None
    weight: Tensor

    @classmethod
    def make(cls, tree: SoftTree, objective: TrainingObjective, sample: Sample) -> Self:
        """Thaw every parameter."""
        # A family may have no shape: a parameter without elements.
        parameters = tuple(parameter for parameter in tree.parameters() if parameter.numel())
        freeze_except(tree, parameters)
        basis, weight = tree.family.basis(sample.log_time), sample.normalised_weight
        return cls(tree, parameters, None, sample, objective, tree.family, basis, weight)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The leaves, all of them."""
        return tuple(self.tree.topology.leaves)

    def plain_data(self, x: Tensor) -> Tensor:
        """See :meth:`Step.plain_data`."""
        return self.objective.plain_data_term(*self._parts(x), self.family, self.sample, self.weight)

    def written_data(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """See :meth:`Step.written_data`."""
        if self.family.overflows or not self.objective.has_closed_form(self.family, self.sample):
            return None
        value, *gradients = tree_value_and_gradients(
            *self._parts(x), self.family, self.sample, self.weight, self.basis
        )
        return value, torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)

    def penalty(self, x: Tensor) -> Tensor:
        """See :meth:`Step.penalty`."""
        gates, leaves = self._parts(x)
        return self.objective.gate_penalty(gates) + self.objective.leaf_penalty(leaves)

    @torch.no_grad()
    def curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.curvature`."""
        (gates, leaves), stride = self._parts(x), stride_of(self.sample.x)
        rows = self.sample.thin(stride)
        weight = self.sample.x.spread(self.weight, stride)[:, None, :] * stride
        logits = gates.logits(rows.x)
        probability = log_path_probability(self.tree.topology, logits).exp() * weight
        of_leaves = leaf_curvature(self.family, leaves, rows, probability)
        if logits.shape[1] == 0:
            return (of_leaves,)
        losses = parameter_losses(self.family, leaves, rows, probability > 0).clamp(max=LOSS_CEILING)
        return gate_curvature(rows.x, logits, weight * losses), of_leaves

    @torch.no_grad()
    def penalty_curvature(self, x: Tensor) -> tuple[Tensor, ...]:
        """See :meth:`Step.penalty_curvature`."""
        gates, leaves = self._parts(x)
        of_leaves = self.objective.leaf_curvature(leaves)
        return (self.objective.gate_curvature(gates), of_leaves) if gates.bias.shape[1] else (of_leaves,)

    def select(self, problems: Tensor | slice) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            objective=self.objective.select(problems),
            family=self.family.select(problems),
            basis=None if self.basis is None else self.basis[problems],
            weight=self.weight[problems],
        )

    def _parts(self, x: Tensor) -> tuple[GateParameters, LeafParameters]:
        n_gates, n_leaves = len(self.tree.topology.branches), len(self.tree.topology.leaves)
        end = n_gates * (self.tree.n_features + 1)
        gates = GateParameters.unflatten(x[:, :end].reshape(len(x), n_gates, self.tree.n_features + 1))
        return gates, _leaves_at(x[:, end:].unflatten(1, (n_leaves, -1)), self.tree)


def by_autograd(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Value (K,) of a function at ``x`` (K, d), and its gradient (K, d), without a graph."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = function(x)
        if not value.requires_grad:
            return value, torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


def _leaves_at(theta: Tensor, tree: SoftTree) -> LeafParameters:
    """Parameters of leaves from one row per leaf, (K, L, d)."""
    return LeafParameters.unflatten(theta, tree.n_features, len(tree.family.shape_names))

"""The minimisation problems of a training step, each as a batched function of the thawed parameters.

What is frozen in a step is evaluated once, when the step is made; an evaluation touches only the thawed
nodes, whose parameters are real ``nn.Parameter`` objects reached by autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from sstorch.nn import SoftTree, Topology
from sstorch.nn.functional import log_sigmoid_pair
from sstorch.nn.routing import log_path_probability
from sstorch.objective import Sample, StepTerm, TrainingObjective, expected_loss, leaf_losses

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
    """

    tree: SoftTree
    parameters: tuple[nn.Parameter, ...]
    problems: Tensor | None

    @abstractmethod
    def value(self) -> Tensor:
        """Objective at the present parameters, shape (K,)."""

    @abstractmethod
    def select(self, problems: Tensor) -> Self:
        """The step for the problems at ascending positions (K',) of the present K."""

    def read(self) -> Tensor:
        """Present parameters, one row per problem, shape (K, d)."""
        with torch.no_grad():
            values = [p if self.problems is None else p[self.problems] for p in self.parameters]
            return torch.cat([value.flatten(1) if value.ndim > 1 else value[:, None] for value in values], 1)

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

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (K,) and gradient (K, d) at ``x`` (K, d), which is written into the parameters."""
        self.write(x)
        with torch.enable_grad():
            value = self.value()
            gradients = torch.autograd.grad(value.sum(), self.parameters)
        if self.problems is not None:
            gradients = tuple(gradient[self.problems] for gradient in gradients)
        flat = [gradient.flatten(1) if gradient.ndim > 1 else gradient[:, None] for gradient in gradients]
        return value.detach(), torch.cat(flat, dim=1)

    def _positions(self, problems: Tensor) -> Tensor:
        return problems if self.problems is None else self.problems[problems]


@dataclass(frozen=True)
class BranchStep(Step):
    """BN step: gates of a connected top part of a subtree, with the losses below them frozen.

    Attributes:
        objective: gives the penalties on gates.
        sample: rows I_s of each problem.
        nodes: the thawed gates, a full binary tree of ``topology`` in heap order.
        topology: of the thawed gates.
        losses: normalised weight x expected loss below each end of that tree, shape (K, F, M).
        terms: of the penalties on rows that train gates.
    """

    objective: TrainingObjective
    sample: Sample
    nodes: tuple[int, ...]
    topology: Topology
    losses: Tensor
    terms: tuple[StepTerm, ...] = ()

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
        levels = 1 if node == 1 else whole.depth - whole.level(node)
        losses = leaf_losses(tree, sample, whole.leaves_under(node)).clamp(max=LOSS_CEILING)
        if node == 1 and whole.depth > 1:
            below = [tree.log_leaf_probability(sample.x, child).exp() for child in (2, 3)]
            losses = torch.cat(below, dim=1) * losses
            losses = losses.unflatten(1, (2, -1)).sum(2)
        gates = [tree.gate(n) for n in nodes]
        parameters = tuple(p for gate in gates for p in (gate.weight, gate.bias))
        freeze_except(tree, parameters)
        weighted = losses * sample.normalised_weight[:, None, :]
        terms = () if everything is None else objective.branch_terms(tree, everything, node)
        return cls(tree, parameters, None, objective, sample, tuple(nodes), Topology(levels), weighted, terms)

    def value(self) -> Tensor:
        """See :meth:`Step.value`: E restricted to the subtree and to I_s, up to a constant."""
        logits = self.tree.gate_logits(self.sample.x, self.nodes, self.problems)
        probability = log_path_probability(self.topology, logits).exp()
        value = expected_loss(probability, self.losses)
        value = value + self.objective.gate_penalty(self.tree, self.problems)
        return sum((term.value(self.tree, self.problems) for term in self.terms), value)

    def select(self, problems: Tensor) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            losses=self.losses[problems],
            terms=tuple(term.select(problems) for term in self.terms),
        )


@dataclass(frozen=True)
class LeafStep(Step):
    """LN step: leaves under a node, with the gates frozen.

    Attributes:
        objective: gives the penalties on leaves.
        sample: rows I_s of each problem.
        nodes: the thawed leaves.
        probability: P_in within the subtree x normalised weight, shape (K, L', M).
        relevant: where the probability is not zero, boolean.
        terms: of the penalties on rows.
    """

    objective: TrainingObjective
    sample: Sample
    nodes: tuple[int, ...]
    probability: Tensor
    relevant: Tensor
    terms: tuple[StepTerm, ...] = ()

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
        terms = () if everything is None else objective.leaf_terms(tree, everything, node)
        return cls(tree, parameters, None, objective, sample, nodes, weighted, weighted > 0, terms)

    def value(self) -> Tensor:
        """See :meth:`Step.value`: E restricted to the subtree and to I_s, up to a constant."""
        losses = leaf_losses(self.tree, self.sample, self.nodes, self.problems, self.relevant)
        value = expected_loss(self.probability, losses)
        value = value + self.objective.leaf_penalty(self.tree, self.problems)
        return sum((term.value(self.tree, self.problems) for term in self.terms), value)

    def select(self, problems: Tensor) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            probability=self.probability[problems],
            relevant=self.relevant[problems],
            terms=tuple(term.select(problems) for term in self.terms),
        )


@dataclass(frozen=True)
class LogisticStep(Step):
    """Weighted logistic regression of one gate onto a left/right labelling of its rows.

    (1/2) ||w||^2 + sum_i o_i logloss_i with a free intercept: scikit-learn's ``LogisticRegression`` at
    C = 1. The penalty is needed, since the present routing is linear and so its classes are separable.

    Attributes:
        sample: rows of each problem.
        node: the gate.
        left_weight: o_i where the label is left, else 0, shape (K, M).
        right_weight: o_i where the label is right, else 0, shape (K, M).
    """

    sample: Sample
    node: int
    left_weight: Tensor
    right_weight: Tensor

    @classmethod
    def make(cls, tree: SoftTree, sample: Sample, node: int, left: Tensor, weight: Tensor) -> Self:
        """Thaw the gate of ``node``, labels ``left`` (R, M) boolean, row weights (R, M)."""
        gate = tree.gate(node)
        parameters = (gate.weight, gate.bias)
        freeze_except(tree, parameters)
        zero = torch.zeros_like(weight)
        return cls(
            tree,
            parameters,
            None,
            sample,
            node,
            torch.where(left, weight, zero),
            torch.where(left, zero, weight),
        )

    def value(self) -> Tensor:
        """See :meth:`Step.value`."""
        log_left, log_right = log_sigmoid_pair(
            self.tree.gate_logits(self.sample.x, [self.node], self.problems).squeeze(1)
        )
        weights = self.tree.gate_weights([self.node], self.problems)
        loss = (self.left_weight * log_left + self.right_weight * log_right).sum(-1)
        return weights.square().sum((-2, -1)) / 2 - loss

    def select(self, problems: Tensor) -> Self:
        """See :meth:`Step.select`."""
        return replace(
            self,
            problems=self._positions(problems),
            sample=self.sample.select(problems),
            left_weight=self.left_weight[problems],
            right_weight=self.right_weight[problems],
        )


@dataclass(frozen=True)
class JointStep(Step):
    """All parameters of the tree at once: the full objective E.

    Attributes:
        objective: E.
        sample: all rows of each problem.
        relaxed: with the relaxation of penalties that are not smooth in the gates, as a minimiser needs it.
    """

    objective: TrainingObjective
    sample: Sample
    relaxed: bool = False

    @classmethod
    def make(
        cls, tree: SoftTree, objective: TrainingObjective, sample: Sample, relaxed: bool = False
    ) -> Self:
        """Thaw every parameter."""
        # A family may have no shape: a parameter without elements.
        parameters = tuple(parameter for parameter in tree.parameters() if parameter.numel())
        freeze_except(tree, parameters)
        return cls(tree, parameters, None, objective, sample, relaxed)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The leaves, all of them."""
        return tuple(self.tree.topology.leaves)

    def value(self) -> Tensor:
        """See :meth:`Step.value`."""
        return self.objective(  # type: ignore[no-any-return]
            self.tree, self.sample, self.problems, self.relaxed
        )

    def select(self, problems: Tensor) -> Self:
        """See :meth:`Step.select`."""
        return replace(self, problems=self._positions(problems), sample=self.sample.select(problems))

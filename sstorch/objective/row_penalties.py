"""Penalties on the predictions for all rows, and their terms in the steps of a decomposition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.batched import SHARED, Batched
from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.routing import visits
from sstorch.objective.penalties import Penalty
from sstorch.objective.rows import Sample


class GateTerm(Batched, ABC):
    """Term of a penalty on rows in a BN step; it keeps everything that is frozen there."""

    @abstractmethod
    def value(self, gates: GateParameters) -> Tensor:
        """Value per problem, shape (K,), from all gates, those that are frozen too."""


class LeafTerm(Batched, ABC):
    """Term of a penalty on rows in an LN step; it keeps everything that is frozen there."""

    @abstractmethod
    def value(self, leaves: LeafParameters, family: HazardFamily) -> Tensor:
        """Value per problem, shape (K,), from the thawed leaves and the family of these problems."""


class RowPenalty(Penalty, ABC):
    """Base class of penalties on the predictions for all rows.

    ``trains_gates`` is whether it acts where gates are trained, by a relaxation that is smooth in them;
    ``trains_leaves`` whether it acts where leaves are. A subclass needs :meth:`forward`; terms of its own are
    faster where much of it is frozen in a step.
    """

    trains_gates: bool = False
    trains_leaves: bool = True

    @abstractmethod
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        """Value per problem, shape (K,).

        Args:
            gates: all gates.
            leaves: all leaves.
            family: of the leaves, for the K problems.
            sample: their rows.
            relaxed: the relaxation instead of the penalty itself.
        """

    def leaf_term(self, tree: SoftTree, sample: Sample, node: int) -> LeafTerm:
        """The penalty as a function of the leaves under ``node``, gates frozen, if it trains them.

        Args:
            tree: K problems.
            sample: all rows of each problem.
            node: s. The loss of the step is a mean over its rows I_s, and the term weighs against it as the
                penalty does against the mean over all rows.
        """
        under, device = tree.topology.leaves_under(node), sample.weight.device
        places = torch.tensor(under, device=device) - tree.topology.leaves[0]
        with torch.no_grad():
            gates, leaves = tree.gate_parameters(), tree.leaf_parameters()
            return _LeafTermOf(self, sample, _factor_of(tree, sample, node), gates, leaves, places)

    def gate_term(self, tree: SoftTree, sample: Sample, node: int) -> GateTerm:
        """The relaxation as a function of the gates, leaves frozen; arguments as above."""
        with torch.no_grad():
            factor = _factor_of(tree, sample, node)
            return _GateTermOf(self, sample, factor, tree.leaf_parameters(), tree.family)


@dataclass(frozen=True)
class _LeafTermOf(LeafTerm):
    """A penalty as a function of the leaves at some places; the gates and the other leaves are frozen."""

    penalty: RowPenalty
    sample: Sample
    factor: Tensor  # shape (K,)
    gates: GateParameters
    leaves: LeafParameters
    places: Tensor = field(metadata=SHARED)

    @override
    def value(self, leaves: LeafParameters, family: HazardFamily) -> Tensor:
        whole = self.leaves.replaced(self.places, leaves)
        return self.factor * self.penalty.forward(self.gates, whole, family, self.sample)


@dataclass(frozen=True)
class _GateTermOf(GateTerm):
    """The relaxation of a penalty as a function of the gates; the leaves are frozen."""

    penalty: RowPenalty
    sample: Sample
    factor: Tensor  # shape (K,)
    leaves: LeafParameters
    family: HazardFamily

    @override
    def value(self, gates: GateParameters) -> Tensor:
        return self.factor * self.penalty.forward(gates, self.leaves, self.family, self.sample, True)


def _factor_of(tree: SoftTree, sample: Sample, node: int) -> Tensor:
    return weight_in_step(
        sample.weight, sample.weight * visits(tree.topology, tree.apply_leaf(sample.x), node)
    )


def weight_in_step(weight: Tensor, inside: Tensor) -> Tensor:
    """Weight of all rows over that of the rows of a step, (K, M) -> (K,); 0 if it has none.

    The loss of a step is a mean over its rows, so that they count more than in the full objective.
    """
    total = inside.sum(-1)
    return torch.where(total > 0, weight.sum(-1) / total, torch.zeros_like(total))

"""Leaves with too few of the rows, as a penalty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from sstorch.nn import GateParameters, HazardFamily, LeafParameters, SoftTree
from sstorch.nn.routing import visits
from sstorch.objective.penalties import GateTerm, RowPenalty, weight_in_step
from sstorch.objective.rows import Sample

# Curvature of the square of what a leaf lacks: as in distillation, where it outweighs the likelihood.
TOO_SMALL = 10.0


def lacking(mass: Tensor, least: float | Tensor) -> Tensor:
    """Sum over leaves of the squares of what their shares (K, L) lack of ``least``, (K,)."""
    return (least - mass).clamp(min=0).square().sum(-1)


class SmallLeaves(RowPenalty):
    """lambda sum_n max(0, m - (1/N) sum_i P_in)^2: every leaf has a share m of the rows, as routed softly.

    It is used in the training of gates only.

    Args:
        coefficient: lambda, one value or one per problem, shape (R,).
        least: m, in [0, 1/2).
    """

    trains_gates, trains_leaves = True, False

    def __init__(self, coefficient: float | Tensor, least: float) -> None:
        super().__init__(coefficient)
        self.least = least

    @override
    def forward(
        self,
        gates: GateParameters,
        leaves: LeafParameters,
        family: HazardFamily,
        sample: Sample,
        relaxed: bool = False,
    ) -> Tensor:
        mass = _mass(gates, sample)
        return self.at(mass) * lacking(mass, self.least)

    @override
    def gate_term(self, tree: SoftTree, sample: Sample, node: int) -> MassTerm:
        with torch.no_grad():
            inside = sample.weight * visits(tree.topology, tree.apply_leaf(sample.x), node)
            scale = weight_in_step(sample.weight, inside)
            return MassTerm(sample, self.at(scale) * scale, torch.full_like(scale, self.least))


@dataclass(frozen=True)
class MassTerm(GateTerm):
    """The penalty as a function of the gates in a BN step."""

    sample: Sample  # all rows of each problem
    factor: Tensor  # of the squares, shape (K,)
    least: Tensor  # share of the rows that a leaf must have, shape (K,)

    @override
    def value(self, gates: GateParameters) -> Tensor:
        return self.factor * lacking(_mass(gates, self.sample), self.least[:, None])


def _mass(gates: GateParameters, sample: Sample) -> Tensor:
    """Share of the rows in each leaf, by weight, as gates route them softly, (K, L)."""
    return (gates.leaf_probability(sample.x) * sample.normalised_weight[:, None, :]).sum(-1)

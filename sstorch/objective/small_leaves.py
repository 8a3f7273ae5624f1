"""Leaves with too few of the rows, as a penalty."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from sstorch.nn import GateParameters, HazardFamily, LeafParameters
from sstorch.objective.row_penalties import RowPenalty
from sstorch.objective.rows import Sample

# Curvature of the square of what a leaf lacks: as in distillation, where it outweighs the likelihood.
TOO_SMALL = 10.0


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
        share = (gates.leaf_probability(sample.x) * sample.normalised_weight[:, None, :]).sum(-1)
        return self.at(share) * (self.least - share).clamp(min=0).square().sum(-1)

"""Training objectives: small modules with one value per problem."""

from sstorch.objective.parity import GroupParity, L2Parity
from sstorch.objective.penalties import (
    GatePenalty,
    GateRidge,
    LeafPenalty,
    Monotone,
    NormalPrior,
    Penalty,
    Ridge,
    Roughness,
)
from sstorch.objective.row_penalties import RowPenalty, SmallLeaves
from sstorch.objective.rows import Sample, counted_weight
from sstorch.objective.training import TrainingObjective, leaf_losses

__all__ = [
    "GatePenalty",
    "GateRidge",
    "GroupParity",
    "L2Parity",
    "LeafPenalty",
    "Monotone",
    "NormalPrior",
    "Penalty",
    "Ridge",
    "Roughness",
    "RowPenalty",
    "Sample",
    "SmallLeaves",
    "TrainingObjective",
    "counted_weight",
    "leaf_losses",
]

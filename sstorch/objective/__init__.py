"""Training objectives: small modules with one value per problem."""

from sstorch.objective.parity import L2Parity
from sstorch.objective.penalties import (
    GatePenalty,
    GateRidge,
    LeafPenalty,
    Penalty,
    Ridge,
    RowPenalty,
    SmallLeaves,
)
from sstorch.objective.rows import Sample
from sstorch.objective.training import TrainingObjective

__all__ = [
    "GatePenalty",
    "GateRidge",
    "L2Parity",
    "LeafPenalty",
    "Penalty",
    "Ridge",
    "RowPenalty",
    "Sample",
    "SmallLeaves",
    "TrainingObjective",
]

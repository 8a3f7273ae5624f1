"""Training objectives: small modules with one value per problem."""

from sstorch.objective.fairness import FAIRNESS, L2Parity
from sstorch.objective.group_parity import GroupParity
from sstorch.objective.likelihood import expected_loss, leaf_losses
from sstorch.objective.penalties import (
    Fused,
    GateGroupLasso,
    GateRidge,
    Penalty,
    Ridge,
    RowPenalty,
)
from sstorch.objective.sample import Sample
from sstorch.objective.shards import Shards
from sstorch.objective.training import TrainingObjective

__all__ = [
    "FAIRNESS",
    "Fused",
    "GateGroupLasso",
    "GateRidge",
    "GroupParity",
    "L2Parity",
    "Penalty",
    "Ridge",
    "RowPenalty",
    "Sample",
    "Shards",
    "TrainingObjective",
    "expected_loss",
    "leaf_losses",
]

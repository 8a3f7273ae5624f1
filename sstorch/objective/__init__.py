"""Training objectives: small modules with one value per problem."""

from sstorch.objective.likelihood import expected_loss, leaf_losses
from sstorch.objective.penalties import Fused, GateGroupLasso, GateRidge, Penalty, Ridge
from sstorch.objective.sample import Sample
from sstorch.objective.shards import Shards
from sstorch.objective.training import TrainingObjective

__all__ = [
    "Fused",
    "GateGroupLasso",
    "GateRidge",
    "Penalty",
    "Ridge",
    "Sample",
    "Shards",
    "TrainingObjective",
    "expected_loss",
    "leaf_losses",
]

"""Objectives of exact trees, under the name that they had before :mod:`sstorch.exact`."""

from sstorch.exact.survival_tasks import HorizonLabels, IntegratedBrier, LogLikelihood, horizon_labels
from sstorch.exact.task import BranchCostTask, DecisionTask, Entries, SurvivalTask, Task
from sstorch.exact.tasks import (
    Classification,
    CostSensitive,
    DecisionCosts,
    FeatureCosts,
    LeastSquares,
    Policy,
    policy_scores,
)

__all__ = [
    "BranchCostTask",
    "Classification",
    "CostSensitive",
    "DecisionCosts",
    "DecisionTask",
    "Entries",
    "FeatureCosts",
    "HorizonLabels",
    "IntegratedBrier",
    "LeastSquares",
    "LogLikelihood",
    "Policy",
    "SurvivalTask",
    "Task",
    "horizon_labels",
    "policy_scores",
]

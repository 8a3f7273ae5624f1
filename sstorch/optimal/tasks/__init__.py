"""Objectives of exact trees: what a leaf costs."""

from sstorch.optimal.tasks.base import BranchCostTask, DecisionTask, Entries, SurvivalTask, Task
from sstorch.optimal.tasks.classification import Classification
from sstorch.optimal.tasks.cost_sensitive import CostSensitive, FeatureCosts
from sstorch.optimal.tasks.decision_costs import DecisionCosts
from sstorch.optimal.tasks.horizon import HorizonLabels, horizon_labels
from sstorch.optimal.tasks.integrated_brier import IntegratedBrier
from sstorch.optimal.tasks.least_squares import LeastSquares
from sstorch.optimal.tasks.log_likelihood import LogLikelihood
from sstorch.optimal.tasks.policy import Policy, policy_scores

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

"""Exact optimal trees over binary features, for survival and for every other separable objective."""

from sstorch.optimal.binarize import Binarizer
from sstorch.optimal.check_task import check_task
from sstorch.optimal.engine import solve
from sstorch.optimal.rules import Rule
from sstorch.optimal.solution import Counters, Optimum, PathStep, Solution
from sstorch.optimal.tasks import (
    BranchCostTask,
    Classification,
    CostSensitive,
    DecisionCosts,
    DecisionTask,
    Entries,
    FeatureCosts,
    HorizonLabels,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    Policy,
    SurvivalTask,
    Task,
    horizon_labels,
    policy_scores,
)
from sstorch.optimal.tree import BinaryTree

__all__ = [
    "Binarizer",
    "BinaryTree",
    "BranchCostTask",
    "Classification",
    "CostSensitive",
    "Counters",
    "DecisionCosts",
    "DecisionTask",
    "Entries",
    "FeatureCosts",
    "HorizonLabels",
    "IntegratedBrier",
    "LeastSquares",
    "LogLikelihood",
    "Optimum",
    "PathStep",
    "Policy",
    "Rule",
    "Solution",
    "SurvivalTask",
    "Task",
    "check_task",
    "horizon_labels",
    "policy_scores",
    "solve",
]

"""Exact optimal trees over binary features, for survival and for every other separable objective."""

from sstorch.exact.binarize import Binarizer, Rule
from sstorch.exact.check import check_task
from sstorch.exact.feature_costs import FeatureCosts
from sstorch.exact.horizon import HorizonLabels, horizon_labels
from sstorch.exact.policy import Policy, policy_scores
from sstorch.exact.reference import reference_costs
from sstorch.exact.solution import Counters, Optimum, PathStep, Solution
from sstorch.exact.solve import solve
from sstorch.exact.survival_tasks import CompetingLogLikelihood, IntegratedBrier, LogLikelihood
from sstorch.exact.task import DecisionTask, PricedTask, SurvivalTask, Task, log
from sstorch.exact.tasks import Classification, CostSensitive, DecisionCosts, LeastSquares
from sstorch.exact.tree import BinaryTree

__all__ = [
    "Binarizer",
    "BinaryTree",
    "Classification",
    "CompetingLogLikelihood",
    "CostSensitive",
    "Counters",
    "DecisionCosts",
    "DecisionTask",
    "FeatureCosts",
    "HorizonLabels",
    "IntegratedBrier",
    "LeastSquares",
    "LogLikelihood",
    "Optimum",
    "PathStep",
    "Policy",
    "PricedTask",
    "Rule",
    "Solution",
    "SurvivalTask",
    "Task",
    "check_task",
    "horizon_labels",
    "log",
    "policy_scores",
    "reference_costs",
    "solve",
]

"""Exact optimal trees over binary features, for survival and for every other separable objective."""

from sstorch.exact.binarize import Binarizer
from sstorch.exact.check import check_task
from sstorch.exact.feature_costs import FeatureCosts
from sstorch.exact.reference import reference_costs
from sstorch.exact.solve import solve
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood
from sstorch.exact.targets import horizon_labels, policy_scores
from sstorch.exact.task import Task, log
from sstorch.exact.tasks import Classification, DecisionCosts, LeastSquares

__all__ = [
    "Binarizer",
    "Classification",
    "DecisionCosts",
    "FeatureCosts",
    "IntegratedBrier",
    "LeastSquares",
    "LogLikelihood",
    "Task",
    "check_task",
    "horizon_labels",
    "log",
    "policy_scores",
    "reference_costs",
    "solve",
]

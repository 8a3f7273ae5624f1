"""Exact optimal trees over binary features, for survival and for every other separable objective."""

from sstorch.exact.binarize import Binarizer
from sstorch.exact.solve import check_task, solve
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood, reference_costs
from sstorch.exact.task import FeatureCosts, Task, log
from sstorch.exact.tasks import Classification, DecisionCosts, LeastSquares, horizon_labels, policy_scores

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

"""Objectives of exact trees: what a leaf costs."""

from sstorch.optimal.tasks.base import BranchCostTask, DecisionTask, Entries, SurvivalTask, Task
from sstorch.optimal.tasks.integrated_brier import IntegratedBrier
from sstorch.optimal.tasks.log_likelihood import LogLikelihood

__all__ = [
    "BranchCostTask",
    "DecisionTask",
    "Entries",
    "IntegratedBrier",
    "LogLikelihood",
    "SurvivalTask",
    "Task",
]

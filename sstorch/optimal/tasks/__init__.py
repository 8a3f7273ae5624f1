"""Objectives of exact trees: what a leaf costs."""

from sstorch.optimal.tasks.base import Entries, Task
from sstorch.optimal.tasks.integrated_brier import IntegratedBrier
from sstorch.optimal.tasks.log_likelihood import LogLikelihood

__all__ = ["Entries", "IntegratedBrier", "LogLikelihood", "Task"]

"""Exact optimal survival trees over binary features."""

from sstorch.optimal.binarize import Binarizer
from sstorch.optimal.engine import solve
from sstorch.optimal.rules import Rule
from sstorch.optimal.solution import Counters, Optimum, PathStep, Solution
from sstorch.optimal.tasks import Entries, IntegratedBrier, LogLikelihood, Task
from sstorch.optimal.tree import BinaryTree

__all__ = [
    "Binarizer",
    "BinaryTree",
    "Counters",
    "Entries",
    "IntegratedBrier",
    "LogLikelihood",
    "Optimum",
    "PathStep",
    "Rule",
    "Solution",
    "Task",
    "solve",
]

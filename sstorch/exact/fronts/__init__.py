"""Exact trees for objectives of two totals: Pareto fronts, fairness of two groups, areas under ROC curves."""

from sstorch.exact.fronts.solve import DecidedTree, FrontSolution, solve_areas, solve_front
from sstorch.exact.fronts.tasks import FrontTask, confusion_front, group_fairness

__all__ = [
    "DecidedTree",
    "FrontSolution",
    "FrontTask",
    "confusion_front",
    "group_fairness",
    "solve_areas",
    "solve_front",
]

"""Exact trees for objectives of several totals: Pareto fronts, fairness, and the area under the ROC curve."""

from sstorch.exact.fronts.roc_hull import RocSolution, solve_roc_hull
from sstorch.exact.fronts.solve import DecidedTree, FrontSolution, solve_front
from sstorch.exact.fronts.tasks import (
    ConfusionFront,
    FrontTask,
    GroupFairness,
    check_front_task,
    disparity,
)

__all__ = [
    "ConfusionFront",
    "DecidedTree",
    "FrontSolution",
    "FrontTask",
    "GroupFairness",
    "RocSolution",
    "check_front_task",
    "disparity",
    "solve_front",
    "solve_roc_hull",
]

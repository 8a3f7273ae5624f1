"""Exact trees for objectives of two totals: Pareto fronts, fairness, and the area under the ROC curve."""

from sstorch.optimal.fronts.base import FrontTask, Order
from sstorch.optimal.fronts.check_front_task import check_front_task
from sstorch.optimal.fronts.confusion_front import ConfusionFront, f_beta
from sstorch.optimal.fronts.engine import solve_front
from sstorch.optimal.fronts.fair_survival import FairSurvival
from sstorch.optimal.fronts.group_fairness import GroupFairness, disparity
from sstorch.optimal.fronts.roc_hull import RankingTree, RocSolution, solve_roc_hull
from sstorch.optimal.fronts.solution import DecidedTree, FrontCounters, FrontSolution

__all__ = [
    "ConfusionFront",
    "DecidedTree",
    "FairSurvival",
    "FrontCounters",
    "FrontSolution",
    "FrontTask",
    "GroupFairness",
    "Order",
    "RankingTree",
    "RocSolution",
    "check_front_task",
    "disparity",
    "f_beta",
    "solve_front",
    "solve_roc_hull",
]

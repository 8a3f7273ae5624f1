"""Exact trees for objectives of two totals: Pareto fronts, fairness of two groups, areas under ROC curves."""

from sstorch.exact.fronts.solve import DecidedTree as DecidedTree
from sstorch.exact.fronts.solve import FrontSolution as FrontSolution
from sstorch.exact.fronts.solve import solve_areas as solve_areas
from sstorch.exact.fronts.solve import solve_front as solve_front
from sstorch.exact.fronts.tasks import FrontTask as FrontTask
from sstorch.exact.fronts.tasks import confusion_front as confusion_front
from sstorch.exact.fronts.tasks import group_fairness as group_fairness

"""Figures; every function returns the matplotlib axes it drew on."""

from sstorch.plots.optimal_tree import plot_optimal_tree
from sstorch.plots.survival_curves import plot_survival_by_leaf

__all__ = ["plot_optimal_tree", "plot_survival_by_leaf"]

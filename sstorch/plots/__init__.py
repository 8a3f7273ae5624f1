"""Figures; every function returns the matplotlib axes or the figure it drew."""

from sstorch.plots.curves import (
    plot_calibration,
    plot_decision_curve,
    plot_objective,
    plot_survival_by_leaf,
)
from sstorch.plots.effects import plot_effects
from sstorch.plots.groups import plot_groups
from sstorch.plots.trees import plot_tree

__all__ = [
    "plot_calibration",
    "plot_decision_curve",
    "plot_effects",
    "plot_groups",
    "plot_objective",
    "plot_survival_by_leaf",
    "plot_tree",
]

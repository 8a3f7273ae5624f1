"""Figures; every function returns the matplotlib axes or the figure it drew."""

from sstorch.plots.curves import (
    plot_calibration,
    plot_decision_curve,
    plot_objective,
    plot_routing_sharpness,
    plot_survival_by_leaf,
)
from sstorch.plots.effects import plot_effects
from sstorch.plots.groups import plot_groups, plot_incidence, plot_stability
from sstorch.plots.trees import plot_optimal_tree, plot_soft_tree

__all__ = [
    "plot_calibration",
    "plot_decision_curve",
    "plot_effects",
    "plot_groups",
    "plot_incidence",
    "plot_objective",
    "plot_optimal_tree",
    "plot_routing_sharpness",
    "plot_soft_tree",
    "plot_stability",
    "plot_survival_by_leaf",
]

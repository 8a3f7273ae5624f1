"""Figures; every function returns the matplotlib axes or the figure it drew."""

from sstorch.plots.critical_difference import plot_critical_difference
from sstorch.plots.diagnostics import plot_calibration, plot_objective, plot_routing_sharpness
from sstorch.plots.fairness import plot_curves_by_rho, plot_parity_by_rho, plot_scores_by_rho
from sstorch.plots.optimal_tree import plot_optimal_tree
from sstorch.plots.score_boxes import plot_runs, plot_scores_by_dataset
from sstorch.plots.soft_tree import plot_soft_tree
from sstorch.plots.survival_curves import plot_survival_by_leaf

__all__ = [
    "plot_calibration",
    "plot_critical_difference",
    "plot_curves_by_rho",
    "plot_objective",
    "plot_optimal_tree",
    "plot_parity_by_rho",
    "plot_routing_sharpness",
    "plot_runs",
    "plot_scores_by_dataset",
    "plot_scores_by_rho",
    "plot_soft_tree",
    "plot_survival_by_leaf",
]

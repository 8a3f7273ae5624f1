"""Figures; every function returns the matplotlib axes it drew on."""

from sstorch.plots.survival_curves import plot_survival_by_leaf

__all__ = ["plot_survival_by_leaf"]

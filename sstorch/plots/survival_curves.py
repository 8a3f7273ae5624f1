"""Predicted survival curves, coloured by leaf."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#3b6fb6", "#d1603d", "#4a9a5b", "#8e5ea2", "#c9a227", "#56a3a6", "#b5495b", "#6b6b6b")


class FittedTree(Protocol):
    """What a tree must offer to be drawn; see :class:`sstorch.SoftSurvivalTree`."""

    event_times_: Any

    def predict_survival_function(self, X: object, times: Any) -> Any:
        """Survival curves, shape (n, n_times)."""

    def apply(self, X: object) -> Any:
        """Leaf of each row, shape (n,)."""


def plot_survival_by_leaf(tree: FittedTree, X: object, ax: Axes | None = None, max_curves: int = 300) -> Axes:
    """Draw the survival curve of every row in the colour of its leaf, and the leaf's mean curve on top.

    Args:
        tree: fitted.
        X: rows.
        ax: axes to draw on; of a new figure if None.
        max_curves: rows drawn at most, evenly chosen; means are over all rows.

    Returns:
        The axes.
    """
    if ax is None:
        ax = Figure(figsize=(7, 4.5), layout="constrained").subplots()
    grid = np.linspace(0.0, float(tree.event_times_[-1]), 101)
    curves, leaf = np.asarray(tree.predict_survival_function(X, grid)), tree.apply(X)
    drawn = np.unique(np.linspace(0, len(leaf) - 1, max_curves).astype(int))
    for number in np.unique(leaf):
        colour = COLOURS[number % len(COLOURS)]
        inside = leaf == number
        some = drawn[inside[drawn]]
        if len(some):
            ax.plot(grid, curves[some].T, color=colour, alpha=0.2, linewidth=0.7)
        label = f"leaf {number}: {inside.sum()} rows"
        ax.plot(grid, curves[inside].mean(axis=0), color=colour, linewidth=2.5, label=label)
    ax.set(xlabel="time", ylabel="predicted survival", ylim=(0, 1.02), xlim=(0, grid[-1]))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax

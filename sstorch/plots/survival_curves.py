"""Predicted survival curves, coloured by leaf."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

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

    Within a leaf the shades go from dark, where the predicted survival is lowest, to light.

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
        order = np.argsort(curves[some].mean(axis=1), kind="stable")
        for row, shade in zip(some[order], _shades(colour, len(some)), strict=True):
            ax.plot(grid, curves[row], color=shade, alpha=0.5, linewidth=0.7)
        label = f"leaf {number}: {inside.sum()} rows"
        (line,) = ax.plot(grid, curves[inside].mean(axis=0), color=colour, linewidth=2.5, label=label)
        line.set_path_effects([Stroke(linewidth=4.5, foreground="white"), Normal()])
    ax.set(xlabel="time", ylabel="predicted survival", ylim=(0, 1.02), xlim=(0, grid[-1]))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _shades(colour: str, n: int) -> npt.NDArray[np.float64]:
    """Mixtures of a colour with black at first and with white at last, shape (n, 3)."""
    base, share = np.array(to_rgb(colour)), np.linspace(-0.2, 0.7, n)[:, None]
    return np.where(share < 0, base * (1 + share), base + share * (1 - base))

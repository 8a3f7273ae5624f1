"""Figure of one subject with time-varying covariates: its leaves over time, and its curve along them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from sstorch.exceptions import DataError
from sstorch.plots.figures import colour_of, given_or_new, time_label
from sstorch.reading import path_table

if TYPE_CHECKING:
    from sstorch.soft.estimator import SoftEstimator


def plot_path(
    tree: SoftEstimator, X: object, entry: object, ax: Axes | None = None, time_unit: str | None = None
) -> Axes:
    """Plot the survival of one subject along its rows, on bands coloured by leaf.

    Labels at changes of leaf name the changed columns. The last row is carried forward.

    Args:
        tree: fitted.
        X: the rows of one subject.
        entry: start of each row, (n,).
        ax: matplotlib axes; None for a new figure.
        time_unit: unit of time for the axis label; None for that of the tree.

    Returns:
        The axes.

    Raises:
        DataError: there are no rows, or two rows start at the same time.
    """
    begin = np.asarray(entry, dtype=np.float64)
    if begin.size == 0:
        raise DataError("a subject without rows has no path")
    stays = path_table(tree, X, entry=begin, id=np.zeros(begin.size, dtype=int))
    ax = given_or_new(ax, 8, 4.2)
    grid = np.unique(np.r_[np.linspace(begin.min(), float(tree.event_times_[-1]), 301), begin])
    curve = tree.predict_survival_function(X, grid, entry=begin, id=np.zeros(begin.size, dtype=int))[0]
    columns = [stays[name].tolist() for name in ("from", "until", "group", "why")]
    for number, (start, until, leaf, why) in enumerate(zip(*columns, strict=True)):
        colour, end = colour_of(leaf), min(until, grid[-1])
        ax.axvspan(start, end, color=colour, alpha=0.18, linewidth=0)
        inside = (grid >= start) & (grid <= end)
        ax.plot(grid[inside], curve[inside], color=colour, linewidth=2.5)
        ax.text(start, 1.03, f" group {leaf}", color=colour, fontweight="bold", va="bottom")
        if why:
            changes = why.split(": ", 1)[0].replace(", ", "\n")
            height = 0.03 + 0.16 * (number % 4)  # changes may be close to each other
            ax.text(start, height, f"{changes} ", ha="right", va="bottom", fontsize="small", parse_math=False)
            ax.axvline(start, color="0.4", linewidth=0.8)
    ax.set(xlabel=time_label(tree, time_unit), ylabel="predicted survival", ylim=(0, 1.12))
    ax.set_xlim(grid[0], grid[-1])
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.spines[["top", "right"]].set_visible(False)
    return ax

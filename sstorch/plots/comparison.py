"""The figure of a comparison of models."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sstorch.plots.figures import COLOURS, given_or_new, without_math

# Of the smallest distance between two times, the width that the models at one time take.
_WIDTH = 0.5


def plot_comparison(table: pd.DataFrame, title: str, ax: Axes | None = None) -> Axes:
    """Values with confidence limits of a table by time and model, against time, models side by side."""
    ax = given_or_new(ax, 5.6, 4.2)
    times, names = table.index.unique("time").to_numpy(dtype=float), list(table.index.unique("model"))
    step = float(np.diff(times).min()) if times.size > 1 else 1.0
    for number, name in enumerate(names):
        own = table.xs(name, level="model")
        shift = _WIDTH * step * ((number + 0.5) / len(names) - 0.5)
        colour = COLOURS[number % len(COLOURS)]
        ax.vlines(times + shift, own["lower"], own["upper"], color=colour, linewidth=1.5)
        ax.plot(times + shift, own["value"], "o", color=colour, label=name)
    ax.set(xlabel="time", ylabel=title, xlim=(times[0] - 0.6 * step, times[-1] + 0.6 * step))
    ax.set_xticks(times, [f"{t:g}" for t in times])
    ax.spines[["top", "right"]].set_visible(False)
    without_math(ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3))
    return ax

"""The figure of a drift report."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from sstorch.plots.figures import COLOURS, ShownFigure, without_math

# A smaller stability index is not a finding, by the rule of thumb of credit scoring.
LEAST_PSI = 0.1
# Columns that are drawn, those with the largest stability index; and labels of the axis of periods.
_COLUMNS_SHOWN, _LABELS_SHOWN = 20, 12
# The darkest colour is that of a stability index so many times its limit.
_LARGE = 2.0
_SHADES = LinearSegmentedColormap.from_list("shift", ["#f4f4f2", "#f2c9a8", COLOURS[1]])


def plot_drift(columns: pd.DataFrame, periods: pd.DataFrame, horizon: str) -> Figure:
    """Stability index of columns, mean predicted risk, observed over expected, and concordance, by period.

    At most 20 columns are drawn, those with the largest index; a frame marks a finding. Predictions have
    confidence intervals, and the last two panels are there where outcomes are known. The tables are those of
    :class:`~sstorch.validation.DriftReport`.
    """
    names = list(dict.fromkeys(columns.index.get_level_values("period")))
    largest = columns["psi"].groupby(level="column").max().sort_values(ascending=False)
    shown = largest.index[:_COLUMNS_SHOWN]
    competing = isinstance(periods.index, pd.MultiIndex)
    ratio = "oe_ratio" if competing else "oe_hazard"
    panels = [("risk", f"mean predicted risk\nat {horizon}")]
    if ratio in periods:
        panels += [(ratio, "observed\nover expected"), ("concordance", "concordance")]
    heights = [0.26 * len(shown) + 0.3, *[1.5] * len(panels)]
    width = float(np.clip(3.2 + 0.36 * len(names), 5.0, 12.0))
    figure = ShownFigure(figsize=(width, sum(heights) + 1.0), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    _shade(axes[0], columns, names, list(shown), len(largest))
    for ax, (measure, label) in zip(axes[1:], panels, strict=True):
        _trend(ax, periods, names, measure, competing)
        ax.set_ylabel(label)
    if competing:
        legend = axes[1].legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
        without_math(legend)
    step = -(-len(names) // _LABELS_SHOWN)
    axes[-1].set_xticks(
        range(0, len(names), step),
        names[::step],
        rotation=35 if len(names) > 4 else 0,
        ha="right" if len(names) > 4 else "center",
        parse_math=False,
    )
    axes[-1].set_xlim(-0.5, len(names) - 0.5)
    return figure


def _shade(ax: Axes, columns: pd.DataFrame, names: list[str], shown: list[str], n_columns: int) -> None:
    # Of few rows a large index is chance: only one above its limit is dark.
    ratio = (columns["psi"] / columns["limit"].clip(lower=LEAST_PSI)).unstack("period")
    table = columns["psi"].unstack("period").reindex(index=shown, columns=names)
    image = ax.imshow(
        ratio.reindex(index=shown, columns=names), aspect="auto", cmap=_SHADES, vmin=0.0, vmax=_LARGE
    )
    few = len(names) <= _LABELS_SHOWN
    for (i, name), (j, period) in ((a, b) for a in enumerate(shown) for b in enumerate(names)):
        if columns["finding"][period, name]:
            ax.add_patch(Rectangle((j - 0.46, i - 0.44), 0.92, 0.88, fill=False, edgecolor="#7a1f0c"))
            if few:
                text = f"{float(table.to_numpy()[i, j]):.2f}".removeprefix("0")
                ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color="#222222")
    more = f", {len(shown)} of {n_columns} columns" if n_columns > len(shown) else ""
    ax.set_title(f"population stability index{more}; framed: a finding", fontsize=9, loc="left")
    ax.set_yticks(range(len(shown)), shown, fontsize=8.5, parse_math=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, extend="max", shrink=min(1.0, 1.2 / (0.26 * len(shown))), pad=0.01)
    bar.ax.tick_params(labelsize=7.5)
    bar.set_label("index / limit", size=8)
    bar.outline.set_visible(False)


def _trend(ax: Axes, periods: pd.DataFrame, names: list[str], measure: str, competing: bool) -> None:
    """A measure by period with its limits, of each cause in a colour of its own."""
    parts = (
        [(str(cause), part.droplevel("cause")) for cause, part in periods.groupby(level="cause", sort=False)]
        if competing
        else [("", periods)]
    )
    lowest, highest = np.inf, -np.inf
    for k, (cause, part) in enumerate(parts):
        table = part.reindex(names)
        at = np.arange(len(names)) + 0.12 * (k - 0.5 * (len(parts) - 1))
        value, lower, upper = (table[measure + end].to_numpy(float) for end in ("", "_lower", "_upper"))
        known = np.isfinite(lower) & np.isfinite(upper)
        ax.vlines(at[known], lower[known], upper[known], color=COLOURS[k], linewidth=1.4, alpha=0.6)
        ax.plot(at, value, "o-", color=COLOURS[k], markersize=4.5, linewidth=0.8, label=cause)
        if np.isfinite(value).any():
            lowest, highest = min(lowest, np.nanmin(value)), max(highest, np.nanmax(value))
    if measure.startswith("oe"):
        ax.axhline(1.0, color="#8a8a8a", linewidth=1.0, linestyle="--")
        ax.set_yscale("log", base=2)
        if np.isfinite(lowest):  # of values, as limits of few events reach far
            ends = max(min(lowest / 1.3, 0.5), 0.05), max(1.3 * highest, 2.0)
            ax.set_ylim(2.0 ** np.floor(np.log2(ends[0])), 2.0 ** np.ceil(np.log2(ends[1])))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif measure == "concordance":
        ax.axhline(0.5, color="#8a8a8a", linewidth=1.0, linestyle="--")
        ax.set_ylim(min(0.4, lowest - 0.05) if np.isfinite(lowest) else 0.4, 1.0)
    else:
        ax.set_ylim(bottom=0.0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    ax.yaxis.label.set_fontsize(8.5)

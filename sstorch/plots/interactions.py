"""Figure of what products of two columns add to the effects of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter

from sstorch.data.causes import cause_number
from sstorch.plots.figures import new_figure
from sstorch.reading import interactions

if TYPE_CHECKING:
    from sstorch.soft.estimator import SoftEstimator

# Inches of a map; maps in a row; numbers and categories along an axis at most; characters of a label.
_PANEL, _PER_ROW, _NUMBERS, _WORDS, _CHARACTERS = (2.9, 2.4), 3, 4, 12, 12
# Limit of the scale of colours where no product has an effect.
_LEAST = 0.01


def plot_interactions(
    tree: SoftEstimator,
    X: object,
    n_pairs: int = 6,
    group: int = 1,
    cause: int | str = 1,
    figure: Figure | SubFigure | None = None,
) -> list[Axes]:
    """Plot the strongest interactions, one map per pair, on a common scale.

    Along a numeric axis all cells have the same share of the rows. The colour shows the ratio of hazard, time
    or odds relative to the sum of both single effects.

    Args:
        tree: fitted with ``Columns(interactions=...)``.
        X: rows for the values, preferably the training rows.
        n_pairs: maximum number of maps, >= 1.
        group: group of the products; 1 for a regression, and for groups with shared products.
        cause: competing cause, by number or name.
        figure: matplotlib figure, preferably with constrained layout; None for a new figure of suitable size.

    Returns:
        The axes, one per pair, in the order drawn.

    Raises:
        ConfigError, DataError: as in :func:`sstorch.reading.interactions`, or an unknown cause.
    """
    table = interactions(tree, X, n_pairs)
    title = ""
    number = cause_number(cause, tree.causes_)
    if "cause" in table:
        of_cause = tree.causes_[number - 1]
        table, title = table[table["cause"] == of_cause].dropna(axis="columns", how="all"), f" ({of_cause})"
    pairs = list(table[table["group"] == group].groupby(["column", "other"], sort=False))
    n_across, n_down = min(len(pairs), _PER_ROW), math.ceil(len(pairs) / _PER_ROW)
    if figure is None:
        figure = new_figure(_PANEL[0] * n_across + 1.2, _PANEL[1] * n_down + 0.5, "constrained")
    grid = list(figure.subplots(n_down, n_across, squeeze=False).flat)
    for ax in grid[len(pairs) :]:
        ax.remove()
    axes: list[Axes] = grid[: len(pairs)]
    limit = max(_LEAST, *(float(own["effect"].abs().max()) for _, own in pairs))
    for ax, ((column, other), own) in zip(axes, pairs, strict=True):
        values = own["effect"].to_numpy()
        rows, columns = (list(dict.fromkeys(own[name])) for name in ("other value", "value"))
        cells = values.reshape(len(columns), len(rows)).T
        image = ax.imshow(cells, cmap="PuOr_r", vmin=-limit, vmax=limit, origin="lower", aspect="auto")
        _ticks(ax.xaxis, columns)
        _ticks(ax.yaxis, rows)
        for label in ax.get_xticklabels() if isinstance(columns[0], str) else ():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
        ax.set_xlabel(str(column), fontsize=9, parse_math=False)
        ax.set_ylabel(str(other), fontsize=9, parse_math=False)
        ax.tick_params(labelsize=8)
    ratio = next((str(name) for name in table if str(name).endswith(" ratio")), None)
    bar = figure.colorbar(image, ax=axes, shrink=0.9)
    bar.ax.tick_params(labelsize=8)
    if ratio is not None:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{math.exp(value):.2f}"))
    what = "change of the linear predictor" if ratio is None else ratio
    text = f"{what.capitalize()} beyond the effects of both columns{title}"
    figure.suptitle(text, fontsize=11, parse_math=False)
    return axes


def _ticks(axis: Axis, values: Sequence[float | str]) -> None:
    """Every category, as far as there is room, and some numbers."""
    most = _WORDS if isinstance(values[0], str) else _NUMBERS
    shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), most)).round().astype(int))
    axis.set_ticks(shown, [_label(values[place]) for place in shown], parse_math=False)


def _label(value: float | str) -> str:
    if not isinstance(value, str):
        return f"{value:.4g}"
    return value if len(value) <= _CHARACTERS else f"{value[: _CHARACTERS - 1]}…"

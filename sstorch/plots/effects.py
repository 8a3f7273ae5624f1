"""Figure of what each column does in the groups of a tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sstorch._types import FloatArray
from sstorch.checks import check_integer, check_share, sentence_case
from sstorch.data.columns import numeric_values
from sstorch.data.target import cause_number
from sstorch.exceptions import ConfigError
from sstorch.plots.figures import COLOURS, colour_of, new_figure
from sstorch.reading import effects

_INK, _GREY = "#222222", "#9a9a9a"
if TYPE_CHECKING:
    from sstorch.soft.estimator import SoftEstimator

# Inches of a panel; panels in a row; values of a number; rows in a rug.
_PANEL, _PER_ROW, _POINTS, _RUG = (2.15, 1.9), 4, 400, 300
# Inches above and below a panel, so that its title does not touch the ticks of the row above.
_ROW_PAD = 0.08
# Characters that fit below a panel, side by side, and those of the longest label.
_CHARACTERS, _LABEL = 24, 12
# Leaves whose effects differ by less than this are one line.
_ALIKE = 1e-9
# Ticks of ratios in a decade, the more the narrower the axis; and how many ticks are enough, and too many.
_DECADES = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
_ENOUGH, _TOO_MANY = 4, 8
# Steps of ticks where a whole axis is narrower than those.
_STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)


def plot_effects(
    tree: SoftEstimator,
    X: object,
    columns: Sequence[str] | None = None,
    level: float = 0.95,
    max_columns: int = 12,
    inner: float = 0.98,
    figure: Figure | SubFigure | None = None,
    cause: int | str = 1,
    intervals: bool = False,
) -> list[Axes]:
    """Plot the effect of each column, one panel per column, the largest first, on a common scale.

    A line shows the ratio of hazard, time or odds compared with the median of the column (dot), with all
    other columns at their reference; points show categories and columns with two values. Ticks at the bottom
    are rows, at most a few hundred. Groups have separate colours if they differ; groups without rows are
    excluded. For families without a ratio, and for shapes that depend on x, the change of the linear
    predictor is shown.

    Args:
        tree: fitted.
        X: rows for references, ranges and ticks, preferably the training rows.
        columns: plotted columns; None for those with the largest effects.
        level: level of the confidence limits.
        max_columns: maximum number of columns if ``columns`` is None; the title states the total number.
        inner: central share of the rows within the axis of a number, in (0, 1]: curves are unreliable where
            there are few rows.
        figure: matplotlib figure, preferably with constrained layout; None for a new figure of suitable size.
        cause: competing cause, by number or name.
        intervals: True for pointwise confidence limits, as in :func:`sstorch.reading.effects`.

    Returns:
        The axes, one per column, in the order drawn.

    Raises:
        DataError: columns are missing, or have only missing values.
        ConfigError: an argument is out of range, ``columns`` is empty, or the model has no covariance
            (:func:`sstorch.reading.effects`), or the cause is unknown.
    """
    inner = check_share(inner, "inner", closed=True)
    table, named = effects(tree, X, columns, _POINTS, level, intervals), tree.causes_
    number = cause_number(cause, named)
    if named:
        table = table[table["cause"] == named[number - 1]].dropna(axis="columns", how="all")
    rows = pd.Series(np.asarray(tree.apply(X))).value_counts().sort_index()
    frame, table = tree._cleaned(X), table[table["group"].isin(rows.index)]
    panels = [_Panel(str(name), own, frame[name], inner) for name, own in table.groupby("column", sort=False)]
    count = check_integer("max_columns", max_columns, 1) if columns is None else len(panels)
    shown = sorted(panels, key=lambda panel: -panel.size)[:count]
    if not shown:
        raise ConfigError("columns must name at least one column")
    n_across, n_down = min(len(shown), _PER_ROW), math.ceil(len(shown) / _PER_ROW)
    if figure is None:
        size = (max(_PANEL[0] * n_across, 2 * _PANEL[0]) + 0.4, _PANEL[1] * n_down + 0.5)
        figure = new_figure(*size, "constrained")
        engine = figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(h_pad=_ROW_PAD)
    grid = figure.subplots(n_down, n_across, sharey=True, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for ax in axes[len(shown) :]:
        ax.remove()
    axes = axes[: len(shown)]
    for ax, panel in zip(axes, shown, strict=True):
        panel.draw(ax)
    ratio = next((str(name) for name in table if str(name).endswith(" ratio")), None)
    _scale(axes, shown, ratio is not None)
    for row in grid:
        row[0].set_ylabel(ratio or "change", fontsize=9)
    has_words = any(panel.numbers is None for panel in shown)
    title = f"{ratio or 'change of the linear predictor'} against the median"
    title = sentence_case(title + " or most frequent category" * has_words)
    title += f" ({named[number - 1]})" if named else ""
    title += f", with {100 * level:.4g} % confidence limits" if intervals else ""
    if len(shown) < len(panels):
        title += f"\n{len(shown)} of {len(panels)} columns, largest effects first"
    figure.suptitle(title, fontsize=11, parse_math=False)
    if any(None not in panel.tables for panel in shown):
        handles = [
            Line2D([], [], color=colour_of(group), linewidth=1.8, label=f"group {group}: {n_rows} rows")
            for group, n_rows in zip(rows.index.tolist(), rows, strict=True)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return axes


class _Panel:
    """Plotted values of one column."""

    def __init__(self, name: str, table: pd.DataFrame, column: pd.Series, inner: float) -> None:
        self.name = name
        self.numbers: FloatArray | None = None  # of the rows, sorted; None for categories
        if not isinstance(table["value"].iloc[0], str):
            numbers = np.sort(numeric_values(column, f"column {name!r}"))
            self.numbers = numbers = numbers[~np.isnan(numbers)]
            if len(np.unique(numbers)) <= 2:  # as of a column of 0 and 1
                self.numbers, table = None, table.assign(value=[f"{value:g}" for value in table["value"]])
            else:
                tail = (1 - inner) / 2
                low = np.quantile(numbers, tail, method="lower")
                high = np.quantile(numbers, 1 - tail, method="higher")
                table = table.astype({"value": np.float64})
                table = table[table["value"].between(low, high)]
        # Effects by group within the part of the axis that is drawn; one, with key None, where groups agree.
        self.tables: dict[int | None, pd.DataFrame] = {
            int(str(group)): own for group, own in table.groupby("group")
        }
        values = np.stack([own["effect"].to_numpy() for own in self.tables.values()])
        if np.ptp(values, axis=0).max() < _ALIKE:
            self.tables = {None: next(iter(self.tables.values()))}
        self.size = float(np.ptp(values, axis=1).max())

    def range(self, names: Sequence[str]) -> tuple[float, float]:
        """Smallest and largest value of some columns of the tables."""
        values = np.concatenate([own[list(names)].to_numpy().ravel() for own in self.tables.values()])
        return float(values.min()), float(values.max())

    def draw(self, ax: Axes) -> None:
        """Lines or points, band and rug; effects are on the scale of the predictor."""
        ax.axhline(0.0, color=_GREY, linewidth=0.8, zorder=1)
        for place, (group, own) in enumerate(self.tables.items()):
            colour = COLOURS[0] if group is None else colour_of(group)
            if self.numbers is None:
                self._draw_words(ax, own, colour, 0.16 * (place - (len(self.tables) - 1) / 2))
            else:
                self._draw_line(ax, own, self.numbers, colour)
        ax.set_title(self.name, fontsize=10, parse_math=False)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)

    def _draw_line(self, ax: Axes, own: pd.DataFrame, numbers: FloatArray, colour: str) -> None:
        value = own["value"].to_numpy()
        if "lower" in own:
            ax.fill_between(value, own["lower"], own["upper"], color=colour, alpha=0.2, linewidth=0)
        ax.plot(value, own["effect"], linewidth=1.8, color=colour)
        middle = float(np.quantile(numbers, 0.5, method="lower"))
        ax.plot([middle], [0.0], "o", color=_INK, markersize=3.5, zorder=4)
        drawn = numbers[np.unique(np.linspace(0, len(numbers) - 1, _RUG).astype(int))]
        drawn = drawn[(drawn >= value[0]) & (drawn <= value[-1])]
        (rug,) = ax.plot(drawn, np.full(len(drawn), 0.025), "|", color=_INK, alpha=0.3)
        rug.set(markersize=5, markeredgewidth=0.6, transform=ax.get_xaxis_transform())
        ax.locator_params(axis="x", nbins=5)

    def _draw_words(self, ax: Axes, own: pd.DataFrame, colour: str, shift: float) -> None:
        place, usual = np.arange(len(own)), (own["effect"] == 0).to_numpy()
        if "lower" in own:
            ax.vlines(place + shift, own["lower"], own["upper"], alpha=0.45, linewidth=2.5, color=colour)
        ax.plot(place[~usual] + shift, own["effect"][~usual], "o", markersize=5, color=colour)
        ax.plot(place[usual], np.zeros(usual.sum()), "o", color=_INK, markersize=3.5, zorder=4)
        words = [str(word) for word in own["value"]]
        words = [word if len(word) <= _LABEL else f"{word[: _LABEL - 1]}…" for word in words]
        ax.set_xticks(place, words, parse_math=False)
        if len(words) * max(map(len, words)) > _CHARACTERS:
            for label in ax.get_xticklabels():
                label.set(rotation=40, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.6, len(own) - 0.4)


def _scale(axes: Sequence[Axes], panels: Sequence[_Panel], ratios: bool) -> None:
    """The same limits and ticks of all panels."""
    low, high = _limits(panels)
    for ax in axes:
        ax.set_ylim(low, high)
    if ratios:
        ticks = _ratio_ticks(math.exp(low), math.exp(high))
        axes[0].yaxis.set_major_locator(FixedLocator(np.log(ticks).tolist()))
        axes[0].yaxis.set_minor_locator(NullLocator())
        axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{math.exp(value):.6g}"))
        for ax in axes:  # under the pointer, too
            ax.fmt_ydata = lambda value: f"{math.exp(value):.4g}"


def _limits(panels: Sequence[_Panel]) -> tuple[float, float]:
    """Of the effects, and of bands as long as these do not make the effects small."""
    ends = np.array([panel.range(["effect"]) for panel in panels])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    span = max(high - low, 0.05)
    if all("lower" in own for panel in panels for own in panel.tables.values()):
        bands = np.array([panel.range(["lower", "upper"]) for panel in panels])
        low = max(min(low, float(bands[:, 0].min())), low - 0.5 * span)
        high = min(max(high, float(bands[:, 1].max())), high + 0.5 * span)
    # Below is room for the rug.
    return low - 0.12 * (high - low + 0.05), high + 0.05 * (high - low + 0.05)


def _ratio_ticks(low: float, high: float) -> FloatArray:
    """Round ratios between two, as many as an axis of a few centimetres can have; 1 is among them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for shares in _DECADES:
        ticks = np.array([share * 10.0**decade for decade in decades for share in shares])
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) >= _ENOUGH:
            break
    for step in _STEPS if len(ticks) < _ENOUGH else ():
        ticks = 1 + step * np.arange(math.ceil((low - 1) / step), math.floor((high - 1) / step) + 1)
        if len(ticks) >= _ENOUGH:
            break
    return ticks[:: 2 if len(ticks) > _TOO_MANY else 1]

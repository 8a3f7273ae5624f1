"""Figures of the groups of a tree: survival, or incidences of competing causes."""

from __future__ import annotations

import textwrap

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sstorch.checks import check_tree
from sstorch.data.survival_data import on_training_rows
from sstorch.data.time_unit import median_text
from sstorch.exceptions import ConfigError
from sstorch.groups.recalibration import SurvivalTree
from sstorch.metrics import aalen_johansen, logrank_test
from sstorch.plots.figures import (
    COLOURS,
    ObservedGroups,
    colour_of,
    dark,
    new_figure,
    outlined,
    survival_text,
    time_label,
    without_math,
)

_INK, _GREY, _OUTSIDE = "#222222", "#777777", "#c0392b"
# Inches: width of a figure; height of a row of numbers at risk, of the panel above, of its axis, and of the
# labels of two lines next to it.
_WIDTH, _ROW, _PANEL, _AXIS, _LABEL = 8.2, 0.19, 3.6, 0.62, 0.36
# Terms of a rule next to its curve, and characters of a line of it.
_TERMS, _CHARACTERS = 4, 30
# Inches of incidences: of a panel, and of the room for the legend above.
_EACH, _LEGEND = 3.0, 0.55


def plot_groups(
    tree: SurvivalTree,
    X: object,
    y: object,
    figure: Figure | SubFigure | None = None,
    level: float = 0.95,
    time_unit: str | None = None,
    sample_weight: npt.ArrayLike | None = None,
    p_value: float | None = None,
    rules: bool = False,
) -> list[Axes]:
    """Plot survival, or cumulative incidences of competing causes, by group, observed and predicted.

    Of one event, steps are Kaplan-Meier estimates with a pointwise confidence band; ticks are censored rows.
    The dashed line is the mean prediction for the same rows. A dashed line outside the band shows lack of
    fit, or censoring that depends on covariates; see ``summary``. Below are the numbers at risk.

    Of competing causes each group has a panel. The height of a colour is the mean predicted incidence of a
    cause; white is event-free survival. Lines are Aalen-Johansen estimates, stacked, of the rows of the
    group; lines that differ from the edges of the colours show lack of fit. The axis of time ends at the 95 %
    quantile of the times.

    Args:
        tree: fitted.
        X: rows, preferably held-out rows: on training rows differences between groups are too large.
        y: outcome of the rows, as in ``fit``; entry times are used in Kaplan-Meier and numbers at risk.
        figure: matplotlib figure for one event; None for a new figure.
        level: level of the limits.
        time_unit: unit of time for the axis label; None for that of the tree.
        sample_weight: weights >= 0, (n,), for estimates and mean predictions; None for the weights of
            ``y``, or 1. Counts of rows, events and numbers at risk are not weighted.
        p_value: p-value of the difference between groups from another test. None for the log-rank test on
            these rows, which is not shown for training rows, since they placed the gates.
        rules: True shows the rule of each group next to its curve.

    Returns:
        The axes of the curves, and those of the numbers at risk; of competing causes those of each group.

    Raises:
        DataError: lengths of outcome and rows differ, outcomes are not of the training type, or weights are
            invalid.
        ConfigError: ``p_value`` is not a probability.
    """
    check_tree(tree, "falling_curves")
    if p_value is not None and not 0 <= p_value <= 1:
        raise ConfigError(f"p_value must be a probability, got {p_value!r}")
    method = "Aalen-Johansen" if tree.causes_ else "Kaplan-Meier"
    rows = ObservedGroups.of(tree, tree.apply(X), y, sample_weight, method, X)
    if tree.causes_:
        return _plot_incidence(tree, X, rows, time_unit)
    named = tree._group_rules(_TERMS) if rules else {}
    end, table = float(rows.time[rows.weight > 0].max()), _ROW * (1 + len(rows.numbers))
    if figure is None:
        figure = new_figure(_WIDTH, _PANEL + _AXIS + table)
    height = figure.bbox.height / figure.dpi
    bottom = (table + _AXIS) / height
    ax = figure.add_axes((0.095, bottom, 0.63, 0.97 - bottom))
    below = figure.add_axes((0.095, 0.3 * _ROW / height, 0.63, table / height), sharex=ax)
    grid = np.linspace(0.0, end, 201)
    curves, labels = np.asarray(tree.falling_curves(X, grid)), []
    # Curves that hold while the covariates stay as in the row are none of the same subjects.
    compared, left_band = rows.outcome.id is None and not rows.entry.any(), False
    for number in map(int, rows.numbers):
        inside, colour, band = rows.rows(number), colour_of(number), rows.band(number, level)
        final = rows.draw(ax, number, band, colour)
        censored = rows.time[inside & ~rows.event]
        ax.plot(censored, band.at(censored), "|", color=colour, markersize=4, markeredgewidth=0.7)
        seen = grid <= rows.time[inside].max()
        mean = np.average(curves[inside], axis=0, weights=rows.weight[inside])
        (line,) = ax.plot(grid[seen], mean[seen], "--", color=dark(colour), linewidth=1.5, label="model")
        outlined(line, 3.0)
        if compared:
            _, lower, upper = band.limits(grid[seen])
            off = (lower < upper) & ((mean[seen] < lower) | (mean[seen] > upper))
            left_band |= bool(off.any())
            ax.plot(grid[seen], np.where(off, mean[seen], np.nan), color=_OUTSIDE, linewidth=3.0)
        lines = [f"group {number}: {inside.sum()} rows, {rows.event[inside].sum()} events"]
        if not tree.time_varying_:  # subjects change group: rows have no median
            lines.append(median_text(float(band.quantile().value), time_unit or tree.time_unit_))
        lines += textwrap.wrap(named.get(number, ""), _CHARACTERS)
        labels.append((final, "\n".join(lines), number))
    ax.set(ylabel="survival", ylim=(0, 1.02), xlim=(0, end), xlabel=time_label(tree, time_unit))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=end > 10))
    ax.spines[["top", "right"]].set_visible(False)
    label_height = _LABEL / 2 * max(text.count("\n") + 1 for _, text, _ in labels)
    _label_ends(ax, labels, label_height / (ax.get_position().height * height))
    handles = [
        Line2D([], [], color=_INK, linestyle="-", label="Kaplan-Meier"),
        Line2D([], [], color=_INK, linestyle="--", label=survival_text(tree, "model, mean")),
    ]
    if left_band:
        handles.append(Line2D([], [], color=_OUTSIDE, linewidth=3.0, label="model outside the band"))
    if test := _test_text(tree, X, y, rows, p_value):
        handles.append(Line2D([], [], linestyle="none", label=test))
    ax.legend(handles=handles, edgecolor="none", framealpha=0.8, loc="lower left", fontsize=9)
    _number_at_risk(below, ax, rows)
    return [ax, below]


def _test_text(tree: object, X: object, y: object, rows: ObservedGroups, p_value: float | None) -> str:
    """The p-value that is given, or that of the log-rank test of rows that did not place the gates."""
    name = "p"
    if p_value is None:
        if len(rows.numbers) < 2 or not rows.event[rows.weight > 0].any():
            return ""
        if on_training_rows(tree, X, y):
            return "no log-rank test: training rows"
        counted = rows.weight > 0
        found = logrank_test(rows.known[counted], rows.group[counted])
        name, p_value = "log-rank p", found.p_value
    return f"{name} < .001" if p_value < 0.001 else f"{name} = {p_value:.3f}".replace("0.", ".", 1)


def _label_ends(ax: Axes, ends: list[tuple[float, str, int]], gap: float) -> None:
    """Texts to the right of the ends of curves, moved apart where they would meet."""
    ends = sorted(ends, key=lambda end: end[0])
    at = np.array([height for height, _, _ in ends])
    for k in range(1, len(at)):
        at[k] = max(at[k], at[k - 1] + gap)
    # What was pushed out at the top goes back down.
    at[-1:] = np.minimum(at[-1:], 1.0 - gap / 2)
    for k in range(len(at) - 2, -1, -1):
        at[k] = min(at[k], at[k + 1] - gap)
    for height, (_, text, number) in zip(at / 1.02, ends, strict=True):
        label = ax.text(1.015, height, text, transform=ax.transAxes, va="center", linespacing=1.25)
        label.set(color=dark(colour_of(number)), fontsize=8.5)


def _number_at_risk(ax: Axes, above: Axes, rows: ObservedGroups) -> None:
    """A row for each group: how many of its rows are under observation at each tick of the axis above."""
    ticks = [tick for tick in above.get_xticks() if 0 <= tick <= above.get_xlim()[1]]
    place = ax.get_yaxis_transform()
    ax.set(ylim=(len(rows.numbers) - 0.5, -1.1))
    for row, number in enumerate(map(int, rows.numbers)):
        inside, colour = rows.rows(number), dark(colour_of(number))
        time, entry = rows.time[inside], rows.entry[inside]
        ax.text(-0.045, row, f"group {number}", ha="right", va="center", transform=place, color=colour)
        for tick in ticks:
            count = np.count_nonzero((time >= tick) & ((entry < tick) | (entry == 0)))
            ax.text(tick, row, str(count), ha="center", va="center", color=colour)
    ax.text(-0.045, -0.95, "at risk", ha="right", va="center", transform=place, color=_GREY)
    for text in ax.texts:
        text.set_fontsize(8.5)
    ax.axis("off")


def _plot_incidence(tree: SurvivalTree, X: object, rows: ObservedGroups, time_unit: str | None) -> list[Axes]:
    """Stacked cumulative incidences of competing causes, one panel per group, see :func:`plot_groups`."""
    last = float(np.quantile(rows.time[rows.weight > 0], 0.95))
    grid, names, colours = np.linspace(0.0, last, 121), tree.causes_, COLOURS[: len(tree.causes_)]
    predicted = tree._predicted(tree._cleaned(X), grid)
    figure = new_figure(_EACH * len(rows.numbers) + 0.5, _EACH + _LEGEND, "constrained")
    panels = np.atleast_1d(figure.subplots(1, len(rows.numbers), sharey=True))
    for ax, number in zip(panels, rows.numbers, strict=True):
        inside = rows.rows(number)
        weight, cause = rows.weight[inside], rows.outcome.cause[inside]
        mean = np.average(predicted[inside], axis=0, weights=weight)
        ax.stackplot(grid, mean, colors=colours, alpha=0.55, linewidth=0)
        seen = grid[grid <= rows.time[inside].max()]
        incidence = aalen_johansen(rows.outcome[inside], seen, sample_weight=weight)
        for name, edge in zip(names, np.cumsum(incidence, axis=0), strict=True):
            ax.plot(seen, edge, label=name, drawstyle="steps-post", color=_INK, linewidth=1.0)
        counts = ", ".join(f"{(cause == k).sum()} {name}" for k, name in enumerate(names, 1))
        ax.set_title(f"group {number}: {inside.sum()} rows\n{counts}", fontsize=9.5, parse_math=False)
        ax.set(xlim=(0, last), ylim=(0, 1), xlabel=time_label(tree, time_unit))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=last > 10))
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(survival_text(tree, "cumulative incidence, stacked"))
    handles: list[Patch | Line2D] = [
        Patch(color=colour, alpha=0.55, label=f"{name}, model")
        for colour, name in zip(colours, names, strict=True)
    ]
    handles.append(Line2D([], [], color=_INK, linewidth=1.0, label="Aalen-Johansen"))
    n_entries = len(handles)
    legend = figure.legend(
        handles=handles, loc="outside upper center", ncols=n_entries, frameon=False, fontsize=9.5
    )
    without_math(legend)
    return list(panels)

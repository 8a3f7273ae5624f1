"""Figures of studies: critical differences and boxes of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sstorch.plots.figures import ShownFigure

# Colours that differ with every kind of colour vision (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7682")
_COLUMNS = 3
_INK, _BAR = "#22303c", "#b5495b"
# In inches: between two labels, above the axis, and below it in addition to labels and bars.
_LINE, _TOP, _BELOW = 0.24, 0.72, 0.28


def indistinguishable(ranks: Sequence[float], critical_difference: float) -> list[tuple[int, int]]:
    """First and last position of every largest run of ascending average ranks within the critical difference.

    Examples:
        >>> indistinguishable([1.0, 1.5, 2.4, 4.0], critical_difference=1.0)
        [(0, 1), (1, 2)]
    """
    runs: list[tuple[int, int]] = []
    for first, low in enumerate(ranks):
        last = max(k for k, rank in enumerate(ranks) if rank - low <= critical_difference)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def plot_critical_difference(ranks: Mapping[str, float], critical_difference: float) -> Figure:
    """Average ranks of two or more models on a line, bars joining those within the critical difference.

    References:
        Demšar (2006), Journal of Machine Learning Research 7, 1-30.
    """
    names = sorted(ranks, key=lambda name: (ranks[name], name))
    values = [ranks[name] for name in names]
    n = len(names)
    bars = indistinguishable(values, critical_difference)
    n_left = (n + 1) // 2
    depth = 0.16 * len(bars)  # the labels begin below the bars
    height = _TOP + _BELOW + depth + _LINE * n_left
    figure = ShownFigure(figsize=(9, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    span = n - 1.0
    side = 0.42 * span  # room for the labels on either side
    ax.set_xlim(1 - side, n + side)
    ax.set_ylim(_TOP - height, _TOP)
    ax.plot([1, n], [0, 0], color=_INK, lw=1.2, solid_capstyle="butt")
    step = max(1, round(n / 12))
    for tick in range(1, n + 1):
        tall = (tick - 1) % step == 0 or tick == n
        ax.plot([tick, tick], [0, 0.08 if tall else 0.04], color=_INK, lw=1)
        if tall:
            ax.text(tick, 0.11, str(tick), ha="center", va="bottom", fontsize=9, color=_INK)
    width = min(critical_difference, span)
    ax.plot([1, 1 + width], [0.38, 0.38], color=_BAR, lw=2.2, gid="critical-difference")
    cut = "" if width == critical_difference else ", longer than the axis"
    text = f"critical difference {critical_difference:.2f}{cut}"
    ax.text(1, 0.45, text, va="bottom", ha="left", fontsize=9, color=_BAR)
    for number, (first, last) in enumerate(bars):
        y = -0.12 - 0.16 * number
        overhang = 0.006 * span
        ax.plot(
            [values[first] - overhang, values[last] + overhang],
            [y, y],
            color=_BAR,
            lw=3.2,
            solid_capstyle="round",
            gid="not-separated",
        )
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        is_left = position < n_left
        line = position if is_left else n - 1 - position
        y = -0.16 - depth - _LINE * line - 0.05
        _label(ax, name, value, y, (1 - 0.04 * span) if is_left else (n + 0.04 * span), is_left)
    return figure


def _label(ax: Axes, name: str, rank: float, y: float, x: float, is_left: bool) -> None:
    ax.plot([rank, rank, x], [0, y, y], color=_INK, lw=0.8)
    text = f"{name}  {rank:.2f} " if is_left else f" {rank:.2f}  {name}"
    ax.text(x, y, text, ha="right" if is_left else "left", va="center", fontsize=9, color=_INK)


def plot_scores_by_dataset(
    scores: Mapping[tuple[str, str], Sequence[float]],
    datasets: Sequence[str],
    models: Sequence[str],
    families: Mapping[str, str],
    label: str,
) -> Figure:
    """A panel a data set, in it a box a model, coloured by its family.

    Boxes are quartiles, whiskers reach to the last value within 1.5 times their range. Scores are finite
    values by (data set, model); a model without values leaves a gap.
    """
    n_columns = min(_COLUMNS, len(datasets))
    n_rows = -(-len(datasets) // n_columns)
    longest = max(map(len, models))
    # The place of everything, in inches, is known beforehand, where a layout engine would draw a figure of
    # hundreds of labels several times to find it.
    left, right, bottom, top = 0.25 + longest * 0.62 * 8 / 72, 0.15, 0.65, 0.75
    panel, gap = (2.9, 0.17 * len(models) + 0.15), (0.18, 0.6)
    width = left + right + n_columns * panel[0] + (n_columns - 1) * gap[0]
    height = bottom + top + n_rows * panel[1] + (n_rows - 1) * gap[1]
    figure = ShownFigure(figsize=(width, height))
    names = list(dict.fromkeys(families[model] for model in models))
    colours = {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(names)}
    for place, dataset in enumerate(datasets):
        row, column = divmod(place, n_columns)
        x = left + column * (panel[0] + gap[0])
        y = height - top - panel[1] - row * (panel[1] + gap[1])
        ax = figure.add_axes((x / width, y / height, panel[0] / width, panel[1] / height))
        values = [scores.get((dataset, model), ()) for model in models]
        _boxes(ax, values, [colours[families[model]] for model in models])
        ax.set_title(dataset, fontsize=10)
        ax.set_yticks(np.arange(len(models)), models, fontsize=8)
        ax.set_ylim(len(models) - 0.4, -0.6)
        ax.tick_params(axis="y", labelleft=not column)
        ax.tick_params(axis="x", labelsize=8)
        ax.grid(axis="x", color="#e3e7eb", linewidth=0.6)
        ax.set_axisbelow(True)
    figure.text(0.5, 0.12 / height, label, ha="center", va="bottom", fontsize=10)
    if len(names) > 1:
        handles = [Patch(facecolor=colours[name], alpha=0.65, label=name) for name in names]
        figure.legend(handles=handles, loc="upper right", ncols=len(names), frameon=False, fontsize=9)
    return figure


def _boxes(ax: Axes, values: Sequence[Sequence[float]], colours: Sequence[str]) -> None:
    """Box plots as four collections: thousands of boxes as single artists would take minutes to draw."""
    boxes, whiskers, medians, filled, points = [], [], [], [], []
    for y, (scores, colour) in enumerate(zip(values, colours, strict=True)):
        if not len(scores):
            continue
        (box,) = boxplot_stats(scores)
        low, high, middle = box["q1"], box["q3"], box["med"]
        below, above = y - 0.31, y + 0.31
        boxes.append([(low, below), (low, above), (high, above), (high, below)])
        filled.append(colour)
        whiskers += [[(box["whislo"], y), (low, y)], [(high, y), (box["whishi"], y)]]
        medians.append([(middle, below), (middle, above)])
        points += [(value, y) for value in box["fliers"]]
    ax.add_collection(LineCollection(whiskers, colors=_INK, linewidths=0.8))
    ax.add_collection(PolyCollection(boxes, facecolors=filled, edgecolors=_INK, linewidths=0.7, alpha=0.65))
    ax.add_collection(LineCollection(medians, colors=_INK, linewidths=1.4))
    if points:
        ax.plot(*np.array(points).T, "o", color=_INK, markersize=1.8, mew=0, alpha=0.5)
    ax.autoscale_view()

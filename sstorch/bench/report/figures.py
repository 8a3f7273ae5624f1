"""Figures of studies: critical differences and boxes of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
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
    values, n = [ranks[name] for name in names], len(names)
    bars = indistinguishable(values, critical_difference)
    n_left, depth, span = (n + 1) // 2, 0.16 * len(bars), n - 1.0  # the labels begin below the bars
    height = _TOP + _BELOW + depth + _LINE * n_left
    figure = ShownFigure(figsize=(9, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_xlim(1 - 0.42 * span, n + 0.42 * span)  # room for the labels on either side
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
        ends, y = [values[first] - 0.006 * span, values[last] + 0.006 * span], -0.12 - 0.16 * number
        ax.plot(ends, [y, y], color=_BAR, lw=3.2, solid_capstyle="round", gid="not-separated")
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        is_left = position < n_left
        y = -0.21 - depth - _LINE * (position if is_left else n - 1 - position)
        x = (1 - 0.04 * span) if is_left else (n + 0.04 * span)
        ax.plot([value, value, x], [0, y, y], color=_INK, lw=0.8)
        text = f"{name}  {value:.2f} " if is_left else f" {value:.2f}  {name}"
        ax.text(x, y, text, ha="right" if is_left else "left", va="center", fontsize=9, color=_INK)
    return figure


def plot_scores_by_dataset(scores: pd.DataFrame, families: Mapping[str, str], title: str) -> Figure:
    """A panel a data set, in it a box a model, coloured by its family.

    Boxes are quartiles, whiskers reach to the last value within 1.5 times their range.

    Args:
        scores: finite values with the columns ``dataset``, ``label`` of the model, and ``value``.
        families: of the models by label, in the order of the boxes.
        title: label of the axis of scores.
    """
    labels = [label for label in families if label in set(scores["label"])]
    datasets = sorted(scores["dataset"].unique())
    n_columns = min(_COLUMNS, len(datasets))
    shape = -(-len(datasets) // n_columns), n_columns
    size = 3.1 * n_columns + 1.2, (0.17 * len(labels) + 0.6) * shape[0] + 1.2
    figure = ShownFigure(figsize=size, layout="constrained")
    panels = figure.subplots(*shape, sharey=True, squeeze=False).ravel()
    names = list(dict.fromkeys(families[label] for label in labels))
    colours = {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(names)}
    points = {"marker": "o", "markersize": 1.8, "mfc": _INK, "markeredgewidth": 0, "alpha": 0.5}
    values = dict(list(scores.groupby(["dataset", "label"])["value"]))
    for ax, dataset in zip(panels, datasets, strict=False):
        boxes = [values.get((dataset, label), ()) for label in labels]
        drawn = ax.boxplot(
            boxes, orientation="horizontal", patch_artist=True, widths=0.62, flierprops=points, showcaps=False
        )
        for box, label in zip(drawn["boxes"], labels, strict=True):
            box.set(facecolor=colours[families[label]], edgecolor=_INK, linewidth=0.7, alpha=0.65)
        for line in [*drawn["whiskers"], *drawn["medians"]]:
            line.set(color=_INK, linewidth=1.0)
        ax.set_title(dataset, fontsize=10)
        ax.set_yticks(np.arange(1, len(labels) + 1), labels, fontsize=8)
        ax.tick_params(axis="x", labelsize=8)
        ax.grid(axis="x", color="#e3e7eb", linewidth=0.6)
    panels[0].invert_yaxis()
    for ax in panels[len(datasets) :]:
        ax.set_visible(False)
    figure.supxlabel(title, fontsize=10)
    if len(names) > 1:
        handles = [Patch(facecolor=colours[name], alpha=0.65, label=name) for name in names]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(names), frameon=False, fontsize=9)
    return figure

"""Distributions of scores over folds and starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

# Colours that people with colour vision deficiency tell apart (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7682")
_INK = "#22303c"
_COLUMNS = 3


def plot_scores_by_dataset(
    scores: Mapping[tuple[str, str], Sequence[float]],
    datasets: Sequence[str],
    models: Sequence[str],
    families: Mapping[str, str],
    label: str,
) -> Figure:
    """A panel a data set, in it a box a model.

    Boxes are quartiles, whiskers reach to the last value within 1.5 times their range.

    Args:
        scores: finite values by (data set, model); a model without values leaves a gap.
        datasets: names, in the order of the panels.
        models: labels, from top to bottom.
        families: the family of every model; each has a colour.
        label: of the scores.
    """
    n_columns = min(_COLUMNS, len(datasets))
    n_rows = -(-len(datasets) // n_columns)
    margins = (_width_of(models, 8), 0.15, 0.65, 0.75)
    figure, axes = _panels(n_rows, n_columns, (2.9, 0.17 * len(models) + 0.15), margins, (0.18, 0.6))
    names = list(dict.fromkeys(families[model] for model in models))
    colours = {name: _COLOURS[k % len(_COLOURS)] for k, name in enumerate(names)}
    for ax, dataset in zip(axes, datasets, strict=False):
        _boxes(
            ax,
            [scores.get((dataset, model), ()) for model in models],
            np.arange(len(models)),
            [colours[families[model]] for model in models],
            vertical=False,
        )
        ax.set_title(dataset, fontsize=10)
        ax.set_yticks(np.arange(len(models)), models, fontsize=8)
        ax.set_ylim(len(models) - 0.4, -0.6)
        ax.tick_params(axis="x", labelsize=8)
        ax.grid(axis="x", color="#e3e7eb", linewidth=0.6)
        ax.set_axisbelow(True)
    for ax in axes[len(datasets) :]:
        ax.set_visible(False)
    figure.text(0.5, 0.12 / figure.get_figheight(), label, ha="center", va="bottom", fontsize=10)
    if len(names) > 1:
        _legend(figure, colours)
    return figure


def plot_runs(
    scores: Mapping[str, Mapping[tuple[str, str], Sequence[float]]],
    datasets: Sequence[str],
    models: Sequence[str],
) -> Figure:
    """A panel a metric, in it a group of boxes a data set, one for each model.

    Args:
        scores: by label of the metric, finite values by (data set, model); a model without them leaves a gap.
        datasets: names, from left to right.
        models: labels, in the order of the boxes of a group.
    """
    margins = (0.75, 0.15, 0.2 + 0.6 * _width_of(datasets, 9), 0.4)
    width = max(4.0, 0.62 * len(datasets))
    figure, axes = _panels(len(scores), 1, (width, 2.0), margins, (0.0, 0.14))
    offsets = (np.arange(len(models)) - 0.5 * (len(models) - 1)) * 0.8 / len(models)
    for ax, (label, values) in zip(axes, scores.items(), strict=True):
        for k, model in enumerate(models):
            _boxes(
                ax,
                [values.get((dataset, model), ()) for dataset in datasets],
                np.arange(len(datasets)) + offsets[k],
                [_COLOURS[k % len(_COLOURS)]] * len(datasets),
                vertical=True,
                width=0.7 / len(models),
            )
        ax.set_ylabel(label, fontsize=9)
        ax.tick_params(axis="y", labelsize=8)
        ax.grid(axis="y", color="#e3e7eb", linewidth=0.6)
        ax.set_axisbelow(True)
        for edge in np.arange(len(datasets) - 1) + 0.5:
            ax.axvline(edge, color="#e3e7eb", linewidth=0.6)
    axes[-1].set_xticks(np.arange(len(datasets)), datasets, rotation=35, ha="right", fontsize=9)
    axes[-1].set_xlim(-0.5, len(datasets) - 0.5)
    for ax in axes[:-1]:
        ax.set_xticks([])
    _legend(figure, {model: _COLOURS[k % len(_COLOURS)] for k, model in enumerate(models)})
    return figure


def _panels(
    n_rows: int,
    n_columns: int,
    panel: tuple[float, float],
    margins: tuple[float, float, float, float],
    between: tuple[float, float],
) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, in inches: width and height, margins (left, right, bottom, top), gaps.

    The panels of a row share their vertical axis. The place of everything is known beforehand, where a layout
    engine would draw a figure of hundreds of labels several times to find it.
    """
    left, right, bottom, top = margins
    width = left + right + n_columns * panel[0] + (n_columns - 1) * between[0]
    height = bottom + top + n_rows * panel[1] + (n_rows - 1) * between[1]
    figure = Figure(figsize=(width, height))
    axes: list[Axes] = []
    for row in range(n_rows):
        for column in range(n_columns):
            x = left + column * (panel[0] + between[0])
            y = height - top - panel[1] - row * (panel[1] + between[1])
            ax = figure.add_axes((x / width, y / height, panel[0] / width, panel[1] / height))
            if column:
                ax.tick_params(axis="y", labelleft=False)
            axes.append(ax)
    return figure, axes


def _width_of(labels: Sequence[str], size: float) -> float:
    """About the width of the longest label with its tick, in inches."""
    return 0.25 + max(map(len, labels)) * 0.62 * size / 72


def _legend(figure: Figure, colours: Mapping[str, str]) -> None:
    handles = [Patch(facecolor=colour, alpha=0.65, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="upper right", ncols=len(colours), frameon=False, fontsize=9)


def _boxes(
    ax: Axes,
    values: Sequence[Sequence[float]],
    positions: Iterable[float],
    colours: Sequence[str],
    *,
    vertical: bool,
    width: float = 0.62,
) -> None:
    """Box plots as four collections: thousands of boxes as single artists would take minutes to draw."""
    boxes, whiskers, medians, filled, points = [], [], [], [], []
    half = 0.5 * width
    for own, position, colour in zip(values, positions, colours, strict=True):
        if not len(own):
            continue
        (box,) = boxplot_stats(own)
        low, high, middle = box["q1"], box["q3"], box["med"]
        boxes.append(
            [(position - half, low), (position + half, low), (position + half, high), (position - half, high)]
        )
        filled.append(colour)
        whiskers += [
            [(position, box["whislo"]), (position, low)],
            [(position, high), (position, box["whishi"])],
        ]
        medians.append([(position - half, middle), (position + half, middle)])
        points += [(position, value) for value in box["fliers"]]

    def turn(xy: tuple[float, float]) -> tuple[float, float]:
        return xy if vertical else xy[::-1]

    ax.add_collection(
        LineCollection([[turn(xy) for xy in line] for line in whiskers], colors=_INK, linewidths=0.8)
    )
    shapes = PolyCollection(
        [[turn(xy) for xy in box] for box in boxes],
        facecolors=filled,
        edgecolors=_INK,
        linewidths=0.7,
        alpha=0.65,
    )
    ax.add_collection(shapes)
    ax.add_collection(
        LineCollection([[turn(xy) for xy in line] for line in medians], colors=_INK, linewidths=1.4)
    )
    if points:
        ax.plot(*np.array([turn(xy) for xy in points]).T, "o", color=_INK, markersize=1.8, mew=0, alpha=0.5)
    ax.autoscale_view()

"""Figures of fairness against the strength of its penalty, and of curves by leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.metrics.registry import METRICS
from sstorch.plots import plot_survival_by_leaf

_PARTS = ("train", "test")
# More rhos than this have slanted labels.
_MANY = 8
_PENALTY, _PLAIN, _WEIGHTED, _SCORE = "#b5495b", "#3b6fb6", "#4a9a5b", "#3b6fb6"


def plot_parity_by_rho(scores: pd.DataFrame, unit: str = "time") -> Figure:
    """Gini index of the leaves, plain and weighted by their rows, and the penalty, against rho; train | test.

    Args:
        scores: columns ``part`` (train or test), ``rho``, ``gini``, ``gini_weighted``, ``parity``; rows of a
            rho are averaged.
        unit: of time, for the label of the penalty.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    handles: list[Line2D] = []
    for ax, part in zip(axes, _PARTS, strict=True):
        table = _means(scores, part)
        first = _line(ax, table["gini"], _PLAIN, "o", "Gini index, mean over leaves")
        second = _line(ax, table["gini_weighted"], _WEIGHTED, "s", "Gini index, weighted by rows")
        ax.set_title(part)
        third = _penalty(ax, table, unit, part == "test")
        handles = [first, second, third]
    lowest = min(float(np.nanmin(line.get_ydata())) for ax in axes for line in ax.lines)
    axes[0].set(ylabel="Gini index", ylim=(max(0.0, np.floor(10 * lowest) / 10 - 0.1), 1.02))
    _share_right(figure)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def plot_scores_by_rho(scores: pd.DataFrame, names: Sequence[str], unit: str = "time") -> Figure:
    """Scores against rho, one a row of panels, with the penalty on the right axis; train | test.

    Args:
        scores: columns ``part`` (train or test), ``rho``, ``parity`` and those of ``names``; rows of a rho
            are averaged.
        names: columns to draw.
        unit: of time, for the label of the penalty.
    """
    figure = Figure(figsize=(9, 2.4 * len(names) + 0.4), layout="constrained")
    axes = figure.subplots(len(names), 2, sharey="row", squeeze=False)
    handles = []
    for row, name in zip(axes, names, strict=True):
        for ax, part in zip(row, _PARTS, strict=True):
            table = _means(scores, part)
            first = _line(ax, table[name], _SCORE, "o", "score")
            ax.set_title(f"{METRICS[name].title if name in METRICS else name}, {part}", fontsize=10)
            handles = [first, _penalty(ax, table, unit, part == "test")]
    _share_right(figure)
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def plot_curves_by_rho(
    trees: Mapping[str, SoftSurvivalTree], parts: Mapping[str, SurvivalData], unit: str = "time"
) -> Figure:
    """Survival curves of all subjects in the colour of their leaf: a row a tree, a column a part.

    Args:
        trees: fitted, by title, such as those of several rhos.
        parts: rows, by title.
        unit: of time, for the label of the axis.
    """
    figure = Figure(figsize=(4.7 * len(parts), 2.9 * len(trees)), layout="constrained")
    axes = figure.subplots(len(trees), len(parts), sharex=True, sharey=True, squeeze=False)
    for row, (title, tree) in zip(axes, trees.items(), strict=True):
        for ax, (part, rows) in zip(row, parts.items(), strict=True):
            plot_survival_by_leaf(tree, rows.frame, ax, max_curves=len(rows.frame))
            ax.set_title(f"{title}, {part}", fontsize=10)
            ax.set(xlabel=unit if ax in axes[-1] else "", ylabel="survival" if ax is row[0] else "")
            ax.legend(frameon=False, fontsize=8, loc="best")
    return figure


def _means(scores: pd.DataFrame, part: str) -> pd.DataFrame:
    return scores[scores["part"] == part].drop(columns="part").groupby("rho").mean(numeric_only=True)


def _line(ax: Axes, values: pd.Series, colour: str, marker: str, label: str, style: str = "-") -> Line2D:
    """Values at evenly spaced positions, named by their rho: most of what happens is at the small ones."""
    (line,) = ax.plot(np.arange(len(values)), values, style, color=colour, marker=marker, ms=4, label=label)
    crowded = len(values) > _MANY
    ax.set_xticks(
        np.arange(len(values)),
        [f"{rho:g}" for rho in values.index],
        rotation=45 if crowded else 0,
        fontsize=8 if crowded else None,
    )
    ax.set_xlabel("rho")
    ax.spines["top"].set_visible(False)
    return line


def _penalty(ax: Axes, table: pd.DataFrame, unit: str, labelled: bool) -> Line2D:
    right = ax.twinx()
    right.set_gid("penalty")
    line = _line(right, table["parity"], _PENALTY, "^", "penalty at rho = 1", "--")
    right.tick_params(axis="y", colors=_PENALTY)
    if labelled:
        right.set_ylabel(f"penalty, {unit}", color=_PENALTY)
    return line


def _share_right(figure: Figure) -> None:
    """The same scale, from zero, for the penalty in all panels."""
    rights = [ax for ax in figure.axes if ax.get_gid() == "penalty"]
    top = max(float(np.nanmax(line.get_ydata())) for ax in rights for line in ax.lines)
    for ax in rights:
        ax.set_ylim(-0.03 * max(top, 1e-12), 1.05 * max(top, 1e-12))

"""Figures of curves: survival by leaf, calibration, training, fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import MaxNLocator

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.registry import METRICS, names_of
from sstorch.plots.figures import (
    COLOURS,
    ShownFigure,
    colour_of,
    given_or_new,
    of_group,
    survival_text,
    time_label,
)

_PARTS = ("train", "test")
# More rhos than this have slanted labels.
_MANY = 8
_PENALTY, _PLAIN, _WEIGHTED, _SCORE = "#b5495b", "#3b6fb6", "#4a9a5b", "#3b6fb6"


class Part(Protocol):
    """Rows to predict for, as :class:`sstorch.SurvivalData`."""

    frame: pd.DataFrame


class TreeWithCurves(Protocol):
    """A fitted tree, as :class:`sstorch.SoftSurvivalTree`."""

    event_times_: Any

    def falling_curves(self, X: object, times: Any) -> Any:
        """Survival curves of rows that stay as they are, shape (n, n_times)."""

    def apply(self, X: object) -> Any:
        """Leaf of each row, shape (n,)."""


# Of the histogram of predictions under a calibration curve: bins, and height of the highest bar.
_BINS, _HIGHEST = 50, 0.1


def plot_survival_by_leaf(
    tree: TreeWithCurves,
    X: object,
    ax: Axes | None = None,
    max_curves: int = 300,
    unit: str | None = None,
) -> Axes:
    """Draw the survival curve of every row in the colour of its leaf, and the leaf's mean curve on top.

    Within a leaf the shades go from dark, where the predicted survival is lowest, to light.

    Args:
        tree: fitted.
        X: rows.
        ax: axes to draw on; of a new figure if None.
        max_curves: rows drawn at most, evenly chosen; means are over all rows.
        unit: of time, for the label of the axis; that of the tree if None.

    Returns:
        The axes.
    """
    ax = given_or_new(ax, 7, 4.5)
    grid = np.linspace(0.0, float(tree.event_times_[-1]), 101)
    curves, leaf = np.asarray(tree.falling_curves(X, grid)), tree.apply(X)
    drawn = np.unique(np.linspace(0, len(leaf) - 1, max_curves).astype(int))
    for number in np.unique(leaf):
        colour = colour_of(number)
        inside = leaf == number
        some = drawn[inside[drawn]]
        order = np.argsort(curves[some].mean(axis=1), kind="stable")
        for row, shade in zip(some[order], _shades(colour, len(some)), strict=True):
            ax.plot(grid, curves[row], color=shade, alpha=0.5, linewidth=0.7)
        label = f"group {number}: {inside.sum()} rows"
        mean = curves[inside].mean(axis=0)
        (line,) = ax.plot(grid, mean, color=colour, linewidth=2.5, label=label, gid=of_group(number))
        line.set_path_effects([Stroke(linewidth=4.5, foreground="white"), Normal()])
    label = survival_text(tree, "predicted survival")
    ax.set(xlabel=time_label(tree, unit), ylabel=label, ylim=(0, 1.02), xlim=(0, grid[-1]), label="time")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="best")  # said, or a slow search for it warns
    return ax


def _shades(colour: str, n: int) -> npt.NDArray[np.float64]:
    """Mixtures of a colour with black at first and with white at last, shape (n, 3)."""
    base, share = np.array(to_rgb(colour)), np.linspace(-0.2, 0.7, n)[:, None]
    return np.where(share < 0, base * (1 + share), base + share * (1 - base))


def plot_objective(macro_iterations: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Training objective by macro iteration, one line a start; the one that ends lowest on top.

    Args:
        macro_iterations: columns ``problem``, ``macro_iteration`` and ``objective``, and ``dropped`` where
            starts left a race: ``tree.history_.macro_iterations``, or those of a whole batch.
        ax: axes to draw on; of a new figure if None.

    Raises:
        DataError: there are no records, as in a tree that was loaded.
    """
    if macro_iterations.empty:
        raise DataError("no macro iterations were recorded: a loaded tree has no history, fit it anew")
    ax = given_or_new(ax)
    ends = macro_iterations.groupby("problem")["objective"].last().astype(float)
    best = ends.idxmin()
    for number, records in macro_iterations.groupby("problem"):
        is_best = number == best
        dropped = "dropped" in records and bool(records["dropped"].astype(bool).any())
        ax.plot(
            records["macro_iteration"].astype(int),
            records["objective"].astype(float),
            color=COLOURS[0] if is_best else "#aaaaaa",
            linestyle=":" if dropped else "-",
            linewidth=2.2 if is_best else 0.9,
            marker="o" if is_best else None,
            markersize=4,
            zorder=3 if is_best else 2,
        )
    ax.set(xlabel="macro iteration", ylabel="training objective")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_routing_sharpness(leaf_proba: npt.ArrayLike, group: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Sharpness of the routing: share of the rows whose own group has at least a given probability.

    Where the gates are sharp, the lines stay at one up to the right edge; soft gates let them fall early, and
    predictions from one group then say less than the average of all groups would.

    Args:
        leaf_proba: shape (n, L), rows sum to one: ``tree.predict_leaf_proba(X)``.
        group: of each row, 1 .. L, shape (n,): ``tree.apply(X)``.
        ax: axes to draw on; of a new figure if None.

    Raises:
        DataError: no array of probabilities that sum to one, or not one group for each row.
    """
    proba = np.asarray(leaf_proba, dtype=np.float64)
    if proba.ndim != 2 or proba.size == 0 or not np.allclose(proba.sum(axis=1), 1.0, atol=1e-4):
        raise DataError(f"leaf_proba must be (n, L) with rows that sum to one, got shape {proba.shape}")
    groups = np.asarray(group)
    if groups.shape != (len(proba),) or not np.isin(groups, np.arange(1, proba.shape[1] + 1)).all():
        raise DataError(f"group must be a number of 1 to {proba.shape[1]} for each of {len(proba)} rows")
    ax = given_or_new(ax)
    probability = proba[np.arange(len(proba)), groups - 1]
    for number in np.unique(groups):
        values = np.sort(probability[groups == number])
        share = 1.0 - np.arange(len(values)) / len(values)
        ax.step(
            np.concatenate([[0.0], values, [1.0]]),
            np.concatenate([[1.0], share, [0.0]]),
            where="pre",
            color=colour_of(int(number)),
            linewidth=1.8,
            label=f"group {number}: {len(values)} rows, mean {values.mean():.2f}",
        )
    ax.set(
        xlabel="probability of the own group, at least",
        ylabel="share of its rows",
        xlim=(0, 1.005),
        ylim=(0, 1.02),
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower left")
    return ax


def plot_calibration(
    curve: pd.DataFrame,
    predicted: npt.ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    incidence: bool = False,
    horizon: str = "",
) -> Axes:
    """Observed against predicted survival at one time, with a band, compared with the diagonal.

    Args:
        curve: columns ``predicted``, ``observed``, ``lower`` and ``upper``: of
            :func:`sstorch.metrics.calibration_curve`.
        predicted: predictions of all rows, shape (n,), drawn as a histogram below the curve, whose highest
            bar is a tenth of the axis.
        ax: axes to draw on; of a new figure if None.
        incidence: draw one minus all values: incidences, as of a competing cause.
        horizon: the time, such as "1000 days", for the labels of the axes; "" for none.

    Raises:
        ConfigError: a column is missing.
    """
    if missing := [name for name in ("predicted", "observed", "lower", "upper") if name not in curve]:
        raise ConfigError(f"curve lacks the columns {missing}; give that of metrics.calibration_curve")
    ax = given_or_new(ax, 4.8, 4.8)
    drawn = {name: curve[name] for name in ("predicted", "observed", "lower", "upper")}
    values = None if predicted is None else np.asarray(predicted, dtype=np.float64)
    what = "survival"
    if incidence:
        what, drawn = "incidence", {name: 1.0 - column for name, column in drawn.items()}
        values = None if values is None else 1.0 - values
    ax.plot([0, 1], [0, 1], color="#aaaaaa", linewidth=1.0, linestyle="--", label="perfect")
    ax.fill_between(
        drawn["predicted"], drawn["lower"], drawn["upper"], color=COLOURS[0], alpha=0.2, linewidth=0
    )
    ax.plot(drawn["predicted"], drawn["observed"], color=COLOURS[0], linewidth=2.0, label="observed")
    if values is not None:
        counts, edges = np.histogram(values, bins=_BINS, range=(0.0, 1.0))
        ax.bar(
            edges[:-1],
            _HIGHEST * counts / counts.max(),
            width=1.0 / _BINS,
            align="edge",
            color="#444444",
            alpha=0.35,
            linewidth=0,
            label="predictions",
        )
    what += f" at {horizon}" if horizon else ""
    ax.set(xlabel=f"predicted {what}", ylabel=f"observed {what}", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_parity_by_rho(scores: pd.DataFrame, unit: str = "time") -> Figure:
    """Gini index of the leaves, plain and weighted by their rows, and the penalty, against rho; train | test.

    Args:
        scores: columns ``part`` (train or test), ``rho``, ``gini``, ``gini_weighted``, ``parity``; rows of a
            rho are averaged.
        unit: of time, for the label of the penalty.
    """
    figure = ShownFigure(figsize=(9, 3.6), layout="constrained")
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


def plot_scores_by_rho(
    scores: pd.DataFrame, names: Sequence[str] = tuple(names_of("event", "accuracy")), unit: str = "time"
) -> Figure:
    """Scores against rho, one a row of panels, with the penalty on the right axis; train | test.

    Args:
        scores: columns ``part`` (train or test), ``rho``, ``parity`` and those of ``names``; rows of a rho
            are averaged.
        names: columns to draw.
        unit: of time, for the label of the penalty.
    """
    figure = ShownFigure(figsize=(9, 2.4 * len(names) + 0.4), layout="constrained")
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
    trees: Mapping[str, TreeWithCurves], parts: Mapping[str, Part], unit: str = "time"
) -> Figure:
    """Survival curves of all subjects in the colour of their leaf: a row a tree, a column a part.

    Args:
        trees: fitted, by title, such as those of several rhos.
        parts: rows, by title.
        unit: of time, for the label of the axis.
    """
    figure = ShownFigure(figsize=(4.7 * len(parts), 2.9 * len(trees)), layout="constrained")
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

"""Figures of curves: survival by leaf, calibration, training, decisions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import MaxNLocator

from sstorch._types import FloatArray
from sstorch.checks import check_tree
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.recalibration import SurvivalTree
from sstorch.plots.figures import (
    COLOURS,
    colour_of,
    given_or_new,
    outlined,
    survival_text,
    time_label,
)

# Of the histogram of predictions under a calibration curve: bins, and height of the highest bar.
_BINS, _HIGHEST = 50, 0.1
_COLUMNS = ("net_benefit", "treat_all", "treat_none")
# Of the height above 0, what is drawn below it: treating all falls without end.
_BELOW = 0.25


def plot_survival_by_leaf(
    tree: SurvivalTree,
    X: object,
    ax: Axes | None = None,
    max_curves: int = 300,
    time_unit: str | None = None,
) -> Axes:
    """Plot the survival curve of every row in the colour of its leaf, with the mean curve of each leaf.

    Darker shades within a leaf mean shorter predicted survival.

    Args:
        tree: fitted.
        X: rows.
        ax: matplotlib axes; None for a new figure.
        max_curves: maximum number of curves, evenly spaced; means use all rows.
        time_unit: unit of time for the axis label; None for that of the tree.

    Returns:
        The axes.
    """
    check_tree(tree, "falling_curves")
    leaf = tree.apply(X)
    ax = given_or_new(ax, 7, 4.5)
    grid = np.linspace(0.0, float(tree.event_times_[-1]), 101)
    curves = np.asarray(tree.falling_curves(X, grid))
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
        (line,) = ax.plot(grid, mean, color=colour, linewidth=2.5, label=label)
        outlined(line, 4.5)
    label = survival_text(tree, "predicted survival")
    ax.set(xlabel=time_label(tree, time_unit), ylabel=label, ylim=(0, 1.02), xlim=(0, grid[-1]))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="best")  # said, or a slow search for it warns
    return ax


def _shades(colour: str, n: int) -> FloatArray:
    """Mixtures of a colour with black at first and with white at last, shape (n, 3)."""
    base, share = np.array(to_rgb(colour)), np.linspace(-0.2, 0.7, n)[:, None]
    return np.where(share < 0, base * (1 + share), base + share * (1 - base))


def plot_objective(macro_iterations: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Plot the training objective by macro iteration, one line per start; the lowest final value on top.

    Args:
        macro_iterations: columns ``problem``, ``macro_iteration`` and ``objective``:
            ``tree.history_.macro_iterations``, or the records of a batch.
        ax: matplotlib axes; None for a new figure.

    Raises:
        DataError: there are no records, for example in a loaded tree.
    """
    if macro_iterations.empty:
        raise DataError("no macro iterations were recorded: a loaded tree has no history, fit it again")
    ax = given_or_new(ax)
    ends = macro_iterations.groupby("problem")["objective"].last().astype(float)
    best = ends.idxmin()
    for number, records in macro_iterations.groupby("problem"):
        is_best = number == best
        ax.plot(
            records["macro_iteration"].astype(int),
            records["objective"].astype(float),
            color=COLOURS[0] if is_best else "#aaaaaa",
            linewidth=2.2 if is_best else 0.9,
            marker="o" if is_best else None,
            markersize=4,
            zorder=3 if is_best else 2,
        )
    ax.set(xlabel="macro iteration", ylabel="training objective")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_calibration(
    curve: pd.DataFrame,
    predicted: npt.ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    incidence: bool = False,
    horizon: str = "",
) -> Axes:
    """Plot observed against predicted survival at one time, with a confidence band and the diagonal.

    Args:
        curve: columns ``predicted``, ``observed``, ``lower`` and ``upper``, from
            :func:`sstorch.metrics.calibration_curve`.
        predicted: predictions of all rows, shape (n,), drawn as a histogram below the curve; its highest bar
            is a tenth of the axis.
        ax: matplotlib axes; None for a new figure.
        incidence: True draws one minus all values, the incidence, for example of a competing cause.
        horizon: time, such as "1000 days", for the axis labels; "" for none.

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


def plot_decision_curve(table: pd.DataFrame, ax: Axes | None = None, *, horizon: str = "") -> Axes:
    """Plot the decision curve: net benefit against the risk threshold, with treating all and treating none.

    The curve has gaps at undefined values. The axis ends at the highest threshold at which a row is treated.

    Args:
        table: a row per threshold, of :func:`sstorch.metrics.net_benefit`.
        ax: matplotlib axes; None for a new figure.
        horizon: time of the risk, such as "1500 days", for the axis label; "" for none.

    Raises:
        ConfigError: a column is missing.
    """
    if missing := [name for name in _COLUMNS if name not in table]:
        raise ConfigError(f"table lacks the columns {missing}; give that of metrics.net_benefit")
    ax = given_or_new(ax, 5.6, 4.2)
    if "n_above" in table and (table["n_above"] > 0).any():
        table = table.loc[: table.index[table["n_above"] > 0].max()]
    at = table.index.to_numpy()
    ax.plot(at, table["treat_all"], color="#8a8a8a", linewidth=1.5, label="treat all")
    ax.plot(at, table["treat_none"], color="#444444", linewidth=1.0, linestyle="--", label="treat none")
    ax.plot(at, table["net_benefit"], color=COLOURS[0], linewidth=2.0, label="treat by the model")
    top = max(float(table[["net_benefit", "treat_all"]].max().max()), 0.0) or 0.1
    ax.set(
        xlabel=f"threshold of the risk by {horizon}" if horizon else "threshold of the risk",
        ylabel="net benefit",
        xlim=(at.min(), at.max()) if at.size > 1 else None,
        ylim=(-_BELOW * top, 1.08 * top),
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right")
    return ax
